"""Many at once, on real connections: one outcome for each task, one release for each join."""

from collections.abc import AsyncIterator

import pytest
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.runtime import InstanceStatus, TaskStatus
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    ChangeVariables,
    EndPath,
    InsertInstance,
    InsertTask,
    RemoveTask,
)
from kikwiflow_worker.model.variables import SetVariable
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.commands import AttemptCounter
from tests.support.mongo import MongoServer
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
    put_instance,
    put_task,
    together,
)

pytestmark = pytest.mark.mongo


@pytest.fixture
def counter() -> AttemptCounter:
    return AttemptCounter()


@pytest.fixture
async def store(
    mongo_server: MongoServer, data: Database[Json], counter: AttemptCounter
) -> AsyncIterator[MongoStore]:
    opened = MongoStore.open(mongo_server.uri, data.name, clock=SystemClock(), observer=counter)
    await opened.ping()
    yield opened
    await opened.close()


@pytest.mark.field_case("S-49")
async def test_of_two_commits_of_one_claim_exactly_one_is_written(
    store: MongoStore, data: Database[Json]
) -> None:
    for _ in range(10):
        held = await claim(store, await put_task(store, claimable_at=LONG_AGO))
        successors = [a_task(status=TaskStatus.ERROR, claimable_at=None) for _ in range(2)]

        results = await together(
            *(
                lambda following=following, held=held: commit(
                    store, InsertTask(following), guards=(RemoveTask(held),)
                )
                for following in successors
            )
        )

        assert sum(isinstance(result, ClaimLostError) for result in results) == 1
        ids = {"$in": [following.id for following in successors]}
        assert data.executable_tasks.count_documents({"_id": ids}) == 1
        assert data.executable_tasks.count_documents({"_id": held.task_id}) == 0


async def test_a_commit_and_a_takeover_never_both_win(
    store: MongoStore, data: Database[Json]
) -> None:
    for _ in range(10):
        task = await put_task(store)
        held = await claim(store, task)
        lapse(data, task.id)

        committed, taken = await together(
            lambda held=held: commit(store, guards=(RemoveTask(held),)),
            lambda: claim_any(store, RIVAL),
        )

        was_committed = not isinstance(committed, ClaimLostError)
        assert was_committed == (taken is None)
        if taken is not None:
            await commit(store, guards=(RemoveTask(taken.claim),))


@pytest.mark.field_case("S-66")
async def test_sixty_four_branches_at_once_release_their_join_once(
    store: MongoStore, counter: AttemptCounter
) -> None:
    instance = an_instance()
    names = [f"b{number}" for number in range(64)]
    join = a_join(*names, instance_id=instance.id)
    tasks = [a_branch_task(join, name) for name in names]
    await put_instance(store, join, *tasks, id=instance.id)
    arrivals = [ArriveTask(await claim(store, task), task.branch) for task in tasks if task.branch]
    before = counter.attempts

    results = await together(
        *(lambda guard=guard: commit(store, guards=(guard,)) for guard in arrivals)
    )

    assert sum(result.claimable for result in results) == 1
    assert (counter.attempts - before) / len(arrivals) <= 1.2
    row = await store.reads.find_task(join.id)
    assert row is not None
    assert (row.status, row.pending_branch_ids) == (TaskStatus.PENDING, ())
    assert row.epoch == 0


async def test_branches_that_set_variables_at_once_lose_none(
    store: MongoStore, counter: AttemptCounter
) -> None:
    instance = an_instance()
    names = [f"b{number}" for number in range(16)]
    join = a_join(*names, instance_id=instance.id)
    tasks = [a_branch_task(join, name) for name in names]
    await put_instance(store, join, *tasks, id=instance.id)
    arrivals = [ArriveTask(await claim(store, task), task.branch) for task in tasks if task.branch]

    results = await together(
        *(
            lambda guard=guard: commit(
                store,
                ChangeVariables(instance.id, (SetVariable(guard.branch.id, 1),)),
                guards=(guard,),
            )
            for guard in arrivals
        )
    )

    assert sum(result.claimable for result in results) == 1
    found = await store.runtime.find_instance(instance.id)
    assert found is not None
    assert dict(found.variables) == dict.fromkeys(names, 1)


async def test_an_end_and_a_cancel_at_once_leave_one_history(
    store: MongoStore, data: Database[Json]
) -> None:
    for _ in range(5):
        instance = an_instance()
        task = a_task(instance_id=instance.id)
        await commit(store, InsertInstance(instance), InsertTask(task))
        held = await claim(store, task)

        ended, was_cancelled = await together(
            lambda held=held, instance=instance: commit(
                store, EndPath(instance.id, LONG_AGO), guards=(RemoveTask(held),)
            ),
            lambda instance=instance: store.runtime.cancel_instance(instance.id, cancelled_by=None),
        )

        history = await store.runtime.find_ended_instance(instance.id)
        assert history is not None
        assert was_cancelled == isinstance(ended, ClaimLostError)
        assert was_cancelled == (history.status is InstanceStatus.CANCELLED)
        assert data.executable_tasks.count_documents({"processInstanceId": instance.id}) == 0


@pytest.mark.field_case("S-11")
async def test_workers_that_drain_a_queue_share_it_without_doubles(
    store: MongoStore, data: Database[Json]
) -> None:
    ids = [(await put_task(store)).id for _ in range(60)]

    async def drain(worker_id: str) -> list[str]:
        done: list[str] = []
        while claimed := await claim_any(store, worker_id):
            await commit(store, guards=(RemoveTask(claimed.claim),))
            done.append(claimed.claim.task_id)
        return done

    results = await together(*(lambda name=f"worker-{n}": drain(name) for n in range(6)))

    assert sorted(task_id for done in results for task_id in done) == sorted(ids)
    assert data.executable_tasks.count_documents({}) == 0
