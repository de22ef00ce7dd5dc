"""Replies that are lost and writes that are refused: each leads to exactly one outcome (protocol R6)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import (
    ClaimLostError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
    VariableTooLargeError,
)
from kikwiflow_worker.model.runtime import InstanceStatus, TaskStatus, TaskType
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    ChangeVariables,
    EndPath,
    InsertInstance,
    InsertTask,
    RemoveTask,
    ReserveStartKey,
)
from kikwiflow_worker.model.variables import IncrementVariable, SetVariable
from kikwiflow_worker.store.mongo.driver import client_options
from kikwiflow_worker.store.mongo.locks import MongoLockKeeper
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.groups import HAND_ON, commit_group, committed, put_claimed, step, unit_of
from tests.support.mongo import MongoServer
from tests.support.stores import (
    FAR_AWAY,
    LONG_AGO,
    WORKER,
    Json,
    a_branch_task,
    a_join,
    a_task,
    an_instance,
    claim,
    claim_any,
    claim_many,
    commit,
    put_instance,
    put_task,
    snapshot,
)

pytestmark = [pytest.mark.mongo, pytest.mark.usefixtures("leaking_driver")]

Failing = Callable[..., AbstractContextManager[list[int]]]

APP = "faulty"
TRANSIENT = ["TransientTransactionError"]
APPLIED_BUT_UNKNOWN = {"writeConcernError": {"code": 91, "errmsg": "shutting down"}}
NOT_REPLICATED = {
    "writeConcernError": {"code": 64, "errmsg": "timed out", "errInfo": {"wtimeout": True}}
}

FAULTS: dict[str, tuple[str, Json]] = {
    "commit_never_arrives": ("commitTransaction", {"closeConnection": True}),
    "commit_applied_but_unknown": ("commitTransaction", APPLIED_BUT_UNKNOWN),
    "commit_applied_but_not_replicated": ("commitTransaction", NOT_REPLICATED),
    "commit_conflicts": ("commitTransaction", {"errorCode": 112, "errorLabels": TRANSIENT}),
    "transaction_is_gone": ("commitTransaction", {"errorCode": 251, "errorLabels": TRANSIENT}),
    "no_primary_at_commit": ("commitTransaction", {"errorCode": 10107}),
    "guard_conflicts": ("delete", {"errorCode": 112, "errorLabels": TRANSIENT}),
    "guard_never_arrives": ("delete", {"closeConnection": True}),
    "insert_conflicts": ("insert", {"errorCode": 112, "errorLabels": TRANSIENT}),
    "insert_never_arrives": ("insert", {"closeConnection": True}),
    "variables_conflict": ("update", {"errorCode": 112, "errorLabels": TRANSIENT}),
}


@pytest.fixture
async def store(mongo_server: MongoServer, data: Database[Json]) -> AsyncIterator[MongoStore]:
    """Return a store whose commands the fault injection can tell from the test's own."""
    # A server that only pretends to shut down does not wake the driver's monitor, which then looks every 10 s.
    options = client_options(
        mongo_server.uri,
        appname=APP,
        heartbeatFrequencyMS=500,
        serverMonitoringMode="poll",
        timeoutMS=3_000,
    )
    client: AsyncMongoClient[Json] = AsyncMongoClient(mongo_server.uri, **options)
    opened = MongoStore.over(client, data.name, clock=SystemClock())
    await opened.ping()
    yield opened
    await client.close()


@pytest.fixture
def failing(data: Database[Json]) -> Failing:
    """Return how to let the server fail a command of the store: ``with failing("insert", errorCode=112):``.

    The list that ``with`` gives says afterwards how often the server did.
    """

    @contextmanager
    def fail(command: str, mode: Any = None, **fault: Any) -> Iterator[list[int]]:
        chosen = {"failCommands": [command], "appName": APP, **fault}
        configure = partial(data.client.admin.command, "configureFailPoint", "failCommand")
        try:
            before = configure(mode=mode or {"times": 1}, data=chosen)["count"]
        except OperationFailure as error:
            pytest.skip(f"the server injects no faults: {error.details}")
        fired: list[int] = []
        try:
            yield fired
        finally:
            fired.append(configure(mode="off")["count"] - before)

    return fail


@pytest.mark.field_case("S-22", "S-54", "S-56")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_a_fault_around_a_commit_leads_to_one_outcome(
    store: MongoStore, data: Database[Json], failing: Failing, fault: tuple[str, Json], times: int
) -> None:
    instance = an_instance(variables={"count": 0})
    task, following = a_task(instance_id=instance.id), a_task(instance_id=instance.id)
    await put_instance(store, task, id=instance.id, variables={"count": 0})
    held = await claim(store, task)
    command, what = fault

    with failing(command, {"times": times}, **what) as fired:
        await commit(
            store,
            InsertTask(following),
            ChangeVariables(instance.id, (IncrementVariable("count", 1),)),
            guards=(RemoveTask(held),),
        )

    assert fired == [times]
    assert [row["_id"] for row in data.executable_tasks.find()] == [following.id]
    found = await store.runtime.find_instance(instance.id)
    assert found is not None
    assert found.variables == {"count": 1}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_a_fault_around_a_group_leads_to_one_outcome_of_each_unit(
    store: MongoStore, data: Database[Json], failing: Failing, fault: tuple[str, Json]
) -> None:
    times = 3
    made = await put_claimed(store, 6)
    units = [
        step(
            store,
            held,
            ChangeVariables(instance.id, (IncrementVariable("count", 1),)),
            id=f"next-{number}",
            instance_id=instance.id,
        )
        for number, (instance, _, held) in enumerate(made)
    ]
    command, what = fault

    with failing(command, {"times": times}, **what) as fired:
        results = committed(await commit_group(store, *units, hand_on=HAND_ON))

    assert fired == [times]
    rows = {row["_id"]: row for row in data.executable_tasks.find()}
    assert rows.keys() == {f"next-{number}" for number in range(6)}
    assert all((row["status"], row["epoch"]) == ("LOCKED", 1) for row in rows.values())
    assert [one.handed_on.task.id for one in results if one.handed_on] == sorted(rows)
    for instance, _, _ in made:
        found = await store.runtime.find_instance(instance.id)
        assert found is not None
        assert found.variables == {"count": 1}


@pytest.mark.parametrize("times", [1, 3])
async def test_ends_whose_commits_are_unknown_happen_once(
    store: MongoStore, data: Database[Json], failing: Failing, times: int
) -> None:
    made = await put_claimed(store, 4)
    units = [unit_of(RemoveTask(held), EndPath(i.id, LONG_AGO)) for i, _, held in made]

    with failing("commitTransaction", {"times": times}, **NOT_REPLICATED):
        results = committed(await commit_group(store, *units))

    assert [len(one.ended) for one in results] == [1] * 4
    assert data.process_history.count_documents({}) == 4
    assert data.process_instances.count_documents({}) == data.executable_tasks.count_documents({})


async def test_a_group_stands_when_what_it_handed_on_cannot_be_loaded(
    store: MongoStore, data: Database[Json], failing: Failing, keeper: MongoLockKeeper
) -> None:
    units = [step(store, held) for _, _, held in await put_claimed(store, 3)]

    with failing("find", errorCode=13) as fired:
        results = committed(await commit_group(store, *units, hand_on=HAND_ON))

    assert fired == [1]
    assert [one.handed_on for one in results] == [None] * 3
    assert data.executable_tasks.count_documents({"status": "LOCKED", "workerId": WORKER}) == 3
    assert [keeper.release_unknown(WORKER, known=frozenset()) for _ in range(2)] == [0, 3]


async def test_a_group_that_cannot_be_committed_says_so_for_each_unit(
    store: MongoStore, data: Database[Json], failing: Failing
) -> None:
    units = [step(store, held) for _, _, held in await put_claimed(store, 3)]
    before = snapshot(data)

    with failing("delete", "alwaysOn", errorCode=13):
        results = await commit_group(store, *units)

    assert all(isinstance(one, StoreRefusedError) for one in results)
    assert snapshot(data) == before


async def test_a_batch_whose_reply_is_lost_is_found_by_its_worker(
    store: MongoStore, data: Database[Json], failing: Failing, keeper: MongoLockKeeper
) -> None:
    await put_claimed(store, 8)
    data.executable_tasks.update_many({}, {"$set": {"claimableAt": LONG_AGO}})

    with failing("update", **APPLIED_BUT_UNKNOWN), pytest.raises(StoreUnavailableError):
        await claim_many(store, 8)

    assert data.executable_tasks.count_documents({"workerId": WORKER, "epoch": 2}) == 8
    # Nobody has waited for the majority, without which they are not seen: the next write does.
    await put_task(store, claimable_at=FAR_AWAY)
    assert [keeper.release_unknown(WORKER, known=frozenset()) for _ in range(2)] == [0, 8]
    assert len(await claim_many(store, 8)) == 8


async def test_a_batch_that_never_arrives_claims_nothing(
    store: MongoStore, data: Database[Json], failing: Failing
) -> None:
    await put_task(store)
    before = snapshot(data)

    with failing("update", closeConnection=True), pytest.raises(StoreUnavailableError):
        await claim_many(store, 8)

    assert snapshot(data) == before


@pytest.mark.parametrize("name", ["guard_conflicts", "guard_never_arrives"])
async def test_a_claim_that_was_lost_stays_lost_through_a_fault(
    store: MongoStore, data: Database[Json], failing: Failing, name: str
) -> None:
    held = await claim(store, await put_task(store))
    await store.queue.release(held)
    before = snapshot(data)
    command, what = FAULTS[name]

    with failing(command, **what) as fired, pytest.raises(ClaimLostError):
        await commit(store, InsertTask(a_task()), guards=(RemoveTask(held),))

    assert fired == [1]
    assert snapshot(data) == before


async def test_a_commit_that_the_server_s_cache_cannot_take_is_refused_as_too_large(
    store: MongoStore, data: Database[Json], failing: Failing
) -> None:
    instance = await put_instance(store)
    before = snapshot(data)
    change = ChangeVariables(instance.id, (SetVariable("a", 1),))

    with (
        failing("update", errorCode=388) as fired,
        pytest.raises(VariableTooLargeError, match="wiredTigerCacheSizeGB"),
    ):
        await commit(store, InsertTask(a_task()), change)

    assert fired == [1]
    assert snapshot(data) == before


async def test_a_start_whose_commit_is_unknown_is_no_duplicate_of_itself(
    store: MongoStore, data: Database[Json], failing: Failing
) -> None:
    instance = an_instance()

    with failing("commitTransaction", {"times": 3}, **NOT_REPLICATED):
        await commit(
            store, ReserveStartKey("key-1", instance.id, None, LONG_AGO), InsertInstance(instance)
        )

    assert await store.runtime.find_started("key-1", tenant_id=None) == instance.id
    assert data.process_instances.count_documents({}) == 1


async def test_an_end_whose_commit_is_unknown_ends_the_instance_once(
    store: MongoStore, data: Database[Json], failing: Failing
) -> None:
    instance = an_instance(open_paths=2)
    await put_instance(store, id=instance.id, open_paths=2)

    with failing("commitTransaction", {"times": 3}, **NOT_REPLICATED):
        committed = await commit(store, EndPath(instance.id, LONG_AGO))

    assert committed.ended == ()
    found = await store.runtime.find_instance(instance.id)
    assert found is not None
    assert found.open_paths == 1


@pytest.mark.parametrize("command", ["insert", "delete"])
async def test_what_the_server_refuses_for_good_writes_nothing(
    store: MongoStore, data: Database[Json], failing: Failing, command: str
) -> None:
    held = await claim(store, await put_task(store))
    before = snapshot(data)

    with failing(command, errorCode=20), pytest.raises(StoreError, match=held.task_id):
        await commit(store, InsertTask(a_task()), guards=(RemoveTask(held),))

    assert snapshot(data) == before


async def test_a_claim_whose_reply_is_lost_is_the_same_claim(
    store: MongoStore, data: Database[Json], failing: Failing
) -> None:
    task = await put_task(store)

    with failing("findAndModify", **APPLIED_BUT_UNKNOWN):
        claimed = await claim_any(store)

    assert claimed is not None
    assert claimed.claim.epoch == 1
    assert claimed.task.crash_count == 0
    assert (await store.reads.find_task(task.id)) == claimed.task


async def test_a_claim_that_never_arrives_is_sent_again(
    store: MongoStore, failing: Failing
) -> None:
    await put_task(store)

    with failing("findAndModify", closeConnection=True):
        claimed = await claim_any(store)

    assert claimed is not None
    assert claimed.claim.epoch == 1


@pytest.mark.field_case("S-23")
async def test_a_claim_whose_reply_never_comes_is_found_and_given_back(
    store: MongoStore, keeper: MongoLockKeeper, failing: Failing
) -> None:
    task = await put_task(store)
    with failing("find", "alwaysOn", closeConnection=True), pytest.raises(StoreUnavailableError):
        await claim_any(store)

    released = [keeper.release_unknown(WORKER, known=frozenset()) for _ in range(2)]

    assert released == [0, 1]
    row = await store.reads.find_task(task.id)
    assert row is not None
    assert (row.status, row.crash_count) == (TaskStatus.PENDING, 0)


@pytest.mark.parametrize(
    "fault", [{"closeConnection": True}, {"errorCode": 13}, {"errorCode": 20}], ids=str
)
async def test_a_commit_stands_when_the_join_cannot_be_told(
    store: MongoStore, data: Database[Json], failing: Failing, fault: Json
) -> None:
    join = a_join("b1", instance_id="instance-1")
    task = a_branch_task(join, "b1")
    await commit(store, InsertTask(join), InsertTask(task))
    held = await claim(store, task)
    assert task.branch is not None

    with failing("findAndModify", "alwaysOn", **fault):
        committed = await commit(store, guards=(ArriveTask(held, task.branch),))

    assert committed.claimable == 0
    record = data.executable_tasks.find_one({"_id": task.id})
    assert record is not None
    assert record["status"] == "ARRIVED"
    data.executable_tasks.update_one({"_id": task.id}, {"$set": {"claimableAt": LONG_AGO}})
    assert await store.queue.deliver_arrivals(limit=10) == 1
    row = await store.reads.find_task(join.id)
    assert row is not None
    assert row.status is TaskStatus.PENDING


@pytest.mark.field_case("S-68")
async def test_a_pull_whose_reply_is_lost_releases_the_join_once(
    store: MongoStore, data: Database[Json], failing: Failing
) -> None:
    join = a_join("b1", instance_id="instance-1")
    task = a_branch_task(join, "b1")
    await commit(store, InsertTask(join), InsertTask(task))
    held = await claim(store, task)
    assert task.branch is not None

    with failing("findAndModify", **APPLIED_BUT_UNKNOWN):
        committed = await commit(store, guards=(ArriveTask(held, task.branch),))

    assert committed.claimable == 1
    assert [row["_id"] for row in data.executable_tasks.find()] == [join.id]


async def test_a_cancel_that_stops_half_way_is_finished_by_any_worker(
    store: MongoStore, data: Database[Json], failing: Failing
) -> None:
    instance = an_instance()
    tasks = [a_task(instance_id=instance.id) for _ in range(1100)]
    await put_instance(store, *tasks, id=instance.id)
    running = await claim(store, tasks[0])

    with failing("findAndModify", {"skip": 1}, errorCode=13), pytest.raises(StoreRefusedError):
        await store.runtime.cancel_instance(instance.id, cancelled_by="ann")

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(RemoveTask(running),))
    found = await claim_any(store)
    assert found is not None
    assert found.task.type is TaskType.CANCEL_INSTANCE
    assert found.instance is not None
    assert found.instance.status is InstanceStatus.CANCELLING
    assert await store.runtime.sweep_cancelled(instance.id)
    assert data.executable_tasks.count_documents({}) == 0


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancel_whose_commits_are_unknown_happens_once(
    store: MongoStore, data: Database[Json], failing: Failing, times: int
) -> None:
    instance = an_instance()
    await put_instance(store, a_task(instance_id=instance.id), id=instance.id)

    with failing("commitTransaction", {"times": times}, **NOT_REPLICATED):
        was_cancelled = await store.runtime.cancel_instance(instance.id, cancelled_by=None)

    assert was_cancelled
    assert data.executable_tasks.count_documents({}) == 0
    assert data.process_history.count_documents({"_id": instance.id}) == 1


async def test_a_retry_of_an_incident_whose_commit_is_unknown_happens_once(
    store: MongoStore, data: Database[Json], failing: Failing
) -> None:
    task = await put_task(store, status=TaskStatus.ERROR, claimable_at=None, epoch=2)
    data.incidents.insert_one({"_id": "incident-1", "status": "OPEN", "executionId": task.id})

    with failing("commitTransaction", {"times": 3}, **NOT_REPLICATED):
        was_retried = await store.runtime.retry_incident("incident-1", retries=3, resolved_by=None)

    assert was_retried
    row = await store.reads.find_task(task.id)
    assert row is not None
    assert row.epoch == 3


async def test_hints_go_on_after_the_stream_broke(
    mongo_server: MongoServer, data: Database[Json], failing: Failing
) -> None:
    client: AsyncMongoClient[Json] = AsyncMongoClient(mongo_server.uri, appname=APP)
    store = MongoStore.over(client, data.name, clock=SystemClock())
    heard = asyncio.Event()

    async def listen() -> None:
        async for _ in store.wake_ups.watch():
            heard.set()

    async def hear() -> None:
        """Put tasks until one of them is heard of."""
        heard.clear()
        while not heard.is_set():
            await put_task(store)
            await asyncio.sleep(0.05)

    listening = asyncio.ensure_future(listen())
    await hear()
    # The request that is open answers; the one after it is refused.
    with failing("getMore", closeConnection=True) as fired:
        for _ in range(5):
            await put_task(store)
            await asyncio.sleep(0.1)

    assert fired == [1]
    await hear()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await client.close()
