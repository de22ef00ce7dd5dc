"""Routes of external tasks: what people and programs complete."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi import Body as JsonBody
from pydantic import Field

from kikwiflow_worker.errors import NotFoundError
from kikwiflow_worker.management.api.filters import (
    Where,
)
from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import (
    Body,
    CountShape,
    Cursor,
    ExternalTaskShape,
    Id,
    InstanceShape,
    Instant,
    Limit,
    NewVariable,
    PageOf,
    page_of,
    shown_instance,
    values_of,
)
from kikwiflow_worker.management.backend import Operator, Viewer
from kikwiflow_worker.management.privacy import check_writes
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.operations import external_tasks
from kikwiflow_worker.store.search import ExternalTaskSearch

router = APIRouter(prefix="/external-tasks", tags=["external tasks"])

Assignee = Annotated[str, Path(min_length=1)]


class Complete(Body):
    """What a task is completed with."""

    variables: dict[str, NewVariable] = Field(default_factory=dict)


@router.get("", operation_id="listExternalTasks")
async def list_external_tasks(  # noqa: PLR0913 - each is one filter
    caller: Viewer,
    where: Where,
    *,
    assignee: str | None = None,
    unassigned: bool = False,
    for_people: Annotated[
        bool, Query(alias="forPeople", description="Leave out the waits for messages.")
    ] = False,
    correlation_key: Annotated[str | None, Query(alias="correlationKey")] = None,
    due_before: Annotated[
        Instant | None,
        Query(alias="dueBefore", description="Only those that a timer ends before it, by urgency."),
    ] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> PageOf[ExternalTaskShape]:
    """List open external tasks, oldest first."""
    query = ExternalTaskSearch(
        **where.narrowed(),
        assignee=assignee,
        unassigned=unassigned,
        for_people=for_people,
        correlation_key=correlation_key,
        due_before=due_before,
    )
    page = await caller.services.searches.search_external_tasks(query, limit=limit, cursor=cursor)
    return page_of(page, ExternalTaskShape)


@router.get("/count", operation_id="countExternalTasks")
async def count_external_tasks(
    caller: Viewer,
    where: Where,
    *,
    assignee: str | None = None,
    unassigned: bool = False,
) -> CountShape:
    """Count open external tasks; a count stops at a cap and says so."""
    query = ExternalTaskSearch(**where.narrowed(), assignee=assignee, unassigned=unassigned)
    return CountShape.of(await caller.services.searches.count_external_tasks(query))


@router.get("/{task_id}", operation_id="getExternalTask", responses=refuses(Code.NOT_FOUND))
async def get_external_task(caller: Viewer, task_id: Id) -> ExternalTaskShape:
    """Return an open external task."""
    check_texts(external_task_id=task_id)
    task = await caller.services.runtime.find_external_task(task_id)
    if task is None:
        raise NotFoundError(f"no open external task has the id {task_id}")
    return ExternalTaskShape.of(task)


@router.put(
    "/{task_id}/claim/{assignee}",
    status_code=204,
    operation_id="claimExternalTask",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT),
)
async def claim(caller: Operator, task_id: Id, assignee: Assignee) -> Response:
    """Make somebody the one who works on a task; again for the same one is no error."""
    await external_tasks.claim(caller.services, task_id, assignee=assignee)
    return Response(status_code=204)


@router.put(
    "/{task_id}/unclaim",
    status_code=204,
    operation_id="unclaimExternalTask",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT),
)
async def unclaim(
    caller: Operator,
    task_id: Id,
    assignee: Annotated[
        str | None, Query(min_length=1, description="Only if it is that one's.")
    ] = None,
) -> Response:
    """Give a task back."""
    await external_tasks.unclaim(caller.services, task_id, assignee=assignee)
    return Response(status_code=204)


@router.post(
    "/{task_id}/complete",
    status_code=202,
    operation_id="completeExternalTask",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT, Code.STEP_FAILED, Code.INVALID_VARIABLE),
)
async def complete(
    caller: Operator, task_id: Id, body: Annotated[Complete | None, JsonBody()] = None
) -> InstanceShape:
    """Complete a task and let its instance go on until it rests; completed twice is a conflict."""
    check_texts(external_task_id=task_id)
    given = body or Complete()
    task = await caller.services.runtime.find_external_task(task_id)
    if task is not None:
        await check_writes(caller, task.instance_id, given.variables)
    instance = await external_tasks.complete(
        caller.services,
        caller.invoker,
        task_id,
        variables=values_of(given.variables),
        completed_by=caller.identity.actor,
    )
    caller.concerns(instance_id=instance.id)
    return await shown_instance(caller, instance)
