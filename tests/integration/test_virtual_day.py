"""A day of load, with the waiting left out: what is kept stays bounded, and nothing gets slower.

The database's clock cannot be moved, so everything that is stored is made an hour older instead: each instant of each
document, whatever it is called. Workers and database notice no difference to an hour in which nothing was due.
``KIKWIFLOW_TEST_DEEP=1`` runs nine days of eight times the load.
"""

import gc
import json
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.handler import ExecutionContext, task_handler
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.operations.execution import execute_task
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from kikwiflow_worker.store.views import ExternalTaskQuery, WorkerRecord
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.registry import registry_of
from tests.support.definitions import a_file, a_node, a_start, a_task, an_end
from tests.support.findings import DEADLINE, REMINDER, a_join, a_split
from tests.support.mongo import MongoServer
from tests.support.profiler import profiled
from tests.support.stores import Json, claim_next

DEEP = os.environ.get("KIKWIFLOW_TEST_DEEP") == "1"
pytestmark = [
    pytest.mark.mongo,
    *([pytest.mark.deep, pytest.mark.timeout(3600)] if DEEP else []),
]

HOURS = 9 * 24 if DEEP else 24
PER_HOUR = 8 if DEEP else 1
HOUR = timedelta(hours=1)
RETENTION_HOURS = 6
LONGEST_LIFE_HOURS = 10
"""Of an order: two for its retry, three for its timer, four to its deadline, and one for the steps between."""

ACTIVE = ("process_instances", "executable_tasks", "external_tasks")
REMEMBERED_HOURS = 7 * 24


@task_handler("flaky")
def flaky(ctx: ExecutionContext) -> None:
    if ctx.view.attempt == 1:
        raise ConnectionError("no scales")
    ctx.set("weight", 7)


@task_handler("remind")
def remind(ctx: ExecutionContext) -> None:
    ctx.increment("reminded")


def order() -> str:
    """Return a process that fails once, waits, runs branches, and is approved in time or not."""
    retries = {"strategy": "LINEAR", "maxRetries": 3, "intervals": ["PT2H"]}
    static = {"providerType": "STATIC"}
    every_hour = {"type": "RATE_DURATION", "expression": "PT1H"}
    nodes = (
        a_start("WORK"),
        a_task("WORK", "PAUSE", executor="flaky", retryPolicy=retries),
        a_node("PAUSE", "TIMER_TASK", "SPLIT", **static, staticValue="PT3H"),
        a_split("A", "B"),
        a_task("A", "JOIN", executor="remind"),
        a_task("B", "JOIN", executor="remind"),
        a_join("APPROVE"),
        a_node("APPROVE", "EXTERNAL_TASK", "END", boundaryEventIds=["LATE", "AGAIN"]),
        a_node("LATE", DEADLINE, "END", **static, staticValue="PT4H", attachedToRef="APPROVE"),
        a_node("AGAIN", REMINDER, "REMIND", schedulePolicy=every_hour, attachedToRef="APPROVE"),
        a_task("REMIND", "OVER", executor="remind"),
        an_end(),
        an_end("OVER"),
    )
    return json.dumps(a_file(*nodes, key="order"))


def shout() -> str:
    """Return a process that throws a message which nobody will ever await."""
    keep = {"kikwiflow.keepFor": "PT3H"}
    static = {"providerType": "STATIC", "staticKey": "nobody"}
    throw = a_node("THROW", "EVENT_THROWER", "END", **static, extensionProperties=keep)
    return json.dumps(a_file(a_start("THROW"), throw, an_end(), key="shout"))


def watch() -> str:
    """Return a process that waits for ever and is reminded by a clock of its own, at every full hour."""
    hourly = {"type": "CRON", "expression": "0 * * * *"}
    nodes = (
        a_start("WAIT"),
        a_node("WAIT", "EXTERNAL_TASK", "END", boundaryEventIds=["TICK"]),
        a_node("TICK", REMINDER, "REMIND", schedulePolicy=hourly, attachedToRef="WAIT"),
        a_task("REMIND", "OVER", executor="remind"),
        an_end(),
        an_end("OVER"),
    )
    return json.dumps(a_file(*nodes, key="watch"))


def live_objects() -> int:
    """Return how many objects this process holds."""
    gc.collect()
    return len(gc.get_objects())


def resident_bytes() -> int:
    """Return how much memory this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Site:
    """One store with a client and a worker, and time that is moved by the hour."""

    def __init__(self, store: MongoStore, data: Database[Json]) -> None:
        self.store = store
        self.data = data
        self.client = Kikwiflow(store)
        self.handlers = HandlerRuntime(registry_of([flaky, remind]), threads=2)
        self.hour = 0
        self.tasks_run = 0

    async def begin(self) -> str:
        for source in (order(), shout(), watch()):
            await self.client.deploy(source)
        return (await self.client.start("watch", "forever")).id

    async def live_an_hour(self) -> None:
        """Start what comes in this hour, run all that is due, approve every other order, and let an hour pass."""
        for number in range(PER_HOUR):
            key = f"{self.hour}-{number}"
            await self.client.start("order", key, idempotency_key=key)
            await self.client.start("shout", key)
        await self._record_worker()
        await self.drain()
        waiting = await self.client.list_external_tasks(
            ExternalTaskQuery(node_id="APPROVE"), limit=500
        )
        for task in waiting.items[::2]:
            await self.client.complete(task.id)
        await self.drain()
        self.pass_time(HOUR)

    async def drain(self) -> None:
        services = self.client.services
        while True:
            invoker = self.handlers.invoker()
            claimed = await claim_next(self.store, invoker.capabilities)
            if claimed is None:
                return
            await execute_task(services, invoker, claimed, services.runtime.commit)
            self.tasks_run += 1

    async def _record_worker(self) -> None:
        """A worker of this hour, which is gone in the next."""
        now = self.store.runtime.now()
        record = WorkerRecord(
            id=f"worker-{self.hour}", instance_name="w", host="h", pid=1, version="1", started_at=now,
            seen_at=now, state="running", slots=1, running=0, handlers=("remind",),
        )  # fmt: skip
        await self.store.reads.record_worker(record)

    def pass_time(self, by: timedelta) -> None:
        """Make all that is stored older by ``by``."""
        self.hour += round(by / HOUR)
        is_instant = {"$eq": [{"$type": "$$this.v"}, "date"]}
        older = {"$subtract": ["$$this.v", round(by.total_seconds() * 1000)]}
        field = {"k": "$$this.k", "v": {"$cond": [is_instant, older, "$$this.v"]}}
        every_field = {"$map": {"input": {"$objectToArray": "$$ROOT"}, "in": field}}
        for name in self.data.list_collection_names():
            if not name.startswith("system."):
                self.data[name].update_many({}, [{"$replaceWith": {"$arrayToObject": every_field}}])

    def purge(self) -> None:
        """Do at once what the database does within a minute: remove what has expired by its TTL indexes."""
        for name in self.data.list_collection_names():
            for index in self.data[name].index_information().values():
                if "expireAfterSeconds" in index:
                    ((field, _),) = index["key"]
                    age = timedelta(seconds=index["expireAfterSeconds"])
                    self.data[name].delete_many({field: {"$lt": self.store.runtime.now() - age}})

    def sizes(self) -> dict[str, int]:
        return {
            name: self.data[name].count_documents({})
            for name in self.data.list_collection_names()
            if not name.startswith("system.")
        }

    async def keys_of_a_claim(self) -> int:
        """Return how many keys a claim examines that finds nothing: the last one, whatever came due meanwhile."""
        with profiled(self.data) as entries:
            await self.drain()
        claims = [entry for entry in entries if "findAndModify" in entry["command"]]
        return int(claims[-1]["keysExamined"])

    def close(self) -> None:
        self.handlers.close()
        self.client.close()


@pytest.fixture
async def site(mongo_server: MongoServer, data: Database[Json]) -> AsyncIterator[Site]:
    retention = timedelta(hours=RETENTION_HOURS)
    outbox = OutboxOptions(level=EventLevel.FULL, retention=retention)
    options = StoreOptions(retention=retention, outbox=outbox)
    store = MongoStore.open(mongo_server.uri, data.name, clock=SystemClock(), options=options)
    await store.ping()
    opened = Site(store, data)
    yield opened
    opened.close()
    await store.close()


async def test_a_day_of_load_leaves_no_more_behind_than_its_last_hours(site: Site) -> None:
    watching = await site.begin()
    sizes: list[dict[str, int]] = []
    keys: list[int] = []
    objects: list[int] = []
    runs: list[int] = []
    resident: list[int] = []
    while site.hour < HOURS:
        await site.live_an_hour()
        sizes.append(site.sizes())
        if site.hour % (HOURS // 4) == 0:
            site.purge()
            sizes[-1] = site.sizes()
            keys.append(await site.keys_of_a_claim())
            objects.append(live_objects())
            runs.append(site.tasks_run)
            resident.append(resident_bytes())

    # Every hour is like the one before as soon as the first orders have ended.
    settled = sizes[LONGEST_LIFE_HOURS + 1 :]
    for name in ACTIVE:
        counts = [each[name] for each in settled]
        assert max(counts) - min(counts) <= 2 * PER_HOUR, (name, counts)
        assert max(counts) <= 12 * PER_HOUR * LONGEST_LIFE_HOURS, (name, counts)
    assert keys[-1] <= keys[1] + 2, keys
    assert objects[-1] - objects[1] < 200 + runs[-1] - runs[1], (objects, runs)
    assert resident[-1] - resident[1] < 30_000_000, resident
    ticked = (await site.client.get_instance(watching)).variables["reminded"]
    assert ticked in {HOURS - 1, HOURS}
    assert site.tasks_run > 10 * PER_HOUR * (HOURS - LONGEST_LIFE_HOURS)
    kept = sizes[-1]
    assert kept["process_history"] <= 2 * PER_HOUR * (RETENTION_HOURS + 1)
    assert kept["start_keys"] <= PER_HOUR * (RETENTION_HOURS + 1)
    assert kept["completed_external_tasks"] <= 2 * PER_HOUR * (RETENTION_HOURS + 1)
    assert kept["workers"] <= 26
    assert kept["messages"] <= PER_HOUR * (min(HOURS, REMEMBERED_HOURS) + 1)
    assert kept["outbox_events"] <= 40 * PER_HOUR * (RETENTION_HOURS + 1)


async def test_after_a_week_without_work_nothing_is_left(site: Site) -> None:
    watching = await site.begin()
    for _ in range(3):
        await site.live_an_hour()

    for _ in range(LONGEST_LIFE_HOURS):
        await site.drain()
        site.pass_time(HOUR)
    await site.drain()
    await site.client.cancel(watching)
    site.pass_time(8 * 24 * HOUR)
    site.purge()

    left = {name: count for name, count in site.sizes().items() if count}
    assert left.pop("process_definitions") == 3
    assert left == {"meta": 1}
