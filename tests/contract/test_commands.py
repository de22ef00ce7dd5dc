"""How many commands and transaction attempts steps cost: counted work, never seconds."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.events import EventLevel, EventType, OutboxEvent
from kikwiflow_worker.model.runtime import Branch
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    ChangeVariables,
    EndPath,
    RecordEvent,
    RemoveTask,
)
from kikwiflow_worker.model.variables import SetVariable
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from tests.support.commands import AttemptCounter, CommandCounter
from tests.support.definitions import own_process
from tests.support.groups import HAND_ON, commit_group, committed, put_claimed, step, unit_of
from tests.support.mongo import MongoServer
from tests.support.stores import (
    CAPABILITIES,
    LOCK,
    LONG_AGO,
    WORKER,
    Json,
    a_branch_task,
    a_join,
    a_task,
    an_instance,
    claim,
    commit,
    new_id,
    put_instance,
    put_task,
)

pytestmark = pytest.mark.mongo

GROUP = 32


@pytest.fixture
def attempts() -> AttemptCounter:
    return AttemptCounter()


@pytest.fixture
def counter() -> CommandCounter:
    return CommandCounter()


@pytest.fixture
async def store(
    mongo_server: MongoServer,
    data: Database[Json],
    counter: CommandCounter,
    attempts: AttemptCounter,
) -> AsyncIterator[MongoStore]:
    """Return a store whose commands and attempts are counted."""
    client: AsyncMongoClient[Json] = AsyncMongoClient(mongo_server.uri, event_listeners=[counter])
    options = StoreOptions(outbox=OutboxOptions(level=EventLevel.FULL))
    opened = MongoStore(
        client,
        data.name,
        clock=SystemClock(),
        options=options,
        observer=attempts,
        owns_client=True,
    )
    await opened.ping()
    yield opened
    await opened.close()


async def test_a_lone_step_costs_what_its_documents_cost(
    store: MongoStore, counter: CommandCounter
) -> None:
    ((_, _, held),) = await put_claimed(store, 1)

    with counter.counting() as sent:
        await store.runtime.commit(step(store, held))

    assert sent == ["delete", "insert", "commitTransaction"]


@pytest.mark.parametrize("size", [2, GROUP])
async def test_a_group_of_steps_costs_as_many_commands_as_one_step(
    store: MongoStore, counter: CommandCounter, attempts: AttemptCounter, size: int
) -> None:
    held = [one for _, _, one in await put_claimed(store, size)]
    units = [step(store, one) for one in held]
    before = attempts.attempts

    with counter.counting() as sent:
        committed(await commit_group(store, *units))

    assert sent == ["delete", "insert", "commitTransaction"]
    assert attempts.attempts - before == 1


async def test_handing_on_costs_one_read_for_the_group(
    store: MongoStore, counter: CommandCounter
) -> None:
    made = await put_claimed(store, GROUP)
    units = [step(store, held, instance_id=i.id) for i, _, held in made]

    with counter.counting() as sent:
        results = committed(await commit_group(store, *units, hand_on=HAND_ON))

    assert sum(one.handed_on is not None for one in results) == GROUP
    assert sent == ["delete", "insert", "commitTransaction", "find"]


async def know_definition(store: MongoStore, data: Database[Json]) -> None:
    """Store the version that instances of these tests run on, and let the store know it as a worker's does."""
    source = own_process("own-call-each").source
    version = {"_id": "definition-1", "key": "parcel", "version": 1, "source": source}
    data.process_definitions.insert_one(version)
    assert await store.definitions.find("definition-1")


async def test_variables_and_events_cost_one_command_each(
    store: MongoStore, counter: CommandCounter, data: Database[Json]
) -> None:
    units = []
    # What a step runs on is known to its process: which values the events may show costs no command.
    await know_definition(store, data)
    for instance, _, held in await put_claimed(store, GROUP):
        sets = ChangeVariables(instance.id, (SetVariable("x", 1),))
        event = RecordEvent(
            OutboxEvent(
                id=new_id(),
                type=EventType.FLOW_NODE_FINISHED,
                timestamp=LONG_AGO,
                instance_id=instance.id,
                definition_id="definition-1",
                payload={},
            )
        )
        units.append(step(store, held, sets, event))

    with counter.counting() as sent:
        committed(await commit_group(store, *units, hand_on=HAND_ON))

    assert Counter(sent) == {
        "delete": 1,
        "insert": 2,
        "update": 1,
        "commitTransaction": 1,
        "find": 1,
    }


async def test_instances_that_end_together_cost_as_many_commands_as_one(
    store: MongoStore, counter: CommandCounter, data: Database[Json]
) -> None:
    await know_definition(store, data)
    units = [
        unit_of(RemoveTask(held), EndPath(instance.id, LONG_AGO))
        for instance, _, held in await put_claimed(store, GROUP)
    ]

    with counter.counting() as sent:
        committed(await commit_group(store, *units))

    # Own rows, the instances, what is left of their tasks and waits; their incidents; history and events.
    assert Counter(sent) == {
        "delete": 4,
        "find": 1,
        "update": 1,
        "insert": 2,
        "commitTransaction": 1,
    }


async def test_branches_that_end_together_cost_one_pull_of_their_join(
    store: MongoStore, counter: CommandCounter
) -> None:
    instance = an_instance()
    branches = [f"b{number}" for number in range(GROUP)]
    join = a_join(*branches, instance_id=instance.id)
    tasks = [a_branch_task(join, branch) for branch in branches]
    await put_instance(store, join, *tasks, id=instance.id)
    units = [
        unit_of(ArriveTask(await claim(store, task), Branch(branch, join.id)))
        for task, branch in zip(tasks, branches, strict=True)
    ]

    with counter.counting() as sent:
        committed(await commit_group(store, *units))

    assert sent == ["update", "commitTransaction", "findAndModify", "delete"]


async def test_a_lost_claim_costs_one_more_attempt_of_its_group(
    store: MongoStore, attempts: AttemptCounter
) -> None:
    held = [one for _, _, one in await put_claimed(store, GROUP)]
    await store.queue.release(held[7])
    before = attempts.attempts

    await commit_group(store, *(step(store, one) for one in held))

    assert attempts.attempts - before == 2


async def test_a_unit_to_blame_is_found_by_halving(
    store: MongoStore, attempts: AttemptCounter
) -> None:
    held = [one for _, _, one in await put_claimed(store, GROUP)]
    await put_task(store, id="there")
    before = attempts.attempts

    units = [step(store, one, id="there" if n == 7 else new_id()) for n, one in enumerate(held)]
    await commit_group(store, *units)

    # The group, and at each of five levels the half with the culprit and the other one.
    assert attempts.attempts - before == 1 + 2 * 5
    assert attempts.conflicts == 0


async def test_large_batches_and_groups_need_no_second_reply(
    store: MongoStore, counter: CommandCounter
) -> None:
    made = await put_claimed(store, 150)
    for _, _, held in made:
        await store.queue.release(held)
    with counter.counting() as sent:
        claimed = await store.queue.claim_due(
            worker_id=WORKER, lock=LOCK, capabilities=CAPABILITIES, limit=150
        )
        units = [step(store, one.claim, instance_id=one.task.instance_id) for one in claimed]
        results = committed(await commit_group(store, *units, hand_on=HAND_ON))

    assert sum(one.handed_on is not None for one in results) == 150
    assert "getMore" not in sent


async def test_a_batch_of_claims_costs_few_commands(
    store: MongoStore, counter: CommandCounter
) -> None:
    instance = an_instance()
    await put_instance(store, *(a_task(instance_id=instance.id) for _ in range(200)))

    async def claim_batch() -> list[str]:
        with counter.counting() as sent:
            claimed = await store.queue.claim_due(
                worker_id=WORKER, lock=LOCK, capabilities=CAPABILITIES, limit=GROUP
            )
        assert len(claimed) == GROUP
        return sent

    # Candidates, the claim, its winners, their instances.
    assert await claim_batch() == ["find", "update", "find", "find"]
    # One look for tenants, and candidates by age and by priority.
    assert await claim_batch() == ["find", "find", "find", "update", "find", "find"]
    assert await claim_batch() == ["find", "find", "update", "find", "find"]


async def test_a_poll_that_finds_nothing_costs_one_command(
    store: MongoStore, counter: CommandCounter
) -> None:
    with counter.counting() as sent:
        for limit in (1, 100):
            found = await store.queue.claim_due(
                worker_id=WORKER, lock=LOCK, capabilities=CAPABILITIES, limit=limit
            )
            assert found == ()

    assert sent == ["findAndModify", "find"]


async def test_a_unit_that_is_alone_in_its_call_costs_what_a_commit_costs(
    store: MongoStore, counter: CommandCounter
) -> None:
    ((_, _, held),) = await put_claimed(store, 1)

    with counter.counting() as sent:
        committed(await commit_group(store, step(store, held)))

    assert sent == ["delete", "insert", "commitTransaction"]


async def test_nothing_is_committed_for_nothing(store: MongoStore, counter: CommandCounter) -> None:
    with counter.counting() as sent:
        await commit_group(store)
        await commit(store)

    assert sent == []
