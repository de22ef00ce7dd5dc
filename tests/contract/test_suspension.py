"""Suspending rests an instance by parking what is claimed of it; resuming misses nothing (protocol R8)."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.errors import ClaimLostError, ConflictError
from kikwiflow_worker.model.runtime import (
    Claim,
    ExecutableTask,
    InstanceStatus,
    ProcessInstance,
    TaskStatus,
)
from kikwiflow_worker.model.unit_of_work import ChangeVariables, EndPath, InsertTask, RemoveTask
from kikwiflow_worker.model.variables import SetVariable
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.definitions import a_file, a_start, an_end
from tests.support.race_nodes import catcher, wait
from tests.support.stores import (
    FAR_AWAY,
    LONG_AGO,
    RIVAL,
    Json,
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
class Suspended:
    """A suspended instance with one task, which a worker had claimed by then."""

    instance: ProcessInstance
    task: ExecutableTask
    held: Claim


@pytest.fixture
async def suspended(store: MongoStore) -> Suspended:
    instance = an_instance()
    task = a_task(instance_id=instance.id)
    await put_instance(store, task, id=instance.id)
    held = await claim(store, task)
    assert await store.runtime.suspend_instance(instance.id)
    return Suspended(instance, task, held)


@pytest.fixture
async def app(store: MongoStore) -> AsyncIterator[Kikwiflow]:
    """Return a client, with the processes ``asking`` and ``catching`` deployed."""
    client = Kikwiflow(store)
    for key, node in {"asking": wait("REST"), "catching": catcher("REST")}.items():
        await client.deploy(json.dumps(a_file(a_start("REST"), node, an_end(), key=key)))

    yield client

    client.close()


async def status_of(store: MongoStore, instance_id: str) -> InstanceStatus:
    found = await store.runtime.find_instance(instance_id)
    assert found is not None
    return found.status


async def test_suspending_changes_the_status_and_nothing_else(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = an_instance(variables={"weight": 7})
    await put_instance(store, a_task(instance_id=instance.id), id=instance.id)
    before = snapshot(data)

    assert await store.runtime.suspend_instance(instance.id)

    assert await status_of(store, instance.id) is InstanceStatus.SUSPENDED
    after = snapshot(data)
    assert after["executable_tasks"] == before["executable_tasks"]
    (document,) = after["process_instances"]
    assert {**document, "status": "ACTIVE"} == before["process_instances"][0]


@pytest.mark.parametrize(
    "status", [InstanceStatus.SUSPENDED, InstanceStatus.CANCELLING], ids=lambda one: one.value
)
async def test_only_what_is_active_can_be_suspended(
    store: MongoStore, data: Database[Json], status: InstanceStatus
) -> None:
    instance = await put_instance(store, status=status)
    before = snapshot(data)

    assert not await store.runtime.suspend_instance(instance.id)
    assert snapshot(data) == before


@pytest.mark.parametrize(
    "status", [InstanceStatus.ACTIVE, InstanceStatus.CANCELLING], ids=lambda one: one.value
)
async def test_only_what_is_suspended_can_be_resumed(
    store: MongoStore, data: Database[Json], status: InstanceStatus
) -> None:
    instance = await put_instance(store, status=status)
    before = snapshot(data)

    assert not await store.runtime.resume_instance(instance.id)
    assert snapshot(data) == before


@pytest.mark.parametrize("name", ["suspend_instance", "resume_instance"])
async def test_what_does_not_run_is_neither_suspended_nor_resumed(
    store: MongoStore, name: str
) -> None:
    assert not await getattr(store.runtime, name)(new_id())


async def test_a_parked_task_names_no_worker_and_has_a_new_epoch(
    store: MongoStore, data: Database[Json], suspended: Suspended
) -> None:
    assert await store.runtime.park_task(suspended.held)

    row = data.executable_tasks.find_one({"_id": suspended.task.id})
    assert row is not None
    assert (row["status"], row["epoch"]) == ("PENDING", suspended.held.epoch + 1)
    assert not {"workerId", "lockExpiresAt", "claimToken", "claimableAt"} & row.keys()


async def test_a_parked_task_is_never_claimed(store: MongoStore, suspended: Suspended) -> None:
    await store.runtime.park_task(suspended.held)

    assert await claim_any(store) is None
    assert await claim_any(store, RIVAL) is None


async def test_parking_uses_no_attempt_and_counts_no_crash(
    store: MongoStore, suspended: Suspended
) -> None:
    await store.runtime.park_task(suspended.held)
    await store.runtime.resume_instance(suspended.instance.id)

    claimed = await claim_any(store)

    assert claimed is not None
    assert (claimed.task.attempts, claimed.task.crash_count) == (0, 0)
    assert claimed.task.retries_left == suspended.task.retries_left


async def test_a_worker_that_parked_its_task_can_commit_nothing_for_it(
    store: MongoStore, suspended: Suspended
) -> None:
    await store.runtime.park_task(suspended.held)

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(RemoveTask(suspended.held),))


async def test_a_lost_claim_parks_nothing(
    store: MongoStore, data: Database[Json], suspended: Suspended
) -> None:
    lapse(data, suspended.task.id)
    await claim_any(store, RIVAL)
    before = snapshot(data)

    with pytest.raises(ClaimLostError, match=suspended.task.id):
        await store.runtime.park_task(suspended.held)

    assert snapshot(data) == before


async def test_a_task_whose_instance_was_resumed_first_is_not_parked(
    store: MongoStore, suspended: Suspended
) -> None:
    await store.runtime.resume_instance(suspended.instance.id)

    assert not await store.runtime.park_task(suspended.held)

    await commit(store, guards=(RemoveTask(suspended.held),))


async def test_a_task_that_was_parked_first_is_due_after_the_resume(
    store: MongoStore, suspended: Suspended
) -> None:
    assert await store.runtime.park_task(suspended.held)

    assert await store.runtime.resume_instance(suspended.instance.id)

    claimed = await claim_any(store)
    assert claimed is not None
    assert claimed.claim.task_id == suspended.task.id
    assert claimed.claim.epoch > suspended.held.epoch + 1
    assert claimed.instance is not None
    assert claimed.instance.status is InstanceStatus.ACTIVE


async def test_parking_and_resuming_at_once_never_leaves_a_task_asleep(
    store: MongoStore, data: Database[Json]
) -> None:
    for parks_first in [True, False] * 5:
        instance = an_instance()
        task = a_task(instance_id=instance.id)
        await put_instance(store, task, id=instance.id)
        held = await claim(store, task)
        await store.runtime.suspend_instance(instance.id)
        calls: list[Callable[[], Awaitable[bool]]] = [
            lambda held=held: store.runtime.park_task(held),
            lambda instance=instance: store.runtime.resume_instance(instance.id),
        ]

        results = await together(*(calls if parks_first else reversed(calls)))

        assert True in results
        row = data.executable_tasks.find_one({"_id": task.id})
        assert row is not None
        assert "isParked" not in row
        assert "claimableAt" in row
        data.executable_tasks.delete_many({})


async def test_resuming_wakes_what_was_parked_and_nothing_else(
    store: MongoStore, data: Database[Json], suspended: Suspended
) -> None:
    instance_id = suspended.instance.id
    others = [
        a_join("b1", instance_id=instance_id),
        a_task(instance_id=instance_id, due_at=FAR_AWAY, claimable_at=FAR_AWAY),
        a_task(instance_id=instance_id, status=TaskStatus.ERROR, claimable_at=None),
        a_task(instance_id="another instance"),
    ]
    await commit(store, *map(InsertTask, others))
    await store.runtime.park_task(suspended.held)
    theirs = {"_id": {"$in": [task.id for task in others]}}
    before = list(data.executable_tasks.find(theirs).sort("_id"))

    await store.runtime.resume_instance(instance_id)

    assert list(data.executable_tasks.find(theirs).sort("_id")) == before


async def test_a_step_under_way_is_finished_on_a_suspended_instance(
    store: MongoStore, suspended: Suspended
) -> None:
    following = a_task(instance_id=suspended.instance.id)

    await commit(
        store,
        ChangeVariables(suspended.instance.id, (SetVariable("weight", 8),)),
        InsertTask(following),
        guards=(RemoveTask(suspended.held),),
    )

    found = await store.runtime.find_instance(suspended.instance.id)
    assert found is not None
    assert (found.status, found.variables) == (InstanceStatus.SUSPENDED, {"weight": 8})


async def test_a_step_under_way_can_end_a_suspended_instance(
    store: MongoStore, suspended: Suspended
) -> None:
    committed = await commit(
        store,
        EndPath(suspended.instance.id, LONG_AGO),
        guards=(RemoveTask(suspended.held),),
    )

    assert [ended.status for ended in committed.ended] == [InstanceStatus.COMPLETED]


async def test_parked_tasks_go_with_their_instance(
    store: MongoStore, data: Database[Json], suspended: Suspended
) -> None:
    await store.runtime.park_task(suspended.held)

    assert await store.runtime.cancel_instance(suspended.instance.id, cancelled_by=None)

    assert data.executable_tasks.count_documents({}) == 0


async def test_a_task_of_a_suspended_instance_is_not_completed(
    app: Kikwiflow, data: Database[Json]
) -> None:
    instance = await app.start("asking", "ORDER-7")
    (task,) = (await app.list_external_tasks()).items
    await app.suspend(instance.id)
    before = snapshot(data)

    with pytest.raises(ConflictError, match="resume it first"):
        await app.complete(task.id, {"weight": 8})

    assert snapshot(data) == before
    await app.resume(instance.id)
    assert (await app.complete(task.id)).status is InstanceStatus.COMPLETED


async def test_a_key_of_a_suspended_instance_is_not_correlated(
    app: Kikwiflow, data: Database[Json]
) -> None:
    instance = await app.start("catching", "ORDER-7", variables={"key": "paid-7"})
    await app.suspend(instance.id)
    before = snapshot(data)

    with pytest.raises(ConflictError, match="resume it first"):
        await app.correlate("paid-7", {"weight": 8})

    assert snapshot(data) == before
    await app.resume(instance.id)
    await app.correlate("paid-7")
    assert (await app.get_instance(instance.id)).status is InstanceStatus.COMPLETED


async def test_variables_of_a_suspended_instance_can_be_set(app: Kikwiflow) -> None:
    instance = await app.start("asking", "ORDER-7")
    await app.suspend(instance.id)

    await app.set_variables(instance.id, {"weight": 8})

    found = await app.get_instance(instance.id)
    assert (found.status, found.variables) == (InstanceStatus.SUSPENDED, {"weight": 8})
