"""A chain of steps that do nothing: what the engine adds to the documents that must be written anyway."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from statistics import median

from benchmarks.plan import Plan, Scenario
from benchmarks.processes import ring
from benchmarks.report import Figure, Section
from benchmarks.site import Database, Rate, Site, measure

_INSTANCES = 1_000
_SLOTS = 128
_WORKERS = (1, 2, 4, 8)
_FULL = 0.85
"""Of the processors; the rest goes to what else runs."""

_PER_UNIT = "a claim, a read and a transaction for each step, 1 worker"
_GROUPED = "grouped, 1 worker"
_HANDED_ON = "grouped and handed on"
_FLOOR = "floor"

_VARIANTS: Mapping[str, tuple[int, dict[str, object]]] = {
    _PER_UNIT: (1, {"claim_batch_size": 1, "commit_group_size": 1, "hand_on": False}),
    _GROUPED: (1, {"hand_on": False}),
    **{f"{_HANDED_ON}, workers: {count}": (count, {}) for count in _WORKERS},
}


async def run(site: Site, plan: Plan) -> Section:
    """Measure steps a second, in turns with the floor."""
    variants = {
        name: case
        for name, case in _VARIANTS.items()
        if case[0] <= plan.most_workers and not (plan.is_brief and name == _GROUPED)
    }
    found: dict[str, list[Rate]] = {name: [] for name in (_FLOOR, *variants)}
    for _ in range(plan.rounds):
        async with _work(site, plan) as database:
            found[_FLOOR].append(_floor(database, plan))
        for name, (count, settings) in variants.items():
            async with _work(site, plan) as database:
                with database.workers(count, concurrency=_SLOTS, **settings) as workers:
                    found[name].append(
                        measure(site, workers, warm_up_s=plan.warm_up_s, window_s=plan.window_s)
                    )
    return _section(found)


@asynccontextmanager
async def _work(site: Site, plan: Plan) -> AsyncIterator[Database]:
    async with site.database(ring()) as database:
        await database.start_many("ring", plan.count(_INSTANCES, least=200))
        yield database


def _floor(database: Database, plan: Plan) -> Rate:
    options = ("--warm-up-s", plan.warm_up_s, "--window-s", plan.window_s)
    site = database.site
    done = site.run_script("benchmarks.floor", site.uri, database.name, site.server_pid, *options)
    return Rate(done["count"], done["seconds"], done["server_s"], done["client_s"])


def _section(found: Mapping[str, list[Rate]]) -> Section:
    speeds = {name: [rate.per_second for rate in rates] for name, rates in found.items()}
    floor = speeds[_FLOOR]
    one = f"{_HANDED_ON}, workers: 1"
    section = Section(SCENARIO.name, SCENARIO.title)
    section.add(Figure(name="the bare script, 1 process", unit="steps/s", samples=floor))
    section.add(Figure(name=_PER_UNIT, unit="steps/s", samples=speeds[_PER_UNIT], floor=floor))
    for name, least in ((_GROUPED, 0.6), (one, 1.0)):
        section.add(
            Figure(
                name=name,
                unit="steps/s",
                samples=speeds.get(name, []),
                floor=floor,
                at_least=least,
            )
        )
    section.add(
        Figure(
            name=one,
            unit="steps/s",
            samples=speeds[one],
            floor=speeds[_PER_UNIT],
            per="that for each step",
            at_least=8,
        )
    )
    for fewer, count in pairwise(_WORKERS):
        before = found.get(f"{_HANDED_ON}, workers: {fewer}", [])
        name = f"{_HANDED_ON}, workers: {count}"
        section.add(
            Figure(
                name=name,
                unit="steps/s",
                samples=speeds.get(name, []),
                floor=[rate.per_second for rate in before],
                per=f"that of {fewer}",
                # More processes cannot be faster where no processor is left.
                at_least=None if _is_full(before) else 1.0,
            )
        )
    section.notes += [_costs(name, rates) for name, rates in found.items()]
    section.notes.append(
        "more workers must not be slower than fewer, as long as those left a processor free"
    )
    return section


def _is_full(rates: list[Rate]) -> bool:
    """Return whether server and workers used the processors up."""
    cores = len(os.sched_getaffinity(0))
    used = [(rate.server_s + rate.client_s) / rate.seconds for rate in rates]
    return bool(used) and median(used) > _FULL * cores


def _costs(name: str, rates: list[Rate]) -> str:
    """Return whose processor time a step costs, and how much of the machine that was."""
    server, clients = (
        median(rate.server_us for rate in rates),
        median(rate.client_us for rate in rates),
    )
    cores = median(rate.server_s / rate.seconds for rate in rates)
    others = median(rate.client_s / rate.seconds for rate in rates)
    return (
        f"{name}: {server:.0f} us of the server and {clients:.0f} us of the clients for a step "
        f"({cores:.2f} and {others:.2f} cores)"
    )


SCENARIO = Scenario(name="chain", title="Steps that do nothing, a commit before each", run=run)
