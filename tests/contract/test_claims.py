"""Claiming: what is eligible, in which order, and what a claim changes."""

from datetime import timedelta
from itertools import pairwise

import pytest
from pymongo.database import Database

from kikwiflow_worker.model.capability import NO_CAPABILITIES, Capabilities, Capability, HandlerKind
from kikwiflow_worker.model.runtime import TaskStatus, TaskType
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.stores import (
    FAR_AWAY,
    HANDLER,
    LOCK,
    LONG_AGO,
    RIVAL,
    WORKER,
    Json,
    a_task,
    an_instance,
    claim,
    claim_any,
    claim_next,
    lapse,
    new_id,
    put_instance,
    put_task,
    together,
)

pytestmark = pytest.mark.mongo


@pytest.mark.field_case("S-21")
async def test_a_claim_locks_the_task_under_its_worker(store: MongoStore) -> None:
    task = await put_task(store)

    claimed = await claim_any(store)

    assert claimed is not None
    assert claimed.claim.task_id == task.id
    stored = await store.reads.find_task(task.id)
    assert stored == claimed.task
    assert (stored.status, stored.worker_id, stored.epoch) == (TaskStatus.LOCKED, WORKER, 1)
    assert stored.lock_expires_at == stored.claimable_at


async def test_the_lock_ends_that_long_after_the_database_s_now(store: MongoStore) -> None:
    await put_task(store)
    before = store.runtime.now()

    claimed = await claim_any(store)

    assert claimed is not None
    assert claimed.task.lock_expires_at is not None
    assert abs(claimed.task.lock_expires_at - LOCK - before) < timedelta(seconds=5)


async def test_a_claim_brings_its_instance(store: MongoStore) -> None:
    instance = an_instance(variables={"weight": 7})
    await put_instance(
        store, a_task(instance_id=instance.id), id=instance.id, variables={"weight": 7}
    )

    claimed = await claim_any(store)

    assert claimed is not None
    assert claimed.instance == instance


async def test_a_claim_of_an_ended_instance_s_task_has_no_instance(store: MongoStore) -> None:
    await put_task(store)

    claimed = await claim_any(store)

    assert claimed is not None
    assert claimed.instance is None


@pytest.mark.field_case("S-39")
async def test_the_oldest_due_task_comes_first_whatever_it_needs(store: MongoStore) -> None:
    stored = {
        minutes: await put_task(
            store,
            claimable_at=LONG_AGO + timedelta(minutes=minutes),
            handler_name=HANDLER if minutes % 20 else None,
        )
        for minutes in (30, 10, 20, 0)
    }

    claimed = [await claim_any(store) for _ in stored]

    ids = [one.claim.task_id for one in claimed if one]
    assert ids == [stored[minutes].id for minutes in (0, 10, 20, 30)]


@pytest.mark.field_case("S-07")
async def test_a_task_that_is_not_due_is_not_claimed(store: MongoStore) -> None:
    await put_task(store, due_at=FAR_AWAY, claimable_at=FAR_AWAY)

    assert await claim_any(store) is None


@pytest.mark.parametrize("status", list(TaskStatus))
async def test_a_task_without_a_claimable_instant_is_never_claimed(
    store: MongoStore, status: TaskStatus
) -> None:
    await put_task(store, status=status, claimable_at=None)

    assert await claim_any(store) is None


async def test_a_claimable_instant_of_null_is_never_claimed(
    store: MongoStore, data: Database[Json]
) -> None:
    task = await put_task(store)
    data.executable_tasks.update_one({"_id": task.id}, {"$set": {"claimableAt": None}})

    assert await claim_any(store) is None


@pytest.mark.parametrize(
    "status", [TaskStatus.AWAITING_BRANCHES, TaskStatus.ARRIVED, TaskStatus.ERROR]
)
async def test_a_task_that_waits_for_no_worker_is_not_claimed_though_due(
    store: MongoStore, status: TaskStatus
) -> None:
    await put_task(store, status=status)

    assert await claim_any(store) is None


@pytest.mark.field_case("S-46")
async def test_a_task_for_a_handler_that_the_worker_lacks_is_left(store: MongoStore) -> None:
    await put_task(store, handler_name="somebody_else_s")

    assert await claim_any(store) is None


async def test_a_provider_is_not_a_handler_of_the_same_name(store: MongoStore) -> None:
    provider = Capability(HandlerKind.ANSWER_PROVIDER, HANDLER)
    await put_task(store, handler_name=provider.stored)

    assert await claim_any(store) is None
    assert await claim_next(store, Capabilities([provider])) is not None


async def test_a_task_that_needs_no_handler_runs_anywhere(store: MongoStore) -> None:
    await put_task(store, handler_name=None)

    claimed = await claim_next(store, NO_CAPABILITIES)

    assert claimed is not None


@pytest.mark.field_case("S-19")
async def test_a_locked_task_is_left_alone(store: MongoStore) -> None:
    await put_task(store)
    await claim_any(store)

    assert await claim_any(store, RIVAL) is None


@pytest.mark.field_case("S-17", "S-19", "S-24")
@pytest.mark.parametrize(
    "kind",
    [
        TaskType.STANDARD,
        TaskType.TIMER_TASK,
        TaskType.INTERRUPTIVE_TIMER,
        TaskType.NON_INTERRUPTIVE_TIMER,
        TaskType.JOIN_GATEWAY,
    ],
)
async def test_a_lapsed_lock_is_taken_over_and_counted_as_a_crash_and_not_as_an_attempt(
    store: MongoStore, data: Database[Json], kind: TaskType
) -> None:
    task = await put_task(store, type=kind)
    await claim(store, task)
    lapse(data, task.id)

    taken = await claim_any(store, RIVAL)

    assert taken is not None
    assert (taken.claim.task_id, taken.claim.worker_id, taken.claim.epoch) == (task.id, RIVAL, 2)
    assert (taken.task.crash_count, taken.task.attempts) == (1, 0)


async def test_the_first_claim_counts_no_crash(store: MongoStore) -> None:
    await put_task(store)

    claimed = await claim_any(store)

    assert claimed is not None
    assert claimed.task.crash_count == 0


async def test_a_worker_id_is_never_an_expression(store: MongoStore) -> None:
    await put_task(store)

    claimed = await claim_any(store, "$status")

    assert claimed is not None
    assert claimed.task.worker_id == "$status"


async def test_one_task_can_be_claimed_by_id_before_it_is_due(store: MongoStore) -> None:
    task = await put_task(store, due_at=FAR_AWAY, claimable_at=FAR_AWAY)

    claimed = await store.queue.claim(task.id, worker_id=WORKER, lock=LOCK)

    assert claimed is not None
    assert claimed.claim.epoch == 1


@pytest.mark.parametrize(
    "status",
    [TaskStatus.LOCKED, TaskStatus.AWAITING_BRANCHES, TaskStatus.ARRIVED, TaskStatus.ERROR],
)
async def test_claiming_by_id_takes_only_what_waits_for_a_worker(
    store: MongoStore, status: TaskStatus
) -> None:
    task = await put_task(store, status=status)

    assert await store.queue.claim(task.id, worker_id=WORKER, lock=LOCK) is None


async def test_claiming_an_unknown_id_finds_nothing(store: MongoStore) -> None:
    assert await store.queue.claim(new_id(), worker_id=WORKER, lock=LOCK) is None


async def test_a_released_task_is_due_as_before(store: MongoStore, data: Database[Json]) -> None:
    due_at = LONG_AGO + timedelta(hours=1)
    task = await put_task(store, due_at=due_at, claimable_at=due_at, attempts=1, retries_left=2)

    released = await store.queue.release(await claim(store, task))

    assert released
    row = await store.reads.find_task(task.id)
    assert row is not None
    assert (row.status, row.claimable_at) == (TaskStatus.PENDING, due_at)
    assert (row.attempts, row.retries_left, row.crash_count) == (1, 2, 0)


async def test_a_released_task_names_no_worker_and_has_a_new_epoch(
    store: MongoStore, data: Database[Json]
) -> None:
    task = await put_task(store)

    await store.queue.release(await claim(store, task))

    row = data.executable_tasks.find_one({"_id": task.id})
    assert row is not None
    assert not {"workerId", "lockExpiresAt", "claimToken"} & row.keys()
    assert row["epoch"] == 2


async def test_a_released_task_without_a_date_is_due_at_once(store: MongoStore) -> None:
    task = await put_task(store)
    await store.queue.release(await claim(store, task))

    again = await claim_any(store, RIVAL)

    assert again is not None
    assert again.task.crash_count == 0


async def test_releasing_twice_does_nothing(store: MongoStore) -> None:
    task = await put_task(store)
    held = await claim(store, task)
    await store.queue.release(held)

    assert not await store.queue.release(held)


async def test_a_lost_claim_cannot_be_released(store: MongoStore, data: Database[Json]) -> None:
    task = await put_task(store)
    lost = await claim(store, task)
    lapse(data, task.id)
    await claim_any(store, RIVAL)

    assert not await store.queue.release(lost)
    row = await store.reads.find_task(task.id)
    assert row is not None
    assert row.worker_id == RIVAL


async def test_epochs_only_grow(store: MongoStore, data: Database[Json]) -> None:
    task = await put_task(store)
    epochs = []
    for _ in range(3):
        held = await claim(store, task)
        epochs.append(held.epoch)
        await store.queue.release(held)

    assert all(later > earlier for earlier, later in pairwise(epochs))


@pytest.mark.field_case("S-11", "S-36", "S-55")
async def test_workers_that_claim_at_once_never_share_a_task(store: MongoStore) -> None:
    ids = {(await put_task(store)).id for _ in range(6)}

    results = await together(
        *(lambda name=f"worker-{n}": claim_any(store, name) for n in range(10))
    )

    claimed = [result.claim.task_id for result in results if result is not None]
    assert sorted(claimed) == sorted(ids)
