"""Large definitions and instances on a real database: they run up to the limits, in bounded commands and transactions.

``KIKWIFLOW_TEST_DEEP=1`` runs the largest ones to their end.
"""

import json
import os
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import InvalidDefinitionError
from kikwiflow_worker.handler import ExecutionContext, task_handler
from kikwiflow_worker.model.limits import (
    MAX_BRANCHES,
    MAX_CHILDREN,
    MAX_INLINE_NODES,
    MAX_NESTED_SPLITS,
    MAX_NODES,
)
from kikwiflow_worker.operations.execution import execute_task
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.views import IncidentQuery
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.registry import registry_of
from tests.support.definitions import Json, a_file, a_node, a_start, a_task, an_end
from tests.support.findings import a_join, a_split
from tests.support.mongo import MongoServer
from tests.support.stores import claim_next

DEEP = os.environ.get("KIKWIFLOW_TEST_DEEP") == "1"
pytestmark = [
    pytest.mark.mongo,
    *([pytest.mark.deep, pytest.mark.timeout(3600)] if DEEP else []),
]

FAR = 1_000_000
SOME = 30
"""Tasks that the short run works on, of a thousand."""


@task_handler("weigh_parcel")
def weigh(ctx: ExecutionContext) -> None:
    ctx.increment("weighed")


class Site:
    """A client and a worker that runs one task at a time."""

    def __init__(self, store: MongoStore) -> None:
        self.store = store
        self.client = Kikwiflow(store)
        self.handlers = HandlerRuntime(registry_of([weigh]), threads=1)

    async def run(self, *, most: int = FAR) -> Counter[str]:
        """Run what is due; return how many of each kind."""
        found: Counter[str] = Counter()
        services = self.client.services
        for _ in range(most):
            invoker = self.handlers.invoker()
            claimed = await claim_next(self.store, invoker.capabilities)
            if claimed is None:
                break
            outcome = await execute_task(services, invoker, claimed, services.runtime.commit)
            found[f"{claimed.task.type.value} {outcome.kind.value}"] += 1
        return found

    def close(self) -> None:
        self.handlers.close()
        self.client.close()


@pytest.fixture
async def site(mongo_server: MongoServer, data: Database[Json]) -> AsyncIterator[Site]:
    store = MongoStore.open(mongo_server.uri, data.name, clock=SystemClock())
    await store.ping()
    opened = Site(store)
    yield opened
    opened.close()
    await store.close()


def text(*nodes: Json, key: str = "parcel") -> str:
    return json.dumps(a_file(*nodes, key=key))


def chain(count: int) -> list[Json]:
    steps = [a_task(f"T{n}", f"T{n + 1}" if n < count - 3 else "END") for n in range(count - 2)]
    return [a_start("T0"), *steps, an_end()]


def wide(branches: int) -> list[Json]:
    names = [f"T{n}" for n in range(branches)]
    tasks = [a_task(name, "JOIN") for name in names]
    return [a_start("SPLIT"), a_split(*names), *tasks, a_join(), an_end()]


@pytest.mark.parametrize("nodes", [5_000, MAX_NODES] if DEEP else [5_000])
async def test_the_longest_chain_runs_in_commits_of_a_thousand_nodes(
    site: Site, nodes: int
) -> None:
    await site.client.deploy(text(*chain(nodes)))
    instance = await site.client.start("parcel", "P-1")

    ran = await site.run()

    ended = await site.client.get_instance(instance.id)
    assert (ended.status, ended.variables) == ("COMPLETED", {"weighed": nodes - 2})
    assert ran == {"STANDARD completed": -(-(nodes - 1) // MAX_INLINE_NODES)}


async def test_a_definition_past_a_limit_is_not_stored(site: Site, data: Database[Json]) -> None:
    for nodes, limit in (
        (chain(MAX_NODES + 1), "MAX_NODES"),
        (wide(MAX_BRANCHES + 1), "MAX_BRANCHES"),
    ):
        with pytest.raises(InvalidDefinitionError, match=limit):
            await site.client.deploy(text(*nodes))

    assert data.process_definitions.count_documents({}) == 0


@pytest.mark.parametrize("branches", [1_000, MAX_BRANCHES] if DEEP else [1_000])
async def test_thousands_of_branches_start_in_one_commit_and_meet_in_one_join(
    site: Site, data: Database[Json], branches: int
) -> None:
    await site.client.deploy(text(*wide(branches)))
    instance = await site.client.start("parcel", "P-1")
    assert data.executable_tasks.count_documents({}) == branches + 1

    ran = await site.run(most=FAR if DEEP else SOME)

    if DEEP:
        assert ran == {"STANDARD completed": branches, "JOIN_GATEWAY completed": 1}
        ended = await site.client.get_instance(instance.id)
        assert (ended.status, ended.variables) == ("COMPLETED", {"weighed": branches})
        return
    (join,) = data.executable_tasks.find({"type": "JOIN_GATEWAY"})
    assert len(join["pendingBranchIds"]) == branches - SOME
    await site.client.cancel(instance.id)
    assert data.executable_tasks.count_documents({}) == 0


async def test_splits_inside_one_another_run_down_to_the_limit(site: Site) -> None:
    nodes: list[Json] = []
    for n in range(MAX_NESTED_SPLITS):
        inner = f"P{n + 1}" if n < MAX_NESTED_SPLITS - 1 else "A"
        nodes += [
            a_split(inner, f"B{n}", join=f"J{n}", node_id=f"P{n}"),
            a_task(f"B{n}", f"J{n}"),
            a_join(f"J{n - 1}" if n else "END", node_id=f"J{n}"),
        ]
    last = a_task("A", f"J{MAX_NESTED_SPLITS - 1}")
    await site.client.deploy(text(a_start("P0"), *nodes, last, an_end()))
    instance = await site.client.start("parcel", "P-1")

    await site.run()

    ended = await site.client.get_instance(instance.id)
    assert (ended.status, ended.variables) == ("COMPLETED", {"weighed": MAX_NESTED_SPLITS + 1})


async def test_a_call_activity_takes_as_many_elements_as_allowed_and_refuses_more(
    site: Site, data: Database[Json]
) -> None:
    call = a_node(
        "CALL",
        "CALL_ACTIVITY_COORDINATOR",
        "END",
        calledElement="child",
        collectionVariable="items",
        elementVariable="item",
    )
    first = a_task("T", "CALL", commitBefore=True)
    await site.client.deploy(text(a_start("END"), an_end(), key="child"))
    await site.client.deploy(text(a_start("T"), first, call, an_end()))
    too_many = {"items": list(range(MAX_CHILDREN + 1))}
    refused = await site.client.start("parcel", "P-0", variables=too_many)
    await site.run()
    (incident,) = (await site.client.list_incidents(IncidentQuery())).items
    assert "10,001 children, the limit is 10,000 (MAX_CHILDREN)" in incident.message
    assert (await site.client.get_instance(refused.id)).variables == {**too_many, "weighed": 1}
    await site.client.cancel(refused.id)

    fits = {"items": list(range(MAX_CHILDREN))}
    instance = await site.client.start("parcel", "P-1", variables=fits)
    await site.run(most=1)
    assert data.executable_tasks.count_documents({}) == MAX_CHILDREN + 1

    ran = await site.run(most=FAR if DEEP else SOME)

    if DEEP:
        assert (await site.client.get_instance(instance.id)).status == "COMPLETED"
        assert data.process_history.count_documents({"status": "COMPLETED"}) == MAX_CHILDREN + 1
        return
    assert ran == {"CALL_ACTIVITY_STARTER completed": SOME}
    assert data.process_history.count_documents({"status": "COMPLETED"}) == SOME
    await site.client.cancel(instance.id)
    assert data.executable_tasks.count_documents({}) == 0


async def test_a_loop_of_handlers_shares_the_worker_and_can_be_cancelled(site: Site) -> None:
    await site.client.deploy(text(a_start("A"), a_task("A", "B"), a_task("B", "A"), an_end()))
    instance = await site.client.start("parcel", "P-1")

    ran = await site.run(most=2)

    assert ran == {"STANDARD completed": 2}
    found = await site.client.get_instance(instance.id)
    assert found.variables == {"weighed": 2 * MAX_INLINE_NODES}
    await site.client.cancel(instance.id)
    assert await site.run() == {}
