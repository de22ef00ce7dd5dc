"""What a worker costs that has nothing to do."""

import asyncio
import time
from dataclasses import dataclass

from benchmarks.plan import Plan, Scenario
from benchmarks.processes import single
from benchmarks.report import Figure, Section
from benchmarks.site import Site
from benchmarks.workers import memory_mb

_SETTLE_S = 12.0
_WINDOW_S = 20.0
_COUNTED = ("insert", "query", "update", "delete", "getmore", "command")
_HELLO = ("hello", "isMaster")


async def run(site: Site, plan: Plan) -> Section:
    """Measure memory, and commands to the database beyond those that it gets without the worker."""
    window_s = plan.count(round(_WINDOW_S * 10)) / 10
    commands, hellos, memories = [], [], []
    async with site.database(single()) as database:
        without = _rates(site, window_s)
        with database.workers(1) as (worker,):
            await asyncio.sleep(_SETTLE_S * min(1.0, plan.scale * 2))
            for _ in range(plan.rounds):
                found = _rates(site, window_s)
                commands.append(max(0.0, found.commands - without.commands))
                hellos.append(max(0.0, found.hellos - without.hellos))
                memories.append(memory_mb(worker.pid))
    section = Section(SCENARIO.name, SCENARIO.title)
    section.add(Figure(name="memory", unit="MB", samples=memories, at_most=70))
    section.add(Figure(name="commands", unit="/s", samples=commands, at_most=1))
    section.add(Figure(name="the driver's looks at the server", unit="/s", samples=hellos))
    section.notes.append(
        "all settings at their defaults; what the server gets without the worker is left out: "
        f"{without.commands:.2f} commands/s and {without.hellos:.2f} looks/s of the driver"
    )
    return section


@dataclass(frozen=True, slots=True)
class _Rates:
    """A second.

    Attributes:
        hellos: By which the driver keeps an eye on the server; they are not among ``commands``.
    """

    commands: float
    hellos: float


def _rates(site: Site, seconds: float) -> _Rates:
    commands, hellos = _counted(site)
    time.sleep(seconds)
    commands_then, hellos_then = _counted(site)
    # One of them is the look itself.
    return _Rates((commands_then - commands - 1) / seconds, (hellos_then - hellos) / seconds)


def _counted(site: Site) -> tuple[int, int]:
    """Return how many commands the server has got so far, and how many looks of drivers."""
    counters = site.counters()
    by_name = counters["metrics"]["commands"]
    hellos = sum(by_name[name]["total"] for name in _HELLO if name in by_name)
    return sum(counters["opcounters"][name] for name in _COUNTED) - hellos, hellos


SCENARIO = Scenario(name="idle", title="A worker that has nothing to do", run=run)
