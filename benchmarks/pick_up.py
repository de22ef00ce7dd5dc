"""How long work waits for an idle worker."""

import asyncio
import random
import time

from benchmarks.plan import Plan, Scenario
from benchmarks.processes import single
from benchmarks.report import Figure, Section
from benchmarks.site import Database, Site

_TRIES = 8
_POLL_S = 0.5
_PATIENCE_S = 20.0


async def run(site: Site, plan: Plan) -> Section:
    """Measure with and without change streams, each on an idle worker of its own."""
    section = Section(SCENARIO.name, SCENARIO.title)
    for told, at_most_ms in ((True, 10.0), (False, _POLL_S * 1000)):
        async with site.database(single()) as database:
            with database.workers(
                1,
                change_streams=told,
                poll_interval_seconds=_POLL_S,
                poll_max_seconds=_POLL_S,
            ):
                await asyncio.sleep(2 * _POLL_S)
                rounds = [await _waits(database, plan) for _ in range(plan.rounds)]
        section.add(
            Figure(
                name="told by a change stream" if told else f"found by a poll every {_POLL_S:g} s",
                unit="ms",
                samples=[sorted(waits)[len(waits) // 2] for waits in rounds],
                at_most=at_most_ms,
            )
        )
        every = sorted(wait for waits in rounds for wait in waits)
        how = "with" if told else "without"
        section.notes.append(
            f"{how} change streams: from {every[0]:.1f} to {every[-1]:.1f} ms in {len(every)} tries"
        )
    return section


async def _waits(database: Database, plan: Plan) -> list[float]:
    """Return how many milliseconds passed from the end of a start to the beginning of its step."""
    waits = []
    for _ in range(plan.count(_TRIES)):
        await asyncio.sleep(_POLL_S * (0.5 + random.random()))
        started = await database.kikwiflow.start("single", "ORDER-1")
        due_at = time.monotonic()
        ended = await database.kikwiflow.wait_for_end(started.id, timeout_s=_PATIENCE_S)
        ran_at = ended.variables["ran_at"]
        if not isinstance(ran_at, float):
            raise TypeError("the handler notes a number of seconds")
        waits.append((ran_at - due_at) * 1000)
    return waits


SCENARIO = Scenario(name="pick_up", title="From due to running, on an idle worker", run=run)
