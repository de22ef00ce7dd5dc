"""Call activities: the starter's row records the child, and arrives with its end (protocol R12)."""

from dataclasses import dataclass

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.runtime import (
    Branch,
    Claim,
    ExecutableTask,
    HostKind,
    IncidentStatus,
    InstanceStatus,
    Loop,
    Parent,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    AbandonChildren,
    AwaitNextChild,
    EndHost,
    EndPath,
    InsertInstance,
    InsertTask,
    RemoveArrivals,
    StartChild,
)
from kikwiflow_worker.store.mongo.arrivals import Arrival, Arrivals
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Client, open_database
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.views import IncidentQuery
from tests.support.stores import (
    LONG_AGO,
    RIVAL,
    Json,
    a_branch_task,
    a_join,
    a_task,
    an_instance,
    claim,
    claim_any,
    commit,
    lapse,
    new_id,
    put_instance,
    snapshot,
    together,
)

pytestmark = pytest.mark.mongo


@dataclass(frozen=True, slots=True)
class Call:
    """A call activity of a running parent: its coordinator waits for one branch per starter."""

    parent: ProcessInstance
    coordinator: ExecutableTask
    starters: tuple[ExecutableTask, ...]


async def put_call(store: MongoStore, *, children: int = 1) -> Call:
    parent = an_instance()
    branches = [f"b{index}" for index in range(children)]
    coordinator = a_join(
        *branches,
        type=TaskType.CALL_ACTIVITY_COORDINATOR,
        instance_id=parent.id,
        node_id="CALL",
        loop=Loop(0),
    )
    starters = tuple(
        a_branch_task(
            coordinator,
            branch,
            type=TaskType.CALL_ACTIVITY_STARTER,
            node_id="CALL",
            loop=Loop(index, element=(None,)),
        )
        for index, branch in enumerate(branches)
    )
    await put_instance(store, coordinator, *starters, id=parent.id)
    return Call(parent, coordinator, starters)


def a_child(call: Call, starter: ExecutableTask) -> ProcessInstance:
    """Return the child that a starter starts; it is stored nowhere yet."""
    assert starter.branch is not None
    parent = Parent(call.parent.id, call.coordinator.id, starter.branch.id, starter.id, depth=1)
    return an_instance(parent=parent)


async def start(store: MongoStore, call: Call, *, starter: int = 0) -> ProcessInstance:
    """Run a starter: its child waits at a task of its own."""
    row = call.starters[starter]
    child = a_child(call, row)
    task = a_task(instance_id=child.id, claimable_at=None)
    guard = StartChild(await claim(store, row))
    await commit(store, InsertInstance(child), InsertTask(task), guards=(guard,))
    return child


async def task_of(store: MongoStore, task: ExecutableTask) -> ExecutableTask:
    found = await store.reads.find_task(task.id)
    assert found is not None
    return found


@pytest.fixture
def arrivals(client: Client, data: Database[Json]) -> Arrivals:
    return Arrivals(Collections.of(open_database(client, data.name)))


async def test_a_starter_stays_as_the_record_of_its_child(
    store: MongoStore, data: Database[Json]
) -> None:
    call = await put_call(store)

    child = await start(store, call)

    row = data.executable_tasks.find_one({"_id": call.starters[0].id})
    assert row is not None
    assert (row["status"], row["epoch"]) == ("STARTED", 2)
    assert not {"workerId", "lockExpiresAt", "claimToken", "claimableAt"} & row.keys()
    assert await store.runtime.find_instance(child.id) == child


async def test_a_starter_whose_child_runs_is_never_claimed(store: MongoStore) -> None:
    call = await put_call(store)

    await start(store, call)

    assert await claim_any(store) is None
    assert await store.queue.deliver_arrivals(limit=10) == 0


@pytest.mark.parametrize("guard", ["start", "advance"])
async def test_a_stolen_claim_starts_no_child(
    store: MongoStore, data: Database[Json], guard: str
) -> None:
    call = await put_call(store)
    starter = call.starters[0]
    stolen = await claim(store, starter)
    lapse(data, starter.id)
    await claim_any(store, RIVAL)
    before = snapshot(data)

    with pytest.raises(ClaimLostError, match=starter.id):
        await commit(
            store,
            InsertInstance(a_child(call, starter)),
            guards=(StartChild(stolen) if guard == "start" else next_child(stolen),),
        )

    assert snapshot(data) == before


async def test_a_child_s_end_releases_its_coordinator(
    store: MongoStore, data: Database[Json]
) -> None:
    call = await put_call(store)
    child = await start(store, call)

    committed = await commit(store, EndPath(child.id, LONG_AGO))

    assert [ended.id for ended in committed.ended] == [child.id]
    assert (committed.claimable, committed.released) == (1, 1)
    claimed = await claim_any(store)
    assert claimed is not None
    assert claimed.claim.task_id == call.coordinator.id
    assert claimed.task.loop == Loop(0)
    assert data.executable_tasks.count_documents({"joinTaskId": call.coordinator.id}) == 0


async def test_a_coordinator_waits_for_all_its_children(store: MongoStore) -> None:
    call = await put_call(store, children=2)
    first, second = await start(store, call), await start(store, call, starter=1)

    committed = await commit(store, EndPath(first.id, LONG_AGO))

    assert committed.released == 0
    row = await task_of(store, call.coordinator)
    assert (row.status, row.pending_branch_ids) == (TaskStatus.AWAITING_BRANCHES, ("b1",))
    assert (await commit(store, EndPath(second.id, LONG_AGO))).released == 1


async def test_children_that_end_at_once_release_their_coordinator_once(store: MongoStore) -> None:
    call = await put_call(store, children=4)
    children = [await start(store, call, starter=index) for index in range(4)]

    results = await together(
        *(lambda child=child: commit(store, EndPath(child.id, LONG_AGO)) for child in children)
    )

    assert sum(result.released for result in results) == 1
    assert (await task_of(store, call.coordinator)).status is TaskStatus.PENDING


async def test_a_path_of_a_child_that_is_not_its_last_tells_nobody(store: MongoStore) -> None:
    call = await put_call(store)
    child = a_child(call, call.starters[0])
    guard = StartChild(await claim(store, call.starters[0]))
    two_paths = an_instance(id=child.id, parent=child.parent, open_paths=2)
    await commit(store, InsertInstance(two_paths), guards=(guard,))

    committed = await commit(store, EndPath(child.id, LONG_AGO))

    assert committed.released == 0
    assert (await task_of(store, call.starters[0])).status is TaskStatus.STARTED


async def test_an_interrupted_delivery_of_a_child_s_end_is_found_and_done(
    store: MongoStore, data: Database[Json]
) -> None:
    call = await put_call(store)
    await start(store, call)
    # As a worker leaves it that dies between the commit of the child's end and the delivery.
    arrived = {"status": "ARRIVED", "claimableAt": LONG_AGO}
    data.executable_tasks.update_one({"_id": call.starters[0].id}, {"$set": arrived})

    assert await store.queue.deliver_arrivals(limit=10) == 1

    assert (await task_of(store, call.coordinator)).status is TaskStatus.PENDING
    assert await store.reads.find_task(call.starters[0].id) is None


async def test_a_coordinator_of_a_sequence_waits_for_the_next_child_alone(
    store: MongoStore, data: Database[Json], arrivals: Arrivals
) -> None:
    call = await put_call(store)
    child = await start(store, call)
    await commit(store, EndPath(child.id, LONG_AGO))
    held = await claim(store, call.coordinator)

    await commit(store, RemoveArrivals(call.coordinator.id), guards=(next_child(held),))

    row = await task_of(store, call.coordinator)
    assert (row.status, row.pending_branch_ids) == (TaskStatus.AWAITING_BRANCHES, ("b1",))
    assert row.loop == Loop(1, pending=("c",))
    assert (row.worker_id, row.lock_expires_at, row.claimable_at) == (None, None, None)
    assert row.epoch == held.epoch + 1
    again = Arrival(call.starters[0].id, call.coordinator.id, "b0")
    assert not await arrivals.deliver([again])
    assert (await task_of(store, call.coordinator)).status is TaskStatus.AWAITING_BRANCHES


async def test_abandoned_children_leave_one_task_that_belongs_to_no_instance(
    store: MongoStore, data: Database[Json]
) -> None:
    call, other = await put_call(store, children=2), await put_call(store)
    await start(store, call)
    left_alone = await start(store, other)

    await commit(store, abandon(call))

    mine = {"joinTaskId": call.coordinator.id, "type": TaskType.CALL_ACTIVITY_STARTER.value}
    assert data.executable_tasks.count_documents(mine) == 0
    assert (await task_of(store, other.starters[0])).status is TaskStatus.STARTED
    assert await store.runtime.find_instance(left_alone.id) == left_alone
    claimed = await claim_any(store)
    assert claimed is not None
    assert claimed.task.type is TaskType.CANCEL_CHILDREN
    assert claimed.instance is None
    assert claimed.task.branch == Branch("children", call.coordinator.id)


async def test_a_child_whose_call_was_abandoned_ends_for_itself(
    store: MongoStore, data: Database[Json]
) -> None:
    call = await put_call(store)
    child = await start(store, call)
    ended_call = EndHost(call.coordinator.id, HostKind.EXECUTABLE_TASK)
    await commit(store, abandon(call), guards=(ended_call,))

    committed = await commit(store, EndPath(child.id, LONG_AGO))

    assert [ended.status for ended in committed.ended] == [InstanceStatus.COMPLETED]
    assert committed.released == 0
    assert data.executable_tasks.distinct("type") == [TaskType.CANCEL_CHILDREN]
    assert data.incidents.count_documents({}) == 0


async def test_a_starter_that_was_abandoned_starts_no_child(
    store: MongoStore, data: Database[Json]
) -> None:
    call = await put_call(store)
    held = await claim(store, call.starters[0])
    await commit(store, abandon(call))

    child = a_child(call, call.starters[0])
    with pytest.raises(ClaimLostError):
        await commit(store, InsertInstance(child), guards=(StartChild(held),))

    assert data.process_instances.count_documents({}) == 1


async def test_a_start_and_an_abandonment_at_once_leave_no_child_unseen(
    store: MongoStore, data: Database[Json]
) -> None:
    for _ in range(5):
        call = await put_call(store)
        child = a_child(call, call.starters[0])
        held = await claim(store, call.starters[0])

        started, _ = await together(
            lambda held=held, child=child: commit(
                store, InsertInstance(child), guards=(StartChild(held),)
            ),
            lambda call=call: commit(store, abandon(call)),
        )

        runs = not isinstance(started, ClaimLostError)
        found = await store.runtime.find_children(Branch("", call.coordinator.id), limit=10)
        assert found == ((child.id,) if runs else ())
        starters = {"type": TaskType.CALL_ACTIVITY_STARTER.value}
        assert data.executable_tasks.count_documents(starters) == 0


async def test_a_cancelled_child_fails_its_starter_with_an_incident(store: MongoStore) -> None:
    call = await put_call(store)
    child = await start(store, call)

    assert await store.runtime.cancel_instance(child.id, cancelled_by="ann")

    starter = await task_of(store, call.starters[0])
    assert starter.status is TaskStatus.ERROR
    assert starter.claimable_at is None
    assert child.id in (starter.error or "")
    page = await store.reads.list_incidents(IncidentQuery(instance_id=call.parent.id))
    (incident,) = page.items
    assert (incident.task_id, incident.node_id) == (starter.id, "CALL")
    assert (await task_of(store, call.coordinator)).status is TaskStatus.AWAITING_BRANCHES


async def test_a_starter_that_is_retried_can_fail_by_another_child(store: MongoStore) -> None:
    call = await put_call(store)
    for _ in range(2):
        child = await start(store, call)
        await store.runtime.cancel_instance(child.id, cancelled_by=None)
        opened = IncidentQuery(instance_id=call.parent.id)
        (incident,) = (await store.reads.list_incidents(opened)).items
        assert await store.runtime.retry_incident(incident.id, retries=3, resolved_by=None)

    query = IncidentQuery(instance_id=call.parent.id, status=None)
    statuses = [one.status for one in (await store.reads.list_incidents(query)).items]
    assert statuses == [IncidentStatus.RESOLVED] * 2
    assert (await task_of(store, call.starters[0])).status is TaskStatus.PENDING
    assert (await task_of(store, call.starters[0])).occurrence == 2


async def test_a_parent_s_cancel_leaves_a_task_that_cancels_its_children(
    store: MongoStore, data: Database[Json]
) -> None:
    call = await put_call(store)
    child = await start(store, call)

    await store.runtime.cancel_instance(call.parent.id, cancelled_by=None)

    assert await store.runtime.find_instance(child.id) == child
    claimed = await claim_any(store)
    assert claimed is not None
    assert claimed.task.type is TaskType.CANCEL_CHILDREN
    assert claimed.task.branch is not None
    assert await store.runtime.find_children(claimed.task.branch, limit=10) == (child.id,)


async def test_a_parent_s_cancel_without_a_running_child_leaves_nothing(
    store: MongoStore, data: Database[Json]
) -> None:
    call = await put_call(store)

    await store.runtime.cancel_instance(call.parent.id, cancelled_by=None)

    assert data.executable_tasks.count_documents({}) == 0


async def test_children_are_found_by_their_coordinator_or_by_their_parent(
    store: MongoStore,
) -> None:
    call, other = await put_call(store, children=2), await put_call(store)
    children = {(await start(store, call, starter=index)).id for index in range(2)}
    await start(store, other)

    of_coordinator = await store.runtime.find_children(Branch("x", call.coordinator.id), limit=10)
    of_parent = await store.runtime.find_children(Branch(call.parent.id, None), limit=10)

    assert set(of_coordinator) == set(of_parent) == children


async def test_no_more_children_are_found_than_asked_for(store: MongoStore) -> None:
    call = await put_call(store, children=3)
    for index in range(3):
        await start(store, call, starter=index)

    found = await store.runtime.find_children(Branch(call.parent.id, None), limit=2)

    assert len(found) == 2


async def test_what_has_no_children_has_none(store: MongoStore) -> None:
    assert await store.runtime.find_children(Branch(new_id(), None), limit=10) == ()


def next_child(held: Claim) -> AwaitNextChild:
    return AwaitNextChild(claim=held, branch_id="b1", loop=Loop(1, pending=("c",)))


def abandon(call: Call) -> AbandonChildren:
    return AbandonChildren(
        instance_id=call.parent.id,
        definition_id=call.parent.definition_id,
        coordinator_task_id=call.coordinator.id,
        abandoned_at=LONG_AGO,
    )
