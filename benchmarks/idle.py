"""What a worker costs that has nothing to do."""

import asyncio
import time

from benchmarks.plan import Plan, Scenario
from benchmarks.processes import single
from benchmarks.report import Figure, Section
from benchmarks.site import Site
from benchmarks.workers import memory_mb

_SETTLE_S = 12.0
_WINDOW_S = 10.0
_COUNTED = ("insert", "query", "update", "delete", "getmore", "command")


async def run(site: Site, plan: Plan) -> Section:
    """Measure memory, and commands to the database beyond those that it gets without the worker."""
    window_s = plan.count(round(_WINDOW_S * 10)) / 10
    commands, memories = [], []
    async with site.database(single()) as database:
        without = _commands(site, window_s)
        with database.workers(1) as (worker,):
            await asyncio.sleep(_SETTLE_S * min(1.0, plan.scale * 2))
            for _ in range(plan.rounds):
                commands.append(max(0.0, _commands(site, window_s) - without))
                memories.append(memory_mb(worker.pid))
    section = Section(SCENARIO.name, SCENARIO.title)
    section.add(Figure(name="memory", unit="MB", samples=memories, at_most=70))
    section.add(Figure(name="commands", unit="/s", samples=commands, at_most=1))
    section.notes.append(
        f"all settings at their defaults; without the worker the server gets {without:.2f} commands/s, which are left out"
    )
    return section


def _commands(site: Site, seconds: float) -> float:
    before = _counted(site)
    time.sleep(seconds)
    # One of them is the look itself.
    return (_counted(site) - before - 1) / seconds


def _counted(site: Site) -> int:
    counters = site.counters()["opcounters"]
    return sum(counters[name] for name in _COUNTED)


SCENARIO = Scenario(name="idle", title="A worker that has nothing to do", run=run)
