"""External workers against what else decides about their task: one report counts, and none that comes too late."""

from datetime import timedelta

import pytest

from kikwiflow_worker.errors import ConflictError, LockLostError, NotFoundError
from kikwiflow_worker.model.external_work import WorkReport
from kikwiflow_worker.model.nodes import TOPIC
from kikwiflow_worker.model.runtime import Claim, ClaimedTask, TopicNode
from kikwiflow_worker.operations import external_workers
from kikwiflow_worker.store.external_work import Fetch
from kikwiflow_worker.store.mongo.codec import encode_topic_node
from tests.support.definitions import Json, a_node
from tests.support.race_nodes import catch_event, deadline, wait
from tests.support.race_sides import Side
from tests.support.races import LOST, Arena
from tests.support.stores import LOCK, LONG_AGO

pytestmark = [pytest.mark.mongo, pytest.mark.timeout(120)]

DONE, LATE, CAUGHT = wait("DONE"), wait("LATE"), wait("CAUGHT")


def external(*events: str) -> Json:
    """Return the task ``HOST`` for programs; what is left over, a worker of our own does."""
    return a_node(
        "HOST",
        "EXTERNAL_TASK",
        "DONE",
        extensionProperties={TOPIC: "work"},
        boundaryEventIds=list(events),
    )


async def complete(side: Side, claim: Claim) -> WorkReport:
    return await external_workers.complete(side.client.services, claim, variables={})


async def fail(side: Side, claim: Claim) -> WorkReport:
    return await external_workers.fail(
        side.client.services, claim, message="no", details="", retries=5, delay=timedelta(0)
    )


async def fetch(side: Side, *topics: str, node: TopicNode | None = None) -> ClaimedTask:
    """Fetch the only task of a topic or at a node.

    Raises:
        NotFoundError: There is none.
    """
    nodes = frozenset({node} if node else ())
    wanted = Fetch(worker_id="external/heir", lock=LOCK, topics=frozenset(topics), nodes=nodes)
    found = await side.store.external_work.fetch(wanted, limit=1)
    if not found:
        raise NotFoundError(f"nothing of {topics or node} is due")
    return found[0]


async def test_a_report_against_the_deadline_of_its_task(arena: Arena, races: int) -> None:
    await arena.deploy(external("DEADLINE"), deadline("HOST"), DONE, LATE)

    async for ids in arena.batches(races // 2):
        hosts, deadlines = await arena.claimed("HOST"), await arena.claimed("DEADLINE")

        results = await arena.race(
            (
                lambda side, host=hosts[i]: complete(side, host.claim),
                lambda side, due=deadlines[i]: side.run(due),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (NotFoundError, LOST))
            assert arena.places()[instance_id] == ["DONE", "LATE"][winner]


async def test_a_report_against_the_message_that_ends_its_task(arena: Arena, races: int) -> None:
    await arena.deploy(external("CATCH"), catch_event("HOST"), DONE, CAUGHT)

    async for ids in arena.batches(races // 2):
        hosts, keys = await arena.claimed("HOST"), arena.keys()

        results = await arena.race(
            (
                lambda side, host=hosts[i]: complete(side, host.claim),
                lambda side, key=keys[i]: side.client.correlate(key),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (NotFoundError, NotFoundError))
            assert arena.places()[instance_id] == ["DONE", "CAUGHT"][winner]


async def test_a_late_report_against_the_next_fetch(arena: Arena, races: int) -> None:
    await arena.deploy(external(), DONE)

    async for ids in arena.batches(races // 2):
        hosts = await arena.claimed("HOST")
        for instance_id in ids:
            lapse_alone(arena, hosts[instance_id])

        results = await arena.race(
            (
                lambda side, host=hosts[i]: complete(side, host.claim),
                lambda side, topic=i: fetch(side, topic),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            if arena.one_won(result, (LockLostError, NotFoundError)):
                await complete(arena.sides[0], result[1].claim)
            assert arena.places()[instance_id] == "DONE"


async def test_a_fetch_by_topic_against_one_by_node(arena: Arena, races: int) -> None:
    await arena.deploy(external(), DONE)

    async for ids in arena.batches(races // 2):
        hosts = await arena.claimed("HOST")
        for instance_id in ids:
            lapse_alone(arena, hosts[instance_id])

        results = await arena.race(
            (
                lambda side, topic=i: fetch(side, topic),
                lambda side, key=i: fetch(side, node=TopicNode(key, "HOST")),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (NotFoundError, NotFoundError))
            await complete(arena.sides[0], result[winner].claim)
            assert arena.places()[instance_id] == "DONE"


def lapse_alone(arena: Arena, host: ClaimedTask) -> None:
    """Let the lock of a task lapse, and give it a topic and a node that no other has: a rival fetches this very task."""
    key = host.task.instance_id
    lapsed = {
        "claimableAt": LONG_AGO,
        "lockExpiresAt": LONG_AGO,
        "handlerName": key,
        "topicNode": encode_topic_node(TopicNode(key, "HOST")),
    }
    arena.data.executable_tasks.update_one({"_id": host.task.id}, {"$set": lapsed})


async def test_a_completion_against_a_failure_of_the_same_claim(arena: Arena, races: int) -> None:
    await arena.deploy(external(), DONE)

    async for ids in arena.batches(races // 2):
        hosts = await arena.claimed("HOST")

        results = await arena.race(
            (
                lambda side, host=hosts[i]: complete(side, host.claim),
                lambda side, host=hosts[i]: fail(side, host.claim),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (ConflictError, ConflictError))
            assert arena.places()[instance_id] == ["DONE", "HOST"][winner]
