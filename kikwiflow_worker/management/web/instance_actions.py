"""Forms that change an instance: its life, its version and its variables."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, Response

from kikwiflow_worker.errors import KikwiflowError, NotFoundError
from kikwiflow_worker.management.backend import Operator
from kikwiflow_worker.management.privacy import policy_of
from kikwiflow_worker.management.problems import problem_of
from kikwiflow_worker.management.web.pages import PostedForm, done, page_router, render, text_of
from kikwiflow_worker.management.web.typed_values import KINDS, kind_of, read_typed, typed_text
from kikwiflow_worker.operations import instances, migration, variables
from kikwiflow_worker.operations.instances import get_running

router = page_router()

Name = Annotated[str, Query(max_length=255)]


@router.get("/instances/{instance_id}/cancel")
async def ask_cancel(request: Request, caller: Operator, instance_id: str) -> HTMLResponse:
    """Ask whether the instance is to be cancelled."""
    instance = await get_running(caller.services, instance_id)
    return render(request, "instance_cancel.html", caller=caller, instance=instance)


@router.post("/instances/{instance_id}/cancel")
async def cancel(request: Request, caller: Operator, _: PostedForm, instance_id: str) -> Response:
    """Cancel it with all its tasks and children."""
    await instances.cancel(caller.services, instance_id, cancelled_by=caller.identity.actor)
    return done(request, "Cancelled.", "instances", instance_id)


@router.get("/instances/{instance_id}/suspend")
async def ask_suspend(request: Request, caller: Operator, instance_id: str) -> HTMLResponse:
    """Ask whether the instance is to rest."""
    instance = await get_running(caller.services, instance_id)
    return render(request, "instance_suspend.html", caller=caller, instance=instance, rest=True)


@router.post("/instances/{instance_id}/suspend")
async def suspend(request: Request, caller: Operator, _: PostedForm, instance_id: str) -> Response:
    """Let it rest."""
    await instances.suspend(caller.services, instance_id)
    return done(request, "Suspended: steps under way are finished, none begins.", "instances", instance_id)  # fmt: skip


@router.get("/instances/{instance_id}/resume")
async def ask_resume(request: Request, caller: Operator, instance_id: str) -> HTMLResponse:
    """Ask whether the instance is to go on."""
    instance = await get_running(caller.services, instance_id)
    return render(request, "instance_suspend.html", caller=caller, instance=instance, rest=False)


@router.post("/instances/{instance_id}/resume")
async def resume(request: Request, caller: Operator, _: PostedForm, instance_id: str) -> Response:
    """Let it go on."""
    await instances.resume(caller.services, instance_id)
    return done(request, "It goes on.", "instances", instance_id)


@router.get("/instances/{instance_id}/migrate")
async def ask_migrate(
    request: Request,
    caller: Operator,
    instance_id: str,
    version: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> HTMLResponse:
    """Show the versions to choose from; with one chosen, whether the instance could go on with it: nothing is changed."""
    instance = await get_running(caller.services, instance_id)
    versions = await caller.services.reads.list_definitions(key=instance.definition_key)
    others = [each for each in versions if each.version != instance.definition_version]
    verdict, problem = None, None
    if version is not None:
        try:
            verdict = await migration.migrate(
                caller.services, instance_id, version=version, dry_run=True
            )
        except KikwiflowError as error:
            problem = problem_of(error).detail
    return render(
        request,
        "instance_migrate.html",
        caller=caller,
        instance=instance,
        versions=others,
        chosen=version,
        verdict=verdict,
        problem=problem,
    )


@router.post("/instances/{instance_id}/migrate")
async def migrate(
    request: Request, caller: Operator, form: PostedForm, instance_id: str
) -> Response:
    """Let it go on with the version chosen, if it can."""
    chosen = text_of(form, "version")
    version = int(chosen) if chosen.isdecimal() and len(chosen) < 10 else None
    verdict = await migration.migrate(caller.services, instance_id, version=version, dry_run=False)
    message = (
        f"It goes on with version {verdict.to_version}."
        if verdict.migrated
        else f"Not moved: {'; '.join(verdict.problems)}."
    )
    return done(request, message, "instances", instance_id)


@router.get("/instances/{instance_id}/variables")
async def edit_variable(
    request: Request, caller: Operator, instance_id: str, name: Name = ""
) -> HTMLResponse:
    """Show the form that sets a variable, with its present value if there is one and it may be seen."""
    instance = await get_running(caller.services, instance_id)
    policy = await policy_of(caller, instance)
    is_there = name in instance.variables
    visible = policy.visible(instance.variables)
    value = visible.get(name)
    return render(
        request,
        "variable.html",
        caller=caller,
        instance=instance,
        name=name,
        is_there=is_there,
        is_masked=is_there and name not in visible,
        value=typed_text(value) if name in visible else "",
        kind=kind_of(value) if name in visible else "json",
        kinds=KINDS,
        problem=None,
    )


@router.post("/instances/{instance_id}/variables")
async def set_variable(
    request: Request, caller: Operator, form: PostedForm, instance_id: str
) -> Response:
    """Set one variable; a value that cannot be read or stored is shown again with what is wrong with it."""
    name, text, kind = text_of(form, "name"), str(form.get("value", "")), text_of(form, "kind")
    instance = await get_running(caller.services, instance_id)
    try:
        value = read_typed("The value", text, kind)
        (await policy_of(caller, instance)).check_writes([name])
        await variables.set_variables(
            caller.services, instance_id, {name: value}, actor=caller.identity.actor
        )
    except NotFoundError:
        raise
    except KikwiflowError as error:
        problem = problem_of(error)
        return render(
            request,
            "variable.html",
            caller=caller,
            status=problem.status,
            instance=instance,
            name=name,
            is_there=name in instance.variables,
            is_masked=False,
            value=text,
            kind=kind,
            kinds=KINDS,
            problem=problem.detail,
        )
    return done(request, f"Set {name}.", "instances", instance_id)


@router.get("/instances/{instance_id}/variables/remove")
async def ask_unset(
    request: Request, caller: Operator, instance_id: str, name: Name
) -> HTMLResponse:
    """Ask whether a variable is to be removed."""
    instance = await get_running(caller.services, instance_id)
    return render(request, "variable_remove.html", caller=caller, instance=instance, name=name)


@router.post("/instances/{instance_id}/variables/remove")
async def unset(request: Request, caller: Operator, form: PostedForm, instance_id: str) -> Response:
    """Remove it."""
    name = text_of(form, "name")
    instance = await get_running(caller.services, instance_id)
    (await policy_of(caller, instance)).check_writes([name])
    await variables.unset_variables(
        caller.services, instance_id, (name,), actor=caller.identity.actor
    )
    return done(request, f"Removed {name}.", "instances", instance_id)
