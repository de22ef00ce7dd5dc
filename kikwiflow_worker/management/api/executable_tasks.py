"""Routes of executable tasks: work that is due, waits or runs."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from kikwiflow_worker.errors import NotFoundError
from kikwiflow_worker.management.api.filters import (
    AtNode,
    OfDefinitionKey,
    OfHandler,
    OfInstance,
    OfTenant,
    Where,
)
from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import (
    Body,
    CountShape,
    Cursor,
    Id,
    Instant,
    Limit,
    PageOf,
    TaskShape,
    shown,
    shown_page,
)
from kikwiflow_worker.management.backend import Operator, Viewer
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.model.runtime import TaskStatus, TaskType
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.operations import incidents
from kikwiflow_worker.operations.incidents import MAX_ATTEMPTS
from kikwiflow_worker.store.search import TaskSearch, TimerSearch, only

router = APIRouter(tags=["executable tasks"])


class Override(Body):
    """What to change of a task; at least one of the two."""

    retries: int | None = Field(None, ge=1, le=MAX_ATTEMPTS, description="Attempts left.")
    due_date: Instant | None = None


@router.get("/executable-tasks", operation_id="listExecutableTasks")
async def list_tasks(  # noqa: PLR0913 - each is one filter
    caller: Viewer,
    where: Where,
    *,
    handler_name: OfHandler = None,
    status: TaskStatus | None = None,
    type: TaskType | None = None,  # noqa: A002 - the field's name
    retrying: Annotated[
        bool, Query(description="Only those that failed and wait for another attempt.")
    ] = False,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> PageOf[TaskShape]:
    """List executable tasks, oldest first."""
    query = TaskSearch(
        **where.narrowed(),
        handler_name=handler_name,
        statuses=only(status),
        types=only(type),
        retrying=retrying,
    )
    page = await caller.services.searches.search_tasks(query, limit=limit, cursor=cursor)
    return await shown_page(caller, page, TaskShape.of)


@router.get("/executable-tasks/count", operation_id="countExecutableTasks")
async def count_tasks(
    caller: Viewer,
    where: Where,
    *,
    handler_name: OfHandler = None,
    status: TaskStatus | None = None,
) -> CountShape:
    """Count executable tasks; a count stops at a cap and says so."""
    query = TaskSearch(**where.narrowed(), handler_name=handler_name, statuses=only(status))
    return CountShape.of(await caller.services.searches.count_tasks(query))


@router.get(
    "/executable-tasks/{task_id}",
    operation_id="getExecutableTask",
    responses=refuses(Code.NOT_FOUND),
)
async def get_task(caller: Viewer, task_id: Id) -> TaskShape:
    """Return an executable task."""
    check_texts(task_id=task_id)
    task = await caller.services.reads.find_task(task_id)
    if task is None:
        raise NotFoundError(
            f"no executable task has the id {task_id}; it is done, or the id is wrong"
        )
    return await shown(caller, task, TaskShape.of)


@router.put(
    "/executable-tasks/{task_id}/retries",
    operation_id="overrideExecutableTask",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT),
)
async def override(caller: Operator, task_id: Id, body: Override) -> TaskShape:
    """Give a task other attempts or another due time; one that waits for a person waits for a worker again."""
    task = await incidents.override_task(
        caller.services,
        task_id,
        retries=body.retries,
        due_at=body.due_date,
        by=caller.identity.actor,
    )
    return await shown(caller, task, TaskShape.of)


@router.get("/timers", operation_id="listTimers")
async def list_timers(  # noqa: PLR0913 - each is one filter
    caller: Viewer,
    *,
    process_instance_id: OfInstance = None,
    process_definition_key: OfDefinitionKey = None,
    task_definition_id: AtNode = None,
    tenant_id: OfTenant = None,
    due_before: Annotated[Instant | None, Query(alias="dueBefore")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> PageOf[TaskShape]:
    """List timers that have not fired, the next one first."""
    query = TimerSearch(
        instance_id=process_instance_id,
        definition_keys=only(process_definition_key),
        node_id=task_definition_id,
        tenant_id=tenant_id,
        due_before=due_before,
    )
    page = await caller.services.searches.search_timers(query, limit=limit, cursor=cursor)
    return await shown_page(caller, page, TaskShape.of)
