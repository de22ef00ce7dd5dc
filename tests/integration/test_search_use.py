"""What the server examines for searches, counts and figures, as its own profiler counts it, among many rows.

``KIKWIFLOW_TEST_DEEP=1`` stores a million instances and 250,000 open tasks of each kind; the normal run has 20,000.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.runtime import IncidentType, InstanceStatus, TaskStatus
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.search import (
    EXAMINED_PER_COUNT,
    EXAMINED_PER_ROW,
    Count,
    ExternalTaskSearch,
    IncidentSearch,
    InstanceSearch,
    SearchStore,
    TaskSearch,
    TimerSearch,
)
from kikwiflow_worker.store.views import Page
from tests.support.many_records import (
    FEW,
    NODES,
    RARE,
    VERSIONS,
    Size,
    filled_database,
    version_of,
)
from tests.support.mongo import MongoServer
from tests.support.profiler import profiled
from tests.support.stores import FAR_AWAY, LONG_AGO

DEEP = os.environ.get("KIKWIFLOW_TEST_DEEP") == "1"

pytestmark = [
    pytest.mark.mongo,
    *([pytest.mark.deep, pytest.mark.timeout(3600)] if DEEP else []),
]

Json = dict[str, Any]
PAGE = 20
MOST_PER_ROW = 100
SIZE = Size(1_000_000, 250_000) if DEEP else Size(20_000, 5_000)


@pytest.fixture(scope="module")
def filled(mongo_server: MongoServer) -> Iterator[Database[Json]]:
    """Return a database of this module, full of rows."""
    with filled_database(mongo_server.uri, SIZE) as database:
        yield database


@pytest.fixture
async def searches(mongo_server: MongoServer, filled: Database[Json]) -> AsyncIterator[SearchStore]:
    opened = MongoStore.open(mongo_server.uri, filled.name, clock=SystemClock())
    await opened.ping()
    yield opened.searches
    await opened.close()


Look = Callable[..., Awaitable[Page[Any]]]
KEY = "key-3"
VERSION = version_of(3)
INSTANCES = {
    "all": InstanceSearch(),
    "of_every_status": InstanceSearch(statuses=tuple(InstanceStatus)),
    "suspended": InstanceSearch(statuses=(InstanceStatus.SUSPENDED,)),
    "ended": InstanceSearch(statuses=(InstanceStatus.COMPLETED, InstanceStatus.CANCELLED)),
    "of_a_key": InstanceSearch(definition_keys=(KEY,)),
    "of_a_version": InstanceSearch(definition_ids=(VERSION,)),
    "of_a_tenant": InstanceSearch(tenant_id="tenant-3"),
    "of_a_tenant_and_key": InstanceSearch(tenant_id="tenant-3", definition_keys=(KEY,)),
    "of_an_order": InstanceSearch(business_keys=("order-5", "order-6")),
    "of_a_parent": InstanceSearch(parent_id=RARE),
    "of_a_time": InstanceSearch(started_after=LONG_AGO, started_before=LONG_AGO + timedelta(60)),
    "with_a_variable": InstanceSearch(variables={"city": "Bremen"}),
    "with_a_rare_variable": InstanceSearch(variables_exist=(RARE,)),
    "at_a_node": InstanceSearch(node_id="node-4"),
    "at_a_node_of_a_version": InstanceSearch(node_id="node-4", definition_ids=(VERSION,)),
    "at_a_node_of_a_tenant": InstanceSearch(node_id="node-4", tenant_id="tenant-3"),
    "at_a_node_with_a_rare_variable": InstanceSearch(node_id="node-4", variables_exist=(RARE,)),
    "of_everything": InstanceSearch(
        tenant_id="tenant-3",
        definition_keys=(KEY,),
        statuses=tuple(InstanceStatus),
        started_after=LONG_AGO,
        variables={"n": 3},
    ),
}
TASKS = {
    "all": TaskSearch(),
    "failed": TaskSearch(statuses=(TaskStatus.ERROR,)),
    "retrying": TaskSearch(retrying=True),
    "retrying_of_a_tenant": TaskSearch(retrying=True, tenant_id="tenant-3"),
    "of_a_tenant": TaskSearch(tenant_id=RARE),
    "of_a_handler": TaskSearch(handler_name="handler-1"),
    "of_a_version": TaskSearch(definition_ids=(VERSION,)),
    "of_a_key": TaskSearch(definition_keys=(KEY,)),
    "at_a_node": TaskSearch(node_id="node-4"),
    "at_a_node_of_a_key": TaskSearch(node_id="node-4", definition_keys=(KEY,)),
    "of_an_instance": TaskSearch(instance_id="00000005"),
}
EXTERNAL_TASKS = {
    "all": ExternalTaskSearch(),
    "for_people": ExternalTaskSearch(for_people=True),
    "of_somebody": ExternalTaskSearch(assignee="person-5"),
    "of_somebody_and_a_tenant": ExternalTaskSearch(assignee="person-5", tenant_id=RARE),
    "of_nobody": ExternalTaskSearch(unassigned=True),
    "of_nobody_and_a_tenant": ExternalTaskSearch(unassigned=True, tenant_id="tenant-3"),
    "of_nobody_and_a_key": ExternalTaskSearch(unassigned=True, definition_keys=(KEY,)),
    "of_a_tenant": ExternalTaskSearch(tenant_id="tenant-3"),
    "of_a_key": ExternalTaskSearch(definition_keys=(KEY,)),
    "at_a_node": ExternalTaskSearch(node_id="node-4"),
    "for_a_message": ExternalTaskSearch(correlation_key=RARE),
    "of_an_instance": ExternalTaskSearch(instance_id="00000005"),
    "due": ExternalTaskSearch(due_before=FAR_AWAY + timedelta(days=500)),
    "due_of_a_tenant": ExternalTaskSearch(due_before=FAR_AWAY + timedelta(500), tenant_id=RARE),
}
INCIDENTS = {
    "open": IncidentSearch(),
    "all": IncidentSearch(status=None),
    "of_a_tenant": IncidentSearch(tenant_id="tenant-3"),
    "of_a_key": IncidentSearch(definition_keys=(KEY,)),
    "of_a_key_and_tenant": IncidentSearch(definition_keys=(KEY,), tenant_id="tenant-3"),
    "at_a_node": IncidentSearch(node_id="node-4"),
    "at_a_node_of_a_key": IncidentSearch(node_id="node-4", definition_keys=(KEY,)),
    "of_a_type": IncidentSearch(type=IncidentType.FAILED_JOB),
    "of_a_time": IncidentSearch(created_after=LONG_AGO, created_before=LONG_AGO + timedelta(60)),
    "of_an_instance": IncidentSearch(instance_id="00000005", status=None),
}
TIMERS = {
    "all": TimerSearch(),
    "of_a_tenant": TimerSearch(tenant_id=RARE),
    "of_a_key": TimerSearch(definition_keys=(KEY,)),
    "at_a_node": TimerSearch(node_id="node-4"),
    "of_an_instance": TimerSearch(instance_id="00000005"),
    "soon": TimerSearch(due_before=FAR_AWAY + timedelta(minutes=5)),
}
KINDS = {
    "search_instances": INSTANCES,
    "search_tasks": TASKS,
    "search_external_tasks": EXTERNAL_TASKS,
    "search_incidents": INCIDENTS,
    "search_timers": TIMERS,
}
PAGES = {
    f"{kind}:{name}": (kind, query) for kind, queries in KINDS.items() for name, query in queries.items()
}  # fmt: skip


def plans_of(entries: list[Json]) -> set[str]:
    return {str(entry["planSummary"]) for entry in entries}


async def test_no_page_examines_more_than_its_rows_may_cost(
    searches: SearchStore, filled: Database[Json]
) -> None:
    costs: dict[str, int] = {}
    for name, (kind, query) in PAGES.items():
        cursor = None
        for _ in range(3):
            with profiled(filled) as entries:
                page = await getattr(searches, kind)(query, limit=PAGE, cursor=cursor)
            assert not any("COLLSCAN" in plan for plan in plans_of(entries)), name
            assert not any(entry.get("hasSortStage") for entry in entries), (name, entries)
            costs[name] = max(costs.get(name, 0), sum(entry["docsExamined"] for entry in entries))
            cursor = page.next_cursor
            if cursor is None:
                break

    assert {name: cost for name, cost in costs.items() if cost > MOST_PER_ROW * PAGE} == {}


COUNTS = {
    f"{kind.replace('search', 'count')}:{name}": (kind.replace("search", "count"), query)
    for kind, queries in KINDS.items()
    if kind != "search_timers"
    for name, query in queries.items()
}


async def test_no_count_reads_more_documents_than_its_cap(
    searches: SearchStore, filled: Database[Json]
) -> None:
    costs: dict[str, tuple[int, Count]] = {}
    for name, (kind, query) in COUNTS.items():
        with profiled(filled) as entries:
            counted = await getattr(searches, kind)(query)
        assert not any("COLLSCAN" in plan for plan in plans_of(entries)), name
        costs[name] = sum(entry["docsExamined"] for entry in entries), counted

    # What documents must be looked at for is counted in both collections of instances.
    assert {name: cost for name, cost in costs.items() if cost[0] > 2 * EXAMINED_PER_COUNT} == {}
    by_keys = ["count_instances:all", "count_instances:of_a_tenant", "count_incidents:of_a_tenant"]
    by_keys += ["count_external_tasks:at_a_node", "count_instances:at_a_node_of_a_tenant"]
    assert {name: costs[name][0] for name in by_keys if costs[name][0] > VERSIONS} == {}
    assert costs["count_external_tasks:of_nobody"][0] <= EXAMINED_PER_COUNT + 1


FIGURES: dict[str, tuple[Callable[[SearchStore], Awaitable[Any]], int]] = {
    "nodes": (
        lambda s: s.measure_nodes(VERSION, [f"node-{number}" for number in range(NODES)]),
        EXAMINED_PER_ROW * NODES,
    ),
    "nodes_of_a_tenant": (
        lambda s: s.measure_nodes(
            VERSION, [f"node-{number}" for number in range(NODES)], tenant_id="tenant-3"
        ),
        EXAMINED_PER_ROW * NODES,
    ),
    "definitions": (lambda s: s.measure_definitions([f"key-{n}" for n in range(10)]), 10 * VERSIONS),
    "definitions_of_a_tenant": (
        lambda s: s.measure_definitions([f"key-{n}" for n in range(10)], tenant_id="tenant-3"),
        10 * VERSIONS,
    ),
    "handlers": (lambda s: s.list_handler_waits(), 8),
    "handlers_of_a_tenant": (lambda s: s.list_handler_waits(tenant_id="tenant-3"), 8),
    "standing": (lambda s: s.find_standing("00000005"), 2),
    "path": (lambda s: s.find_path("00000005"), 2),
    "events": (lambda s: s.list_events("00000005", tenant_id="tenant-0"), 2),
    "deadlines": (lambda s: s.find_deadlines([f"{n:08d}" for n in range(3, 100, 5)]), PAGE),
    "business_keys": (lambda s: s.find_business_keys(["00000005", "00000006"]), 2),
}  # fmt: skip


async def test_figures_read_few_documents(searches: SearchStore, filled: Database[Json]) -> None:
    costs: dict[str, int] = {}
    for name, (measure, most) in FIGURES.items():
        with profiled(filled) as entries:
            await measure(searches)
        assert not any("COLLSCAN" in plan for plan in plans_of(entries)), (name, entries)
        assert not any(entry.get("hasSortStage") for entry in entries), (name, entries)
        costs[name] = sum(entry["docsExamined"] for entry in entries)
        assert costs[name] <= most, (name, costs)


async def test_averages_of_many_nodes_take_few_commands_and_read_what_they_are_of(
    searches: SearchStore, filled: Database[Json]
) -> None:
    """Nodes without a visit cost a look at the index each; the more nodes, the fewer visits of each are read."""
    visited = [f"node-{number}" for number in range(NODES)]
    nodes = [*(f"never-{number}" for number in range(2_000)), *visited]

    with profiled(filled) as entries:
        figures = await searches.measure_nodes(VERSION, nodes)

    assert figures.keys() == set(nodes)
    averages = {name: each.average for name, each in figures.items() if each.average}
    assert averages == dict.fromkeys(visited, timedelta(seconds=2))
    assert {figures[name].sampled for name in visited} == {5}
    looks = [entry for entry in entries if entry["ns"].endswith(".outbox_events")]
    assert len(looks) <= 2 * (len(nodes) // 200 + 1)
    assert sum(entry["docsExamined"] for entry in looks) == 5 * NODES
    assert sum(entry["keysExamined"] for entry in looks) <= 3 * len(nodes)


async def test_what_lies_behind_all_else_is_found_from_page_to_page(
    searches: SearchStore,
) -> None:
    found: list[str] = []
    cursor = None
    pages = 0
    query = InstanceSearch(variables={RARE: True}, statuses=(InstanceStatus.ACTIVE,))
    while True:
        page = await searches.search_instances(query, limit=100, cursor=cursor)
        found += [instance.id for instance in page.items]
        pages += 1
        cursor = page.next_cursor
        if cursor is None:
            break

    assert found == [f"{RARE}-{number}" for number in range(FEW)]
    assert pages > 3
