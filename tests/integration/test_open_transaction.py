"""A worker that dies inside a transaction leaves its row write-locked; the others must not wait for it."""

import time
from datetime import timedelta

import pytest
from pymongo import AsyncMongoClient

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.capability import NO_CAPABILITIES
from kikwiflow_worker.model.runtime import ExecutableTask, TaskType
from kikwiflow_worker.model.unit_of_work import InsertTask, UnitOfWork
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.stores import claim_next


@pytest.mark.field_case("S-75")
async def test_rows_that_an_open_transaction_holds_are_claimed_around(
    mongo_uri: str, database_name: str
) -> None:
    store = MongoStore.open(mongo_uri, database_name, clock=SystemClock())
    await store.prepare()
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
        for number in range(8)
    ]
    await store.runtime.commit(UnitOfWork((), tuple(InsertTask(row) for row in rows)))
    dead: AsyncMongoClient[dict[str, object]] = AsyncMongoClient(mongo_uri)
    session = dead.start_session()
    await session.start_transaction()
    held = {"_id": {"$in": ["row-0", "row-1", "row-2"]}}
    await dead[database_name].executable_tasks.delete_many(held, session=session)

    claimed, waits = [], []
    for _ in range(6):
        started = time.monotonic()
        task = await claim_next(store, NO_CAPABILITIES)
        waits.append(time.monotonic() - started)
        claimed.append(task.task.id if task else None)
    await session.abort_transaction()
    await session.end_session()
    await dead.close()
    await store.close()

    assert claimed == ["row-3", "row-4", "row-5", "row-6", "row-7", None]
    assert waits[0] < 2.5, "one claim finds out which rows are held"
    assert max(waits[1:]) < 0.5, "the next ones leave them out"
