"""What the units of a group tell others: their joins, their parents and whoever throws a message (ADR 0023)."""

from datetime import timedelta

import pytest
from pymongo.database import Database

from kikwiflow_worker.model.messages import Message, MessageStatus
from kikwiflow_worker.model.runtime import (
    Branch,
    ExternalTaskType,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    EndPath,
    InsertExternalTask,
    InsertTask,
    RecordMessage,
    RemoveArrivals,
    RemoveTask,
)
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.contract.test_child_writes import put_call
from tests.contract.test_child_writes import start as start_child
from tests.support.groups import commit_group, committed, put_claimed, step, unit_of
from tests.support.stores import (
    FAR_AWAY,
    LONG_AGO,
    Json,
    a_branch_task,
    a_join,
    a_task,
    an_external_task,
    an_instance,
    claim,
    commit,
    put_instance,
    put_task,
)

pytestmark = pytest.mark.mongo


async def test_branches_that_end_together_release_their_join_once(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = an_instance()
    branches = [f"b{number}" for number in range(6)]
    join = a_join(*branches, instance_id=instance.id)
    tasks = [a_branch_task(join, branch) for branch in branches]
    await put_instance(store, join, *tasks, id=instance.id)
    held = [await claim(store, task) for task in tasks]
    units = [
        unit_of(ArriveTask(one, Branch(branch, join.id)))
        for one, branch in zip(held, branches, strict=True)
    ]

    first = committed(await commit_group(store, *units[:4]))
    rest = committed(await commit_group(store, *units[4:]))

    assert [one.released for one in first] == [0, 0, 0, 0]
    assert [(one.released, one.claimable) for one in rest] == [(1, 1), (0, 0)]
    (row,) = data.executable_tasks.find()
    assert (row["_id"], row["status"]) == (join.id, "PENDING")


async def test_joins_that_run_together_remove_their_own_arrivals(
    store: MongoStore, data: Database[Json]
) -> None:
    joins = [await put_task(store, type=TaskType.JOIN_GATEWAY) for _ in range(2)]
    waiting = a_join("b1")
    records = [
        a_branch_task(join, "b1", status=TaskStatus.ARRIVED, claimable_at=FAR_AWAY)
        for join in (*joins, waiting)
    ]
    await commit(store, InsertTask(waiting), *(InsertTask(one) for one in records[:2]))
    data.executable_tasks.insert_one(
        {"_id": "kept", "status": "ARRIVED", "joinTaskId": waiting.id, "branchId": "b1"}
    )
    units = [
        step(store, await claim(store, join), RemoveArrivals(join.id), id=f"after-{n}")
        for n, join in enumerate(joins)
    ]

    committed(await commit_group(store, *units))

    rows = {row["_id"] for row in data.executable_tasks.find()}
    assert rows == {"after-0", "after-1", waiting.id, "kept"}


async def test_children_that_end_together_tell_their_parents(
    store: MongoStore, data: Database[Json]
) -> None:
    call = await put_call(store, children=3)
    children = [await start_child(store, call, starter=number) for number in range(3)]
    units = []
    for child in children:
        task = a_task(instance_id=child.id)
        await commit(store, InsertTask(task))
        held = await claim(store, task)
        units.append(unit_of(RemoveTask(held), EndPath(child.id, LONG_AGO)))

    results = committed(await commit_group(store, *units))

    assert sum(one.released for one in results) == 1
    coordinator = await store.reads.find_task(call.coordinator.id)
    assert coordinator is not None
    assert coordinator.status is TaskStatus.PENDING
    assert data.executable_tasks.count_documents({}) == 1


async def test_a_child_whose_call_activity_is_gone_ends_beside_one_that_is_waited_for(
    store: MongoStore, data: Database[Json]
) -> None:
    gone, waiting = [await put_call(store), await put_call(store)]
    children = [await start_child(store, call) for call in (gone, waiting)]
    data.executable_tasks.delete_many({"processInstanceId": gone.parent.id})
    units = []
    for child in children:
        task = a_task(instance_id=child.id)
        await commit(store, InsertTask(task))
        held = await claim(store, task)
        units.append(unit_of(RemoveTask(held), EndPath(child.id, LONG_AGO)))

    results = committed(await commit_group(store, *units))

    assert [(len(one.ended), one.released) for one in results] == [(1, 0), (1, 1)]
    (coordinator,) = data.executable_tasks.find()
    assert (coordinator["_id"], coordinator["status"]) == (waiting.coordinator.id, "PENDING")


async def test_messages_that_were_kept_for_waits_of_a_group_are_tried_at_once(
    store: MongoStore, data: Database[Json]
) -> None:
    for key in ("paid", "shipped", "other"):
        message = Message(
            id=f"m-{key}",
            key=key,
            tenant_id=None,
            variables={},
            status=MessageStatus.KEPT,
            created_at=LONG_AGO,
            kept_until=FAR_AWAY,
            expires_at=FAR_AWAY,
        )
        keeper = a_task(
            id=f"keeper-{key}",
            type=TaskType.KEPT_MESSAGE,
            node_id=message.id,
            claimable_at=FAR_AWAY,
        )
        await commit(store, RecordMessage(message), InsertTask(keeper))
    units = []
    for (instance, _, held), key in zip(
        await put_claimed(store, 2), ("paid", "shipped"), strict=True
    ):
        wait = an_external_task(
            instance_id=instance.id, type=ExternalTaskType.CATCHER, correlation_key=key
        )
        units.append(unit_of(RemoveTask(held), InsertExternalTask(wait)))

    results = committed(await commit_group(store, *units))

    assert sum(one.claimable for one in results) == 2
    soon = store.runtime.now() + timedelta(seconds=1)
    woken = {row["_id"] for row in data.executable_tasks.find({"claimableAt": {"$lte": soon}})}
    assert woken == {"keeper-paid", "keeper-shipped"}
