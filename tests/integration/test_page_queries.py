"""What the server examines for each page of the dashboard, as its own profiler counts it, among many rows."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.database import Database

from kikwiflow_worker.store.mongo.timelines import _cursor
from kikwiflow_worker.store.relay import SLICES
from kikwiflow_worker.store.search import EXAMINED_PER_COUNT
from tests.support.definitions import a_file, a_start, a_task, an_end
from tests.support.management import manage
from tests.support.many_records import RARE, Size, add_long_timeline, filled_database
from tests.support.mongo import MongoServer
from tests.support.profiler import profiled
from tests.support.stores import LONG_AGO

DEEP = os.environ.get("KIKWIFLOW_TEST_DEEP") == "1"
pytestmark = [
    pytest.mark.mongo,
    *([pytest.mark.deep, pytest.mark.timeout(1800)] if DEEP else []),
]

Json = dict[str, Any]
SIZE = Size(1_000_000, 250_000) if DEEP else Size(20_000, 5_000)
MOST_PER_ROW = 100
ROWS = 25
"""What a page may look for: a search that has come to nothing yet has looked as far as for a full one."""

NODES = 10
"""Of each definition."""

SMALL = ("workers", "process_definitions", "api_tokens", "outbox_slices")
"""Collections that no amount of work fills."""

PAGES = (
    *("overview", "instances", "instances?status=ENDED", "instances?key=order-5"),
    *("instances?definition=key-3", "instances?variable=city&value=Bremen"),
    *(f"instances?variable={RARE}", "instances?since=2024-06-01", "instances?status=SUSPENDED"),
    *("tasks", "tasks?show=mine", "tasks?show=people", "tasks?show=all", "tasks?definition=key-3"),
    *("incidents", "incidents?status=ANY", "incidents?definition=key-3", "incidents?node=node-4"),
    *("incidents?type=FAILED_JOB", "incidents?definition=key-3&type=WORKER_LOST"),
    *("retrying", "retrying?definition=key-3", "timers", "timers?definition=key-3"),
    *("handlers", "workers", "bulk", "definitions"),
    *("relay", "relay?status=PENDING", "relay?status=RELAYED", "relay?instance=00000010"),
    *("relay?status=HELD&instance=00000012", "relay/resend", "relay/resend?instance=00000010"),
    "tokens",
)


@pytest.fixture(scope="module")
def filled(mongo_server: MongoServer) -> Iterator[Database[Json]]:
    """Return a database of this module, full of rows."""
    with filled_database(mongo_server.uri, SIZE) as database:
        slices = ({"_id": n, "failures": 0, "claimableAt": LONG_AGO} for n in range(SLICES))
        database.outbox_slices.insert_many(slices)
        for row in database.process_definitions.find({}, {"key": 1}):
            nodes = [a_task(f"node-{number}", "END") for number in range(NODES)]
            file = a_file(a_start("node-0"), *nodes, an_end(), key=row["key"])
            source = {"$set": {"source": json.dumps(file)}}
            database.process_definitions.update_one({"_id": row["_id"]}, source)
        yield database


async def test_no_page_examines_more_than_its_rows_may_cost(
    mongo_server: MongoServer, filled: Database[Json]
) -> None:
    costs: dict[str, tuple[int, int]] = {}
    async with manage(mongo_server.uri, filled) as managed:
        for path in PAGES:
            with profiled(filled) as entries:
                page = await managed.http.get(f"/dashboard/{path}")
            assert page.status_code == 200, (path, page.text)
            large = [entry for entry in entries if not entry["ns"].endswith(SMALL)]
            assert not any("COLLSCAN" in entry["planSummary"] for entry in large), (path, large)
            counts = [entry["docsExamined"] for entry in large if is_count(entry)]
            assert sum(counts) <= 2 * EXAMINED_PER_COUNT + 1, (path, counts)
            examined = sum(entry["docsExamined"] for entry in large if not is_count(entry))
            costs[path] = (examined, rows_of(page.text) or ROWS)

    assert {path: cost for path, cost in costs.items() if cost[0] > MOST_PER_ROW * cost[1]} == {}


async def test_the_page_of_one_thing_does_not_read_those_of_others(
    mongo_server: MongoServer, filled: Database[Json]
) -> None:
    instance, incident = filled.process_instances.find_one(), filled.incidents.find_one()
    assert instance is not None
    assert incident is not None
    paths = (
        *("definitions/key-3", f"instances/{instance['_id']}", f"incidents/{incident['_id']}"),
        *("relay/00000010", "relay/00000010/resend"),
    )
    async with manage(mongo_server.uri, filled) as managed:
        for path in paths:
            with profiled(filled) as entries:
                page = await managed.http.get(f"/dashboard/{path}")
            assert page.status_code == 200, (path, page.text)
            large = [entry for entry in entries if not entry["ns"].endswith(SMALL)]
            assert not any("COLLSCAN" in entry["planSummary"] for entry in large), (path, large)
            counts = {entry["docsExamined"] for entry in large if is_count(entry)}
            assert counts <= {0}, (path, counts)
            examined = sum(entry["docsExamined"] for entry in large if not is_count(entry))
            assert examined <= MOST_PER_ROW * max(1, rows_of(page.text)), path


async def test_a_page_anywhere_in_a_long_timeline_reads_what_it_shows(
    mongo_server: MongoServer, filled: Database[Json]
) -> None:
    instance = filled.process_instances.find_one()
    assert instance is not None
    filled.process_instances.insert_one({**instance, "_id": "long"})
    length = SIZE.instances
    add_long_timeline(filled, "long", length)
    middle = cursor_at(filled, length // 2)
    async with manage(mongo_server.uri, filled) as managed:
        for order, cursor in (("newest", None), ("newest", middle), ("oldest", middle)):
            with profiled(filled) as entries:
                page = await managed.api.get(
                    "/process-instances/long/events",
                    params={"order": order, **({"cursor": cursor} if cursor else {})},
                )
            (look,) = (entry for entry in entries if entry["ns"].endswith("outbox_events"))
            rows = len(page.json()["items"])
            assert rows == 50
            assert max(look["docsExamined"], look["keysExamined"]) <= rows + 5
            assert not look.get("hasSortStage")


def cursor_at(filled: Database[Json], number: int) -> str:
    """Return the cursor of an event of the long timeline."""
    return _cursor(filled.outbox_events.find_one({"_id": f"long-{number:08d}"}))


def is_count(entry: Json) -> bool:
    """Return whether a command counts; what is aggregated of events are averages, which read what they are of."""
    return "aggregate" in entry["command"] and not entry["ns"].endswith(".outbox_events")


def rows_of(html: str) -> int:
    """Return how many rows a page shows; a node of a graph is one: it has figures of its own."""
    return html.count("<tr>") - html.count("<thead>") + html.count("data-node=")
