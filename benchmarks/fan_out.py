"""A split into many branches that several workers run at once."""

import time

from benchmarks.plan import Plan, Scenario
from benchmarks.processes import fan_out
from benchmarks.report import Figure, Section
from benchmarks.site import Database, Site
from benchmarks.workers import WorkerProcess

_BRANCHES = (64, 256, 1_000)
_WORKERS = 4
_PATIENCE_S = 60.0


async def run(site: Site, plan: Plan) -> Section:
    """Measure how often transactions are tried, and how long it takes from start to end."""
    # In a small run two of them may be the same.
    sizes = sorted({plan.count(branches, least=8) for branches in _BRANCHES})
    attempts: dict[int, list[float]] = {size: [] for size in sizes}
    times: dict[int, list[float]] = {size: [] for size in sizes}
    async with site.database(*map(fan_out, sizes)) as database:
        count = min(_WORKERS, plan.most_workers)
        with database.workers(count, concurrency=64, poll_max_seconds=1) as workers:
            for _ in range(plan.rounds):
                for size in sizes:
                    tried, seconds = await _run_one(database, workers, size)
                    attempts[size].append(tried / size)
                    times[size].append(seconds)
    section = Section(SCENARIO.name, SCENARIO.title)
    for size in sizes:
        section.add(
            Figure(
                name=f"transaction attempts, {size:,} branches",
                unit="for each branch",
                samples=attempts[size],
                at_most=1.2,
            )
        )
        section.add(Figure(name=f"start to end, {size:,} branches", unit="s", samples=times[size]))
    return section


async def _run_one(
    database: Database, workers: list[WorkerProcess], size: int
) -> tuple[float, float]:
    before, began = _attempts(workers), time.monotonic()
    started = await database.kikwiflow.start(f"fan_out_{size}", "ORDER-1")
    await database.kikwiflow.wait_for_end(started.id, timeout_s=_PATIENCE_S)
    return _attempts(workers) - before, time.monotonic() - began


def _attempts(workers: list[WorkerProcess]) -> float:
    return sum(worker.metric("kikwiflow_txn_attempts_total") for worker in workers)


SCENARIO = Scenario(name="fan_out", title=f"Fan-out and join on {_WORKERS} workers", run=run)
