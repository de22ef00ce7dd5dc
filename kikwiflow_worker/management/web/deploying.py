"""Forms of definitions: deploying a file, starting an instance, and letting no more instances start."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import FormData, UploadFile

from kikwiflow_worker.errors import InvalidDefinitionError, KikwiflowError, OperationError, Problem
from kikwiflow_worker.management.backend import Deployer, Operator
from kikwiflow_worker.management.graph.svg import Marks
from kikwiflow_worker.management.privacy import start_check
from kikwiflow_worker.management.problems import problem_of
from kikwiflow_worker.management.web.pages import PostedForm, done, page_router, render, text_of
from kikwiflow_worker.management.web.pictures import picture_of
from kikwiflow_worker.management.web.reading import read_object
from kikwiflow_worker.operations import deployment, instances
from kikwiflow_worker.operations.instances import StartRequest, get_definition

router = page_router()


@router.get("/deploy")
async def show_deploy(request: Request, caller: Deployer) -> HTMLResponse:
    """Show the form that takes a definition."""
    return await _deploy_page(request, caller, source="")


@router.post("/deploy")
async def deploy(request: Request, caller: Deployer, form: PostedForm) -> Response:
    """Check a definition, and deploy it if that is what was asked for; problems are shown above the form."""
    source, name = await _source_of(form)
    text = source if isinstance(source, str) else source.decode("utf-8", "replace")
    try:
        checked = deployment.check_definition(source, name=name)
    except InvalidDefinitionError as error:
        return await _deploy_page(request, caller, source=text, problems=error.problems, status=422)
    if form.get("do") != "deploy":
        return await _deploy_page(
            request, caller, source=text, problems=checked.warnings, checked=checked
        )
    stored = await deployment.deploy(caller.services, checked, activate="activate" in form)
    definition = stored.definition
    caller.concerns(definition_id=definition.id)
    message = (
        f"Deployed {definition.key} as version {definition.version}."
        if stored.created
        else f"Version {definition.version} of {definition.key} has this content already"
        f"{'' if stored.is_latest else ', and is not the latest'}."
    )
    return done(request, message, "definitions", definition.key, version=definition.version)


@router.get("/definitions/{key:path}/suspend")
async def ask_suspend(request: Request, caller: Operator, key: str) -> HTMLResponse:
    """Ask whether no more instances are to start."""
    await get_definition(caller.services, key, None)
    return render(request, "definition_suspend.html", caller=caller, key=key, suspended=True)


@router.get("/definitions/{key:path}/resume")
async def ask_resume(request: Request, caller: Operator, key: str) -> HTMLResponse:
    """Ask whether instances may start again."""
    await get_definition(caller.services, key, None)
    return render(request, "definition_suspend.html", caller=caller, key=key, suspended=False)


@router.post("/definitions/{key:path}/suspend")
async def suspend(request: Request, caller: Operator, _: PostedForm, key: str) -> Response:
    """Let no more instances start, and rest those that run."""
    changed = await instances.change_definition(caller.services, key, suspended=True)
    return done(request, f"Suspended {key} with {changed:,} running instances.", "definitions", key)


@router.post("/definitions/{key:path}/resume")
async def resume(request: Request, caller: Operator, _: PostedForm, key: str) -> Response:
    """Let instances start and go on again."""
    changed = await instances.change_definition(caller.services, key, suspended=False)
    return done(request, f"{key} goes on, with {changed:,} instances.", "definitions", key)


@router.get("/definitions/{key:path}/start")
async def ask_start(
    request: Request,
    caller: Operator,
    key: str,
    version: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> HTMLResponse:
    """Show the form that starts an instance."""
    definition = await get_definition(caller.services, key, version)
    return render(
        request,
        "start.html",
        caller=caller,
        definition=definition,
        given={},
        problem=None,
        idempotency_key=caller.services.new_id(),
    )


@router.post("/definitions/{key:path}/start")
async def start(request: Request, caller: Operator, form: PostedForm, key: str) -> Response:
    """Start an instance; sending the form twice starts one."""
    given = {name: text_of(form, name) for name in ("business_key", "variables", "version")}
    try:
        variables = read_object("Variables", given["variables"])
        version = int(given["version"]) if given["version"].isdecimal() else None
        request_ = StartRequest(
            key=key,
            business_key=given["business_key"],
            version=version,
            variables=variables,
            tenant_id=caller.identity.tenant_id,
            started_by=caller.identity.actor,
            idempotency_key=text_of(form, "idempotency_key") or None,
        )
        instance = await instances.start(
            caller.services, caller.invoker, request_, check=start_check(caller, variables)
        )
    except KikwiflowError as error:
        problem = problem_of(error)
        definition = await get_definition(caller.services, key, None)
        return render(
            request,
            "start.html",
            caller=caller,
            status=problem.status,
            definition=definition,
            given=given,
            problem=problem.detail,
            idempotency_key=caller.services.new_id(),
        )
    caller.concerns(instance_id=instance.id)
    return done(request, "The instance has started.", "instances", instance.id)


async def _deploy_page(
    request: Request,
    caller: Deployer,
    *,
    source: str,
    problems: tuple[Problem, ...] = (),
    checked: deployment.CheckedDefinition | None = None,
    status: int = 200,
) -> HTMLResponse:
    graph = (
        await picture_of(checked.file, lambda _: Marks(), title="Graph of the file")
        if checked
        else None
    )
    return render(
        request,
        "deploy.html",
        caller=caller,
        status=status,
        source=source,
        problems=problems,
        checked=checked,
        graph=graph,
    )


async def _source_of(form: FormData) -> tuple[str | bytes, str]:
    """Return the definition that a form holds, and what to call it.

    Raises:
        OperationError: It holds none.
    """
    file = form.get("file")
    if isinstance(file, UploadFile) and file.filename:
        try:
            return await file.read(), file.filename
        finally:
            await file.close()
    text = text_of(form, "source")
    if not text:
        raise OperationError("choose a .kikwi file, or paste its text")
    return text, "definition"
