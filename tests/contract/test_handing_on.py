"""Handing on: the first task that a unit inserts is born claimed by the worker that commits it (protocol R16)."""

from datetime import timedelta

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.capability import NO_CAPABILITIES
from kikwiflow_worker.model.runtime import (
    Branch,
    Claim,
    ClaimedTask,
    InstanceStatus,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    ChangeVariables,
    Committed,
    InsertInstance,
    InsertTask,
    RemoveTask,
    StartChild,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import IncrementVariable, SetVariable
from kikwiflow_worker.store.mongo.locks import MongoLockKeeper
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.values import GroupedUnit, HandOn
from tests.support.groups import HAND_ON, commit_group, committed, put_claimed, step, unit_of
from tests.support.stores import (
    FAR_AWAY,
    HANDLER,
    LOCK,
    LONG_AGO,
    WORKER,
    Json,
    a_branch_task,
    a_join,
    a_task,
    an_instance,
    claim,
    claim_any,
    put_instance,
)

pytestmark = pytest.mark.mongo

every_size = pytest.mark.parametrize("size", [1, 3])
"""Alone and in a group."""


async def hand_on(
    store: MongoStore, size: int, *changes: object, **fields: object
) -> list[ClaimedTask | None]:
    """Run ``size`` steps to a next task each, and return what was handed on."""
    units = [
        step(store, held, instance_id=instance.id, **fields)
        for instance, _, held in await put_claimed(store, size)
    ]
    return [one.handed_on for one in committed(await commit_group(store, *units, hand_on=HAND_ON))]


@every_size
async def test_the_next_task_is_born_claimed_with_the_first_epoch(
    store: MongoStore, size: int
) -> None:
    before = store.runtime.now()

    handed_on = await hand_on(store, size, handler_name=HANDLER)

    assert len(handed_on) == size
    for one in handed_on:
        assert one is not None
        assert one.claim == Claim(one.task.id, WORKER, 1)
        assert await store.reads.find_task(one.task.id) == one.task
        assert one.task.status is TaskStatus.LOCKED
        assert one.task.lock_expires_at == one.task.claimable_at == one.claimed_at + LOCK
        assert abs(one.claimed_at - before) < timedelta(seconds=5)
        assert one.instance is not None
        assert one.instance.id == one.task.instance_id
    assert await claim_any(store) is None


@every_size
async def test_what_was_handed_on_can_be_committed(
    store: MongoStore, data: Database[Json], size: int
) -> None:
    handed_on = await hand_on(store, size)

    results = await commit_group(
        store, *(unit_of(RemoveTask(one.claim)) for one in handed_on if one)
    )

    assert len(committed(results)) == size
    assert data.executable_tasks.count_documents({}) == 0


@every_size
async def test_a_task_handed_on_is_not_counted_as_claimable(store: MongoStore, size: int) -> None:
    made = await put_claimed(store, size)
    following = a_task(claimable_at=LONG_AGO)
    units = [
        step(store, held, InsertTask(following if not n else a_task(claimable_at=LONG_AGO)))
        for n, (_, _, held) in enumerate(made)
    ]

    results = committed(await commit_group(store, *units, hand_on=HAND_ON))

    assert [one.claimable for one in results] == [1] * size
    assert all(one.handed_on for one in results)


@every_size
@pytest.mark.parametrize(
    "fields",
    [
        {"claimable_at": FAR_AWAY, "due_at": FAR_AWAY},
        {"handler_name": "somebody_else_s"},
        {"status": TaskStatus.AWAITING_BRANCHES, "claimable_at": None},
        {"status": TaskStatus.ERROR, "claimable_at": None},
        {"type": TaskType.KEPT_MESSAGE},
        {"type": TaskType.CANCEL_CHILDREN},
    ],
    ids=str,
)
async def test_only_what_this_worker_can_run_at_once_is_handed_on(
    store: MongoStore, data: Database[Json], size: int, fields: Json
) -> None:
    made = await put_claimed(store, size)
    units = [
        unit_of(RemoveTask(held), InsertTask(a_task(**{"claimable_at": LONG_AGO, **fields})))
        for _, _, held in made
    ]

    results = committed(await commit_group(store, *units, hand_on=HAND_ON))

    assert [one.handed_on for one in results] == [None] * size
    assert data.executable_tasks.count_documents({"status": "LOCKED"}) == 0


@every_size
async def test_the_first_of_several_is_handed_on_and_the_others_wait_for_anybody(
    store: MongoStore, data: Database[Json], size: int
) -> None:
    made = await put_claimed(store, size)
    units = []
    for instance, _, held in made:
        rows = [
            a_task(instance_id=instance.id, handler_name=name)
            for name in ("somebody_else_s", HANDLER, None)
        ]
        units.append(unit_of(RemoveTask(held), *(InsertTask(row) for row in rows)))

    results = committed(await commit_group(store, *units, hand_on=HAND_ON))

    assert all(one.handed_on and one.handed_on.task.handler_name == HANDLER for one in results)
    assert data.executable_tasks.count_documents({"status": "PENDING"}) == 2 * size


@every_size
async def test_nothing_is_handed_on_unless_the_worker_asks_for_it(
    store: MongoStore, data: Database[Json], size: int
) -> None:
    made = await put_claimed(store, 2 * size)
    units = [step(store, held) for _, _, held in made]
    may_not = [GroupedUnit(unit, may_hand_on=False) for unit in units[size:]]

    results = committed(await commit_group(store, *units[:size], hand_on=None))
    results += committed(await store.runtime.commit_group(may_not, hand_on=HAND_ON))

    assert [one.handed_on for one in results] == [None] * 2 * size
    assert data.executable_tasks.count_documents({"status": "LOCKED"}) == 0


async def test_units_of_one_group_hand_on_or_not_each_for_itself(store: MongoStore) -> None:
    made = await put_claimed(store, 4)
    units = [
        GroupedUnit(step(store, held), may_hand_on=n % 2 == 0)
        for n, (_, _, held) in enumerate(made)
    ]

    results = committed(await store.runtime.commit_group(units, hand_on=HAND_ON))

    assert [one.handed_on is not None for one in results] == [True, False, True, False]


async def test_a_unit_whose_claim_is_lost_hands_nothing_on(
    store: MongoStore, data: Database[Json]
) -> None:
    made = await put_claimed(store, 3)
    await store.queue.release(made[1][2])
    units = [step(store, held) for _, _, held in made]

    results = await commit_group(store, *units, hand_on=HAND_ON)

    assert [type(one) for one in results] == [Committed, ClaimLostError, Committed]
    assert data.executable_tasks.count_documents({"status": "LOCKED"}) == 2


@every_size
async def test_the_instance_is_as_it_is_after_the_commit(store: MongoStore, size: int) -> None:
    made = await put_claimed(store, size)
    units = []
    for instance, _, held in made:
        # Another branch has changed it since this step was loaded.
        other = ChangeVariables(instance.id, (SetVariable("other", "changed"),))
        await store.runtime.commit(UnitOfWork((), (other,)))
        own = ChangeVariables(instance.id, (IncrementVariable("count", 1),))
        units.append(step(store, held, own, instance_id=instance.id))

    results = committed(await commit_group(store, *units, hand_on=HAND_ON))

    for one in results:
        assert one.handed_on is not None
        assert one.handed_on.instance is not None
        assert one.handed_on.instance.variables == {"count": 1, "other": "changed"}


@every_size
async def test_a_suspended_instance_is_seen_and_its_task_can_be_parked(
    store: MongoStore, size: int
) -> None:
    made = await put_claimed(store, size)
    units = [step(store, held, instance_id=instance.id) for instance, _, held in made]
    for instance, _, _ in made:
        assert await store.runtime.suspend_instance(instance.id)

    results = committed(await commit_group(store, *units, hand_on=HAND_ON))

    for one in results:
        assert one.handed_on is not None
        assert one.handed_on.instance is not None
        assert one.handed_on.instance.status is InstanceStatus.SUSPENDED
        assert await store.runtime.park_task(one.handed_on.claim)
        row = await store.reads.find_task(one.handed_on.task.id)
        assert row is not None
        assert (row.status, row.claimable_at) == (TaskStatus.PENDING, None)


async def test_a_cancelled_instance_s_claims_are_lost_however_they_came_about(
    store: MongoStore, data: Database[Json]
) -> None:
    handed_on = await hand_on(store, 3)
    gone = handed_on[0]
    assert gone is not None
    assert await store.runtime.cancel_instance(gone.task.instance_id, cancelled_by=None)

    units = [unit_of(RemoveTask(one.claim)) for one in handed_on if one]
    results = await commit_group(store, *units)

    assert [type(one) for one in results] == [ClaimLostError, Committed, Committed]
    assert data.executable_tasks.count_documents({}) == 0


@every_size
async def test_a_child_s_first_task_is_handed_on_with_the_child(
    store: MongoStore, size: int
) -> None:
    made = await put_claimed(store, size)
    units, children = [], []
    for _, _, held in made:
        child = an_instance()
        children.append(child.id)
        first = InsertTask(a_task(instance_id=child.id))
        units.append(unit_of(StartChild(held), InsertInstance(child), first))

    results = committed(await commit_group(store, *units, hand_on=HAND_ON))

    found = [
        one.handed_on.instance.id for one in results if one.handed_on and one.handed_on.instance
    ]
    assert found == children


@every_size
async def test_a_join_that_the_commit_releases_is_left_to_the_claim(
    store: MongoStore, data: Database[Json], size: int
) -> None:
    instance = an_instance()
    branches = [f"b{number}" for number in range(size)]
    join = a_join(*branches, instance_id=instance.id)
    tasks = [a_branch_task(join, branch) for branch in branches]
    await put_instance(store, join, *tasks, id=instance.id)
    units = [
        unit_of(ArriveTask(await claim(store, task), Branch(branch, join.id)))
        for task, branch in zip(tasks, branches, strict=True)
    ]

    results = committed(await commit_group(store, *units, hand_on=HAND_ON))

    assert sum(one.released for one in results) == 1
    assert all(one.handed_on is None for one in results)
    (row,) = data.executable_tasks.find()
    assert row["status"] == "PENDING"


async def test_a_task_handed_on_whose_reply_was_lost_is_found_as_an_unknown_lock(
    store: MongoStore, data: Database[Json], keeper: MongoLockKeeper
) -> None:
    await hand_on(store, 3)

    released = [keeper.release_unknown(WORKER, known=frozenset()) for _ in range(2)]

    assert released == [0, 3]
    assert data.executable_tasks.count_documents({"status": "PENDING", "crashCount": 0}) == 3


async def test_a_worker_without_handlers_is_handed_what_needs_none(store: MongoStore) -> None:
    made = await put_claimed(store, 2)
    bare = HandOn(worker_id=WORKER, lock=LOCK, capabilities=NO_CAPABILITIES)
    needs = (HANDLER, None)
    units = [
        step(store, held, handler_name=name) for (_, _, held), name in zip(made, needs, strict=True)
    ]

    results = committed(await commit_group(store, *units, hand_on=bare))

    assert [one.handed_on is not None for one in results] == [False, True]
