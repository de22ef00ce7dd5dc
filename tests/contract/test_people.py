"""What people do to single records: retry an incident, take an external task."""

import pytest
from pymongo.database import Database

from kikwiflow_worker.model.runtime import ExecutableTask, Incident, IncidentStatus, TaskStatus
from kikwiflow_worker.model.unit_of_work import FailTask, InsertExternalTask, OpenIncident
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.stores import (
    Json,
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


async def put_failed(store: MongoStore) -> tuple[ExecutableTask, Incident]:
    """Store a task of a running instance that failed for good, with its incident."""
    instance = an_instance()
    task = a_task(instance_id=instance.id)
    incident = an_incident(task)
    await put_instance(store, task, id=instance.id)
    held = await claim(store, task)
    await commit(
        store,
        OpenIncident(incident),
        guards=(FailTask(claim=held, attempts=3, error="no scales"),),
    )
    return task, incident


@pytest.mark.field_case("S-47")
async def test_a_retried_task_is_due_with_new_attempts(store: MongoStore) -> None:
    task, incident = await put_failed(store)

    assert await store.runtime.retry_incident(incident.id, retries=5, resolved_by="ann")

    row = await store.reads.find_task(task.id)
    assert row is not None
    assert (row.status, row.attempts, row.retries_left) == (TaskStatus.PENDING, 0, 5)
    assert (row.crash_count, row.error) == (0, None)
    assert row.epoch == 3
    claimed = await claim_any(store)
    assert claimed is not None
    assert claimed.claim.task_id == task.id


async def test_a_retried_incident_is_resolved_by_somebody(store: MongoStore) -> None:
    _, incident = await put_failed(store)

    await store.runtime.retry_incident(incident.id, retries=5, resolved_by="ann")

    found = await store.reads.find_incident(incident.id)
    assert found is not None
    assert (found.status, found.resolved_by) == (IncidentStatus.RESOLVED, "ann")
    assert found.resolved_at is not None


@pytest.mark.field_case("S-47")
async def test_an_incident_is_retried_once(store: MongoStore, data: Database[Json]) -> None:
    task, incident = await put_failed(store)

    results = await together(
        *(
            lambda: store.runtime.retry_incident(incident.id, retries=5, resolved_by=None)
            for _ in range(4)
        )
    )

    assert sorted(results) == [False, False, False, True]
    row = data.executable_tasks.find_one({"_id": task.id})
    assert row is not None
    assert row["epoch"] == 3


async def test_an_unknown_incident_is_not_retried(store: MongoStore) -> None:
    assert not await store.runtime.retry_incident(new_id(), retries=1, resolved_by=None)


async def test_a_free_external_task_can_be_taken(store: MongoStore) -> None:
    task = an_external_task()
    await commit(store, InsertExternalTask(task))

    assert await store.runtime.assign_external_task(task.id, assignee="ann", expected=None)

    found = await store.runtime.find_external_task(task.id)
    assert found is not None
    assert found.assignee == "ann"


async def test_a_taken_external_task_is_not_free(store: MongoStore) -> None:
    task = an_external_task(assignee="ann")
    await commit(store, InsertExternalTask(task))

    assert not await store.runtime.assign_external_task(task.id, assignee="bob", expected=None)
    assert not await store.runtime.assign_external_task(task.id, assignee="bob", expected="eve")


async def test_an_external_task_can_be_handed_on_and_given_back(store: MongoStore) -> None:
    task = an_external_task(assignee="ann")
    await commit(store, InsertExternalTask(task))

    assert await store.runtime.assign_external_task(task.id, assignee="bob", expected="ann")
    assert await store.runtime.assign_external_task(task.id, assignee=None, expected="bob")

    assert await store.runtime.assign_external_task(task.id, assignee="eve", expected=None)


async def test_of_several_who_take_an_external_task_at_once_one_gets_it(
    store: MongoStore,
) -> None:
    task = an_external_task()
    await commit(store, InsertExternalTask(task))

    results = await together(
        *(
            lambda name=name: store.runtime.assign_external_task(
                task.id, assignee=name, expected=None
            )
            for name in ("ann", "bob", "eve", "joe")
        )
    )

    assert sorted(results) == [False, False, False, True]


async def test_an_unknown_external_task_is_not_assigned(store: MongoStore) -> None:
    assert not await store.runtime.assign_external_task(new_id(), assignee="ann", expected=None)
