"""Group commits: units share a transaction, and each has its own result (protocol R11, R15)."""

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from kikwiflow_worker.errors import ClaimLostError, StoreError, StoreUnavailableError
from kikwiflow_worker.model.runtime import (
    Attachment,
    Branch,
    HostKind,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    ChangeVariables,
    Committed,
    Detach,
    EndHost,
    EndPath,
    FailTask,
    InsertExternalTask,
    InsertTask,
    OpenIncident,
    OpenPath,
    RemoveTask,
    RescheduleTask,
    StartChild,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import AppendToVariable, IncrementVariable, SetVariable
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.contract.test_variables_in_store import variables_of
from tests.support.groups import commit_group, committed, put_claimed, step, unit_of
from tests.support.mongo import MongoServer
from tests.support.profiler import profiled
from tests.support.stores import (
    FAR_AWAY,
    LONG_AGO,
    RIVAL,
    Json,
    a_join,
    a_task,
    an_external_task,
    an_incident,
    an_instance,
    claim,
    claim_any,
    claim_many,
    commit,
    lapse,
    put_instance,
    put_task,
    snapshot,
)

pytestmark = pytest.mark.mongo

SIZE = 16


async def test_all_units_of_a_group_are_written(store: MongoStore, data: Database[Json]) -> None:
    held = [one for _, _, one in await put_claimed(store, 5)]
    units = [step(store, one, id=f"next-{number}") for number, one in enumerate(held)]

    results = committed(await commit_group(store, *units))

    assert [one.claimable for one in results] == [1] * 5
    rows = sorted(row["_id"] for row in data.executable_tasks.find())
    assert rows == [f"next-{number}" for number in range(5)]


async def test_a_unit_whose_claim_is_lost_is_left_out_and_the_others_are_written(
    store: MongoStore, data: Database[Json]
) -> None:
    made = await put_claimed(store, 4)
    _, lost_task, lost = made[1]
    lapse(data, lost_task.id)
    assert await claim_any(store, RIVAL) is not None
    units = [
        step(store, one, ChangeVariables(i.id, (SetVariable("done", "yes"),)), id=f"next-{n}")
        for n, (i, _, one) in enumerate(made)
    ]

    results = await commit_group(store, *units)

    assert isinstance(results[1], ClaimLostError)
    assert results[1].guard == RemoveTask(lost)
    committed((results[0], *results[2:]))
    rows = {row["_id"] for row in data.executable_tasks.find()}
    assert rows == {lost_task.id, "next-0", "next-2", "next-3"}
    done = {
        row["_id"] for row in data.process_instances.find({"variables.done": {"$exists": True}})
    }
    assert done == {instance.id for n, (instance, _, _) in enumerate(made) if n != 1}


async def test_a_group_of_lost_claims_writes_nothing(
    store: MongoStore, data: Database[Json]
) -> None:
    held = [one for _, _, one in await put_claimed(store, 3)]
    for one in held:
        await store.queue.release(one)
    before = snapshot(data)

    results = await commit_group(store, *(step(store, one) for one in held))

    assert all(isinstance(one, ClaimLostError) for one in results)
    assert snapshot(data) == before


async def test_a_group_reads_none_of_what_its_worker_holds_beside(
    store: MongoStore, data: Database[Json]
) -> None:
    async def claim_some() -> list[UnitOfWork]:
        return [unit_of(RemoveTask(one.claim)) for one in await claim_many(store, SIZE)]

    await commit(store, *(InsertTask(a_task()) for _ in range(10 * SIZE)))
    # The server remembers what was fast for a worker that holds nothing else.
    for _ in range(3):
        committed(await commit_group(store, *await claim_some()))
    held = [await claim_some() for _ in range(6)]

    with profiled(data) as entries:
        committed(await commit_group(store, *held[0]))

    tasks = [entry for entry in entries if entry["ns"].endswith(".executable_tasks")]
    assert {entry["op"] for entry in tasks} == {"remove"}
    assert [entry["docsExamined"] for entry in tasks] == [SIZE]


async def test_no_units_are_no_group(store: MongoStore) -> None:
    assert await commit_group(store) == ()


async def test_of_two_units_of_one_task_the_second_is_lost(
    store: MongoStore, data: Database[Json]
) -> None:
    ((_, _, held), (_, _, other)) = await put_claimed(store, 2)

    results = await commit_group(
        store,
        step(store, held, id="first"),
        step(store, held, id="second"),
        step(store, other, id="third"),
    )

    assert [type(one) for one in results] == [Committed, ClaimLostError, Committed]
    assert {row["_id"] for row in data.executable_tasks.find()} == {"first", "third"}


@pytest.mark.parametrize("host_first", [True, False])
async def test_a_host_and_its_timer_in_one_call_have_one_winner(
    store: MongoStore, data: Database[Json], host_first: bool
) -> None:
    host = await put_task(store, claimable_at=FAR_AWAY)
    attached = Attachment(host.id, "HOST", HostKind.EXECUTABLE_TASK)
    timer = await put_task(
        store, type=TaskType.INTERRUPTIVE_TIMER, attached_to=attached, claimable_at=FAR_AWAY
    )
    held_host, held_timer = await claim(store, host), await claim(store, timer)
    fires = UnitOfWork(
        (RemoveTask(held_timer), EndHost(host.id, HostKind.EXECUTABLE_TASK)),
        (Detach(host.id, timer.id), InsertTask(a_task(id="after the timer"))),
    )
    done = unit_of(RemoveTask(held_host), Detach(host.id), InsertTask(a_task(id="after the host")))
    ((_, _, held),) = await put_claimed(store, 1)
    other = step(store, held, id="of somebody else")
    units = (done, fires, other) if host_first else (fires, done, other)

    results = await commit_group(store, *units)

    assert [type(one) for one in results] == [Committed, ClaimLostError, Committed]
    winner = "after the host" if host_first else "after the timer"
    assert {row["_id"] for row in data.executable_tasks.find()} == {winner, "of somebody else"}


async def test_many_timers_end_their_hosts_together(
    store: MongoStore, data: Database[Json]
) -> None:
    units = []
    for kind in (HostKind.EXECUTABLE_TASK, HostKind.EXTERNAL_TASK) * 2:
        host = a_task(claimable_at=FAR_AWAY)
        wait = an_external_task(id=host.id)
        attached = Attachment(host.id, "HOST", kind)
        timer = a_task(attached_to=attached)
        late = an_external_task(attached_to=attached)
        is_task = kind is HostKind.EXECUTABLE_TASK
        await commit(
            store,
            InsertTask(host) if is_task else InsertExternalTask(wait),
            InsertTask(timer),
            InsertExternalTask(late),
        )
        guards = (RemoveTask(await claim(store, timer)), EndHost(host.id, kind))
        changes = (Detach(host.id, timer.id), InsertTask(a_task(id=f"after {timer.id}")))
        units.append(UnitOfWork(guards, changes))
    gone = units[0].guards[1]
    assert isinstance(gone, EndHost)
    data.executable_tasks.delete_one({"_id": gone.task_id})

    results = await commit_group(store, *units)

    assert isinstance(results[0], ClaimLostError)
    assert results[0].guard == gone, "its own row is still there: the host is what was lost"
    committed(results[1:])
    rows = {row["_id"] for row in data.executable_tasks.find()}
    assert len(rows) == 4
    assert len([row for row in rows if row.startswith("after")]) == 3
    assert data.external_tasks.count_documents({}) == 1, "what hangs on the host that was gone"


async def test_a_unit_that_collides_is_refused_alone(
    store: MongoStore, data: Database[Json]
) -> None:
    held = [one for _, _, one in await put_claimed(store, 4)]
    there = await put_task(store, id="there", claimable_at=FAR_AWAY)
    units = [step(store, one, id=there.id if n == 2 else f"next-{n}") for n, one in enumerate(held)]

    results = await commit_group(store, *units)

    assert isinstance(results[2], StoreError)
    assert not isinstance(results[2], ClaimLostError)
    committed((*results[:2], results[3]))
    rows = {row["_id"] for row in data.executable_tasks.find()}
    assert rows == {"there", held[2].task_id, "next-0", "next-1", "next-3"}


async def test_a_row_that_a_foreign_transaction_holds_keeps_nobody_else_waiting(
    store: MongoStore, data: Database[Json], mongo_server: MongoServer
) -> None:
    made = await put_claimed(store, 8)
    units = [step(store, one, id=f"next-{n}") for n, (_, _, one) in enumerate(made)]
    with MongoClient[Json](mongo_server.uri) as foreign, foreign.start_session() as session:
        session.start_transaction()
        foreign[data.name].executable_tasks.update_one(
            {"_id": made[5][1].id}, {"$inc": {"priority": 1}}, session=session
        )
        results = await commit_group(store, *units)
        # Still open, so that the seven did not only wait for its end: reading in it would raise.
        foreign[data.name].executable_tasks.find_one({}, session=session)
        session.abort_transaction()

    assert isinstance(results[5], StoreUnavailableError)
    committed((*results[:5], *results[6:]))
    assert isinstance((await commit_group(store, units[5]))[0], Committed)
    rows = {row["_id"] for row in data.executable_tasks.find()}
    assert rows == {f"next-{number}" for number in range(8)}


async def test_two_paths_of_an_instance_that_end_together_end_it_once(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = an_instance(open_paths=2)
    first, second = (a_task(instance_id=instance.id) for _ in range(2))
    await put_instance(store, first, second, id=instance.id, open_paths=2)
    ends = [
        unit_of(RemoveTask(await claim(store, task)), EndPath(instance.id, LONG_AGO))
        for task in (first, second)
    ]

    results = committed(await commit_group(store, *ends))

    assert [ended.id for one in results for ended in one.ended] == [instance.id]
    assert data.process_instances.count_documents({}) == 0
    assert data.process_history.count_documents({"_id": instance.id}) == 1


async def test_an_instance_whose_paths_do_not_all_end_goes_on(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = an_instance(open_paths=2)
    tasks = [a_task(instance_id=instance.id) for _ in range(2)]
    await put_instance(store, *tasks, id=instance.id, open_paths=2)
    ending, opening = [await claim(store, task) for task in tasks]

    results = committed(
        await commit_group(
            store,
            unit_of(RemoveTask(ending), EndPath(instance.id, LONG_AGO)),
            step(store, opening, OpenPath(instance.id), instance_id=instance.id),
        )
    )

    assert [one.ended for one in results] == [(), ()]
    found = await store.runtime.find_instance(instance.id)
    assert found is not None
    assert found.open_paths == 2


async def test_an_end_sees_the_variables_of_its_group_and_takes_everything_with_it(
    store: MongoStore, data: Database[Json]
) -> None:
    made = await put_claimed(store, 3)
    units = []
    for instance, task, held in made:
        late = a_task(instance_id=instance.id, claimable_at=FAR_AWAY)
        incident = an_incident(late)
        wait = an_external_task(instance_id=instance.id)
        await commit(store, InsertTask(late), InsertExternalTask(wait), OpenIncident(incident))
        sets = ChangeVariables(instance.id, (SetVariable("by", task.id),))
        units.append(unit_of(RemoveTask(held), sets, EndPath(instance.id, LONG_AGO)))

    results = committed(await commit_group(store, *units))

    assert [one.ended[0].variables["by"] for one in results] == [task.id for _, task, _ in made]
    for instance, task, _ in made:
        ended = await store.runtime.find_ended_instance(instance.id)
        assert ended is not None
        assert ended.variables == {"count": 0, "by": task.id}
    assert data.executable_tasks.count_documents({}) == 0
    assert data.external_tasks.count_documents({}) == 0
    assert {row["status"] for row in data.incidents.find()} == {"CLOSED"}
    assert all("expiresAt" in row for row in data.incidents.find())


async def test_variables_of_one_instance_are_merged_in_the_order_of_the_units(
    store: MongoStore,
) -> None:
    instance = an_instance(variables={"count": 0})
    tasks = [a_task(instance_id=instance.id) for _ in range(6)]
    await put_instance(store, *tasks, id=instance.id, variables={"count": 0})
    units = []
    for number, task in enumerate(tasks):
        changes = (
            IncrementVariable("count", 1),
            AppendToVariable("seen", number),
            SetVariable("last", number),
        )
        held = await claim(store, task)
        units.append(step(store, held, ChangeVariables(instance.id, changes)))

    committed(await commit_group(store, *units))

    found = await store.runtime.find_instance(instance.id)
    assert found is not None
    assert found.variables == {"count": 6, "seen": [0, 1, 2, 3, 4, 5], "last": 5}


async def test_changes_that_cannot_be_merged_are_written_one_after_another(
    store: MongoStore,
) -> None:
    instance = an_instance(variables={"x": 1})
    tasks = [a_task(instance_id=instance.id) for _ in range(2)]
    await put_instance(store, *tasks, id=instance.id, variables={"x": 1})
    held = [await claim(store, task) for task in tasks]

    results = await commit_group(
        store,
        step(store, held[0], ChangeVariables(instance.id, (SetVariable("x", "text"),))),
        step(store, held[1], ChangeVariables(instance.id, (IncrementVariable("x", 1),))),
    )

    assert isinstance(results[0], Committed)
    assert isinstance(results[1], StoreError), "a text cannot be incremented"


async def test_a_unit_of_an_instance_that_is_being_cancelled_is_lost_alone(
    store: MongoStore, data: Database[Json]
) -> None:
    made = await put_claimed(store, 3)
    data.process_instances.update_one({"_id": made[1][0].id}, {"$set": {"status": "CANCELLING"}})
    units = [
        step(store, held, ChangeVariables(instance.id, (IncrementVariable("count", 1),)))
        for instance, _, held in made
    ]

    results = await commit_group(store, *units)

    assert [type(one) for one in results] == [Committed, ClaimLostError, Committed]
    counts = [(await variables_of(store, instance.id))["count"] for instance, _, _ in made]
    assert counts == [1, 0, 1]


async def test_every_kind_of_decision_can_share_a_transaction(
    store: MongoStore, data: Database[Json]
) -> None:
    held = {task.id: one for _, task, one in await put_claimed(store, 5)}
    ids = list(held)
    failed = a_task(id=ids[2])
    join = a_join("b1", "b2")
    await commit(store, InsertTask(join))

    results = committed(
        await commit_group(
            store,
            unit_of(RemoveTask(held[ids[0]])),
            unit_of(
                RescheduleTask(
                    claim=held[ids[1]], due_at=FAR_AWAY, attempts=2, retries_left=1, error="late"
                )
            ),
            unit_of(
                FailTask(claim=held[ids[2]], attempts=3, error="broken"),
                OpenIncident(an_incident(failed)),
            ),
            unit_of(StartChild(held[ids[3]])),
            unit_of(ArriveTask(held[ids[4]], Branch("b1", join.id))),
        )
    )

    assert len(results) == 5
    rows = {row["_id"]: row for row in data.executable_tasks.find()}
    assert rows.keys() == {ids[1], ids[2], ids[3], join.id}
    statuses = [rows[one]["status"] for one in ids[1:4]]
    assert statuses == ["PENDING", "ERROR", "STARTED"]
    assert all(rows[one]["epoch"] == 2 for one in ids[1:4])
    assert not any({"workerId", "lockExpiresAt"} & rows[one].keys() for one in ids[1:4])
    assert rows[ids[1]]["claimableAt"] == FAR_AWAY
    assert rows[join.id]["pendingBranchIds"] == ["b2"]
    assert data.incidents.count_documents({"status": "OPEN"}) == 1
