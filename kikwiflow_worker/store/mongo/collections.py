"""The collections, their indexes, and the schema version."""

from dataclasses import dataclass
from typing import Any

from pymongo import ASCENDING, DESCENDING
from pymongo.errors import OperationFailure

from kikwiflow_worker.errors import SchemaMismatchError
from kikwiflow_worker.store.mongo.driver import Collection, Database, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.sealing import Sealing

SCHEMA_VERSION = 1
"""Of the stored documents; a worker refuses a database with another one."""

WORKER_RECORD_SECONDS = 24 * 3600

_INDEX_OPTIONS_CONFLICT = {85, 86}


COLLECTION_NAMES = {
    "definitions": "process_definitions",
    "instances": "process_instances",
    "tasks": "executable_tasks",
    "external_tasks": "external_tasks",
    "incidents": "incidents",
    "history": "process_history",
    "completed_external_tasks": "completed_external_tasks",
    "start_keys": "start_keys",
    "outbox_events": "outbox_events",
    "outbox_slices": "outbox_slices",
    "messages": "messages",
    "work_reports": "external_work_reports",
    "bulk_jobs": "bulk_jobs",
    "workers": "workers",
    "answers": "api_answers",
    "api_tokens": "api_tokens",
    "web_sessions": "web_sessions",
    "audit_log": "audit_log",
    "meta": "meta",
}
"""Our short name of each collection, and the stored one: as in Kikwiflow where the meaning is the same."""


@dataclass(frozen=True, slots=True)
class Collections:
    """All collections of one database.

    Attributes:
        sealing: Encrypts the values of variables in them, and texts that may quote those; None stores them plain.
    """

    definitions: Collection
    instances: Collection
    tasks: Collection
    external_tasks: Collection
    incidents: Collection
    history: Collection
    completed_external_tasks: Collection
    start_keys: Collection
    outbox_events: Collection
    outbox_slices: Collection
    messages: Collection
    work_reports: Collection
    bulk_jobs: Collection
    workers: Collection
    answers: Collection
    api_tokens: Collection
    web_sessions: Collection
    audit_log: Collection
    meta: Collection
    sealing: Sealing | None = None

    @classmethod
    def of(cls, database: Database, sealing: Sealing | None = None) -> "Collections":
        """Return the collections of ``database``."""
        named = {field: database[name] for field, name in COLLECTION_NAMES.items()}
        return cls(**named, sealing=sealing)


@dataclass(frozen=True, slots=True)
class Index:
    """One index: the collection's field name in ``Collections``, its keys and its options."""

    collection: str
    name: str
    keys: tuple[tuple[str, int], ...]
    options: dict[str, Any]


def _index(collection: str, name: str, *keys: str, **options: Any) -> Index:
    pairs = tuple(
        (key.lstrip("-"), DESCENDING if key.startswith("-") else ASCENDING) for key in keys
    )
    return Index(collection, name, pairs, options)


_EXISTS = {"$exists": True}
_CLAIMABLE = {"claimableAt": {"$type": "date"}}
_WITH_A_TOPIC = {**_CLAIMABLE, "topicNode": _EXISTS}

INDEXES: tuple[Index, ...] = (
    _index("definitions", "key_version", "key", "-version", unique=True),
    # One range per handler that a worker has, merged in order: rows that nobody here can run are never examined.
    _index("tasks", "claim", "handlerName", "claimableAt", partialFilterExpression=_CLAIMABLE),
    # The same for one tenant, its highest priority first.
    _index(
        "tasks",
        "fair_claim",
        "tenantId",
        "handlerName",
        "-priority",
        "claimableAt",
        partialFilterExpression=_CLAIMABLE,
    ),
    # Both of them by node, of tasks whose node has a topic: no other row has an entry here, and none is written for it.
    _index(
        "tasks", "node_claim", "topicNode", "claimableAt", partialFilterExpression=_WITH_A_TOPIC
    ),
    _index(
        "tasks",
        "fair_node_claim",
        "tenantId",
        "topicNode",
        "-priority",
        "claimableAt",
        partialFilterExpression=_WITH_A_TOPIC,
    ),
    _index("tasks", "tenants", "tenantId", "claimableAt", partialFilterExpression=_CLAIMABLE),
    _index("tasks", "due", "claimableAt", partialFilterExpression=_CLAIMABLE),
    # Arrivals alone: among all that is due they would be looked for behind a whole backlog.
    _index(
        "tasks",
        "arrivals",
        "status",
        "claimableAt",
        partialFilterExpression={"status": "ARRIVED"},
    ),
    _index("tasks", "instance_created", "processInstanceId", "createdAt", "_id"),
    # Both ends of it lead: the versions that have rows, and the nodes of one, are a few seeks away. What follows the
    # order is there for counts, which then look at no document.
    _index(
        "tasks",
        "node_created",
        "processDefinitionId",
        "taskDefinitionId",
        "createdAt",
        "_id",
        "type",
        "tenantId",
    ),
    _index(
        "tasks",
        "tenant_created",
        "tenantId",
        "createdAt",
        "_id",
        partialFilterExpression={"tenantId": _EXISTS},
    ),
    # Timers, and retries with them: not the tasks that are due at once, which most are.
    _index(
        "tasks",
        "timers",
        "type",
        "dueDate",
        "_id",
        partialFilterExpression={"dueDate": _EXISTS},
    ),
    _index(
        "tasks",
        "handler_created",
        "handlerName",
        "createdAt",
        "_id",
        partialFilterExpression={"handlerName": _EXISTS},
    ),
    _index(
        "tasks",
        "retrying",
        "status",
        "createdAt",
        "_id",
        "attempts",
        partialFilterExpression={"attempts": {"$gt": 0}},
    ),
    _index("tasks", "join", "joinTaskId", partialFilterExpression={"joinTaskId": _EXISTS}),
    _index("tasks", "worker", "workerId", partialFilterExpression={"workerId": _EXISTS}),
    # Lists of every status merge its ranges.
    _index("tasks", "status_created", "status", "createdAt", "_id"),
    _index(
        "tasks", "host", "attachedToRefId", partialFilterExpression={"attachedToRefId": _EXISTS}
    ),
    _index("external_tasks", "instance_created", "processInstanceId", "createdAt", "_id"),
    _index(
        "external_tasks",
        "node_created",
        "processDefinitionId",
        "taskDefinitionId",
        "createdAt",
        "_id",
        "type",
        "tenantId",
    ),
    _index(
        "external_tasks",
        "tenant_created",
        "tenantId",
        "createdAt",
        "_id",
        partialFilterExpression={"tenantId": _EXISTS},
    ),
    _index(
        "external_tasks",
        "host",
        "attachedToRefId",
        partialFilterExpression={"attachedToRefId": _EXISTS},
    ),
    _index(
        "external_tasks",
        "group",
        "coordinatorTaskId",
        partialFilterExpression={"coordinatorTaskId": _EXISTS},
    ),
    _index(
        "external_tasks",
        "waiting",
        "correlationKey",
        "tenantId",
        "status",
        "createdAt",
        "_id",
        partialFilterExpression={"correlationKey": _EXISTS},
    ),
    _index(
        "external_tasks",
        "key_created",
        "correlationKey",
        "createdAt",
        "_id",
        partialFilterExpression={"correlationKey": _EXISTS},
    ),
    _index("external_tasks", "assignee_created", "assignee", "createdAt", "_id"),
    _index("external_tasks", "created", "createdAt", "_id"),
    # Led by the status, also where it does not matter: a list without one merges the ranges of all.
    _index("instances", "status_started", "status", "-startedAt", "_id"),
    _index(
        "instances", "key_status_started", "processDefinitionKey", "status", "-startedAt", "_id"
    ),
    _index("instances", "business_key", "businessKey", "-startedAt", "_id"),
    _index(
        "instances",
        "tenant_started",
        "tenantId",
        "-startedAt",
        "_id",
        partialFilterExpression={"tenantId": _EXISTS},
    ),
    _index(
        "instances",
        "tenant_key_status_started",
        "tenantId",
        "processDefinitionKey",
        "status",
        "-startedAt",
        "_id",
        partialFilterExpression={"tenantId": _EXISTS},
    ),
    _index(
        "instances",
        "parent_started",
        "parentInstanceId",
        "-startedAt",
        "_id",
        partialFilterExpression={"parentInstanceId": _EXISTS},
    ),
    _index(
        "instances", "caller", "callerTaskId", partialFilterExpression={"callerTaskId": _EXISTS}
    ),
    _index("history", "status_started", "status", "-startedAt", "_id"),
    _index("history", "key_status_started", "processDefinitionKey", "status", "-startedAt", "_id"),
    _index("history", "business_key", "businessKey", "-startedAt", "_id"),
    _index(
        "history",
        "tenant_started",
        "tenantId",
        "-startedAt",
        "_id",
        partialFilterExpression={"tenantId": _EXISTS},
    ),
    _index(
        "history",
        "tenant_key_status_started",
        "tenantId",
        "processDefinitionKey",
        "status",
        "-startedAt",
        "_id",
        partialFilterExpression={"tenantId": _EXISTS},
    ),
    _index(
        "history",
        "parent_started",
        "parentInstanceId",
        "-startedAt",
        "_id",
        partialFilterExpression={"parentInstanceId": _EXISTS},
    ),
    # For counts of what ended lately.
    _index("history", "key_ended", "processDefinitionKey", "status", "-endedAt", "tenantId"),
    _index(
        "incidents", "instance_status_created", "processInstanceId", "status", "-createdAt", "_id"
    ),
    _index("incidents", "created", "-createdAt", "_id"),
    _index(
        "incidents",
        "definition_status_created",
        "processDefinitionId",
        "status",
        "-createdAt",
        "_id",
    ),
    _index("incidents", "node_status_created", "taskDefinitionId", "status", "-createdAt", "_id"),
    _index("incidents", "type_status_created", "type", "status", "-createdAt", "_id"),
    _index(
        "incidents",
        "tenant_status_created",
        "tenantId",
        "status",
        "-createdAt",
        "_id",
        partialFilterExpression={"tenantId": _EXISTS},
    ),
    # For counts of what is open at each node.
    _index(
        "incidents",
        "definition_node",
        "processDefinitionId",
        "status",
        "taskDefinitionId",
        "tenantId",
    ),
    _index("incidents", "task", "executionId"),
    _index("incidents", "status_created", "status", "-createdAt", "_id"),
    _index(
        "definitions",
        "ruled_variables",
        "ruledVariables",
        partialFilterExpression={"ruledVariables": _EXISTS},
    ),
    _index("incidents", "expiry", "expiresAt", expireAfterSeconds=0),
    _index("history", "expiry", "expiresAt", expireAfterSeconds=0),
    _index("completed_external_tasks", "instance", "processInstanceId"),
    _index("completed_external_tasks", "expiry", "expiresAt", expireAfterSeconds=0),
    _index("start_keys", "expiry", "expiresAt", expireAfterSeconds=0),
    # By the database's logical time. What an older release stored without one comes first, as its hosts' clocks had it.
    _index(
        "outbox_events",
        "instance_order",
        "processInstanceId",
        "sequence",
        "timestamp",
        "position",
        "_id",
    ),
    # For how long visits of a node take.
    _index(
        "outbox_events",
        "node",
        "processDefinitionId",
        "payload.flowNodeDefinitionId",
        "-timestamp",
        partialFilterExpression={"eventType": "FLOW_NODE_FINISHED"},
    ),
    # The same for waits, which are completed and not finished.
    _index(
        "outbox_events",
        "wait",
        "processDefinitionId",
        "payload.taskDefinitionId",
        "-timestamp",
        partialFilterExpression={"eventType": "EXTERNAL_TASK_COMPLETED"},
    ),
    # What waits in each slice, in order; RETRYING rows by when they are due; and what stands in the way of an instance.
    _index("outbox_events", "relay_order", "relayStatus", "slice", "sequence", "_id"),
    _index(
        "outbox_events",
        "retries",
        "slice",
        "retryAt",
        partialFilterExpression={"retryAt": _EXISTS},
    ),
    _index(
        "outbox_events",
        "stalled",
        "processInstanceId",
        "relayStatus",
        partialFilterExpression={"stalled": True},
    ),
    _index("outbox_events", "expiry", "expiresAt", expireAfterSeconds=0),
    _index("messages", "key", "correlationKey", "tenantId", "status"),
    _index("messages", "expiry", "expiresAt", expireAfterSeconds=0),
    _index("work_reports", "expiry", "expiresAt", expireAfterSeconds=0),
    _index("bulk_jobs", "created", "-createdAt", "_id"),
    _index("bulk_jobs", "tenant_created", "tenantId", "-createdAt", "_id"),
    _index("bulk_jobs", "expiry", "expiresAt", expireAfterSeconds=0),
    _index("workers", "seen", "seenAt", expireAfterSeconds=WORKER_RECORD_SECONDS),
    _index("answers", "expiry", "expiresAt", expireAfterSeconds=0),
    _index("api_tokens", "secret", "secretHash", unique=True),
    _index(
        "api_tokens",
        "previous_secret",
        "previousHash",
        partialFilterExpression={"previousHash": _EXISTS},
    ),
    # Revoked tokens have no such field, so that their name can be given again.
    _index(
        "api_tokens", "name", "current", unique=True, partialFilterExpression={"current": _EXISTS}
    ),
    _index("api_tokens", "expiry", "removeAt", expireAfterSeconds=0),
    _index("web_sessions", "login", "csrfToken"),
    _index("web_sessions", "expiry", "expiresAt", expireAfterSeconds=0),
    _index("audit_log", "newest", "-at", "_id"),
    _index("audit_log", "actor_newest", "actor", "-at", "_id"),
    _index("audit_log", "operation_newest", "operation", "-at", "_id"),
    _index("audit_log", "subject_newest", "subjectIds", "-at", "_id"),
    _index(
        "audit_log",
        "tenant_newest",
        "tenantId",
        "-at",
        "_id",
        partialFilterExpression={"tenantId": _EXISTS},
    ),
    _index("audit_log", "expiry", "expiresAt", expireAfterSeconds=0),
)


async def ensure_schema(collections: Collections, *, newest: int = SCHEMA_VERSION) -> None:
    """Create collections and indexes that are missing, and note the schema version. Safe to run on every start.

    Raises:
        SchemaMismatchError: The database has another schema version, or an index of ours exists with other options.
    """
    with translated("preparing the database"):
        found = await find_schema_version(collections)
        if found is not None and found > newest:
            raise newer_schema(found, newest)
        if found is not None and found < newest:
            raise SchemaMismatchError(
                f"the database has schema version {found}, this release needs {newest}; "
                "stop the older workers and run: kikwiflow-worker store upgrade"
            )
        await _ensure_indexes(collections)
        if found is None:
            await settled(
                collections.meta.update_one(
                    {"_id": "schema"}, {"$setOnInsert": {"version": newest}}, upsert=True
                )
            )


async def find_schema_version(collections: Collections) -> int | None:
    """Return the schema version of a database; None if no release has prepared it."""
    meta = await settled(collections.meta.find_one({"_id": "schema"}))
    return int(meta["version"]) if meta else None


def newer_schema(found: int, newest: int) -> SchemaMismatchError:
    """Return the error for a database that a newer release wrote."""
    return SchemaMismatchError(
        f"the database has schema version {found}, this release knows up to {newest}; "
        "run a newer kikwiflow-worker"
    )


async def _ensure_indexes(collections: Collections) -> None:
    for index in INDEXES:
        collection = getattr(collections, index.collection)
        try:
            await settled(
                collection.create_index(list(index.keys), name=index.name, **index.options)
            )
        except OperationFailure as error:
            if error.code in _INDEX_OPTIONS_CONFLICT:
                raise SchemaMismatchError(
                    f"index {index.name!r} of {collection.name} exists with other options; "
                    "kikwiflow-worker store upgrade makes it as needed"
                ) from error
            raise
