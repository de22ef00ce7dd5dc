"""Routes that go on telling what changes, as server-sent events.

Every message has an ``id``; a client that gives the last one back as ``Last-Event-ID``, as browsers do by themselves, gets what
has changed since, and no state that it knows already. A stream ends after five minutes, when the server stops, or when its
reader would not be let in any more: come back.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Header, Query, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from kikwiflow_worker.errors import NotFoundError, StoreUnavailableError
from kikwiflow_worker.management.api.definitions import find_version
from kikwiflow_worker.management.api.filters import OfDefinitionKey
from kikwiflow_worker.management.api.instance_views import event_shape
from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import (
    CountShape,
    Id,
    IncidentShape,
    Shape,
    shown_page,
)
from kikwiflow_worker.management.backend import Caller, Viewer
from kikwiflow_worker.management.feeds import (
    HEARTBEAT_S,
    LONGEST_INTERVAL_S,
    SHORTEST_INTERVAL_S,
    Feeds,
    Watched,
)
from kikwiflow_worker.management.privacy import policy_of
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.model.runtime import ExecutableTask, Incident, ProcessInstance
from kikwiflow_worker.operations import instances
from kikwiflow_worker.store.search import (
    ENDED,
    Count,
    IncidentSearch,
    InstanceSearch,
    NodeFigures,
    Standing,
    TaskSearch,
    TimelineEvent,
    only,
)
from kikwiflow_worker.store.views import Page

router = APIRouter(tags=["streams"])

T = TypeVar("T")

RETRY_MS = 3_000
"""How long a browser waits before it comes back."""

NEWEST = 20
_TASKS = 100
_EVENTS = 100

LATE = timedelta(seconds=5)
"""A commit under way may still store events of an instant up to so long ago: they are looked for, and told, later."""

Interval = Annotated[
    float,
    Query(
        ge=SHORTEST_INTERVAL_S,
        le=LONGEST_INTERVAL_S,
        description="Seconds between two looks; many who watch the same share them.",
    ),
]
LastId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", max_length=500, description="The id of the last message."),
]
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream of server-sent events, each with an id and JSON as its data.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


class StandingShape(Shape):
    """How many paths stand at a node, and how many of them wait for a person after a failure."""

    tokens: int
    failed: int


class InstanceState(Shape):
    """Message ``state`` of an instance's stream: sent at first, and when anything of the instance has changed."""

    id: str
    status: str
    ended_at: datetime | None
    active_nodes: dict[str, StandingShape]
    open_incidents: CountShape


class LiveMetrics(Shape):
    """Figures of a node; ``isCapped`` if there may be more than is counted."""

    running: int
    fail: int
    average_seconds: float | None
    is_capped: bool


class DefinitionState(Shape):
    """Message ``state`` of a definition's stream: instances that run, and figures of each node."""

    id: str
    running: CountShape
    flow_nodes: dict[str, LiveMetrics]


class IncidentsState(Shape):
    """Message ``state`` of the stream of incidents: how many are open, and the newest of them."""

    open: CountShape
    newest: list[IncidentShape]


@dataclass(frozen=True, slots=True)
class _SeenInstance:
    instance: ProcessInstance
    standing: Mapping[str, Standing]
    tasks: Page[ExecutableTask]
    incidents: Count
    events: Page[TimelineEvent]


@dataclass(slots=True)
class _Told:
    """What one reader knows: a state by its fingerprint, and the events up to a cursor with some that came after it."""

    state: str = ""
    cursor: str | None = None
    events: dict[str, datetime] = field(default_factory=dict)

    @classmethod
    def from_id(cls, last_id: str | None) -> "_Told":
        state, _, cursor = (last_id or "").partition(".")
        return cls(state, cursor or None)

    @property
    def id(self) -> str:
        return f"{self.state}.{self.cursor or ''}"

    def news(self, page: Page[TimelineEvent], now: datetime) -> Iterator[TimelineEvent]:
        """Yield the events that are new; what may still be joined by late ones is looked at again."""
        is_settled = True  # and so is all before it, whatever the clock of its host said
        for entry in page.items:
            is_new = entry.event.id not in self.events
            is_late = entry.event.timestamp < now - LATE
            is_settled = is_settled and (is_late or page.next_cursor is not None)
            if is_settled:
                self.cursor = entry.cursor
                self.events.pop(entry.event.id, None)
            else:
                self.events[entry.event.id] = entry.event.timestamp
            if is_new:
                yield entry


@router.get(
    "/process-instances/{instance_id}/stream",
    operation_id="streamInstance",
    response_model=None,
    responses={**_STREAM, 204: {"description": "It has ended, and the client knows that."}}
    | refuses(Code.NOT_FOUND, Code.TOO_MANY_STREAMS),
    openapi_extra={"x-stream": True},
)
async def stream_instance(
    request: Request,
    caller: Viewer,
    instance_id: Id,
    *,
    interval: Interval = 2.0,
    with_events: Annotated[
        bool, Query(alias="events", description="Tell what happened as well, from the beginning.")
    ] = True,
    after: Annotated[
        str | None, Query(max_length=400, description="The cursor of an event: tell later ones.")
    ] = None,
    last_id: LastId = None,
) -> Response:
    """Follow an instance: message ``state`` when anything of it has changed, ``event`` for each event, ``end`` at its end."""
    feeds = _feeds(request)
    told = _Told.from_id(last_id)
    told.cursor = told.cursor or after
    seen = await _look_at_instance(caller, instance_id, told.cursor, with_events)
    has_ended = seen.instance.status in ENDED and not seen.events.items
    if has_ended and told.state == feeds.fingerprint(_state_of(seen)):
        return Response(status_code=204)
    return _respond(_follow_instance(feeds, caller, instance_id, told, interval, with_events))


async def _look_at_instance(
    caller: Caller, instance_id: str, cursor: str | None, with_events: bool
) -> _SeenInstance:
    searches = caller.services.searches
    no_events: Page[TimelineEvent] = Page((), None)
    instance = await instances.get_instance(caller.services, instance_id)
    return _SeenInstance(
        instance=instance,
        standing=await searches.find_standing(instance_id),
        tasks=await searches.search_tasks(TaskSearch(instance_id=instance_id), limit=_TASKS),
        incidents=await searches.count_incidents(IncidentSearch(instance_id=instance_id)),
        events=await searches.list_events(instance_id, limit=_EVENTS, cursor=cursor)
        if with_events
        else no_events,
    )


async def _follow_instance(
    feeds: Feeds,
    caller: Caller,
    instance_id: str,
    told: _Told,
    interval: float,
    with_events: bool,
) -> AsyncGenerator[ServerSentEvent, None]:
    def next_look() -> Watched[_SeenInstance]:
        cursor = told.cursor
        key = ("instance", caller.identity.tenant_id, instance_id, cursor, with_events)
        return Watched(key, lambda: _look_at_instance(caller, instance_id, cursor, with_events))

    try:
        async for seen in feeds.follow(next_look, interval, caller.is_still_let_in):
            try:
                policy = await policy_of(caller, seen.instance)
            except StoreUnavailableError:
                continue
            now = caller.services.runtime.now()
            for entry in told.news(seen.events, now):
                yield _message("event", event_shape(entry, policy), told)
            fingerprint = feeds.fingerprint(_state_of(seen))
            if fingerprint != told.state:
                told.state = fingerprint
                yield _message("state", _instance_state(seen), told)
            if seen.instance.status in ENDED and not told.events and not seen.events.next_cursor:
                yield ServerSentEvent(event="end", data="{}", id=told.id, retry=RETRY_MS)
                return
    except NotFoundError:
        return


def _state_of(seen: _SeenInstance) -> object:
    return seen.instance, sorted(seen.standing.items()), seen.tasks.items, seen.incidents


def _instance_state(seen: _SeenInstance) -> InstanceState:
    return InstanceState(
        id=seen.instance.id,
        status=seen.instance.status.value,
        ended_at=seen.instance.ended_at,
        active_nodes={
            node_id: StandingShape(tokens=each.tokens, failed=each.failed)
            for node_id, each in sorted(seen.standing.items())
        },
        open_incidents=CountShape.of(seen.incidents),
    )


@router.get(
    "/process-definitions/{definition_id}/stream",
    operation_id="streamDefinition",
    response_model=None,
    responses=_STREAM | refuses(Code.DEFINITION_NOT_FOUND, Code.TOO_MANY_STREAMS),
    openapi_extra={"x-stream": True},
)
@router.get(
    "/pulse/process-definition/{definition_id}/snapshot/stream",
    operation_id="streamDefinitionStats",
    response_model=None,
    responses=_STREAM | refuses(Code.DEFINITION_NOT_FOUND, Code.TOO_MANY_STREAMS),
    openapi_extra={"x-stream": True},
    deprecated=True,
)
async def stream_definition(
    request: Request,
    caller: Viewer,
    definition_id: Id,
    *,
    interval: Interval = 2.0,
    last_id: LastId = None,
) -> Response:
    """Follow the live counts of one version: message ``state`` when they have changed."""
    node_ids = tuple((await find_version(caller, definition_id)).flow_nodes)
    tenant_id = caller.identity.tenant_id

    async def look() -> tuple[Count, Mapping[str, NodeFigures]]:
        searches = caller.services.searches
        running = await searches.count_instances(InstanceSearch(definition_ids=(definition_id,)))
        return running, await searches.measure_nodes(definition_id, node_ids)

    async def shape(found: tuple[Count, Mapping[str, NodeFigures]]) -> Shape:
        running, figures = found
        return DefinitionState(
            id=definition_id,
            running=CountShape.of(running),
            flow_nodes={node_id: _live(each) for node_id, each in figures.items()},
        )

    watched = Watched(("definition", tenant_id, definition_id), look)
    return _respond(_follow_state(_feeds(request), caller, watched, shape, interval, last_id))


def _live(figures: NodeFigures) -> LiveMetrics:
    return LiveMetrics(
        running=figures.tokens.value,
        fail=figures.incidents.value,
        average_seconds=figures.average.total_seconds() if figures.average is not None else None,
        is_capped=figures.tokens.is_capped or figures.incidents.is_capped,
    )


@router.get(
    "/incidents/stream",
    operation_id="streamIncidents",
    response_model=None,
    responses=_STREAM | refuses(Code.TOO_MANY_STREAMS),
    openapi_extra={"x-stream": True},
)
async def stream_incidents(
    request: Request,
    caller: Viewer,
    *,
    process_definition_key: OfDefinitionKey = None,
    interval: Interval = 2.0,
    last_id: LastId = None,
) -> Response:
    """Follow the open incidents: message ``state`` when there are others."""
    keys = only(process_definition_key)
    query = IncidentSearch(definition_keys=keys)

    async def look() -> tuple[Count, Page[Incident]]:
        searches = caller.services.searches
        newest = await searches.search_incidents(query, limit=NEWEST)
        return await searches.count_incidents(query), newest

    async def shape(found: tuple[Count, Page[Incident]]) -> Shape:
        open_ones, newest = found
        page = await shown_page(caller, replace(newest, next_cursor=None), IncidentShape.of)
        return IncidentsState(open=CountShape.of(open_ones), newest=page.items)

    watched = Watched(("incidents", caller.identity.tenant_id, keys), look)
    return _respond(_follow_state(_feeds(request), caller, watched, shape, interval, last_id))


Shaping = Callable[[T], Awaitable[Shape]]


async def _follow_state(
    feeds: Feeds,
    caller: Caller,
    watched: Watched[T],
    shape: Shaping[T],
    interval: float,
    last_id: str | None,
) -> AsyncGenerator[ServerSentEvent, None]:
    told = _Told.from_id(last_id)
    async for found in feeds.follow(lambda: watched, interval, caller.is_still_let_in):
        fingerprint = feeds.fingerprint(found)
        if fingerprint == told.state:
            continue
        try:
            state = await shape(found)
        except StoreUnavailableError:
            continue
        told.state = fingerprint
        yield _message("state", state, told)


def _message(name: str, shape: Shape, told: _Told) -> ServerSentEvent:
    data = shape.model_dump_json(by_alias=True)
    return ServerSentEvent(event=name, data=data, id=told.id, retry=RETRY_MS)


def _respond(messages: AsyncGenerator[ServerSentEvent, None]) -> Response:
    return EventSourceResponse(messages, ping=HEARTBEAT_S)


def _feeds(request: Request) -> Feeds:
    feeds: Feeds = request.app.state.feeds
    feeds.check_room()
    return feeds
