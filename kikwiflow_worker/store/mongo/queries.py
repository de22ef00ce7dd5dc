"""Views for people: keyset pages, capped counts, a time limit on every query."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    Incident,
    InstanceStatus,
    ProcessInstance,
    TaskStatus,
)
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.store.mongo.codec import (
    decode_external_task,
    decode_incident,
    decode_instance,
    decode_row,
    decode_topic_node,
    encode_topic_node,
)
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Collection, Document, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.keyset import (
    CREATED,
    NEWEST,
    STARTED,
    Order,
    decode_cursor,
    encode_cursor,
)
from kikwiflow_worker.store.mongo.places import definitions_with_rows
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.views import (
    CompletedExternalTask,
    DefinitionSummary,
    ExternalTaskQuery,
    IncidentQuery,
    InstanceQuery,
    Page,
    QueueMeasures,
    TaskQuery,
    WorkerRecord,
)

T = TypeVar("T")

MAX_PAGE = 500
COUNT_CAP = 10_000
"""Where counts of instances stop."""

DUE_CAP = 10_000
"""Where counts of due work stop."""

_MAX_TIME_MS = 5_000
_RUNNING = [
    each.value
    for each in (InstanceStatus.ACTIVE, InstanceStatus.SUSPENDED, InstanceStatus.CANCELLING)
]
_ENDED = [InstanceStatus.COMPLETED.value, InstanceStatus.CANCELLED.value]


class Queries:
    """The read port of one database."""

    def __init__(self, collections: Collections, server_time: ServerTime) -> None:
        self._collections = collections
        self._time = server_time
        self._row = partial(decode_row, sealing=collections.sealing)
        self._incident = partial(decode_incident, sealing=collections.sealing)

    async def list_definitions(self, *, key: str | None = None) -> tuple[DefinitionSummary, ...]:
        """Return the latest version of every key, or all versions of one."""
        with translated("listing definitions"):
            rows = await (self._versions(key) if key else self._latest_versions())
        summaries = [
            DefinitionSummary(
                id=row["_id"],
                key=row["key"],
                version=row["version"],
                name=row.get("name"),
                deployed_at=row["deployedAt"],
                is_suspended=row.get("suspended", False),
            )
            for row in rows
        ]
        return tuple(summaries)

    async def _versions(self, key: str) -> list[Document]:
        cursor = self._collections.definitions.find(
            _given(key=key), {"source": 0}, max_time_ms=_MAX_TIME_MS
        )
        found: list[Document] = await cursor.sort([("key", 1), ("version", -1)]).to_list(None)
        return found

    async def _latest_versions(self) -> list[Document]:
        """Return the latest version of each key, one index seek each."""
        found: list[Document] = []
        after = ""
        while True:
            row = await settled(
                self._collections.definitions.find_one(
                    {"key": {"$gt": after}},
                    {"source": 0},
                    sort=[("key", 1), ("version", -1)],
                    max_time_ms=_MAX_TIME_MS,
                )
            )
            if row is None:
                return found
            found.append(row)
            after = row["key"]

    async def list_instances(
        self, query: InstanceQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ProcessInstance]:
        """Return instances, newest first."""
        found = _given(
            processDefinitionKey=query.definition_key,
            businessKey=query.business_key,
            tenantId=query.tenant_id,
            status=query.status,
            parentInstanceId=query.parent_id,
        )
        collection = self._collections.history if query.ended else self._collections.instances
        # Said also where it does not matter: it leads the indexes.
        found.setdefault("status", {"$in": _ENDED if query.ended else _RUNNING})
        decode = partial(decode_instance, sealing=self._collections.sealing)
        return await self._page(collection, found, STARTED, decode, limit, cursor)

    async def list_tasks(
        self, query: TaskQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ExecutableTask]:
        """Return executable tasks, oldest first."""
        found = _given(
            processInstanceId=query.instance_id,
            status=query.status.value if query.status else None,
            taskDefinitionId=query.node_id,
            handlerName=query.handler_name,
            tenantId=query.tenant_id,
        )
        if query.retrying:
            found |= {"status": TaskStatus.PENDING.value, "attempts": {"$gt": 0}}
        found |= await self._versions_of(self._collections.tasks, query.node_id)
        found.setdefault("status", {"$in": [status.value for status in TaskStatus]})
        return await self._page(self._collections.tasks, found, CREATED, self._row, limit, cursor)

    async def list_external_tasks(
        self, query: ExternalTaskQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ExternalTask]:
        """Return open external tasks, oldest first."""
        found = _given(
            processInstanceId=query.instance_id,
            taskDefinitionId=query.node_id,
            assignee=query.assignee,
            tenantId=query.tenant_id,
            correlationKey=query.correlation_key,
        )
        if query.unassigned:
            found["assignee"] = {"$exists": False}
        found |= await self._versions_of(self._collections.external_tasks, query.node_id)
        return await self._page(
            self._collections.external_tasks, found, CREATED, decode_external_task, limit, cursor
        )

    async def _versions_of(self, collection: Collection, node_id: str | None) -> Document:
        """Return what leads the index by node: all versions that have rows."""
        if node_id is None:
            return {}
        with translated(f"listing {collection.name}"):
            return {"processDefinitionId": {"$in": list(await definitions_with_rows(collection))}}

    async def list_incidents(
        self, query: IncidentQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Incident]:
        """Return incidents, newest first."""
        found = _given(
            processInstanceId=query.instance_id,
            status=query.status.value if query.status else None,
            type=query.type.value if query.type else None,
            taskDefinitionId=query.node_id,
            tenantId=query.tenant_id,
        )
        if query.definition_ids is not None:
            found["processDefinitionId"] = {"$in": list(query.definition_ids)}
        return await self._page(
            self._collections.incidents, found, NEWEST, self._incident, limit, cursor
        )

    async def find_incident(self, incident_id: str) -> Incident | None:
        """Return one incident."""
        return await self._one(self._collections.incidents, incident_id, self._incident)

    async def find_task(self, task_id: str) -> ExecutableTask | None:
        """Return one executable task."""
        return await self._one(self._collections.tasks, task_id, self._row)

    async def find_completed_external_task(self, task_id: str) -> CompletedExternalTask | None:
        """Return the record of a completion."""
        return await self._one(
            self._collections.completed_external_tasks, task_id, decode_completion
        )

    async def count_by_status(self, *, definition_key: str | None = None) -> dict[str, int]:
        """Return how many instances there are by status, each counted up to ``COUNT_CAP``."""
        found = _given(processDefinitionKey=definition_key)
        counts: dict[str, int] = {}
        with translated("counting instances"):
            for collection, statuses in (
                (self._collections.instances, _RUNNING),
                (self._collections.history, _ENDED),
            ):
                for status in statuses:
                    counts[status] = await settled(
                        collection.count_documents(
                            {**found, "status": status}, limit=COUNT_CAP, maxTimeMS=_MAX_TIME_MS
                        )
                    )
        return counts

    async def list_workers(self) -> tuple[WorkerRecord, ...]:
        """Return the workers that were seen lately, the latest first."""
        with translated("listing workers"):
            cursor = self._collections.workers.find({}, max_time_ms=_MAX_TIME_MS)
            rows = await cursor.sort([("seenAt", -1)]).limit(MAX_PAGE).to_list(MAX_PAGE)
        return tuple(decode_worker(row) for row in rows)

    async def record_worker(self, record: WorkerRecord) -> None:
        """Note that a worker is alive."""
        document = {**encode_worker(record), "seenAt": self._time.now()}
        with translated("recording this worker"):
            await settled(
                self._collections.workers.replace_one({"_id": record.id}, document, upsert=True)
            )

    async def measure_queue(self) -> QueueMeasures:
        """Return figures for metrics; each count stops at a cap."""
        open_incidents = {"status": "OPEN"}
        due = self._due() | {"status": {"$in": [TaskStatus.PENDING.value, TaskStatus.LOCKED.value]}}
        with translated("measuring the queue"):
            first = await settled(
                self._collections.tasks.find_one(
                    due, sort=[("claimableAt", 1)], max_time_ms=_MAX_TIME_MS
                )
            )
            count = 0
            if first:  # an idle database is asked no more than it must be
                tasks = self._collections.tasks
                count = await settled(
                    tasks.count_documents(due, limit=DUE_CAP, maxTimeMS=_MAX_TIME_MS)
                )
            incidents = await settled(
                self._collections.incidents.count_documents(
                    open_incidents, limit=DUE_CAP, maxTimeMS=_MAX_TIME_MS
                )
            )
        waited = self._time.now() - first["claimableAt"] if first else timedelta(0)
        return QueueMeasures(
            due=count, oldest_due_s=max(0.0, waited.total_seconds()), open_incidents=incidents
        )

    def _due(self) -> Document:
        # The type is what lets the planner use the partial index.
        return {"claimableAt": {"$type": "date", "$lte": self._time.now()}}

    async def _one(
        self, collection: Collection, found_id: str, decode: Callable[[Document], T]
    ) -> T | None:
        check_texts(id=found_id)
        with translated(f"reading {found_id}"):
            document = await settled(
                collection.find_one({"_id": found_id}, max_time_ms=_MAX_TIME_MS)
            )
        return decode(document) if document else None

    async def _page(
        self,
        collection: Collection,
        found: Document,
        order: Order,
        decode: Callable[[Document], T],
        limit: int,
        cursor: str | None,
    ) -> Page[T]:
        return await list_page(collection, found, order, decode, limit, cursor)


async def list_page(
    collection: Collection,
    found: Document,
    order: Order,
    decode: Callable[[Document], T],
    limit: int,
    cursor: str | None,
) -> Page[T]:
    """Return a page of what is found, at most ``MAX_PAGE`` rows."""
    limit = max(1, min(limit, MAX_PAGE))
    wanted = {"$and": [found, order.after(decode_cursor(cursor))]} if cursor else found
    with translated(f"listing {collection.name}"):
        rows = collection.find(wanted, max_time_ms=_MAX_TIME_MS).sort(order.sort)
        documents = await rows.limit(limit + 1).to_list(limit + 1)
    more = len(documents) > limit
    shown = documents[:limit]
    next_cursor = encode_cursor(order.position_of(shown[-1])) if more else None
    return Page(tuple(decode(document) for document in shown), next_cursor)


def _given(**fields: str | None) -> Document:
    """Return the filter for the fields that are given; each is a text, so none is an operator."""
    check_texts(**fields)
    return {name: value for name, value in fields.items() if value is not None}


def decode_completion(row: Document) -> CompletedExternalTask:
    """Return the record of a completed external task."""
    return CompletedExternalTask(
        task_id=row["_id"],
        instance_id=row["processInstanceId"],
        node_id=row["taskDefinitionId"],
        completed_at=row["completedAt"],
        completed_by=row.get("completedBy"),
    )


def encode_worker(record: WorkerRecord) -> Document:
    """Return what is stored of what a worker says about itself."""
    document: Document = {
        "_id": record.id,
        "instanceName": record.instance_name,
        "host": record.host,
        "pid": record.pid,
        "version": record.version,
        "startedAt": record.started_at,
        "seenAt": record.seen_at,
        "state": record.state,
        "slots": record.slots,
        "running": record.running,
        "handlers": list(record.handlers),
    }
    if record.event_loop_lag_s is not None:
        document["eventLoopLagSeconds"] = record.event_loop_lag_s
    if record.is_external:
        document |= {"isExternal": True, "busySeconds": record.busy_s}
    if record.nodes:
        document["nodes"] = [encode_topic_node(node) for node in record.nodes]
    if record.tenant_id is not None:
        # Workers of two tenants can have one name.
        own_id = f"{quote(record.tenant_id, safe='')}:{record.id}"
        document |= {"_id": own_id, "workerId": record.id, "tenantId": record.tenant_id}
    return document


def decode_worker(row: Document) -> WorkerRecord:
    """Return what a worker last said about itself."""
    return WorkerRecord(
        id=row["workerId"] if "workerId" in row else row["_id"],
        instance_name=row["instanceName"],
        host=row["host"],
        pid=row["pid"],
        version=row["version"],
        started_at=row["startedAt"],
        seen_at=row["seenAt"],
        state=row["state"],
        slots=row["slots"],
        running=row["running"],
        handlers=tuple(row["handlers"]),
        event_loop_lag_s=row.get("eventLoopLagSeconds"),
        is_external=row.get("isExternal", False),
        nodes=tuple(map(decode_topic_node, row.get("nodes", ()))),
        tenant_id=row.get("tenantId"),
        busy_s=row.get("busySeconds", 0.0),
    )
