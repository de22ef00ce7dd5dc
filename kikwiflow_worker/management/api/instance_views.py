"""Routes that show process instances: lists, searches, snapshots and histories."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from kikwiflow_worker.management.api.filters import (
    OfDefinition,
    OfDefinitionKey,
    OfTenant,
    StandingAt,
)
from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import (
    MAX_PAGE,
    Body,
    CountShape,
    Cursor,
    EventOrder,
    ExternalTaskShape,
    Id,
    IncidentShape,
    InstanceShape,
    Instant,
    Limit,
    Never,
    PageOf,
    Shape,
    TaskShape,
    page_of,
    shown_instance,
    shown_instances,
    shown_page,
)
from kikwiflow_worker.management.backend import Viewer
from kikwiflow_worker.management.privacy import VariablePolicy, allowed_search, policy_of
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.model.events import EventType
from kikwiflow_worker.model.plain_json import to_json
from kikwiflow_worker.model.runtime import (
    ExternalTask,
    ExternalTaskStatus,
    ExternalTaskType,
    InstanceStatus,
)
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.model.variables import normalize_all
from kikwiflow_worker.operations import instances
from kikwiflow_worker.store.search import (
    ENDED,
    ExternalTaskSearch,
    IncidentSearch,
    InstanceSearch,
    TaskSearch,
    TimelineEvent,
    only,
)

router = APIRouter(prefix="/process-instances", tags=["process instances"])

Names = list[Annotated[str, Field(min_length=1)]]


class Search(Body):
    """Which instances to find; all that is given must fit. They are found newest first.

    Running instances are found unless ``statuses`` names others. ``page``, ``size`` and totals, as Kikwiflow has them, are
    replaced by ``limit`` and ``cursor``.
    """

    process_definition_id: str | None = None
    process_definition_ids: Names = Field(default_factory=list, max_length=100)
    process_definition_keys: Names = Field(default_factory=list, max_length=100)
    active_node_id: str | None = None
    parent_instance_id: str | None = None
    tenant_id: str | None = None
    statuses: list[InstanceStatus] = Field(default_factory=list)
    business_key: str | None = None
    business_keys: Names = Field(default_factory=list, max_length=100)
    started_after: Instant | None = None
    started_before: Instant | None = None
    variables: dict[str, Any] = Field(default_factory=dict)
    variables_exist: Names = Field(default_factory=list, max_length=100)
    order_by: Literal["startedAt"] = "startedAt"
    ascending: Never = False
    limit: int = Field(20, ge=1, le=MAX_PAGE)
    cursor: str | None = Field(None, max_length=1000)


class WaitStatus(Shape):
    """How far a wait for messages is."""

    task_definition_id: str
    external_task_id: str
    match_policy: str | None
    total_correlation_keys: int
    received_count: int
    pending_correlation_keys: list[str]


class Snapshot(Shape):
    """An instance with all that it waits for; of what is very much, only the first are shown, and ``isTruncated``."""

    instance: InstanceShape
    active_nodes: list[str]
    executable_tasks: list[TaskShape]
    external_tasks: list[ExternalTaskShape]
    incidents: list[IncidentShape]
    event_catcher_wait_status: list[WaitStatus]
    is_truncated: bool


class EventShape(Shape):
    """Something that happened to an instance; ``cursor`` lists what happened after it."""

    id: str
    event_type: EventType
    process_instance_id: str
    process_definition_id: str
    tenant_id: str | None
    actor_id: str | None
    timestamp: datetime
    payload: dict[str, Any]
    cursor: str


@router.get("", operation_id="listInstances")
async def list_instances(  # noqa: PLR0913 - each is one filter
    caller: Viewer,
    *,
    process_definition_id: OfDefinition = None,
    process_definition_key: OfDefinitionKey = None,
    business_key: Annotated[str | None, Query(alias="businessKey")] = None,
    parent_instance_id: Annotated[str | None, Query(alias="parentInstanceId")] = None,
    active_node_id: StandingAt = None,
    tenant_id: OfTenant = None,
    status: InstanceStatus | None = None,
    ended: Annotated[bool, Query(description="List those that have ended.")] = False,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> PageOf[InstanceShape]:
    """List running instances, or ended ones, newest first."""
    query = InstanceSearch(
        definition_ids=only(process_definition_id),
        definition_keys=only(process_definition_key),
        business_keys=only(business_key),
        parent_id=parent_instance_id,
        node_id=active_node_id,
        tenant_id=tenant_id,
        statuses=(status,) if status else ENDED if ended else (),
    )
    page = await caller.services.searches.search_instances(query, limit=limit, cursor=cursor)
    return await shown_instances(caller, page)


@router.post("/search", operation_id="searchInstances", responses=refuses(Code.INVALID_VARIABLE))
async def search_instances(caller: Viewer, body: Search) -> PageOf[InstanceShape]:
    """Search instances. A page may hold fewer than ``limit``, even none: go on until ``nextCursor`` is null."""
    query = await allowed_search(caller, _query(body))
    page = await caller.services.searches.search_instances(
        query, limit=body.limit, cursor=body.cursor
    )
    return await shown_instances(caller, page)


@router.get("/count", operation_id="countInstances")
async def count_instances(
    caller: Viewer,
    *,
    process_definition_id: OfDefinition = None,
    process_definition_key: OfDefinitionKey = None,
    tenant_id: OfTenant = None,
    status: InstanceStatus | None = None,
) -> CountShape:
    """Count running instances, or those in one status; a count stops at a cap and says so."""
    query = InstanceSearch(
        definition_ids=only(process_definition_id),
        definition_keys=only(process_definition_key),
        tenant_id=tenant_id,
        statuses=(status,) if status else (),
    )
    return CountShape.of(await caller.services.searches.count_instances(query))


@router.get("/summary", operation_id="listInstanceSummaries", deprecated=True)
async def list_summaries(
    caller: Viewer,
    *,
    process_definition_id: OfDefinition = None,
    active_node_id: StandingAt = None,
    tenant_id: OfTenant = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> PageOf[InstanceShape]:
    """List running instances; use the list of instances."""
    query = InstanceSearch(
        definition_ids=only(process_definition_id), node_id=active_node_id, tenant_id=tenant_id
    )
    page = await caller.services.searches.search_instances(query, limit=limit, cursor=cursor)
    return await shown_instances(caller, page)


@router.get("/{instance_id}", operation_id="getInstance", responses=refuses(Code.NOT_FOUND))
async def get_instance(caller: Viewer, instance_id: Id) -> InstanceShape:
    """Return a running instance, or one that ended within the retention."""
    return await shown_instance(caller, await instances.get_instance(caller.services, instance_id))


@router.get(
    "/{instance_id}/snapshot",
    operation_id="getInstanceSnapshot",
    responses=refuses(Code.NOT_FOUND),
)
async def get_snapshot(caller: Viewer, instance_id: Id) -> Snapshot:
    """Return an instance with its tasks, waits and incidents; these are several looks, one shortly after another."""
    instance = await instances.get_instance(caller.services, instance_id)
    searches = caller.services.searches
    tasks = await searches.search_tasks(TaskSearch(instance_id=instance_id), limit=MAX_PAGE)
    waits = await searches.search_external_tasks(
        ExternalTaskSearch(instance_id=instance_id), limit=MAX_PAGE
    )
    incidents = await searches.search_incidents(
        IncidentSearch(instance_id=instance_id, status=None), limit=MAX_PAGE
    )
    standing = await searches.find_standing(instance_id)
    return Snapshot(
        instance=await shown_instance(caller, instance),
        active_nodes=sorted(standing),
        executable_tasks=(await shown_page(caller, tasks, TaskShape.of)).items,
        external_tasks=page_of(waits, ExternalTaskShape).items,
        incidents=(await shown_page(caller, incidents, IncidentShape.of)).items,
        event_catcher_wait_status=_wait_statuses(waits.items),
        is_truncated=any(page.next_cursor for page in (tasks, waits, incidents)),
    )


@router.get(
    "/{instance_id}/incidents",
    operation_id="listIncidentsOfInstance",
    responses=refuses(Code.NOT_FOUND),
)
async def list_incidents(
    caller: Viewer, instance_id: Id, limit: Limit = 20, cursor: Cursor = None
) -> PageOf[IncidentShape]:
    """List the incidents of an instance, resolved ones included, newest first."""
    await instances.get_instance(caller.services, instance_id)
    query = IncidentSearch(instance_id=instance_id, status=None)
    page = await caller.services.searches.search_incidents(query, limit=limit, cursor=cursor)
    return await shown_page(caller, page, IncidentShape.of)


@router.get("/{instance_id}/events", operation_id="listEvents", responses=refuses(Code.NOT_FOUND))
async def list_events(
    caller: Viewer,
    instance_id: Id,
    *,
    type: Annotated[list[EventType], Query(description="Only these.")] = [],  # noqa: A002, B006 - FastAPI copies it
    order: Annotated[EventOrder, Query(description="Which come first.")] = EventOrder.OLDEST,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageOf[EventShape]:
    """List what happened to an instance, running or ended, in its order; what is stored depends on the setting ``events``.

    The ``cursor`` of any event goes on behind it in the given order: with ``oldest`` to what happened after it, with
    ``newest`` to what happened before. Give that of the latest event again later to see what has happened since.
    """
    instance = await instances.get_instance(caller.services, instance_id)
    policy = await policy_of(caller, instance)
    page = await caller.services.searches.list_events(
        instance_id,
        types=tuple(type),
        newest_first=order is EventOrder.NEWEST,
        limit=limit,
        cursor=cursor,
    )
    items = [event_shape(entry, policy) for entry in page.items]
    return PageOf(items=items, next_cursor=page.next_cursor)


def _query(body: Search) -> InstanceSearch:
    texts = [*body.variables, *body.variables_exist, *body.business_keys]
    for text in (*texts, *body.process_definition_ids, *body.process_definition_keys):
        check_texts(value=text)
    return InstanceSearch(
        definition_ids=(*only(body.process_definition_id), *body.process_definition_ids),
        definition_keys=tuple(body.process_definition_keys),
        node_id=body.active_node_id,
        parent_id=body.parent_instance_id,
        tenant_id=body.tenant_id,
        statuses=tuple(dict.fromkeys(body.statuses)),
        business_keys=(*only(body.business_key), *body.business_keys),
        started_after=body.started_after,
        started_before=body.started_before,
        variables=normalize_all(body.variables),
        variables_exist=tuple(body.variables_exist),
    )


def _wait_statuses(waits: Sequence[ExternalTask]) -> list[WaitStatus]:
    matched = [wait.group_id for wait in waits if wait.status is ExternalTaskStatus.CORRELATED]
    kinds = {ExternalTaskType.CATCHER, ExternalTaskType.GROUP}
    return [
        WaitStatus(
            task_definition_id=wait.node_id,
            external_task_id=wait.id,
            match_policy=wait.match_policy,
            total_correlation_keys=wait.total_keys or 1,
            received_count=matched.count(wait.id),
            pending_correlation_keys=list(wait.pending_keys)
            or ([wait.correlation_key] if wait.correlation_key else []),
        )
        for wait in waits
        if wait.type in kinds
    ]


def event_shape(entry: TimelineEvent, policy: VariablePolicy) -> EventShape:
    """Return the document of an event as it may be shown."""
    event = entry.event
    shown = policy.event(event.type, event.payload)
    payload: dict[str, Any] = {name: to_json(value) for name, value in shown.items()}
    tenant, actor = payload.get("tenantId"), payload.get("actorId")
    return EventShape(
        id=event.id,
        event_type=event.type,
        process_instance_id=event.instance_id,
        process_definition_id=event.definition_id,
        tenant_id=tenant if isinstance(tenant, str) else None,
        actor_id=actor if isinstance(actor, str) else None,
        timestamp=event.timestamp,
        payload=payload,
        cursor=entry.cursor,
    )
