"""Steps of instances with large variables, which they change or leave alone."""

import os
import time
from dataclasses import dataclass, field

from benchmarks.plan import Plan, Scenario
from benchmarks.processes import ring
from benchmarks.report import Figure, Section
from benchmarks.site import Database, Site, measure
from benchmarks.workers import WorkerProcess

_SMALL, _MEDIUM, _LARGE = 1_000, 50_000, 1_000_000
_SLOTS = 8
_INSTANCES = 24
_LEAVE, _CHANGE = "no_op", "change_payload"


@dataclass(slots=True)
class _Costs:
    """What a step costs, round by round: time of a slot, bytes into and out of the server."""

    ms: list[float] = field(default_factory=list)
    bytes_in: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)


async def run(site: Site, plan: Plan) -> Section:
    """Measure the bytes that the server gets and gives for a step, and the time that it takes."""
    cases = [(handler, size) for handler in (_LEAVE, _CHANGE) for size in (_SMALL, _MEDIUM, _LARGE)]
    found = {case: _Costs() for case in cases}
    rings = [ring(handler=handler, key=handler) for handler in (_LEAVE, _CHANGE)]
    async with site.database(*rings) as database:
        with database.workers(1, concurrency=_SLOTS, poll_max_seconds=1) as (worker,):
            for _ in range(plan.rounds):
                for handler, size in cases:
                    payload = {"payload": os.urandom(size)}
                    await database.start_many(handler, _INSTANCES, payload)
                    _measure(database, plan, worker, found[handler, size])
                    database.remove_all()
    return _section(found)


def _measure(database: Database, plan: Plan, worker: WorkerProcess, costs: _Costs) -> None:
    site = database.site
    time.sleep(plan.warm_up_s)
    before = site.counters()["network"]
    rate = measure(site, [worker], warm_up_s=0, window_s=plan.window_s)
    after = site.counters()["network"]
    steps = max(rate.count, 1)
    into, out = (after[name] - before[name] for name in ("bytesIn", "bytesOut"))
    costs.ms.append(1000 / max(rate.per_second, 1e-9))
    costs.bytes_in.append(into / steps)
    costs.moved.append((into + out) / steps)


def _section(found: dict[tuple[str, int], _Costs]) -> Section:
    section = Section(SCENARIO.name, SCENARIO.title)
    small, medium = found[_LEAVE, _SMALL], found[_CHANGE, _MEDIUM]
    for (handler, size), costs in found.items():
        changes = "changed" if handler == _CHANGE else "left alone"
        name = f"{size // 1_000:,} KB {changes}"
        is_small = handler == _LEAVE and size != _SMALL
        section.add(Figure(name=f"{name}, time", unit="ms a step", samples=costs.ms))
        section.add(
            Figure(
                name=f"{name}, into the server",
                unit="bytes a step",
                samples=costs.bytes_in,
                floor=small.bytes_in if is_small else (),
                per="1 KB left alone",
                # A variable that was rewritten would be fifty times as much at least.
                at_most=2 if is_small else None,
            )
        )
        section.add(Figure(name=f"{name}, moved", unit="bytes a step", samples=costs.moved))
    large = found[_CHANGE, _LARGE]
    section.add(
        Figure(
            name="1 MB to 50 KB, changed: growth of the time",
            unit="times",
            samples=[a / b for a, b in zip(large.ms, medium.ms, strict=True)],
            floor=[a / b for a, b in zip(large.moved, medium.moved, strict=True)],
            per="the growth of the bytes moved",
            at_most=1,
        )
    )
    return section


SCENARIO = Scenario(name="payload", title="Large variables, changed and left alone", run=run)
