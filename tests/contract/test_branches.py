"""Parallel branches: an arrival counts once, and the last one releases the join, once (protocol R9)."""

from datetime import timedelta

import pytest
from pymongo.database import Database

from kikwiflow_worker.model.runtime import Branch, ExecutableTask, TaskStatus, TaskType
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    Committed,
    CompleteExternalTask,
    EndPath,
    InsertExternalTask,
    InsertTask,
    RemoveArrivals,
    RemoveTask,
)
from kikwiflow_worker.store.mongo.arrivals import Arrival, Arrivals
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Client, open_database
from kikwiflow_worker.store.mongo.guards import Guards
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.stores import (
    LONG_AGO,
    Json,
    a_branch_task,
    a_join,
    a_task,
    an_external_task,
    an_instance,
    claim,
    claim_any,
    commit,
    put_instance,
    snapshot,
    together,
)

pytestmark = pytest.mark.mongo

AWAITING = TaskStatus.AWAITING_BRANCHES


async def put_split(
    store: MongoStore, *branch_ids: str
) -> tuple[ExecutableTask, list[ExecutableTask]]:
    """Store an instance with a join and one task on each branch."""
    instance = an_instance()
    join = a_join(*branch_ids, instance_id=instance.id)
    tasks = [a_branch_task(join, branch_id) for branch_id in branch_ids]
    await put_instance(store, join, *tasks, id=instance.id)
    return join, tasks


async def arrive(store: MongoStore, task: ExecutableTask) -> Committed:
    assert task.branch is not None
    return await commit(store, guards=(ArriveTask(await claim(store, task), task.branch),))


async def join_of(store: MongoStore, join: ExecutableTask) -> ExecutableTask:
    found = await store.reads.find_task(join.id)
    assert found is not None
    return found


@pytest.fixture
def arrivals(client: Client, data: Database[Json]) -> Arrivals:
    return Arrivals(Collections.of(open_database(client, data.name)))


def interrupt(data: Database[Json], task: ExecutableTask) -> None:
    """Leave a task as a worker does that dies between the commit of its arrival and the delivery, long ago."""
    arrived = {"status": "ARRIVED", "claimableAt": LONG_AGO}
    data.executable_tasks.update_one({"_id": task.id}, {"$set": arrived})


async def test_a_branch_that_is_not_the_last_leaves_the_join_waiting(store: MongoStore) -> None:
    join, (first, _) = await put_split(store, "b1", "b2")

    committed = await arrive(store, first)

    found = await join_of(store, join)
    assert (found.status, found.pending_branch_ids) == (TaskStatus.AWAITING_BRANCHES, ("b2",))
    assert found.claimable_at is None
    assert committed.claimable == 0


async def test_the_last_branch_makes_the_join_due(store: MongoStore) -> None:
    join, (first, second) = await put_split(store, "b1", "b2")
    await arrive(store, first)

    committed = await arrive(store, second)

    assert committed.claimable == 1
    assert (await join_of(store, join)).pending_branch_ids == ()
    claimed = await claim_any(store)
    assert claimed is not None
    assert claimed.claim.task_id == join.id


async def test_a_delivered_arrival_leaves_no_record(
    store: MongoStore, data: Database[Json]
) -> None:
    _, (first, _) = await put_split(store, "b1", "b2")

    await arrive(store, first)

    assert data.executable_tasks.count_documents({"status": "ARRIVED"}) == 0


@pytest.mark.field_case("S-58")
async def test_a_branch_counts_once_however_often_it_is_delivered(
    store: MongoStore, arrivals: Arrivals
) -> None:
    join, (first, _) = await put_split(store, "b1", "b2")
    one = Arrival(first.id, join.id, "b1")

    released = [await arrivals.deliver([one]) for _ in range(3)]

    assert not any(released)
    assert (await join_of(store, join)).pending_branch_ids == ("b2",)


@pytest.mark.field_case("S-58")
async def test_a_join_that_runs_is_not_released_again(
    store: MongoStore, arrivals: Arrivals
) -> None:
    join, (only,) = await put_split(store, "b1")
    await arrive(store, only)
    held = await claim(store, join)

    released = await arrivals.deliver([Arrival(only.id, join.id, "b1")])

    assert not released
    found = await join_of(store, join)
    assert (found.status, found.epoch) == (TaskStatus.LOCKED, held.epoch)


@pytest.mark.parametrize("status", [one for one in TaskStatus if one is not AWAITING])
async def test_only_a_join_that_waits_is_pulled_from(
    store: MongoStore, data: Database[Json], arrivals: Arrivals, status: TaskStatus
) -> None:
    join, _ = await put_split(store, "b1")
    data.executable_tasks.update_one({"_id": join.id}, {"$set": {"status": status.value}})
    before = snapshot(data)

    released = await arrivals.deliver([Arrival("task", join.id, "b1")])

    assert not released
    assert snapshot(data) == before


async def test_a_branch_that_the_join_does_not_wait_for_never_releases_it(
    store: MongoStore, data: Database[Json], arrivals: Arrivals
) -> None:
    join, _ = await put_split(store, "b1")
    data.executable_tasks.update_one({"_id": join.id}, {"$set": {"pendingBranchIds": []}})

    released = await arrivals.deliver([Arrival("task", join.id, "b1")])

    assert not released
    assert (await join_of(store, join)).status is AWAITING


async def test_a_branch_of_another_join_counts_for_nothing(
    store: MongoStore, arrivals: Arrivals
) -> None:
    join, _ = await put_split(store, "b1", "b2")

    released = await arrivals.deliver([Arrival("task", join.id, "b3")])

    assert not released
    assert (await join_of(store, join)).pending_branch_ids == ("b1", "b2")


async def test_a_branch_id_is_never_an_expression(store: MongoStore) -> None:
    join, (first, _) = await put_split(store, "$status", "$$NOW")

    await arrive(store, first)

    assert (await join_of(store, join)).pending_branch_ids == ("$$NOW",)


async def test_branches_that_arrive_at_once_release_the_join_once(store: MongoStore) -> None:
    join, tasks = await put_split(store, *(f"b{n}" for n in range(6)))
    claims = [(await claim(store, task), task.branch) for task in tasks]

    results = await together(
        *(
            lambda held=held, branch=branch: commit(store, guards=(ArriveTask(held, branch),))
            for held, branch in claims
            if branch
        )
    )

    assert sum(result.claimable for result in results) == 1
    assert (await join_of(store, join)).status is TaskStatus.PENDING


async def test_an_arrival_s_record_forgets_its_lock_and_waits_for_its_own_worker_first(
    store: MongoStore, client: Client, data: Database[Json]
) -> None:
    _, (task, _) = await put_split(store, "b1", "b2")
    data.executable_tasks.update_one({"_id": task.id}, {"$set": {"attachedToRefId": "HOST"}})
    held = await claim(store, task)
    guards = Guards(Collections.of(open_database(client, data.name)), timedelta(days=1))

    await guards.write(ArriveTask(held, Branch("b1", "join-1")), now=store.runtime.now())

    row = data.executable_tasks.find_one({"_id": task.id})
    assert row is not None
    assert (row["status"], row["epoch"]) == ("ARRIVED", held.epoch + 1)
    assert not {"workerId", "lockExpiresAt", "claimToken", "attachedToRefId"} & row.keys()
    assert row["claimableAt"] > store.runtime.now()
    assert await store.queue.deliver_arrivals(limit=10) == 0


@pytest.mark.field_case("S-67")
async def test_an_interrupted_delivery_is_found_and_done(
    store: MongoStore, data: Database[Json]
) -> None:
    join, (first, second) = await put_split(store, "b1", "b2")
    interrupt(data, first)
    interrupt(data, second)

    delivered = await store.queue.deliver_arrivals(limit=10)

    assert delivered == 2
    assert (await join_of(store, join)).status is TaskStatus.PENDING
    assert data.executable_tasks.count_documents({"status": "ARRIVED"}) == 0


async def test_a_sweep_finds_no_more_than_it_may(store: MongoStore, data: Database[Json]) -> None:
    join, tasks = await put_split(store, "b1", "b2", "b3")
    for task in tasks:
        interrupt(data, task)

    counts = [await store.queue.deliver_arrivals(limit=2) for _ in range(3)]

    assert counts == [2, 1, 0]
    assert (await join_of(store, join)).status is TaskStatus.PENDING


async def test_an_arrival_that_was_counted_already_is_only_cleared_away(
    store: MongoStore, data: Database[Json], arrivals: Arrivals
) -> None:
    join, (first, _) = await put_split(store, "b1", "b2")
    interrupt(data, first)
    await arrivals.deliver([Arrival("another row", join.id, "b1")])

    assert await store.queue.deliver_arrivals(limit=10) == 1
    assert await store.queue.deliver_arrivals(limit=10) == 0
    assert (await join_of(store, join)).pending_branch_ids == ("b2",)


async def test_sweeps_at_once_release_the_join_once(
    store: MongoStore, data: Database[Json]
) -> None:
    join, tasks = await put_split(store, *(f"b{n}" for n in range(6)))
    for task in tasks:
        interrupt(data, task)

    await together(*(lambda: store.queue.deliver_arrivals(limit=10) for _ in range(4)))

    found = await join_of(store, join)
    assert (found.status, found.pending_branch_ids) == (TaskStatus.PENDING, ())
    assert data.executable_tasks.count_documents({"status": "ARRIVED"}) == 0


async def test_an_external_task_that_ends_its_branch_arrives_by_a_record_of_its_own(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = an_instance()
    join = a_join("b1", instance_id=instance.id)
    branch = Branch("b1", join.id)
    external = an_external_task(instance_id=instance.id, branch=branch)
    await put_instance(store, join, id=instance.id)
    await commit(store, InsertExternalTask(external))
    guard = CompleteExternalTask(
        task_id=external.id,
        instance_id=instance.id,
        definition_id=external.definition_id,
        node_id=external.node_id,
        completed_at=LONG_AGO,
        completed_by=None,
    )
    record = a_task(
        type=TaskType.ARRIVAL, status=TaskStatus.ARRIVED, instance_id=instance.id, branch=branch
    )

    committed = await commit(store, InsertTask(record), guards=(guard,))

    assert committed.claimable == 1
    assert (await join_of(store, join)).status is TaskStatus.PENDING
    assert data.executable_tasks.count_documents({"status": "ARRIVED"}) == 0


async def test_the_join_s_own_commit_removes_its_arrivals_and_no_others(
    store: MongoStore, data: Database[Json], arrivals: Arrivals
) -> None:
    join, (mine,) = await put_split(store, "b1")
    _, (other, _) = await put_split(store, "b1", "b2")
    await arrivals.deliver([Arrival("elsewhere", join.id, "b1")])
    interrupt(data, mine)
    interrupt(data, other)

    await commit(store, RemoveArrivals(join.id), guards=(RemoveTask(await claim(store, join)),))

    left = [row["_id"] for row in data.executable_tasks.find({"status": "ARRIVED"})]
    assert left == [other.id]


async def test_removing_arrivals_leaves_branches_that_are_under_way(
    store: MongoStore, data: Database[Json]
) -> None:
    join, (first, _) = await put_split(store, "b1", "b2")
    interrupt(data, first)

    await commit(store, RemoveArrivals(join.id))

    assert data.executable_tasks.count_documents({"joinTaskId": join.id}) == 1


async def test_an_end_with_its_branch_s_arrival_delivers_nothing(
    store: MongoStore, data: Database[Json]
) -> None:
    _, (first, _) = await put_split(store, "b1", "b2")
    held = await claim(store, first)
    assert first.branch is not None

    committed = await commit(
        store, EndPath(first.instance_id, LONG_AGO), guards=(ArriveTask(held, first.branch),)
    )

    assert committed.ended
    assert data.executable_tasks.count_documents({}) == 0
