"""Cancelling: a marker that lasts, then one sweep that leaves nothing (protocol R8)."""

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.runtime import (
    Claim,
    IncidentStatus,
    InstanceStatus,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    Change,
    ChangeVariables,
    EndPath,
    InsertExternalTask,
    InsertTask,
    OpenIncident,
    RemoveTask,
)
from kikwiflow_worker.model.variables import SetVariable
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.views import IncidentQuery
from tests.support.stores import (
    FAR_AWAY,
    LOCK,
    LONG_AGO,
    WORKER,
    Json,
    a_join,
    a_task,
    an_external_task,
    an_incident,
    an_instance,
    claim,
    claim_any,
    commit,
    new_id,
    put_instance,
    together,
)

pytestmark = pytest.mark.mongo


async def put_busy_instance(store: MongoStore, *, rows: int = 3) -> ProcessInstance:
    """Store an instance with due tasks, a waiting join, a timer, an external task and an incident."""
    instance = an_instance(variables={"weight": 7}, open_paths=2)
    due = [a_task(instance_id=instance.id) for _ in range(rows)]
    await put_instance(
        store,
        *due,
        a_join("b1", "b2", instance_id=instance.id),
        a_task(instance_id=instance.id, due_at=FAR_AWAY, claimable_at=FAR_AWAY),
        id=instance.id,
        variables={"weight": 7},
        open_paths=2,
    )
    await commit(
        store,
        InsertExternalTask(an_external_task(instance_id=instance.id)),
        OpenIncident(an_incident(a_task(instance_id=instance.id))),
    )
    return instance


async def mark_only(store: MongoStore, data: Database[Json], instance_id: str) -> None:
    """Leave an instance as a caller does that dies between the marker and the sweep."""
    sweeper = a_task(type=TaskType.CANCEL_INSTANCE, instance_id=instance_id)
    await commit(store, InsertTask(sweeper))
    data.process_instances.update_one(
        {"_id": instance_id}, {"$set": {"status": "CANCELLING", "cancelledBy": "ann"}}
    )


def rows_of(data: Database[Json], instance_id: str) -> int:
    mine = {"processInstanceId": instance_id}
    return data.executable_tasks.count_documents(mine) + data.external_tasks.count_documents(mine)


async def test_a_cancelled_instance_leaves_its_history_only(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = await put_busy_instance(store)

    assert await store.runtime.cancel_instance(instance.id, cancelled_by="ann")

    assert await store.runtime.find_instance(instance.id) is None
    assert rows_of(data, instance.id) == 0
    ended = await store.runtime.find_ended_instance(instance.id)
    assert ended is not None
    assert (ended.status, ended.open_paths) == (InstanceStatus.CANCELLED, 0)
    assert ended.variables == {"weight": 7}
    assert ended.ended_at is not None
    record = data.process_history.find_one({"_id": instance.id})
    assert record is not None
    assert record["cancelledBy"] == "ann"


async def test_a_cancelled_instance_s_incidents_are_closed(store: MongoStore) -> None:
    instance = await put_busy_instance(store)

    await store.runtime.cancel_instance(instance.id, cancelled_by=None)

    page = await store.reads.list_incidents(IncidentQuery(instance_id=instance.id, status=None))
    assert [one.status for one in page.items] == [IncidentStatus.CLOSED]


async def test_other_instances_are_not_touched(store: MongoStore, data: Database[Json]) -> None:
    instance, other = await put_busy_instance(store), await put_busy_instance(store)
    before = rows_of(data, other.id)

    await store.runtime.cancel_instance(instance.id, cancelled_by=None)

    assert rows_of(data, other.id) == before
    assert await store.runtime.find_instance(other.id) == other


async def test_a_suspended_instance_can_be_cancelled(store: MongoStore) -> None:
    instance = await put_instance(store, status=InstanceStatus.SUSPENDED)

    assert await store.runtime.cancel_instance(instance.id, cancelled_by=None)


async def test_cancelling_twice_happens_once(store: MongoStore) -> None:
    instance = await put_busy_instance(store)

    assert await store.runtime.cancel_instance(instance.id, cancelled_by=None)
    assert not await store.runtime.cancel_instance(instance.id, cancelled_by=None)


async def test_cancelling_what_does_not_exist_is_no_error(store: MongoStore) -> None:
    assert not await store.runtime.cancel_instance(new_id(), cancelled_by=None)


async def test_cancelling_what_has_completed_changes_nothing(store: MongoStore) -> None:
    instance = await put_instance(store)
    await commit(store, EndPath(instance.id, LONG_AGO))

    assert not await store.runtime.cancel_instance(instance.id, cancelled_by=None)
    ended = await store.runtime.find_ended_instance(instance.id)
    assert ended is not None
    assert ended.status is InstanceStatus.COMPLETED


async def test_a_marked_instance_is_swept_by_whoever_finds_it(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = await put_busy_instance(store, rows=0)
    await mark_only(store, data, instance.id)

    claimed = await claim_any(store)

    assert claimed is not None
    assert claimed.task.type is TaskType.CANCEL_INSTANCE
    assert claimed.instance is not None
    assert claimed.instance.status is InstanceStatus.CANCELLING
    assert await store.runtime.sweep_cancelled(instance.id)
    assert rows_of(data, instance.id) == 0
    record = data.process_history.find_one({"_id": instance.id})
    assert record is not None
    assert (record["status"], record["cancelledBy"]) == ("CANCELLED", "ann")


async def test_a_marked_instance_is_also_swept_by_a_second_cancel(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = await put_busy_instance(store)
    await mark_only(store, data, instance.id)

    assert await store.runtime.cancel_instance(instance.id, cancelled_by="bob")
    assert rows_of(data, instance.id) == 0


async def test_a_sweep_happens_once(store: MongoStore, data: Database[Json]) -> None:
    instance = await put_busy_instance(store)
    await mark_only(store, data, instance.id)

    results = await together(
        *(lambda: store.runtime.sweep_cancelled(instance.id) for _ in range(4))
    )

    assert sorted(results) == [False, False, False, True]


async def test_a_running_instance_is_not_swept(store: MongoStore, data: Database[Json]) -> None:
    instance = await put_busy_instance(store, rows=1100)
    due = {"processInstanceId": instance.id, "claimableAt": LONG_AGO}
    before = data.executable_tasks.count_documents(due)

    assert not await store.runtime.sweep_cancelled(instance.id)

    assert data.executable_tasks.count_documents(due) == before
    assert await store.runtime.find_instance(instance.id) == instance


async def test_a_sweep_by_somebody_else_does_not_deny_the_caller_s_cancel(
    store: MongoStore,
) -> None:
    instance = await put_busy_instance(store)

    async def sweep_until_gone() -> None:
        while await store.runtime.find_instance(instance.id):
            await store.runtime.sweep_cancelled(instance.id)

    was_cancelled, *_ = await together(
        lambda: store.runtime.cancel_instance(instance.id, cancelled_by=None),
        *(sweep_until_gone for _ in range(4)),
    )

    assert was_cancelled is True


@pytest.mark.parametrize("change", ["variables", "end"])
async def test_what_is_being_cancelled_takes_no_more_changes(
    store: MongoStore, data: Database[Json], change: str
) -> None:
    instance = await put_busy_instance(store)
    await mark_only(store, data, instance.id)
    changes: dict[str, Change] = {
        "variables": ChangeVariables(instance.id, (SetVariable("weight", 8),)),
        "end": EndPath(instance.id, LONG_AGO),
    }

    with pytest.raises(ClaimLostError):
        await commit(store, changes[change])


@pytest.mark.field_case("S-88")
async def test_a_worker_loses_its_claim_to_a_cancel(store: MongoStore) -> None:
    instance = an_instance()
    task = a_task(instance_id=instance.id)
    await put_instance(store, task, id=instance.id)
    held = await claim(store, task)

    await store.runtime.cancel_instance(instance.id, cancelled_by=None)

    with pytest.raises(ClaimLostError):
        await commit(store, InsertTask(a_task(instance_id=instance.id)), guards=(RemoveTask(held),))


async def test_steps_that_commit_during_a_cancel_leave_no_row_behind(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = an_instance()
    tasks = [a_task(instance_id=instance.id) for _ in range(4)]
    await put_instance(store, *tasks, id=instance.id)
    claims = [await claim(store, task) for task in tasks]

    async def chain(held: Claim) -> None:
        """Replace the task by the next one again and again, as a worker does."""
        for _ in range(50):
            following = a_task(instance_id=instance.id)
            try:
                await commit(store, InsertTask(following), guards=(RemoveTask(held),))
            except ClaimLostError:
                return
            claimed = await store.queue.claim(following.id, worker_id=WORKER, lock=LOCK)
            if claimed is None or claimed.instance is None:
                return
            held = claimed.claim

    results = await together(
        *(lambda held=held: chain(held) for held in claims),
        lambda: store.runtime.cancel_instance(instance.id, cancelled_by=None),
    )

    assert results == [None, None, None, None, True]
    assert rows_of(data, instance.id) == 0


async def test_more_than_a_thousand_rows_go_in_one_sweep(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = await put_busy_instance(store, rows=1500)
    held = await claim_any(store)

    assert await store.runtime.cancel_instance(instance.id, cancelled_by=None)

    assert rows_of(data, instance.id) == 0
    assert held is not None
    with pytest.raises(ClaimLostError):
        await commit(store, guards=(RemoveTask(held.claim),))


async def test_a_failed_task_of_a_cancelled_instance_is_not_retried(store: MongoStore) -> None:
    instance = an_instance()
    task = a_task(instance_id=instance.id, status=TaskStatus.ERROR, claimable_at=None)
    incident = an_incident(task)
    await put_instance(store, task, id=instance.id)
    await commit(store, OpenIncident(incident))
    await store.runtime.cancel_instance(instance.id, cancelled_by=None)

    assert not await store.runtime.retry_incident(incident.id, retries=3, resolved_by=None)
