"""Keeping locks: renewal, loss, and claims whose reply never came."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from pymongo.database import Database

from kikwiflow_worker.model.runtime import Claim, TaskStatus
from kikwiflow_worker.model.unit_of_work import FailTask, Guard, RemoveTask, RescheduleTask
from kikwiflow_worker.store.mongo.locks import MongoLockKeeper
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.stores import (
    LOCK,
    LONG_AGO,
    RIVAL,
    WORKER,
    Json,
    claim,
    claim_any,
    commit,
    lapse,
    new_id,
    put_task,
    snapshot,
)

pytestmark = pytest.mark.mongo


async def test_a_renewed_lock_ends_later(
    store: MongoStore, keeper: MongoLockKeeper, data: Database[Json]
) -> None:
    task = await put_task(store)
    held = await claim(store, task)

    lost = keeper.renew([held], lock=LOCK + timedelta(hours=1))

    assert lost == frozenset()
    row = await store.reads.find_task(task.id)
    assert row is not None
    assert row.lock_expires_at == row.claimable_at
    assert row.lock_expires_at is not None
    assert row.lock_expires_at - store.runtime.now() > timedelta(minutes=59)


async def test_a_renewal_changes_nothing_else(
    store: MongoStore, keeper: MongoLockKeeper, data: Database[Json]
) -> None:
    task = await put_task(store)
    held = await claim(store, task)
    before = await store.reads.find_task(task.id)

    keeper.renew([held], lock=LOCK)

    after = await store.reads.find_task(task.id)
    assert before is not None
    assert after is not None
    assert (after.epoch, after.worker_id, after.status) == (
        before.epoch,
        before.worker_id,
        before.status,
    )
    await commit(store, guards=(RemoveTask(held),))


async def test_nothing_to_renew_is_no_error(keeper: MongoLockKeeper) -> None:
    assert keeper.renew([], lock=LOCK) == frozenset()


async def test_many_claims_of_different_epochs_are_renewed_together(
    store: MongoStore, keeper: MongoLockKeeper, data: Database[Json]
) -> None:
    claims = [await claim(store, await put_task(store, epoch=epoch)) for epoch in (0, 0, 4, 7)]

    assert keeper.renew(claims, lock=LOCK) == frozenset()


async def test_a_lapsed_lock_that_nobody_took_is_renewed(
    store: MongoStore, keeper: MongoLockKeeper, data: Database[Json]
) -> None:
    task = await put_task(store)
    held = await claim(store, task)
    lapse(data, task.id)

    assert keeper.renew([held], lock=LOCK) == frozenset()
    assert await claim_any(store, RIVAL) is None


@pytest.mark.field_case("S-75")
async def test_one_lost_claim_is_named_and_spoils_no_other(
    store: MongoStore, keeper: MongoLockKeeper, data: Database[Json]
) -> None:
    lost_task, kept_task = await put_task(store), await put_task(store)
    lost, kept = await claim(store, lost_task), await claim(store, kept_task)
    lapse(data, lost_task.id)
    await claim_any(store, RIVAL)
    lapse(data, kept_task.id)

    assert keeper.renew([lost, kept], lock=LOCK) == {lost}
    assert await claim_any(store, RIVAL) is None


async def test_losing_a_claim_does_not_prolong_the_other_s_lock(
    store: MongoStore, keeper: MongoLockKeeper, data: Database[Json]
) -> None:
    task = await put_task(store)
    lost = await claim(store, task)
    lapse(data, task.id)
    await claim_any(store, RIVAL)
    before = snapshot(data)

    keeper.renew([lost], lock=LOCK * 2)

    assert snapshot(data) == before


OUTCOMES: dict[str, Callable[[Claim], Guard]] = {
    "removed": RemoveTask,
    "failed": lambda held: FailTask(claim=held, attempts=1, error="no scales"),
    "rescheduled": lambda held: RescheduleTask(
        claim=held, due_at=LONG_AGO, attempts=1, retries_left=1, error="no scales"
    ),
}


@pytest.mark.field_case("S-04")
@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES.keys())
async def test_a_late_renewal_never_touches_what_has_an_outcome(
    store: MongoStore,
    keeper: MongoLockKeeper,
    data: Database[Json],
    outcome: Callable[[Claim], Guard],
) -> None:
    held = await claim(store, await put_task(store))
    await commit(store, guards=(outcome(held),))
    before = snapshot(data)

    assert keeper.renew([held], lock=LOCK) == {held}
    assert snapshot(data) == before


async def test_a_claim_of_nothing_is_lost(keeper: MongoLockKeeper) -> None:
    unknown = Claim(new_id(), WORKER, 1)

    assert keeper.renew([unknown], lock=LOCK) == {unknown}


async def test_an_unknown_lock_is_released_when_it_is_seen_twice(
    store: MongoStore, keeper: MongoLockKeeper, data: Database[Json]
) -> None:
    task = await put_task(store)
    await claim(store, task)

    first = keeper.release_unknown(WORKER, known=frozenset())
    second = keeper.release_unknown(WORKER, known=frozenset())

    assert (first, second) == (0, 1)
    row = await store.reads.find_task(task.id)
    assert row is not None
    assert (row.status, row.worker_id, row.crash_count) == (TaskStatus.PENDING, None, 0)
    assert await claim_any(store, RIVAL) is not None


async def test_a_lock_that_became_known_is_kept(store: MongoStore, keeper: MongoLockKeeper) -> None:
    task = await put_task(store)
    held = await claim(store, task)
    keeper.release_unknown(WORKER, known=frozenset())

    assert keeper.release_unknown(WORKER, known=frozenset({task.id})) == 0
    assert keeper.release_unknown(WORKER, known=frozenset()) == 0
    await commit(store, guards=(RemoveTask(held),))


async def test_another_claim_of_the_same_task_is_seen_anew(
    store: MongoStore, keeper: MongoLockKeeper, data: Database[Json]
) -> None:
    task = await put_task(store)
    held = await claim(store, task)
    keeper.release_unknown(WORKER, known=frozenset())
    await store.queue.release(held)
    await claim(store, task)

    assert keeper.release_unknown(WORKER, known=frozenset()) == 0


async def test_locks_of_others_are_never_released(
    store: MongoStore, keeper: MongoLockKeeper
) -> None:
    await claim(store, await put_task(store), RIVAL)

    released = [keeper.release_unknown(WORKER, known=frozenset()) for _ in range(3)]

    assert released == [0, 0, 0]
