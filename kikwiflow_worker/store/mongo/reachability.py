"""Finds what nobody can reach any more: claims, joins, branches, children, events, incidents and messages left behind.

It only reads, and workers may run meanwhile. What is wrong for a moment is often legal (a commit may lie between two of our
reads, an arrival may be on its way), so every suspect is looked at again after a grace, and only what is still there,
unchanged and still wrong, is reported.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.model.messages import MessageStatus
from kikwiflow_worker.model.runtime import (
    ExternalTaskStatus,
    IncidentStatus,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.texts import tenant_scoped
from kikwiflow_worker.store.mongo.collections import COLLECTION_NAMES, Collections
from kikwiflow_worker.store.mongo.driver import Collection, Document, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.inspection import MAX_TIME_MS, batches
from kikwiflow_worker.store.mongo.reachability_rules import (
    Around,
    Suspicion,
    Trouble,
    suspect_external_task,
    suspect_incident,
    suspect_instance,
    suspect_message,
    suspect_task,
)
from kikwiflow_worker.store.mongo.server_time import ServerTime

Rows = Sequence[Document]


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A document that nobody can reach, or that waits for what never comes.

    Attributes:
        collection: Its stored name.
        node_id: None where the document belongs to no node.
    """

    trouble: Trouble
    collection: str
    id: str
    instance_id: str | None
    node_id: str | None
    words: str


@dataclass(frozen=True, slots=True)
class Reachability:
    """What was found.

    Attributes:
        examined: How many documents were looked at, by stored collection name.
    """

    examined: Mapping[str, int]
    found: tuple[Unreachable, ...]


@dataclass(frozen=True, slots=True)
class _Rule:
    """Which documents of a collection are looked at, what is read around them, and what may be wrong."""

    collection: str
    only: Mapping[str, Any]
    around: Callable[["_Surroundings", Rows], Awaitable[Around]]
    suspects: Callable[[Document, Around], Iterable[Suspicion]]


async def find_unreachable(
    collections: Collections, clock: Clock, server_time: ServerTime, *, grace: timedelta
) -> Reachability:
    """Look at every document of the active collections, and at the suspects once more after ``grace``."""
    around = _Surroundings(collections, server_time, grace)
    examined: dict[str, int] = {}
    suspects: list[tuple[_Rule, list[Unreachable]]] = []
    with translated("looking for what nobody can reach"):
        for rule in _RULES:
            examined[COLLECTION_NAMES[rule.collection]] = 0
            async for batch in batches(getattr(collections, rule.collection), rule.only):
                examined[COLLECTION_NAMES[rule.collection]] += len(batch)
                if found := await _judge(rule, batch, around):
                    suspects.append((rule, found))
        if not suspects:
            return Reachability(examined, ())
        await clock.sleep(grace.total_seconds())
        confirmed: list[Unreachable] = []
        for rule, found in suspects:
            ids = list({suspect.id for suspect in found})
            collection: Collection = getattr(collections, rule.collection)
            rows = await _find(collection, {**rule.only, "_id": {"$in": ids}})
            again = await _judge(rule, rows, around)
            confirmed += [suspect for suspect in found if suspect in again]
    return Reachability(examined, tuple(confirmed))


async def _judge(rule: _Rule, rows: Rows, around: "_Surroundings") -> list[Unreachable]:
    if not rows:
        return []
    facts = await rule.around(around, rows)
    return [
        Unreachable(
            trouble,
            COLLECTION_NAMES[rule.collection],
            row["_id"],
            row["_id"] if rule.collection == "instances" else row.get("processInstanceId"),
            row.get("taskDefinitionId"),
            words,
        )
        for row in rows
        for trouble, words in rule.suspects(row, facts)
    ]


class _Surroundings:
    """Reads what is around some rows; every read is by an index and bounded by the number of rows."""

    def __init__(self, collections: Collections, server_time: ServerTime, grace: timedelta) -> None:
        self._collections = collections
        self._time = server_time
        self._grace = grace

    async def of_tasks(self, rows: Rows) -> Around:
        """Return what is around executable tasks."""
        collections = self._collections
        started = [row["_id"] for row in rows if row["status"] == TaskStatus.STARTED]
        failed = [row["_id"] for row in rows if row["status"] == TaskStatus.ERROR]
        callers = _values(
            (row for row in rows if row["status"] == TaskStatus.STARTED), "joinTaskId"
        )
        children = await _find(
            collections.instances, {"callerTaskId": {"$in": callers}}, "starterTaskId"
        )
        incidents = await _find(
            collections.incidents,
            {"executionId": {"$in": failed}, "status": IncidentStatus.OPEN.value},
            "executionId",
        )
        keepers = [row for row in rows if row["type"] == TaskType.KEPT_MESSAGE]
        kept = await _find(
            collections.messages,
            {
                "_id": {
                    "$in": [
                        tenant_scoped(row["taskDefinitionId"], row.get("tenantId"))
                        for row in keepers
                    ]
                },
                "status": MessageStatus.KEPT.value,
            },
            "_id",
        )
        waiting = [row for row in rows if row["status"] == TaskStatus.AWAITING_BRANCHES]
        return Around(
            **await self._common(rows),
            carried=await self._carried(waiting),
            children=frozenset(_values(children, "starterTaskId")) & frozenset(started),
            incidents=frozenset(_values(incidents, "executionId")),
            kept=frozenset(_values(kept, "_id")),
        )

    async def of_external_tasks(self, rows: Rows) -> Around:
        """Return what is around external tasks."""
        external_tasks = self._collections.external_tasks
        group_ids = _values(rows, "coordinatorTaskId")
        groups = await _find(external_tasks, {"_id": {"$in": group_ids}}, "_id")
        waiting = [row["_id"] for row in rows if row.get("pendingCorrelationKeys")]
        found = {
            "coordinatorTaskId": {"$in": waiting},
            "status": ExternalTaskStatus.CREATED.value,
        }
        keys: dict[str, set[str]] = defaultdict(set)
        for row in await _find(external_tasks, found, "coordinatorTaskId", "correlationKey"):
            keys[row["coordinatorTaskId"]].add(row["correlationKey"])
        return Around(
            **await self._common(rows),
            groups=frozenset(_values(groups, "_id")),
            keys={group: frozenset(each) for group, each in keys.items()},
        )

    async def of_instances(self, rows: Rows) -> Around:
        """Return what is around running instances."""
        collections = self._collections
        ids = [row["_id"] for row in rows]
        carrying: set[str] = set()
        for collection in (collections.tasks, collections.external_tasks):
            found = {"processInstanceId": {"$in": ids}}
            carrying.update(await settled(collection.distinct("processInstanceId", found)))
        ended = await _find(collections.history, {"_id": {"$in": ids}}, "_id")
        starters = await _find(
            collections.tasks,
            {"_id": {"$in": _values(rows, "starterTaskId")}, "status": TaskStatus.STARTED.value},
            "_id",
        )
        cancelling = await _find(
            collections.tasks,
            {"processInstanceId": "", "type": TaskType.CANCEL_CHILDREN.value},
            "joinTaskId",
            "branchId",
        )
        return Around(
            now=self._time.now(),
            grace=self._grace,
            with_rows=frozenset(carrying),
            ended=frozenset(_values(ended, "_id")),
            parents_waiting=frozenset(_values(starters, "_id")),
            cancelling=frozenset(
                _values(cancelling, "joinTaskId") + _values(cancelling, "branchId")
            ),
        )

    async def of_incidents(self, rows: Rows) -> Around:
        """Return what is around open incidents."""
        found = {
            "_id": {"$in": _values(rows, "executionId")},
            "status": TaskStatus.ERROR.value,
        }
        failed = await _find(self._collections.tasks, found, "_id")
        return Around(
            now=self._time.now(), grace=self._grace, failed=frozenset(_values(failed, "_id"))
        )

    async def of_messages(self, rows: Rows) -> Around:
        """Return what is around kept messages."""
        found = {
            "taskDefinitionId": {"$in": _values(rows, "messageId")},
            "type": TaskType.KEPT_MESSAGE.value,
        }
        keepers = await _find(self._collections.tasks, found, "taskDefinitionId", "tenantId")
        return Around(
            now=self._time.now(),
            grace=self._grace,
            keepers=frozenset((row["taskDefinitionId"], row.get("tenantId")) for row in keepers),
        )

    async def _common(self, rows: Rows) -> dict[str, Any]:
        """Return what executable and external tasks have in common: instance, host and join."""
        collections = self._collections
        instance_ids = {"_id": {"$in": _values(rows, "processInstanceId")}}
        instances = await _find(collections.instances, instance_ids, "status")
        hosted = {
            "_id": {"$in": _values(rows, "attachedToRefId")},
            "status": {"$ne": TaskStatus.ARRIVED.value},
        }
        hosts = await _find(collections.tasks, hosted, "_id")
        hosts += await _find(collections.external_tasks, hosted, "_id")
        join_ids = {"_id": {"$in": _values(rows, "joinTaskId")}}
        joins = await _find(collections.tasks, join_ids, "pendingBranchIds")
        return {
            "now": self._time.now(),
            "grace": self._grace,
            "instances": {row["_id"]: row["status"] for row in instances},
            "hosts": frozenset(_values(hosts, "_id")),
            "joins": {row["_id"]: frozenset(row.get("pendingBranchIds", ())) for row in joins},
        }

    async def _carried(self, joins: Rows) -> frozenset[tuple[str, str]]:
        """Return which branches of ``joins`` some row carries, as join and branch."""
        found = {
            "processInstanceId": {"$in": _values(joins, "processInstanceId")},
            "joinTaskId": {"$in": [row["_id"] for row in joins]},
        }
        collections = self._collections
        rows = await _find(collections.tasks, found, "joinTaskId", "branchId")
        rows += await _find(collections.external_tasks, found, "joinTaskId", "branchId")
        return frozenset((row["joinTaskId"], row["branchId"]) for row in rows)


def _values(rows: Iterable[Document], name: str) -> list[Any]:
    return list({row[name] for row in rows if row.get(name) is not None})


async def _find(collection: Collection, found: Mapping[str, Any], *fields: str) -> list[Document]:
    """Return the documents found; nothing is asked where an empty list of ids finds nothing."""
    if any(isinstance(each, dict) and each.get("$in") == [] for each in found.values()):
        return []
    cursor = collection.find(found, dict.fromkeys(fields, 1) or None).max_time_ms(MAX_TIME_MS)
    rows: list[Document] = await cursor.to_list(None)
    return rows


_RULES = (
    _Rule("tasks", {}, _Surroundings.of_tasks, suspect_task),
    _Rule("external_tasks", {}, _Surroundings.of_external_tasks, suspect_external_task),
    _Rule("instances", {}, _Surroundings.of_instances, suspect_instance),
    _Rule(
        "incidents",
        {"status": IncidentStatus.OPEN.value},
        _Surroundings.of_incidents,
        suspect_incident,
    ),
    _Rule(
        "messages", {"status": MessageStatus.KEPT.value}, _Surroundings.of_messages, suspect_message
    ),
)
