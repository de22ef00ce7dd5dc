"""Listening for work while idle, over hints that the test gives."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

from kikwiflow_worker.acquirer.acquirer import Acquirer
from kikwiflow_worker.acquirer.pacing import Pacing
from kikwiflow_worker.acquirer.wake_ups import WakeUpWatch
from kikwiflow_worker.testing import ManualClock


@dataclass
class GivenHints:
    """Hints, one for each that the test puts; "end" ends the watch, as a server without change streams does."""

    hints: "asyncio.Queue[str]" = field(default_factory=asyncio.Queue)
    opened: int = 0
    closed: int = 0

    async def watch(self) -> AsyncGenerator[None, None]:
        self.opened += 1
        try:
            while await self.hints.get() == "hint":
                yield
        finally:
            self.closed += 1


@dataclass
class FakeAcquirer:
    woken: int = 0
    busy_s: float = 0.0
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        self.woken += 1

    async def wait_idle(self) -> None:
        await self.idle.wait()


@dataclass
class Bench:
    hints: GivenHints = field(default_factory=GivenHints)
    acquirer: FakeAcquirer = field(default_factory=FakeAcquirer)
    clock: ManualClock = field(default_factory=ManualClock)
    pacing: Pacing = field(
        default_factory=lambda: Pacing(shortest_s=1.0, longest_s=5.0, jitter=random.Random(1))
    )

    @asynccontextmanager
    async def watching(self) -> AsyncIterator["asyncio.Task[None]"]:
        watch = WakeUpWatch(self.hints, cast("Acquirer", self.acquirer), self.pacing, self.clock)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            task = group.create_task(watch.run())
            yield task
            task.cancel()


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_hint_wakes_an_idle_worker_at_once() -> None:
    bench = Bench()
    bench.acquirer.idle.set()

    async with bench.watching():
        bench.hints.hints.put_nowait("hint")
        await turns()

    assert bench.acquirer.woken == 1
    assert bench.clock.monotonic() == 0.0
    assert (bench.hints.opened, bench.hints.closed) == (1, 1)


async def test_a_busy_worker_does_not_listen() -> None:
    bench = Bench()

    async with bench.watching():
        await turns()
        while_busy = bench.hints.opened
        bench.acquirer.idle.set()
        await turns()

    assert (while_busy, bench.hints.opened) == (0, 1)


async def test_a_worker_that_stays_busy_stops_listening_until_it_idles() -> None:
    bench = Bench()
    bench.acquirer.idle.set()

    async with bench.watching():
        bench.hints.hints.put_nowait("hint")
        await turns()
        bench.acquirer.idle.clear()
        bench.acquirer.busy_s = 60.0
        bench.hints.hints.put_nowait("hint")
        await turns()
        while_busy = bench.hints.opened, bench.hints.closed, bench.acquirer.woken
        bench.acquirer.busy_s = 0.0
        bench.acquirer.idle.set()
        await turns()

    assert while_busy == (1, 1, 1)
    assert bench.hints.opened == 2


async def test_a_fleet_does_not_ask_for_every_task_that_others_take() -> None:
    bench = Bench()
    bench.acquirer.idle.set()

    async with bench.watching():
        for _ in range(100):
            bench.hints.hints.put_nowait("hint")
            await turns()

    assert bench.acquirer.woken == 100
    assert bench.clock.monotonic() > 60, "once a second or less, whatever the others do"


async def test_a_server_without_hints_ends_the_watch_and_nothing_else() -> None:
    bench = Bench()
    bench.acquirer.idle.set()

    async with bench.watching() as task:
        bench.hints.hints.put_nowait("end")
        await task

    assert bench.acquirer.woken == 0
