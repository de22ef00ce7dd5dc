"""Claiming many tasks at once: a guarded update with a token, pinned to the epochs that were seen (protocol R4)."""

import asyncio
import random
from collections import Counter
from datetime import timedelta

import pytest
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.capability import NO_CAPABILITIES
from kikwiflow_worker.model.runtime import ExecutableTask, TaskStatus
from kikwiflow_worker.model.unit_of_work import InsertInstance, InsertTask
from kikwiflow_worker.store.mongo.batch_claims import FEWEST_IN_BATCH, Batch, BatchClaims
from kikwiflow_worker.store.mongo.claim_filters import due_filter
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Client, Document, Session, open_database, settled
from kikwiflow_worker.store.mongo.locks import MongoLockKeeper
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.mongo.turns import Turns
from tests.support.profiler import profiled
from tests.support.stores import (
    FAR_AWAY,
    LOCK,
    LONG_AGO,
    RIVAL,
    WORKER,
    Json,
    a_task,
    an_instance,
    claim,
    claim_any,
    claim_many,
    commit,
    lapse,
)

pytestmark = pytest.mark.mongo


async def put_due(store: MongoStore, count: int, **fields: object) -> list[ExecutableTask]:
    """Store due tasks, the oldest first."""
    tasks = [
        a_task(**{"claimable_at": LONG_AGO + timedelta(seconds=number), **fields})
        for number in range(count)
    ]
    await commit(store, *(InsertTask(task) for task in tasks))
    return tasks


def stored(data: Database[Json], task_id: str) -> Json:
    row = data.executable_tasks.find_one({"_id": task_id})
    assert row is not None
    return row


async def test_a_batch_locks_its_tasks_under_its_worker(store: MongoStore) -> None:
    tasks = await put_due(store, 20)

    claimed = await claim_many(store, 8)

    assert len(claimed) == 8
    assert len({one.claim.task_id for one in claimed} & {task.id for task in tasks}) == 8
    for one in claimed:
        assert await store.reads.find_task(one.claim.task_id) == one.task
        assert (one.task.status, one.task.worker_id) == (TaskStatus.LOCKED, WORKER)
        assert one.claim.epoch == one.task.epoch == 1
        assert one.task.lock_expires_at == one.task.claimable_at


async def test_a_batch_brings_its_instances(store: MongoStore) -> None:
    shared, own = an_instance(variables={"weight": 7}), an_instance()
    tasks = [a_task(instance_id=one) for one in (shared.id, shared.id, own.id, "ended")]
    inserts = [InsertTask(task) for task in tasks]
    await commit(store, InsertInstance(shared), InsertInstance(own), *inserts)

    claimed = await claim_many(store, 10)

    found = {one.claim.task_id: one.instance for one in claimed}
    assert [found[task.id] for task in tasks] == [shared, shared, own, None]


async def test_a_batch_takes_no_more_than_there_is(store: MongoStore) -> None:
    await put_due(store, 5)

    assert len(await claim_many(store, 50)) == 5
    assert await claim_many(store, 50) == ()


async def test_a_batch_reads_none_of_what_its_worker_holds_already(
    store: MongoStore, data: Database[Json]
) -> None:
    await put_due(store, 160)
    # The server remembers what was fast for a worker that holds nothing else.
    for _ in range(3):
        await claim_many(store, 16)
        data.executable_tasks.delete_many({"workerId": WORKER})

    with profiled(data) as entries:
        for _ in range(6):
            assert len(await claim_many(store, 16)) == 16

    reads = [entry for entry in entries if "claimToken" in entry["command"].get("filter", {})]
    assert [read["docsExamined"] for read in reads] == [16] * 6


@pytest.mark.parametrize("limit", [1, FEWEST_IN_BATCH - 1, FEWEST_IN_BATCH])
async def test_few_and_many_claim_the_same(store: MongoStore, limit: int) -> None:
    await put_due(store, 10)

    claimed = await claim_many(store, limit)

    assert len(claimed) == limit
    assert all((one.task.status, one.claim.epoch) == ("LOCKED", 1) for one in claimed)


async def test_a_batch_leaves_what_waits_for_no_worker_or_for_another_one(
    store: MongoStore, data: Database[Json]
) -> None:
    await put_due(store, 3, claimable_at=FAR_AWAY, due_at=FAR_AWAY)
    await put_due(store, 3, handler_name="somebody_else_s")
    for status in (TaskStatus.ERROR, TaskStatus.ARRIVED, TaskStatus.AWAITING_BRANCHES):
        await put_due(store, 3, status=status)
    null = await put_due(store, 3)
    data.executable_tasks.update_many(
        {"_id": {"$in": [task.id for task in null]}}, {"$set": {"claimableAt": None}}
    )
    mine = await put_due(store, 3)

    claimed = await claim_many(store, 50)

    assert {one.claim.task_id for one in claimed} == {task.id for task in mine}


async def test_a_lapsed_lock_is_counted_as_a_crash_in_a_batch_too(
    store: MongoStore, data: Database[Json]
) -> None:
    tasks = await put_due(store, 4)
    await claim(store, tasks[0], RIVAL)
    lapse(data, tasks[0].id)

    claimed = await claim_many(store, 10)

    crashes = {one.claim.task_id: (one.claim.epoch, one.task.crash_count) for one in claimed}
    assert crashes == {tasks[0].id: (2, 1), **{task.id: (1, 0) for task in tasks[1:]}}


async def test_every_way_out_of_a_batch_s_lock_forgets_the_token(
    store: MongoStore, data: Database[Json]
) -> None:
    await put_due(store, 4)
    first, second, *_ = await claim_many(store, 4)
    assert "claimToken" in stored(data, first.claim.task_id)

    await store.queue.release(first.claim)
    lapse(data, second.claim.task_id)
    taken = await claim_any(store, RIVAL)
    taken_too = await claim_any(store, RIVAL)

    assert taken is not None
    assert taken_too is not None
    for one in (first, second):
        assert "claimToken" not in stored(data, one.claim.task_id)


async def test_the_lock_ends_that_long_after_the_database_s_now(store: MongoStore) -> None:
    await put_due(store, 5)
    before = store.runtime.now()

    claimed = await claim_many(store, 5)

    for one in claimed:
        assert one.task.lock_expires_at is not None
        assert abs(one.task.lock_expires_at - LOCK - before) < timedelta(seconds=5)
        assert one.claimed_at == one.task.lock_expires_at - LOCK


class Meddling(BatchClaims):
    """Lets something happen between the look at the candidates and the claim of them."""

    def __init__(self, client: Client, data: Database[Json]) -> None:
        tasks = Collections.of(open_database(client, data.name)).tasks
        super().__init__(tasks, Turns(tasks, SystemClock()), random.Random(1))
        self.client = client
        self.happens: list[Document] = []
        self.rivals: Database[Json] = data

    async def _take(
        self, chosen: dict[str, int], worker_id: str, lock: timedelta, session: Session
    ) -> Batch:
        for change in self.happens:
            self.rivals.executable_tasks.update_many(change["found"], change["to"])
        self.happens = []
        return await super()._take(chosen, worker_id, lock, session)

    async def run(self, limit: int) -> dict[str, int]:
        eligible = due_filter(NO_CAPABILITIES)
        async with await settled(self.client.start_session()) as session:
            batch = await self.claim(eligible, WORKER, LOCK, limit, session)
        return {row["_id"]: row["epoch"] for row in batch.rows}


@pytest.fixture
def meddling(client: Client, data: Database[Json]) -> Meddling:
    return Meddling(client, data)


async def test_a_candidate_that_was_claimed_meanwhile_is_left(
    store: MongoStore, data: Database[Json], meddling: Meddling
) -> None:
    tasks = await put_due(store, 4)
    taken = {
        "status": "LOCKED",
        "workerId": RIVAL,
        "epoch": 1,
        "lockExpiresAt": FAR_AWAY,
        "claimableAt": FAR_AWAY,
    }
    meddling.happens = [{"found": {"_id": tasks[0].id}, "to": {"$set": taken}}]

    claimed = await meddling.run(4)

    assert claimed == {task.id: 1 for task in tasks[1:]}
    assert stored(data, tasks[0].id)["workerId"] == RIVAL


async def test_a_candidate_that_was_claimed_and_came_back_is_another(
    store: MongoStore, data: Database[Json], meddling: Meddling
) -> None:
    """Else it would be locked at an epoch that its claimer does not know, and counted as a crash later (A2)."""
    tasks = await put_due(store, 4)
    meddling.happens = [{"found": {"_id": tasks[0].id}, "to": {"$inc": {"epoch": 2}}}]

    claimed = await meddling.run(4)

    assert claimed == {task.id: 1 for task in tasks[1:]}
    row = stored(data, tasks[0].id)
    assert (row["status"], row["epoch"]) == ("PENDING", 2)


async def test_candidates_of_different_epochs_are_each_pinned_to_their_own(
    store: MongoStore, data: Database[Json], meddling: Meddling
) -> None:
    tasks = await put_due(store, 6)
    for number, task in enumerate(tasks):
        data.executable_tasks.update_one({"_id": task.id}, {"$set": {"epoch": number % 3}})
    swapped = {"found": {"_id": tasks[0].id}, "to": {"$set": {"epoch": 1}}}
    meddling.happens = [swapped]

    claimed = await meddling.run(6)

    assert claimed == {task.id: n % 3 + 1 for n, task in enumerate(tasks) if n}


async def test_when_others_win_all_candidates_it_looks_again(
    store: MongoStore, data: Database[Json], meddling: Meddling
) -> None:
    tasks = await put_due(store, 40)
    taken = {"$set": {"status": "LOCKED", "claimableAt": FAR_AWAY}, "$inc": {"epoch": 1}}
    oldest = [task.id for task in tasks[:20]]
    meddling.happens = [{"found": {"_id": {"$in": oldest}}, "to": taken}]

    claimed = await meddling.run(4)

    assert len(claimed) == 4
    assert not claimed.keys() & set(oldest)


async def test_workers_that_claim_batches_at_once_never_share_a_task(
    store: MongoStore, data: Database[Json]
) -> None:
    tasks = await put_due(store, 3000)
    wins: list[str] = []

    async def work(name: str) -> int:
        others = MongoStore.over(store._client, data.name, clock=SystemClock())
        rounds = 0
        while claimed := await claim_many(others, 64, name):
            wins.extend(one.claim.task_id for one in claimed)
            assert {one.claim.worker_id for one in claimed} == {name}
            rounds += 1
        return rounds

    await asyncio.gather(*(work(f"worker-{number}") for number in range(8)))

    assert Counter(wins) == Counter(task.id for task in tasks)
    assert {row["epoch"] for row in data.executable_tasks.find({}, {"epoch": 1})} == {1}
    assert {row["crashCount"] for row in data.executable_tasks.find({}, {"crashCount": 1})} == {0}


async def test_batches_and_single_claims_never_share_a_task(
    store: MongoStore, data: Database[Json]
) -> None:
    await put_due(store, 200)
    wins: list[str] = []

    async def work(name: str, limit: int) -> None:
        others = MongoStore.over(store._client, data.name, clock=SystemClock())
        while claimed := await claim_many(others, limit, name):
            wins.extend(one.claim.task_id for one in claimed)

    await asyncio.gather(work("a", 1), work("b", 16), work("c", 2), work("d", 10))

    assert len(wins) == len(set(wins)) == 200


async def test_a_batch_whose_reply_was_lost_is_found_as_unknown_locks(
    store: MongoStore, data: Database[Json], keeper: MongoLockKeeper
) -> None:
    await put_due(store, 6)
    claimed = await claim_many(store, 6)
    known = frozenset(one.claim.task_id for one in claimed[:2])

    released = [keeper.release_unknown(WORKER, known=known) for _ in range(2)]

    assert released == [0, 4]
    rows = list(data.executable_tasks.find({"status": "PENDING"}))
    assert len(rows) == 4
    assert all(row["crashCount"] == 0 and "claimToken" not in row for row in rows)
