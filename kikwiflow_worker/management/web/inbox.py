"""The inbox of external tasks: what people have to do, and what waits for a message."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, Response

from kikwiflow_worker.errors import KikwiflowError, NotFoundError
from kikwiflow_worker.management.api.shapes import Cursor
from kikwiflow_worker.management.backend import Caller, Operator, Viewer
from kikwiflow_worker.management.privacy import policy_of
from kikwiflow_worker.management.problems import problem_of
from kikwiflow_worker.management.web.completion_form import decisions_of, values_in
from kikwiflow_worker.management.web.pages import PostedForm, done, page_router, render
from kikwiflow_worker.management.web.whereabouts import find_definition, whereabouts_of
from kikwiflow_worker.model.runtime import ExternalTask, ExternalTaskType
from kikwiflow_worker.operations import external_tasks, instances
from kikwiflow_worker.store.search import ExternalTaskSearch

router = page_router()

ROWS = 25
Filter = Annotated[str, Query(max_length=500)]

SHOWN = {
    "open": "Unclaimed",
    "mine": "Mine",
    "people": "All",
    "all": "With messages",
}
"""What the inbox can show, and how it is called."""


@router.get("/tasks")
async def inbox(
    request: Request,
    caller: Viewer,
    show: Annotated[str, Query(pattern="^(open|mine|people|all)$")] = "open",
    definition: Filter = "",
    cursor: Cursor = None,
) -> HTMLResponse:
    """List what waits for somebody outside, the oldest first."""
    query = ExternalTaskSearch(
        definition_keys=(definition,) if definition else (),
        assignee=caller.identity.actor if show == "mine" else None,
        unassigned=show == "open",
        for_people=show != "all",
    )
    searches = caller.services.searches
    page = await searches.search_external_tasks(query, limit=ROWS, cursor=cursor)
    tasks = page.items
    return render(
        request,
        "inbox.html",
        caller=caller,
        tasks=tasks,
        next_cursor=page.next_cursor,
        places_of=await whereabouts_of(caller, tasks),
        deadlines=await searches.find_deadlines([task.id for task in tasks]),
        definitions=await caller.services.reads.list_definitions(),
        definition=definition,
        show=show,
        shown=SHOWN,
    )


@router.get("/tasks/{task_id}")
async def show_task(request: Request, caller: Viewer, task_id: str) -> HTMLResponse:
    """Show one task with the form that completes it."""
    return await _show(request, caller, task_id)


@router.post("/tasks/{task_id}/claim")
async def claim(request: Request, caller: Operator, _: PostedForm, task_id: str) -> Response:
    """Make the caller the one who works on it."""
    await external_tasks.claim(caller.services, task_id, assignee=caller.identity.actor)
    return done(request, "The task is yours.", "tasks", task_id)


@router.post("/tasks/{task_id}/unclaim")
async def unclaim(request: Request, caller: Operator, _: PostedForm, task_id: str) -> Response:
    """Give it back, whoever has it."""
    await external_tasks.unclaim(caller.services, task_id)
    return done(request, "The task is nobody's again.", "tasks", task_id)


@router.post("/tasks/{task_id}/complete")
async def complete(request: Request, caller: Operator, form: PostedForm, task_id: str) -> Response:
    """Complete it with what the form says; what is wrong with that is shown above the form, which keeps it."""
    given = {name: value for name, value in form.items() if isinstance(value, str)}
    try:
        task = await _open_task(caller, task_id)
        definition = await caller.services.definitions.find(task.definition_id)
        values = values_in(decisions_of(definition, task.node_id), given)
        instance = await instances.get_instance(caller.services, task.instance_id)
        (await policy_of(caller, instance)).check_writes(values)
        await external_tasks.complete(
            caller.services,
            caller.invoker,
            task_id,
            variables=values,
            completed_by=caller.identity.actor,
        )
    except NotFoundError:
        raise
    except KikwiflowError as error:
        problem = problem_of(error)
        return await _show(
            request,
            caller,
            task_id,
            given=given,
            problem=problem.detail,
            status=problem.status,
        )
    return done(request, f"Completed “{task.name or task.node_id}”.", "instances", task.instance_id)


async def _show(
    request: Request,
    caller: Caller,
    task_id: str,
    *,
    given: dict[str, str] | None = None,
    problem: str | None = None,
    status: int = 200,
) -> HTMLResponse:
    task = await _open_task(caller, task_id)
    definition = await find_definition(caller, task.definition_id)
    instance = await instances.get_instance(caller.services, task.instance_id)
    visible = (await policy_of(caller, instance)).visible(instance.variables)
    deadlines = await caller.services.searches.find_deadlines([task.id])
    return render(
        request,
        "inbox_task.html",
        caller=caller,
        status=status,
        task=task,
        where=(await whereabouts_of(caller, (task,)))[task.id],
        deadline=deadlines.get(task.id),
        pending=len(task.pending_keys),
        is_for_people=task.type is ExternalTaskType.TASK,
        decisions=decisions_of(definition, task.node_id),
        variables=visible,
        masked=sorted(instance.variables.keys() - visible.keys()),
        given=given or {},
        problem=problem,
    )


async def _open_task(caller: Caller, task_id: str) -> ExternalTask:
    """Return an open task.

    Raises:
        NotFoundError: It is not open.
    """
    task = await caller.services.runtime.find_external_task(task_id)
    if task is None:
        record = await caller.services.reads.find_completed_external_task(task_id)
        by = f" by {record.completed_by}" if record and record.completed_by else ""
        raise NotFoundError(
            f"this task was completed{by}; its instance is {record.instance_id}"
            if record
            else f"no open external task has the id {task_id}; its instance was cancelled, or the id is wrong"
        )
    return task
