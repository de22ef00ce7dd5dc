"""Claiming out of ten thousand and out of a million."""

import time
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median
from uuid import uuid4

from benchmarks.plan import Plan, Scenario
from benchmarks.processes import chain
from benchmarks.report import Figure, Section
from benchmarks.site import Database, Json, Site
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.capability import Capabilities, Capability, HandlerKind
from kikwiflow_worker.store.mongo.store import MongoStore

_BATCH = 32
_CLAIMS = 8
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
    """Measure batch claims by the store itself, from one pool after the other."""
    few, many = plan.count(10_000, least=1_000), plan.count(1_000_000)
    pools = [_Pool(few, 0), _Pool(plan.count(100_000), 0), _Pool(many, 0), _Pool(few, many)]
    pools = [pools[0], pools[-1]] if plan.is_brief else pools
    for pool in pools:
        async with site.database(chain(2)) as database:
            await _fill(database, pool)
            await _measure(database, pool, plan)
    section = Section(SCENARIO.name, SCENARIO.title)
    smallest = pools[0]
    for pool in pools:
        is_first = pool is smallest
        section.add(
            Figure(
                name=f"claim from {pool.name}",
                unit="us a row",
                samples=pool.times_us,
                floor=[] if is_first else [median(smallest.times_us)] * len(pool.times_us),
                per=smallest.name,
                at_most=None if is_first else 1.3,
            )
        )
        section.add(
            Figure(
                name=f"keys examined among {pool.name}",
                unit="for each document",
                samples=pool.keys,
                at_most=1.5,
            )
        )
    section.notes.append(f"batches of {_BATCH}, instances read with them")
    return section


async def _measure(database: Database, pool: _Pool, plan: Plan) -> None:
    site = database.site
    store = MongoStore.open(site.uri, database.name, clock=SystemClock())
    try:
        await store.prepare()
        await _claim(store)
        for _ in range(plan.rounds):
            before, times, claimed = _examined(site), [], 0
            for _ in range(_CLAIMS):
                began = time.perf_counter()
                rows = await _claim(store)
                claimed += rows
                times.append((time.perf_counter() - began) / rows * 1e6)
            after = _examined(site)
            pool.times_us.append(median(times))
            pool.keys.append((after[0] - before[0]) / (after[1] - before[1]))
    finally:
        await store.close()


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


def _copies(task: Json, for_each: int, *, is_due: bool) -> list[Json]:
    """Return the pipeline that makes copies of a task for each instance, a second apart, in the past or a year ahead."""
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
        {"$replaceWith": row},
        {"$merge": {"into": "executable_tasks", "whenMatched": "fail"}},
    ]


def _examined(site: Site) -> tuple[int, int]:
    """Return how many index keys were examined so far, and how many documents were returned or changed."""
    metrics = site.counters()["metrics"]
    document = metrics["document"]
    return metrics["queryExecutor"]["scanned"], document["returned"] + document["updated"]


SCENARIO = Scenario(name="claiming", title="Claiming out of few and many rows", run=run)
