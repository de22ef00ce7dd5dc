"""A worker that dies inside a transaction leaves its row write-locked; the others must not wait for it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from pymongo import AsyncMongoClient

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.capability import NO_CAPABILITIES
from kikwiflow_worker.model.runtime import ExecutableTask, TaskType
from kikwiflow_worker.model.unit_of_work import InsertTask, UnitOfWork
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.stores import claim_many, claim_next


async def put_rows(store: MongoStore, count: int) -> None:
    now = store.runtime.now()
    rows = [
        ExecutableTask(
            id=f"row-{number}",
            type=TaskType.STANDARD,
            node_id="N",
            instance_id="i",
            definition_id="d",
            created_at=now,
            claimable_at=now - timedelta(seconds=60 - number),
        )
        for number in range(count)
    ]
    await store.runtime.commit(UnitOfWork((), tuple(InsertTask(row) for row in rows)))


@asynccontextmanager
async def held_rows(uri: str, database: str, *numbers: int) -> AsyncIterator[None]:
    """Hold rows as a worker does that died inside a transaction."""
    dead: AsyncMongoClient[dict[str, object]] = AsyncMongoClient(uri)
    session = dead.start_session()
    await session.start_transaction()
    held = {"_id": {"$in": [f"row-{number}" for number in numbers]}}
    await dead[database].executable_tasks.delete_many(held, session=session)
    yield
    await session.abort_transaction()
    await session.end_session()
    await dead.close()


@pytest.mark.field_case("S-75")
async def test_rows_that_an_open_transaction_holds_are_claimed_around(
    mongo_uri: str, database_name: str
) -> None:
    store = MongoStore.open(mongo_uri, database_name, clock=SystemClock())
    await store.prepare()
    await put_rows(store, 8)

    claimed, waits = [], []
    async with held_rows(mongo_uri, database_name, 0, 1, 2):
        for _ in range(6):
            started = time.monotonic()
            task = await claim_next(store, NO_CAPABILITIES)
            waits.append(time.monotonic() - started)
            claimed.append(task.task.id if task else None)
    await store.close()

    assert claimed == ["row-3", "row-4", "row-5", "row-6", "row-7", None]
    assert waits[0] < 2.5, "one claim finds out which rows are held"
    assert max(waits[1:]) < 0.5, "the next ones leave them out"


async def test_a_batch_leaves_out_only_the_rows_that_an_open_transaction_holds(
    mongo_uri: str, database_name: str
) -> None:
    store = MongoStore.open(mongo_uri, database_name, clock=SystemClock())
    await store.prepare()
    await put_rows(store, 20)

    claimed, waits = [], []
    async with held_rows(mongo_uri, database_name, 0, 7, 13):
        for _ in range(3):
            started = time.monotonic()
            batch = await claim_many(store, 12)
            waits.append(time.monotonic() - started)
            claimed.append(sorted(int(one.claim.task_id.split("-")[1]) for one in batch))
    await store.close()

    found = [number for batch in claimed for number in batch]
    assert sorted(found) == [number for number in range(20) if number not in {0, 7, 13}]
    assert waits[-1] < 0.5, "those that are known to be held are left out"
