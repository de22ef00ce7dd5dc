"""Units of work: each change, all or nothing, and the end of an instance."""

from collections.abc import Awaitable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import ClaimLostError, DuplicateStartError, StoreError
from kikwiflow_worker.model.runtime import (
    Branch,
    IncidentStatus,
    InstanceStatus,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    Change,
    ChangeVariables,
    EndPath,
    InsertExternalTask,
    InsertInstance,
    InsertTask,
    OpenIncident,
    RecordEnded,
    RemoveTask,
    ReserveStartKey,
)
from kikwiflow_worker.model.variables import SetVariable
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.views import IncidentQuery
from tests.support.stores import (
    FAR_AWAY,
    LONG_AGO,
    Json,
    a_task,
    an_external_task,
    an_incident,
    an_instance,
    claim,
    commit,
    new_id,
    put_instance,
    put_task,
    snapshot,
    together,
)

pytestmark = pytest.mark.mongo

FULL_TASK = a_task(
    type=TaskType.TIMER_TASK,
    status=TaskStatus.PENDING,
    due_at=FAR_AWAY,
    claimable_at=FAR_AWAY,
    epoch=4,
    attempts=1,
    retries_left=2,
    crash_count=1,
    error="no scales",
    handler_name="answer_provider:weight",
    priority=7,
    tenant_id="acme",
    branch=Branch("branch-1", "join-1"),
    pending_branch_ids=("branch-2", "branch-3"),
)


async def test_an_instance_reads_as_it_was_written(store: MongoStore) -> None:
    instance = an_instance(
        status=InstanceStatus.ACTIVE,
        variables={"weight": 7},
        business_value=Decimal("12.50"),
        tenant_id="acme",
        origin="shop",
        started_by="ann",
        priority=9,
        open_paths=2,
    )

    await commit(store, InsertInstance(instance))

    assert await store.runtime.find_instance(instance.id) == instance


async def test_an_executable_task_reads_as_it_was_written(store: MongoStore) -> None:
    await commit(store, InsertTask(FULL_TASK))

    assert await store.reads.find_task(FULL_TASK.id) == FULL_TASK


async def test_an_external_task_reads_as_it_was_written(store: MongoStore) -> None:
    task = an_external_task(
        name="Approve",
        description="Look at it",
        assignee="ann",
        tenant_id="acme",
        branch=Branch("branch-1", "join-1"),
    )

    await commit(store, InsertExternalTask(task))

    assert await store.runtime.find_external_task(task.id) == task


async def test_an_incident_reads_as_it_was_written(store: MongoStore) -> None:
    incident = an_incident(
        a_task(),
        stack_trace="line 1\nline 2",
        tenant_id="acme",
        resolved_at=LONG_AGO,
        resolved_by="ann",
    )

    await commit(store, OpenIncident(incident))

    assert await store.reads.find_incident(incident.id) == incident


async def test_an_instance_that_ended_at_once_is_in_the_history_only(store: MongoStore) -> None:
    instance = an_instance(status=InstanceStatus.COMPLETED, ended_at=LONG_AGO, open_paths=0)

    await commit(store, RecordEnded(instance))

    assert await store.runtime.find_instance(instance.id) is None
    assert await store.runtime.find_ended_instance(instance.id) == instance


async def test_a_unit_writes_many_records_of_one_kind(
    store: MongoStore, data: Database[Json]
) -> None:
    await commit(store, *(InsertTask(a_task()) for _ in range(5)))

    assert data.executable_tasks.count_documents({}) == 5


async def test_an_empty_unit_is_no_error(store: MongoStore, data: Database[Json]) -> None:
    before = snapshot(data)

    await commit(store)

    assert snapshot(data) == before


async def test_a_commit_counts_what_can_be_claimed_at_once(store: MongoStore) -> None:
    committed = await commit(
        store,
        InsertTask(a_task()),
        InsertTask(a_task()),
        InsertTask(a_task(claimable_at=FAR_AWAY)),
        InsertTask(a_task(status=TaskStatus.AWAITING_BRANCHES, claimable_at=None)),
    )

    assert committed.claimable == 2


async def test_a_task_that_is_there_already_stops_the_whole_unit(
    store: MongoStore, data: Database[Json]
) -> None:
    task = await put_task(store)
    held = await claim(store, await put_task(store))
    before = snapshot(data)

    with pytest.raises(StoreError, match="failed"):
        await commit(store, InsertTask(a_task()), InsertTask(task), guards=(RemoveTask(held),))

    assert snapshot(data) == before


async def test_a_start_key_finds_its_instance(store: MongoStore) -> None:
    instance = an_instance()
    reserve = ReserveStartKey("key-1", instance.id, None, LONG_AGO)

    await commit(store, reserve, InsertInstance(instance))

    assert await store.runtime.find_started("key-1", tenant_id=None) == instance.id
    assert await store.runtime.find_started("key-2", tenant_id=None) is None


async def test_a_start_key_in_use_stops_the_second_start(
    store: MongoStore, data: Database[Json]
) -> None:
    await commit(store, ReserveStartKey("key-1", "instance-1", None, LONG_AGO))
    second = an_instance()
    before = snapshot(data)

    with pytest.raises(DuplicateStartError):
        await commit(
            store,
            ReserveStartKey("key-1", second.id, None, LONG_AGO),
            InsertInstance(second),
            InsertTask(a_task(instance_id=second.id)),
        )

    assert snapshot(data) == before


async def test_a_start_key_outlives_its_instance(store: MongoStore) -> None:
    instance = an_instance()
    await commit(
        store, ReserveStartKey("key-1", instance.id, None, LONG_AGO), InsertInstance(instance)
    )
    await commit(store, EndPath(instance.id, LONG_AGO))

    with pytest.raises(DuplicateStartError):
        await commit(store, ReserveStartKey("key-1", new_id(), None, LONG_AGO))


async def test_tenants_do_not_share_start_keys(store: MongoStore) -> None:
    await commit(store, ReserveStartKey("key-1", "instance-1", "acme", LONG_AGO))
    await commit(store, ReserveStartKey("key-1", "instance-2", "other", LONG_AGO))
    await commit(store, ReserveStartKey("key-1", "instance-3", None, LONG_AGO))

    assert await store.runtime.find_started("key-1", tenant_id="other") == "instance-2"


async def test_of_many_starts_with_one_key_at_once_one_happens(
    store: MongoStore, data: Database[Json]
) -> None:
    def start() -> Awaitable[object]:
        instance = an_instance()
        return commit(
            store, ReserveStartKey("key-1", instance.id, None, LONG_AGO), InsertInstance(instance)
        )

    results = await together(*(start for _ in range(5)))

    assert sum(isinstance(result, DuplicateStartError) for result in results) == 4
    assert data.process_instances.count_documents({}) == 1


async def test_a_path_that_is_not_the_last_leaves_the_instance_running(store: MongoStore) -> None:
    instance = await put_instance(store, open_paths=2)

    committed = await commit(store, EndPath(instance.id, LONG_AGO))

    assert committed.ended == ()
    assert await store.runtime.find_instance(instance.id) == replace(instance, open_paths=1)


async def test_the_last_path_ends_the_instance(store: MongoStore) -> None:
    instance = await put_instance(store)
    ended_at = LONG_AGO + timedelta(hours=1)

    committed = await commit(store, EndPath(instance.id, ended_at))

    expected = replace(instance, status=InstanceStatus.COMPLETED, ended_at=ended_at, open_paths=0)
    assert committed.ended == (expected,)
    assert await store.runtime.find_instance(instance.id) is None
    assert await store.runtime.find_ended_instance(instance.id) == expected


@pytest.mark.field_case("S-37")
async def test_an_ended_instance_leaves_no_task_behind(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = an_instance()
    mine = [
        a_task(instance_id=instance.id, **fields)
        for fields in (
            {},
            {"claimable_at": FAR_AWAY},
            {"status": TaskStatus.ERROR, "claimable_at": None},
            {"status": TaskStatus.ARRIVED, "branch": Branch("b", "j")},
            {"status": TaskStatus.AWAITING_BRANCHES, "claimable_at": None},
        )
    ]
    await put_instance(store, *mine, id=instance.id)
    await commit(store, InsertExternalTask(an_external_task(instance_id=instance.id)))
    other = await put_task(store)

    await commit(store, EndPath(instance.id, LONG_AGO))

    assert [row["_id"] for row in data.executable_tasks.find()] == [other.id]
    assert data.external_tasks.count_documents({}) == 0


async def test_the_history_has_the_variables_of_the_same_commit(store: MongoStore) -> None:
    instance = await put_instance(store, variables={"weight": 1, "carrier": "bike"})

    committed = await commit(
        store,
        ChangeVariables(instance.id, (SetVariable("weight", 2),)),
        EndPath(instance.id, LONG_AGO),
    )

    assert committed.ended[0].variables == {"weight": 2, "carrier": "bike"}
    ended = await store.runtime.find_ended_instance(instance.id)
    assert ended is not None
    assert ended.variables == {"weight": 2, "carrier": "bike"}


async def test_the_history_has_what_others_set_after_the_load(store: MongoStore) -> None:
    instance = await put_instance(store, variables={"weight": 1})
    await commit(store, ChangeVariables(instance.id, (SetVariable("by_api", 2),)))

    committed = await commit(store, EndPath(instance.id, LONG_AGO))

    assert committed.ended[0].variables == {"weight": 1, "by_api": 2}


async def test_ending_closes_open_incidents_and_keeps_resolved_ones(store: MongoStore) -> None:
    instance = await put_instance(store)
    task = a_task(instance_id=instance.id)
    resolved = an_incident(task, status=IncidentStatus.RESOLVED)
    await commit(store, OpenIncident(an_incident(task)), OpenIncident(resolved))

    await commit(store, EndPath(instance.id, LONG_AGO))

    page = await store.reads.list_incidents(IncidentQuery(instance_id=instance.id, status=None))
    assert {one.id: one.status for one in page.items}[resolved.id] is IncidentStatus.RESOLVED
    assert {one.status for one in page.items} == {IncidentStatus.RESOLVED, IncidentStatus.CLOSED}


async def test_the_claim_of_an_ended_instance_is_lost(store: MongoStore) -> None:
    instance = an_instance()
    task = a_task(instance_id=instance.id)
    await put_instance(store, task, id=instance.id)
    held = await claim(store, task)
    await commit(store, EndPath(instance.id, LONG_AGO))

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(RemoveTask(held),))


@pytest.mark.parametrize("change", ["variables", "end"])
async def test_a_change_of_an_instance_that_is_gone_stops_the_unit(
    store: MongoStore, data: Database[Json], change: str
) -> None:
    held = await claim(store, await put_task(store))
    gone = new_id()
    changes: dict[str, Change] = {
        "variables": ChangeVariables(gone, (SetVariable("weight", 1),)),
        "end": EndPath(gone, LONG_AGO),
    }
    before = snapshot(data)

    with pytest.raises(ClaimLostError, match=gone):
        await commit(store, changes[change], guards=(RemoveTask(held),))

    assert snapshot(data) == before


async def test_paths_that_end_at_once_end_the_instance_once(store: MongoStore) -> None:
    instance = await put_instance(store, open_paths=4)

    results = await together(
        *(lambda: commit(store, EndPath(instance.id, LONG_AGO)) for _ in range(4))
    )

    assert sum(len(result.ended) for result in results) == 1
    assert await store.runtime.find_ended_instance(instance.id) is not None


async def test_a_claimed_task_whose_instance_ended_is_discarded(
    store: MongoStore, data: Database[Json]
) -> None:
    held = await claim(store, await put_task(store))

    assert await store.runtime.discard_task(held)
    assert data.executable_tasks.count_documents({}) == 0


async def test_a_task_whose_instance_runs_is_not_discarded(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = an_instance()
    task = a_task(instance_id=instance.id)
    await put_instance(store, task, id=instance.id)
    held = await claim(store, task)
    before = snapshot(data)

    assert not await store.runtime.discard_task(held)
    assert snapshot(data) == before


async def test_a_task_that_belongs_to_somebody_else_is_not_discarded(
    store: MongoStore, data: Database[Json]
) -> None:
    held = await claim(store, await put_task(store))
    await store.queue.release(held)
    before = snapshot(data)

    await store.runtime.discard_task(held)

    assert snapshot(data) == before
