"""What happened to one instance, and where it stands: from its events and its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from bson.timestamp import Timestamp

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.model.events import EventType, NodeStatus, OutboxEvent
from kikwiflow_worker.model.runtime import TaskStatus
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.store.mongo.driver import Collection, Document, fetched, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.keyset import (
    decode_parts,
    encode_parts,
    instant,
    unknown_cursor,
)
from kikwiflow_worker.store.mongo.places import is_token
from kikwiflow_worker.store.mongo.relay_documents import parse_sequence, sequence_text
from kikwiflow_worker.store.mongo.sealing import Sealing, find_text
from kikwiflow_worker.store.mongo.search_base import MAX_PAGE, SearchBase
from kikwiflow_worker.store.mongo.value_codec import decode_payload
from kikwiflow_worker.store.mongo.windows import MAX_TIME_MS, every
from kikwiflow_worker.store.search import (
    EXAMINED_PER_ROW,
    PATH_CAP,
    Path,
    Standing,
    TimelineEvent,
    Visit,
)
from kikwiflow_worker.store.views import Page

_INDEX = "instance_order"
_ORDER = ("sequence", "timestamp", "position", "_id")
_IN_ORDER = [(field, 1) for field in _ORDER]
_NEWEST_FIRST = [(field, -1) for field in _ORDER]
_EVENTS_CAP = 2 * PATH_CAP
_KNOWN = frozenset(EventType)
"""A later release may store others beside them: they are left out."""

_PATH_FIELDS = {"eventType": 1, "timestamp": 1, "position": 1} | {
    f"payload.{name}": 1
    for name in (
        "flowNodeDefinitionId",
        "startedAt",
        "finishedAt",
        "nodeExecutionStatus",
        "interruptedByNodeDefinitionId",
        "errorMessage",
        "chosenFlowId",
        "taskDefinitionId",
        "createdAt",
        "completedAt",
    )
}
_ROW_FIELDS = dict.fromkeys(("type", "status", "taskDefinitionId", "attachedToRefId"), 1)
_ROWS_CAP = 1_000


class Timelines(SearchBase):
    """What happened to one instance, and where it stands."""

    async def list_events(
        self,
        instance_id: str,
        *,
        tenant_id: str | None = None,
        types: tuple[EventType, ...] = (),
        newest_first: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[TimelineEvent]:
        """Return what happened to an instance, in its order or against it."""
        check_texts(instance_id=instance_id)
        limit = max(1, min(limit, MAX_PAGE))
        # Events of other types lie between: they are read, and left out here, up to what a page may examine.
        most = limit * EXAMINED_PER_ROW if types else limit
        wanted = types or _KNOWN
        found = {"processInstanceId": instance_id}
        beyond = (_before if newest_first else _after)(_position(cursor)) if cursor else {}
        order = _NEWEST_FIRST if newest_first else _IN_ORDER
        with translated("listing events"):
            if not await self._belongs(instance_id, tenant_id):
                return Page((), None)
            events = self._collections.outbox_events.find(
                every(found, beyond), max_time_ms=MAX_TIME_MS, hint=_INDEX
            )
            shown: list[Document] = []
            examined = 0
            last: Document | None = None
            async for row in events.sort(order).limit(most + 1):
                if examined == most or len(shown) == limit:
                    return Page(self._shown(shown), _cursor(last))
                examined += 1
                last = row
                if row["eventType"] in wanted:
                    shown.append(row)
        return Page(self._shown(shown), None)

    def _shown(self, rows: Sequence[Document]) -> tuple[TimelineEvent, ...]:
        return tuple(_timeline_event(row, self._collections.sealing) for row in rows)

    async def find_path(self, instance_id: str, *, tenant_id: str | None = None) -> Path:
        """Return the path that an instance took."""
        check_texts(instance_id=instance_id)
        with translated("looking for the path of an instance"):
            if not await self._belongs(instance_id, tenant_id):
                return Path(visits=(), flows=(), is_complete=False)
            rows = await self._path_events(instance_id)
            visits = [
                visit
                for row in rows
                if (visit := _visit(row, self._collections.sealing)) is not None
            ]
            if not any(row["eventType"] == EventType.FLOW_NODE_FINISHED for row in rows):
                visits = await self._completed(instance_id)
                return Path(visits=tuple(visits[:PATH_CAP]), flows=(), is_complete=False)
        is_whole = (
            rows[0]["eventType"] == EventType.PROCESS_INSTANCE_STARTED and len(rows) < _EVENTS_CAP
        )
        flows = dict.fromkeys(
            row["payload"]["chosenFlowId"]
            for row in rows
            if row["eventType"] == EventType.GATEWAY_ANSWER_RESOLVED
            and row["payload"].get("chosenFlowId")
        )
        return Path(
            visits=tuple(visits[:PATH_CAP]),
            flows=tuple(flows),
            is_complete=is_whole and len(visits) <= PATH_CAP,
        )

    async def _path_events(self, instance_id: str) -> list[Document]:
        events = self._collections.outbox_events.find(
            {"processInstanceId": instance_id},
            _PATH_FIELDS,
            max_time_ms=MAX_TIME_MS,
            hint=_INDEX,
        )
        rows = await fetched(events.sort(_IN_ORDER), _EVENTS_CAP)
        of_commits = groupby(rows, key=lambda row: row["timestamp"])
        return [row for _, told in of_commits for row in sorted(told, key=_rank)]

    async def _completed(self, instance_id: str) -> list[Visit]:
        """Return the visits that are known without events: of external tasks."""
        completions = self._collections.completed_external_tasks.find(
            {"processInstanceId": instance_id}, max_time_ms=MAX_TIME_MS, hint="instance"
        )
        rows = await fetched(completions, PATH_CAP)
        return [
            Visit(
                node_id=row["taskDefinitionId"],
                started_at=None,
                finished_at=row["completedAt"],
                status=NodeStatus.SUCCESS,
            )
            for row in sorted(rows, key=lambda row: (row["completedAt"], row["_id"]))
        ]

    async def find_standing(
        self, instance_id: str, *, tenant_id: str | None = None
    ) -> Mapping[str, Standing]:
        """Return where a running instance stands, by node; of the first thousand rows of each kind."""
        check_texts(instance_id=instance_id, tenant_id=tenant_id)
        found: Document = {"processInstanceId": instance_id}
        if tenant_id is not None:
            found["tenantId"] = tenant_id
        standing: dict[str, Standing] = {}
        with translated("looking where an instance stands"):
            for collection in (self._collections.tasks, self._collections.external_tasks):
                for row in await _rows(collection, found):
                    failed = row["status"] == TaskStatus.ERROR
                    if not failed and not is_token(row):
                        continue
                    known = standing.get(row["taskDefinitionId"], Standing(0))
                    standing[row["taskDefinitionId"]] = Standing(
                        known.tokens + 1, known.failed + failed
                    )
        return standing

    async def _belongs(self, instance_id: str, tenant_id: str | None) -> bool:
        """Return whether an instance, which may be forgotten by now, is of this tenant."""
        if tenant_id is None:
            return True
        check_texts(tenant_id=tenant_id)
        for collection in (self._collections.instances, self._collections.history):
            row = await _one(collection, {"_id": instance_id}, {"tenantId": 1})
            if row is not None:
                return bool(row.get("tenantId") == tenant_id)
        row = await _one(
            self._collections.outbox_events,
            {"processInstanceId": instance_id},
            {"payload.tenantId": 1},
        )
        return row is not None and row["payload"].get("tenantId") == tenant_id


async def _rows(collection: Collection, found: Document) -> list[Document]:
    cursor = collection.find(found, _ROW_FIELDS, max_time_ms=MAX_TIME_MS, hint="instance_created")
    return await fetched(cursor, _ROWS_CAP)


async def _one(collection: Collection, found: Document, fields: Document) -> Document | None:
    row: Document | None = await settled(
        collection.find_one(found, fields, max_time_ms=MAX_TIME_MS)
    )
    return row


def _rank(row: Document) -> int:
    """Return what comes first of what one commit tells, which is all of one instant.

    Its first segment tells of the start, and the step behind a wait of the wait and of its host, in the end.
    """
    payload = row["payload"]
    match row["eventType"]:
        case EventType.PROCESS_INSTANCE_STARTED:
            return 0
        case EventType.FLOW_NODE_FINISHED if payload.get("interruptedByNodeDefinitionId"):
            return 1
        case EventType.EXTERNAL_TASK_COMPLETED:
            return 2
        case _:
            return 3


def _visit(row: Document, sealing: Sealing | None) -> Visit | None:
    """Return the visit that an event ended; None for an event that ends none."""
    payload = row["payload"]
    match row["eventType"]:
        case EventType.FLOW_NODE_FINISHED:
            node_id, begun, ended = "flowNodeDefinitionId", "startedAt", "finishedAt"
        case EventType.EXTERNAL_TASK_COMPLETED:
            node_id, begun, ended = "taskDefinitionId", "createdAt", "completedAt"
        case _:
            return None
    if payload.get(node_id) is None or payload.get(ended) is None:
        return None
    return Visit(
        node_id=payload[node_id],
        started_at=payload.get(begun),
        finished_at=payload[ended],
        status=NodeStatus(payload.get("nodeExecutionStatus", NodeStatus.SUCCESS)),
        interrupted_by=payload.get("interruptedByNodeDefinitionId"),
        error=find_text(sealing, row["_id"], "errorMessage", payload),
    )


def _timeline_event(row: Document, sealing: Sealing | None) -> TimelineEvent:
    payload = decode_payload(row["payload"], row["_id"], sealing)
    event = OutboxEvent(
        id=row["_id"],
        type=EventType(row["eventType"]),
        timestamp=row["timestamp"],
        instance_id=row["processInstanceId"],
        definition_id=row["processDefinitionId"],
        payload=payload,
    )
    return TimelineEvent(event, _cursor(row))


def _cursor(row: Document | None) -> str:
    if row is None:  # a page without a last row has no next one
        raise OperationError("there is no such page")
    sequence = row.get("sequence")
    return encode_parts(
        sequence_text(sequence) if sequence is not None else None,
        row["timestamp"].isoformat(),
        row["position"],
        row["_id"],
    )


@dataclass(frozen=True, slots=True)
class _Position:
    """Of an event in its timeline; events of a release without a relay have no sequence, and come before all others."""

    sequence: Timestamp | None
    at: datetime
    position: int
    event_id: str


def _position(cursor: str) -> _Position:
    try:
        text, at, position, event_id = decode_parts(cursor)
        check_texts(id=event_id)
        return _Position(
            parse_sequence(str(text)) if text is not None else None,
            instant(at),
            int(position),  # type: ignore[call-overload]
            str(event_id),
        )
    except (ValueError, TypeError, OverflowError, OperationError) as error:
        raise unknown_cursor() from error


def _after(last: _Position) -> Document:
    """Return the filter for what comes after an event; what comes before it among equals is named to be left out."""
    bound: Document = {} if last.sequence is None else {"sequence": {"$gte": last.sequence}}
    return {**bound, "$nor": _equals_up_to(last, "$lt")}


def _before(last: _Position) -> Document:
    """Return the filter for what comes before an event; a missing sequence is less than any, though not comparable."""
    bound = None if last.sequence is None else {"$not": {"$gt": last.sequence}}
    return {"sequence": bound, "$nor": _equals_up_to(last, "$gt")}


def _equals_up_to(last: _Position, passed: str) -> list[Document]:
    """Return the filters for events of the same sequence that were passed, and for the last one itself."""
    at = {"sequence": last.sequence, "timestamp": last.at}
    return [
        {"sequence": last.sequence, "timestamp": {passed: last.at}},
        {**at, "position": {passed: last.position}},
        {**at, "position": last.position, "_id": {f"{passed}e": last.event_id}},
    ]
