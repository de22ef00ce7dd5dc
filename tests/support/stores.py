"""Stores on the real server for tests, and records to put into them."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.capability import Capabilities, Capability, HandlerKind
from kikwiflow_worker.model.runtime import (
    Branch,
    Claim,
    ClaimedTask,
    ExecutableTask,
    ExternalTask,
    Incident,
    IncidentType,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    Change,
    Committed,
    Guard,
    InsertInstance,
    InsertTask,
    UnitOfWork,
)
from kikwiflow_worker.store.mongo.driver import CODEC_OPTIONS, Client, settled
from kikwiflow_worker.store.mongo.locks import MongoLockKeeper
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from tests.support.mongo import MongoServer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from motor.motor_asyncio import AsyncIOMotorClient

Json = dict[str, Any]

LOCK = timedelta(seconds=60)
WORKER = "worker-1"
RIVAL = "worker-2"
LONG_AGO = datetime(2024, 5, 1, 12, tzinfo=UTC)
FAR_AWAY = datetime(2124, 5, 1, 12, tzinfo=UTC)
HANDLER = "weigh_parcel"
CAPABILITIES = Capabilities([Capability(HandlerKind.TASK_HANDLER, HANDLER)])


def new_id() -> str:
    return str(uuid4())


def an_instance(**fields: Any) -> ProcessInstance:
    """Return an instance that is stored nowhere yet."""
    chosen: Json = {
        "id": new_id(),
        "business_key": "order-1",
        "definition_id": "definition-1",
        "definition_key": "parcel",
        "definition_version": 1,
        "started_at": LONG_AGO,
    }
    return ProcessInstance(**{**chosen, **fields})


def a_task(**fields: Any) -> ExecutableTask:
    """Return a task that has been due for long."""
    chosen: Json = {
        "id": new_id(),
        "type": TaskType.STANDARD,
        "node_id": "TASK",
        "instance_id": "no-instance",
        "definition_id": "definition-1",
        "created_at": LONG_AGO,
        "claimable_at": LONG_AGO,
        "retries_left": 3,
    }
    return ExecutableTask(**{**chosen, **fields})


def a_join(*branch_ids: str, **fields: Any) -> ExecutableTask:
    """Return a join task that waits for branches."""
    chosen: Json = {
        "type": TaskType.JOIN_GATEWAY,
        "status": TaskStatus.AWAITING_BRANCHES,
        "claimable_at": None,
        "pending_branch_ids": branch_ids,
    }
    return a_task(**{**chosen, **fields})


def a_branch_task(join: ExecutableTask, branch_id: str, **fields: Any) -> ExecutableTask:
    """Return a due task on a branch of ``join``."""
    return a_task(branch=Branch(branch_id, join.id), instance_id=join.instance_id, **fields)


def an_external_task(**fields: Any) -> ExternalTask:
    """Return an external task that is stored nowhere yet."""
    chosen: Json = {
        "id": new_id(),
        "node_id": "APPROVE",
        "instance_id": "no-instance",
        "definition_id": "definition-1",
        "created_at": LONG_AGO,
    }
    return ExternalTask(**{**chosen, **fields})


def an_incident(task: ExecutableTask, **fields: Any) -> Incident:
    """Return an open incident of ``task``."""
    chosen: Json = {
        "id": new_id(),
        "type": IncidentType.FAILED_JOB,
        "message": "the scales are broken",
        "stack_trace": "",
        "instance_id": task.instance_id,
        "definition_id": task.definition_id,
        "task_id": task.id,
        "node_id": task.node_id,
        "created_at": LONG_AGO,
    }
    return Incident(**{**chosen, **fields})


async def commit(store: MongoStore, *changes: Change, guards: tuple[Guard, ...] = ()) -> Committed:
    """Commit guards and changes as one unit."""
    return await store.runtime.commit(UnitOfWork(guards, changes))


async def put_task(store: MongoStore, **fields: Any) -> ExecutableTask:
    """Store a task without an instance."""
    task = a_task(**fields)
    await commit(store, InsertTask(task))
    return task


async def put_instance(store: MongoStore, *tasks: ExecutableTask, **fields: Any) -> ProcessInstance:
    """Store an instance with tasks, which must bear its id."""
    instance = an_instance(**fields)
    await commit(store, InsertInstance(instance), *(InsertTask(task) for task in tasks))
    return instance


async def claim_next(
    store: MongoStore, capabilities: Capabilities, *, worker_id: str = WORKER
) -> ClaimedTask | None:
    """Claim one due task for a worker with these capabilities."""
    due = await store.queue.claim_due(
        worker_id=worker_id, lock=LOCK, capabilities=capabilities, limit=1
    )
    return due[0] if due else None


async def claim_any(store: MongoStore, worker_id: str = WORKER) -> ClaimedTask | None:
    """Claim what is due for a worker that has ``HANDLER``."""
    return await claim_next(store, CAPABILITIES, worker_id=worker_id)


async def claim_many(
    store: MongoStore, limit: int, worker_id: str = WORKER
) -> tuple[ClaimedTask, ...]:
    """Claim at most ``limit`` due tasks for a worker that has ``HANDLER``."""
    return await store.queue.claim_due(
        worker_id=worker_id, lock=LOCK, capabilities=CAPABILITIES, limit=limit
    )


async def claim(store: MongoStore, task: ExecutableTask, worker_id: str = WORKER) -> Claim:
    """Claim one task, which must be free."""
    claimed = await store.queue.claim(task.id, worker_id=worker_id, lock=LOCK)
    assert claimed is not None
    return claimed.claim


def lapse(data: Database[Json], task_id: str) -> None:
    """Let the lock of a task have ended long ago."""
    ended = {"lockExpiresAt": LONG_AGO, "claimableAt": LONG_AGO}
    result = data.executable_tasks.update_one({"_id": task_id, "status": "LOCKED"}, {"$set": ended})
    assert result.modified_count == 1


def snapshot(data: Database[Json]) -> dict[str, list[Json]]:
    """Return all that is stored, to compare before and after."""
    return {
        name: list(data[name].find().sort("_id")) for name in sorted(data.list_collection_names())
    }


async def together(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Start all calls at the same instant; return results and exceptions in order."""
    start = asyncio.Event()

    async def wait_and_call(call: Callable[[], Awaitable[Any]]) -> Any:
        await start.wait()
        return await call()

    tasks = [asyncio.ensure_future(wait_and_call(call)) for call in calls]
    start.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def leaking_driver() -> Iterator[None]:
    """Clear away sockets that the driver forgets when a client is closed while it connects."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def prepared_database(mongo_server: MongoServer) -> Iterator[str]:
    """Return the name of a database with all indexes, which the tests of a run share one after another."""
    name = f"kikwi_test_{uuid4().hex[:12]}"

    async def prepare() -> None:
        store = MongoStore.open(mongo_server.uri, name, clock=SystemClock())
        await store.prepare()
        await store.close()

    asyncio.run(prepare())

    yield name

    with MongoClient[Json](mongo_server.uri) as client:
        client.drop_database(name)


@pytest.fixture
def data(mongo_server: MongoServer, prepared_database: str) -> Iterator[Database[Json]]:
    """Return the prepared database itself, emptied afterwards, to look behind the store's back."""
    with MongoClient[Json](mongo_server.uri) as client:
        database = client.get_database(prepared_database, codec_options=CODEC_OPTIONS)
        yield database
        for name in database.list_collection_names():
            if name != "meta":
                database[name].delete_many({})


@pytest.fixture(params=["pymongo", "motor"])
async def client(
    request: pytest.FixtureRequest, mongo_server: MongoServer
) -> AsyncIterator[Client]:
    """Return an application's own client, of each driver."""
    opened: Client
    if request.param == "pymongo":
        opened = AsyncMongoClient(mongo_server.uri)
    else:
        opened = AsyncIOMotorClient(mongo_server.uri)

    yield opened

    await settled(opened.close())


@pytest.fixture
async def store(client: Client, data: Database[Json]) -> MongoStore:
    """Return a store on the prepared database, over each driver."""
    options = StoreOptions(retention=timedelta(days=1))
    opened = MongoStore.over(client, data.name, clock=SystemClock(), options=options)
    await opened.ping()
    return opened


@pytest.fixture
def keeper(mongo_server: MongoServer, data: Database[Json]) -> Iterator[MongoLockKeeper]:
    """Return a lock keeper on the prepared database."""
    opened = MongoLockKeeper(mongo_server.uri, data.name)
    yield opened
    opened.close()
