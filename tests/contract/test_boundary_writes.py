"""Hosts and what hangs on them: the host's row decides, and everything attached goes with it (protocol R10)."""

from datetime import timedelta

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.runtime import (
    Attachment,
    ExecutableTask,
    ExternalTask,
    ExternalTaskType,
    HostKind,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    CompleteExternalTask,
    Detach,
    EndHost,
    InsertExternalTask,
    InsertTask,
    RemoveTask,
)
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Client, open_database
from kikwiflow_worker.store.mongo.guards import Guards
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.stores import (
    FAR_AWAY,
    LONG_AGO,
    Json,
    a_task,
    an_external_task,
    claim,
    commit,
    new_id,
    put_task,
    snapshot,
    together,
)

pytestmark = pytest.mark.mongo

every_kind = pytest.mark.parametrize("kind", HostKind)


async def put_host(store: MongoStore, kind: HostKind) -> str:
    """Store a host; return its id."""
    if kind is HostKind.EXECUTABLE_TASK:
        return (await put_task(store)).id
    return (await put_wait(store)).id


async def put_wait(store: MongoStore, **fields: object) -> ExternalTask:
    task = an_external_task(**fields)
    await commit(store, InsertExternalTask(task))
    return task


async def put_timer(store: MongoStore, host_id: str, **fields: object) -> ExecutableTask:
    """Store a timer that waits beside a host."""
    return await put_task(
        store,
        type=TaskType.INTERRUPTIVE_TIMER,
        attached_to=Attachment(host_id, "HOST", HostKind.EXECUTABLE_TASK),
        **fields,
    )


async def put_catch_event(store: MongoStore, host_id: str) -> ExternalTask:
    """Store a catch event that waits beside a host."""
    return await put_wait(
        store,
        type=ExternalTaskType.BOUNDARY_CATCH,
        correlation_key="cancel-7",
        attached_to=Attachment(host_id, "HOST", HostKind.EXTERNAL_TASK),
    )


def completion(task_id: str) -> CompleteExternalTask:
    return CompleteExternalTask(
        task_id=task_id,
        instance_id="instance-1",
        definition_id="definition-1",
        node_id="HOST",
        completed_at=LONG_AGO,
        completed_by=None,
    )


def left(data: Database[Json]) -> set[str]:
    """Return the ids of all rows."""
    rows = [*data.executable_tasks.find(), *data.external_tasks.find()]
    return {row["_id"] for row in rows}


@every_kind
async def test_an_event_ends_its_host(
    store: MongoStore, data: Database[Json], kind: HostKind
) -> None:
    host_id = await put_host(store, kind)
    timer = await put_timer(store, host_id)

    await commit(store, guards=(RemoveTask(await claim(store, timer)), EndHost(host_id, kind)))

    assert left(data) == set()


@every_kind
async def test_a_host_that_is_gone_stops_the_whole_unit(
    store: MongoStore, data: Database[Json], kind: HostKind
) -> None:
    timer = await put_timer(store, "gone")
    guards = (RemoveTask(await claim(store, timer)), EndHost("gone", kind))
    before = snapshot(data)

    with pytest.raises(ClaimLostError) as lost:
        await commit(store, InsertTask(a_task()), guards=guards)

    assert lost.value.guard == guards[1]
    assert snapshot(data) == before


@every_kind
async def test_a_host_is_looked_for_among_its_own_kind_only(
    store: MongoStore, data: Database[Json], kind: HostKind
) -> None:
    host_id = await put_host(store, kind)
    (other,) = set(HostKind) - {kind}

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(EndHost(host_id, other),))

    assert left(data) == {host_id}


async def test_a_host_that_has_ended_its_branch_counts_as_gone(
    store: MongoStore, client: Client, data: Database[Json]
) -> None:
    host = await put_task(store, status=TaskStatus.ARRIVED, claimable_at=FAR_AWAY)
    guard = EndHost(host.id, HostKind.EXECUTABLE_TASK)
    guards = Guards(Collections.of(open_database(client, data.name)), timedelta(days=1))

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(guard,))

    assert not await guards.is_open(guard)
    assert left(data) == {host.id}


@pytest.mark.parametrize("status", [one for one in TaskStatus if one is not TaskStatus.ARRIVED])
async def test_a_host_is_ended_whatever_it_is_doing(
    store: MongoStore, data: Database[Json], status: TaskStatus
) -> None:
    host = await put_task(store, status=status, claimable_at=None)

    await commit(store, guards=(EndHost(host.id, HostKind.EXECUTABLE_TASK),))

    assert left(data) == set()


async def test_a_worker_loses_its_claim_on_a_host_that_was_ended(store: MongoStore) -> None:
    host = await put_task(store)
    held = await claim(store, host)

    await commit(store, guards=(EndHost(host.id, HostKind.EXECUTABLE_TASK),))

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(RemoveTask(held),))


async def test_of_a_host_s_completion_and_its_event_at_once_one_counts(
    store: MongoStore, data: Database[Json]
) -> None:
    for _ in range(5):
        host_id = await put_host(store, HostKind.EXTERNAL_TASK)
        timer = await put_timer(store, host_id)
        held = await claim(store, timer)
        done, late = a_task(), a_task()

        results = await together(
            lambda host_id=host_id, done=done: commit(
                store, Detach(host_id), InsertTask(done), guards=(completion(host_id),)
            ),
            lambda host_id=host_id, held=held, late=late: commit(
                store,
                Detach(host_id, held.task_id),
                InsertTask(late),
                guards=(RemoveTask(held), EndHost(host_id, HostKind.EXTERNAL_TASK)),
            ),
        )

        lost = [isinstance(result, ClaimLostError) for result in results]
        assert sorted(lost) == [False, True]
        assert left(data) == {(done, late)[lost.index(False)].id}
        data.executable_tasks.delete_many({})


@every_kind
async def test_what_hangs_on_a_host_goes_with_it(
    store: MongoStore, data: Database[Json], kind: HostKind
) -> None:
    host_id = await put_host(store, kind)
    await put_timer(store, host_id)
    await put_timer(store, host_id, status=TaskStatus.ERROR, claimable_at=None)
    await put_catch_event(store, host_id)

    await commit(store, Detach(host_id))

    assert left(data) == {host_id}


async def test_a_cycle_that_was_born_after_the_load_goes_too(
    store: MongoStore, data: Database[Json]
) -> None:
    host = await put_task(store)
    held = await claim(store, host)
    cycle = await put_timer(store, host.id, occurrence=1)
    following = a_task(attached_to=cycle.attached_to, occurrence=2)
    await commit(store, InsertTask(following), guards=(RemoveTask(await claim(store, cycle)),))

    await commit(store, Detach(host.id), guards=(RemoveTask(held),))

    assert left(data) == set()


async def test_a_cycle_that_is_replaced_meanwhile_never_outlives_its_host(
    store: MongoStore, data: Database[Json]
) -> None:
    for _ in range(5):
        host_id = await put_host(store, HostKind.EXTERNAL_TASK)
        cycle = await put_timer(store, host_id, occurrence=1)
        held = await claim(store, cycle)
        following = a_task(attached_to=cycle.attached_to, occurrence=2)

        ended, _ = await together(
            lambda host_id=host_id: commit(store, Detach(host_id), guards=(completion(host_id),)),
            lambda held=held, following=following: commit(
                store, InsertTask(following), guards=(RemoveTask(held),)
            ),
        )

        assert not isinstance(ended, Exception)
        assert left(data) == set()


async def test_an_event_that_fires_keeps_its_own_row_for_its_guard(
    store: MongoStore, data: Database[Json]
) -> None:
    timer, _ = await put_timer(store, "host"), await put_timer(store, "host")
    event = await put_catch_event(store, "host")

    await commit(store, Detach("host", timer.id))
    assert left(data) == {timer.id}

    await commit(store, InsertExternalTask(event), Detach("host", event.id))
    assert left(data) == {event.id}


async def test_what_hangs_on_other_hosts_stays(store: MongoStore, data: Database[Json]) -> None:
    timer, event = await put_timer(store, "other"), await put_catch_event(store, "other")
    free = await put_task(store)

    await commit(store, Detach("host"))

    assert left(data) == {timer.id, event.id, free.id}


async def test_the_keys_of_a_group_go_with_the_group(
    store: MongoStore, data: Database[Json]
) -> None:
    group_id = new_id()
    for key in ("a", "b"):
        await put_wait(
            store, type=ExternalTaskType.GROUP_KEY, correlation_key=key, group_id=group_id
        )
    other = await put_wait(
        store, type=ExternalTaskType.GROUP_KEY, correlation_key="a", group_id="other"
    )

    await commit(store, Detach(group_id))

    assert left(data) == {other.id}
