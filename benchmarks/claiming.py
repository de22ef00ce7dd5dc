"""Claiming out of ten thousand and out of a million."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median
from uuid import uuid4

from pymongo import IndexModel

from benchmarks.plan import Plan, Scenario
from benchmarks.processes import chain
from benchmarks.report import Figure, Section
from benchmarks.site import Database, Json, Site
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.capability import Capabilities, Capability, HandlerKind
from kikwiflow_worker.store.mongo.collections import INDEXES
from kikwiflow_worker.store.mongo.store import MongoStore

_BATCH = 32
_CLAIMS = 20
_INSTANCES = 1_000
_LOCK = timedelta(seconds=600)
_CAPABILITIES = Capabilities([Capability(HandlerKind.TASK_HANDLER, "no_op")])


@dataclass(slots=True)
class _Pool:
    """A number of rows to claim from.

    Attributes:
        due: How many are due, and how many are not yet.
        times_us: Of one claim, for each row, round by round.
        keys: Index keys that were examined for each document that was returned or changed.
    """

    due: int
    future: int
    times_us: list[float] = field(default_factory=list)
    keys: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        beside = f" beside {self.future:,} future timers" if self.future else ""
        return f"{self.due:,} due rows{beside}"


async def run(site: Site, plan: Plan) -> Section:
    """Measure batch claims by the store itself, from the pools in turns."""
    few, many = plan.count(10_000, least=1_000), plan.count(1_000_000)
    pools = [_Pool(few, 0), _Pool(plan.count(100_000), 0), _Pool(many, 0), _Pool(few, many)]
    pools = [pools[0], pools[-1]] if plan.is_brief else pools
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(_filled(site, pool)) for pool in pools]
        for _ in range(plan.rounds):
            for pool, store in zip(pools, stores, strict=True):
                await _measure(site, store, pool)
    section = Section(SCENARIO.name, SCENARIO.title)
    smallest = pools[0]
    for pool in pools:
        is_first = pool is smallest
        section.add(
            Figure(
                name=f"claim from {pool.name}",
                unit="us a row",
                samples=pool.times_us,
                floor=() if is_first else smallest.times_us,
                per=f"that from {smallest.due:,}",
                at_most=None if is_first else 1.3,
            )
        )
    section.add(
        Figure(
            name="index keys examined",
            unit="for each document returned or changed",
            samples=[keys for pool in pools for keys in pool.keys],
            at_most=1.5,
        )
    )
    section.notes.append(f"batches of {_BATCH}, instances read with them")
    return section


@asynccontextmanager
async def _filled(site: Site, pool: _Pool) -> AsyncIterator[MongoStore]:
    async with site.database(chain(2)) as database:
        await _fill(database, pool)
        store = MongoStore.open(site.uri, database.name, clock=SystemClock())
        try:
            await store.ping()
            await _claim(store)
            yield store
        finally:
            await store.close()


async def _measure(site: Site, store: MongoStore, pool: _Pool) -> None:
    before, times = _examined(site), []
    for _ in range(_CLAIMS):
        began = time.perf_counter()
        rows = await _claim(store)
        times.append((time.perf_counter() - began) / rows * 1e6)
    after = _examined(site)
    pool.times_us.append(median(times))
    pool.keys.append((after[0] - before[0]) / (after[1] - before[1]))


async def _claim(store: MongoStore) -> int:
    claimed = await store.queue.claim_due(
        worker_id="bench.1", lock=_LOCK, capabilities=_CAPABILITIES, limit=_BATCH
    )
    if not claimed:
        raise RuntimeError("nothing was claimed from a pool that is full")
    return len(claimed)


async def _fill(database: Database, pool: _Pool) -> None:
    """Copy one real task as often as needed, on the server; indexes are made afterwards, as that is faster."""
    await database.start_many("chain", _INSTANCES)
    stored = database.stored
    task = stored.executable_tasks.find_one({})
    ids = [row["_id"] for row in stored.process_instances.find({}, {"_id": 1})]
    stored.executable_tasks.drop()
    stored.seed.insert_many([{"instance": each} for each in ids])
    for count, is_due in ((pool.due, True), (pool.future, False)):
        if count:
            stored.seed.aggregate(_copies(task, -(-count // _INSTANCES), is_due=is_due))
    stored.seed.drop()
    stored.executable_tasks.create_indexes(
        [
            IndexModel(list(index.keys), name=index.name, **index.options)
            for index in INDEXES
            if index.collection == "tasks"
        ]
    )


def _copies(task: Json, for_each: int, *, is_due: bool) -> list[Json]:
    """Return the pipeline that makes copies of a task for each instance, a second apart, in the past or a year ahead.

    They are stored in the order in which they come due, as tasks are that wait for their turn.
    """
    second = {"$multiply": ["$number", 1_000]}
    year_ahead = {"$add": [task["claimableAt"] + timedelta(days=365), second]}
    prefix = f"{uuid4()}-"
    row = {
        **{name: {"$literal": value} for name, value in task.items()},
        "_id": {"$concat": [prefix, "$instance", "-", {"$toString": "$number"}]},
        "processInstanceId": "$instance",
        "claimableAt": {"$subtract": [task["claimableAt"], second]} if is_due else year_ahead,
    }
    return [
        {"$project": {"instance": 1, "number": {"$range": [0, for_each]}}},
        {"$unwind": "$number"},
        {"$sort": {"number": -1 if is_due else 1}},
        {"$replaceWith": row},
        {"$merge": {"into": "executable_tasks", "whenMatched": "fail"}},
    ]


def _examined(site: Site) -> tuple[int, int]:
    """Return how many index keys were examined so far, and how many documents were returned or changed."""
    metrics = site.counters()["metrics"]
    document = metrics["document"]
    return metrics["queryExecutor"]["scanned"], document["returned"] + document["updated"]


SCENARIO = Scenario(name="claiming", title="Claiming out of few and many rows", run=run)
