"""Pages of what failed: an incident with its stack trace, and the forms that put it or a single task right."""

from datetime import UTC, datetime

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from kikwiflow_worker.errors import KikwiflowError, NotFoundError, OperationError
from kikwiflow_worker.management.backend import Caller, Operator, Viewer
from kikwiflow_worker.management.privacy import check_writes, policy_for
from kikwiflow_worker.management.problems import problem_of
from kikwiflow_worker.management.web.pages import PostedForm, done, page_router, render, text_of
from kikwiflow_worker.management.web.reading import read_object
from kikwiflow_worker.management.web.whereabouts import whereabouts_of
from kikwiflow_worker.model.nodes import ExecutableTaskNode
from kikwiflow_worker.model.runtime import ExecutableTask, Incident, IncidentStatus
from kikwiflow_worker.operations import incidents
from kikwiflow_worker.operations.incidents import get_incident

router = page_router()


@router.get("/incidents/{incident_id}")
async def show_incident(request: Request, caller: Viewer, incident_id: str) -> HTMLResponse:
    """Show what failed, why, and what can be done."""
    incident = await get_incident(caller.services, incident_id)
    return render(
        request,
        "incident.html",
        caller=caller,
        incident=incident,
        where=(await whereabouts_of(caller, [incident]))[incident.id],
        policy=await policy_for(caller, incident),
        task=await caller.services.reads.find_task(incident.task_id),
        is_open=incident.status is IncidentStatus.OPEN,
        can_skip=await _can_skip(caller, incident),
    )


@router.get("/incidents/{incident_id}/retry")
async def ask_retry(request: Request, caller: Operator, incident_id: str) -> HTMLResponse:
    """Show the form that lets the failed step run again."""
    incident = await get_incident(caller.services, incident_id)
    return await _resolve_page(request, caller, incident, skip=False)


@router.get("/incidents/{incident_id}/skip")
async def ask_skip(request: Request, caller: Operator, incident_id: str) -> HTMLResponse:
    """Show the form that lets the path go on without the step."""
    incident = await get_incident(caller.services, incident_id)
    return await _resolve_page(request, caller, incident, skip=True)


@router.post("/incidents/{incident_id}/retry")
async def retry(request: Request, caller: Operator, form: PostedForm, incident_id: str) -> Response:
    """Let the step run again, with variables set before if some were given."""
    return await _resolve(request, caller, form, incident_id, skip=False)


@router.post("/incidents/{incident_id}/skip")
async def skip(request: Request, caller: Operator, form: PostedForm, incident_id: str) -> Response:
    """Let the path go on as if the step had run, with the variables that it would have set."""
    return await _resolve(request, caller, form, incident_id, skip=True)


@router.get("/instances/{instance_id}/tasks/{task_id}/override")
async def ask_override(
    request: Request, caller: Operator, instance_id: str, task_id: str
) -> HTMLResponse:
    """Show the form that gives a task other attempts or another due time."""
    task = await _task_of(caller, instance_id, task_id)
    return render(request, "task_override.html", caller=caller, task=task, given={}, problem=None)


@router.post("/instances/{instance_id}/tasks/{task_id}/override")
async def override(
    request: Request, caller: Operator, form: PostedForm, instance_id: str, task_id: str
) -> Response:
    """Give the task what the form says; a field left empty changes nothing."""
    task = await _task_of(caller, instance_id, task_id)
    given = {name: text_of(form, name) for name in ("retries", "due_at")}
    try:
        await incidents.override_task(
            caller.services,
            task_id,
            retries=_read_attempts(given["retries"]),
            due_at=_read_due(given["due_at"], caller.services.runtime.now()),
            by=caller.identity.actor,
        )
    except NotFoundError:
        raise
    except KikwiflowError as error:
        problem = problem_of(error)
        return render(
            request,
            "task_override.html",
            caller=caller,
            status=problem.status,
            task=task,
            given=given,
            problem=problem.detail,
        )
    return done(request, f"Changed the task at {task.node_id}.", "instances", instance_id)


async def _resolve_page(
    request: Request,
    caller: Caller,
    incident: Incident,
    *,
    skip: bool,
    given: str = "",
    problem: str | None = None,
    status: int = 200,
) -> HTMLResponse:
    return render(
        request,
        "incident_resolve.html",
        caller=caller,
        status=status,
        incident=incident,
        where=(await whereabouts_of(caller, [incident]))[incident.id],
        message=(await policy_for(caller, incident)).message(incident.message),
        skip=skip,
        given=given,
        problem=problem,
    )


async def _resolve(
    request: Request, caller: Caller, form: PostedForm, incident_id: str, *, skip: bool
) -> Response:
    incident = await get_incident(caller.services, incident_id)
    given = text_of(form, "variables")
    try:
        values = read_object("Variables", given)
        await check_writes(caller, incident.instance_id, values)
        await incidents.resolve(
            caller.services,
            incident_id,
            variables=values,
            skip=skip,
            resolved_by=caller.identity.actor,
        )
    except KikwiflowError as error:
        problem = problem_of(error)
        return await _resolve_page(
            request,
            caller,
            incident,
            skip=skip,
            given=given,
            problem=problem.detail,
            status=problem.status,
        )
    message = "Skipped: the path goes on." if skip else "The step is due again."
    return done(request, message, "instances", incident.instance_id)


async def _can_skip(caller: Caller, incident: Incident) -> bool:
    definition = await caller.services.definitions.find(incident.definition_id)
    node = definition.flow_nodes.get(incident.node_id) if definition else None
    return isinstance(node, ExecutableTaskNode)


async def _task_of(caller: Caller, instance_id: str, task_id: str) -> ExecutableTask:
    """Return a task of an instance.

    Raises:
        NotFoundError: It has none with this id.
    """
    task = await caller.services.reads.find_task(task_id)
    if task is None or task.instance_id != instance_id:
        raise NotFoundError(f"instance {instance_id} has no task {task_id} any more")
    return task


def _read_attempts(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or len(text) > 9:
        raise OperationError(f"the attempts left must be a number, not {text[:40]!r}")
    return int(text)


def _read_due(text: str, now: datetime) -> datetime | None:
    """Return an instant; ``now`` is one, and a time without a zone is in UTC.

    Raises:
        OperationError: It is none.
    """
    if not text:
        return None
    if text.lower() == "now":
        return now
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise OperationError(
            f"the due time must be like 2026-11-30 18:00 (UTC) or now, not {text[:40]!r}"
        ) from None
    return at.replace(tzinfo=at.tzinfo or UTC)
