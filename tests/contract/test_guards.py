"""The fence: every write for a claimed task carries its claim, and a stolen claim writes nothing."""

from collections.abc import Callable

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.runtime import Branch, Claim, TaskStatus
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    Change,
    ChangeVariables,
    CompleteExternalTask,
    EndPath,
    FailTask,
    Guard,
    InsertExternalTask,
    InsertTask,
    OpenIncident,
    RecordEnded,
    RemoveTask,
    RescheduleTask,
    ReserveStartKey,
)
from kikwiflow_worker.model.variables import SetVariable
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.stores import (
    LONG_AGO,
    RIVAL,
    WORKER,
    Json,
    a_task,
    an_external_task,
    an_incident,
    an_instance,
    claim,
    claim_any,
    commit,
    lapse,
    new_id,
    put_instance,
    put_task,
    snapshot,
    together,
)

pytestmark = pytest.mark.mongo

Guarding = Callable[[Claim], Guard]

BRANCH = Branch("branch-1", "join-1")
GUARDS: dict[str, Guarding] = {
    "remove": RemoveTask,
    "arrive": lambda held: ArriveTask(held, BRANCH),
    "reschedule": lambda held: RescheduleTask(
        claim=held, due_at=LONG_AGO, attempts=1, retries_left=2, error="no scales"
    ),
    "fail": lambda held: FailTask(claim=held, attempts=3, error="no scales"),
}
every_guard = pytest.mark.parametrize("guarding", GUARDS.values(), ids=GUARDS.keys())


def everything(instance_id: str) -> tuple[Change, ...]:
    """Return one change of each kind that a step can make."""
    task = a_task(instance_id=instance_id)
    return (
        ChangeVariables(instance_id, (SetVariable("weight", 1),)),
        InsertTask(task),
        InsertExternalTask(an_external_task(instance_id=instance_id)),
        OpenIncident(an_incident(task)),
        ReserveStartKey("key-1", instance_id, None, LONG_AGO),
        RecordEnded(an_instance()),
        EndPath(instance_id, LONG_AGO),
    )


@pytest.mark.field_case("S-49")
@every_guard
async def test_a_stolen_claim_writes_nothing(
    store: MongoStore, data: Database[Json], guarding: Guarding
) -> None:
    instance = an_instance()
    task = a_task(instance_id=instance.id)
    await put_instance(store, task, id=instance.id)
    stolen = await claim(store, task)
    lapse(data, task.id)
    await claim_any(store, RIVAL)
    before = snapshot(data)

    with pytest.raises(ClaimLostError, match=task.id):
        await commit(store, *everything(instance.id), guards=(guarding(stolen),))

    assert snapshot(data) == before


@every_guard
async def test_a_claim_that_the_same_worker_took_again_is_another_claim(
    store: MongoStore, data: Database[Json], guarding: Guarding
) -> None:
    task = await put_task(store)
    first = await claim(store, task)
    lapse(data, task.id)
    await claim_any(store, WORKER)
    before = snapshot(data)

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(guarding(first),))

    assert snapshot(data) == before


@every_guard
@pytest.mark.parametrize(
    "wrong",
    [
        lambda held: Claim(new_id(), held.worker_id, held.epoch),
        lambda held: Claim(held.task_id, RIVAL, held.epoch),
        lambda held: Claim(held.task_id, held.worker_id, held.epoch + 1),
        lambda held: Claim(held.task_id, held.worker_id, held.epoch - 1),
    ],
    ids=["task", "worker", "later_epoch", "earlier_epoch"],
)
async def test_each_part_of_a_claim_matters(
    store: MongoStore, data: Database[Json], guarding: Guarding, wrong: Callable[[Claim], Claim]
) -> None:
    held = await claim(store, await put_task(store))
    before = snapshot(data)

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(guarding(wrong(held)),))

    assert snapshot(data) == before


@every_guard
async def test_a_released_claim_guards_nothing_any_more(
    store: MongoStore, guarding: Guarding
) -> None:
    held = await claim(store, await put_task(store))
    await store.queue.release(held)

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(guarding(held),))


@every_guard
async def test_an_outcome_is_written_once(store: MongoStore, guarding: Guarding) -> None:
    held = await claim(store, await put_task(store))
    await commit(store, guards=(guarding(held),))

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(guarding(held),))


@pytest.mark.field_case("S-02")
@every_guard
async def test_a_lapsed_lock_that_nobody_took_may_still_commit(
    store: MongoStore, data: Database[Json], guarding: Guarding
) -> None:
    task = await put_task(store)
    held = await claim(store, task)
    lapse(data, task.id)

    await commit(store, guards=(guarding(held),))

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(guarding(held),))


@pytest.mark.field_case("S-04")
@pytest.mark.parametrize("name", ["reschedule", "fail"])
async def test_a_task_that_stays_names_no_worker_and_has_a_new_epoch(
    store: MongoStore, data: Database[Json], name: str
) -> None:
    task = await put_task(store)
    held = await claim(store, task)
    data.executable_tasks.update_one({"_id": task.id}, {"$set": {"claimToken": "token"}})

    await commit(store, guards=(GUARDS[name](held),))

    row = data.executable_tasks.find_one({"_id": task.id})
    assert row is not None
    assert not {"workerId", "lockExpiresAt", "claimToken"} & row.keys()
    assert row["epoch"] == held.epoch + 1


async def test_a_removed_task_is_gone(store: MongoStore) -> None:
    task = await put_task(store)

    await commit(store, guards=(RemoveTask(await claim(store, task)),))

    assert await store.reads.find_task(task.id) is None


async def test_a_rescheduled_task_waits_with_what_it_has_left(store: MongoStore) -> None:
    task = await put_task(store, crash_count=1)
    held = await claim(store, task)
    due_at = store.runtime.now()

    await commit(
        store,
        guards=(
            RescheduleTask(
                claim=held, due_at=due_at, attempts=1, retries_left=2, error="no scales"
            ),
        ),
    )

    row = await store.reads.find_task(task.id)
    assert row is not None
    assert (row.status, row.due_at, row.claimable_at) == (TaskStatus.PENDING, due_at, due_at)
    assert (row.attempts, row.retries_left, row.error) == (1, 2, "no scales")
    assert row.crash_count == 0


async def test_a_failed_task_waits_for_a_person_and_is_never_claimed(store: MongoStore) -> None:
    task = await put_task(store)
    held = await claim(store, task)

    await commit(store, guards=(FailTask(claim=held, attempts=3, error="no scales"),))

    row = await store.reads.find_task(task.id)
    assert row is not None
    assert (row.status, row.claimable_at, row.attempts) == (TaskStatus.ERROR, None, 3)
    assert (row.retries_left, row.error) == (0, "no scales")
    assert await claim_any(store) is None


async def test_a_completed_external_task_is_gone_and_recorded(store: MongoStore) -> None:
    task = an_external_task()
    await commit(store, InsertExternalTask(task))

    await commit(store, guards=(completion(task.id),))

    assert await store.runtime.find_external_task(task.id) is None
    record = await store.reads.find_completed_external_task(task.id)
    assert record is not None
    assert (record.completed_by, record.completed_at) == ("ann", LONG_AGO)


async def test_an_external_task_is_completed_once(store: MongoStore, data: Database[Json]) -> None:
    task = an_external_task()
    await commit(store, InsertExternalTask(task))
    await commit(store, guards=(completion(task.id),))
    before = snapshot(data)

    with pytest.raises(ClaimLostError, match=task.id):
        await commit(store, InsertTask(a_task()), guards=(completion(task.id),))

    assert snapshot(data) == before


async def test_of_many_completions_at_once_one_counts(
    store: MongoStore, data: Database[Json]
) -> None:
    task = an_external_task()
    await commit(store, InsertExternalTask(task))

    results = await together(
        *(
            lambda: commit(store, InsertTask(a_task()), guards=(completion(task.id),))
            for _ in range(5)
        )
    )

    assert sum(isinstance(result, ClaimLostError) for result in results) == 4
    assert data.executable_tasks.count_documents({}) == 1


async def test_one_failing_guard_of_several_stops_them_all(
    store: MongoStore, data: Database[Json]
) -> None:
    good = await claim(store, await put_task(store))
    before = snapshot(data)

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(RemoveTask(good), completion(new_id())))

    assert snapshot(data) == before


def completion(task_id: str) -> CompleteExternalTask:
    return CompleteExternalTask(
        task_id=task_id,
        instance_id="instance-1",
        definition_id="definition-1",
        node_id="APPROVE",
        completed_at=LONG_AGO,
        completed_by="ann",
    )
