"""Readiness tells the truth about the database in time, whatever moment it goes away or comes back at."""

import asyncio
import selectors
from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry
from typing_extensions import override

from kikwiflow_worker.acquirer.slots import Slots
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.store.protocol import ReadStore
from kikwiflow_worker.telemetry import Metrics
from kikwiflow_worker.worker.health import HealthState
from kikwiflow_worker.worker.maintenance import TRUTH_S, DatabaseProbe, Maintenance
from kikwiflow_worker.worker.store_watch import StoreWatch


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes at once."""

    def __init__(self) -> None:
        super().__init__(_NoWaiting(self))
        self.now = 1_000.0

    @override
    def time(self) -> float:
        return self.now


class _NoWaiting(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.now += timeout or 0.0
        return super().select(0)


class LoopClock(SystemClock):
    """The clock of the running loop."""

    @override
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Database:
    """Answers, or does not."""

    def __init__(self) -> None:
        self.is_there = True
        self.pings = 0

    async def ping(self) -> None:
        self.pings += 1
        if not self.is_there:
            await asyncio.get_running_loop().create_future()


@dataclass(frozen=True)
class Bench:
    """A worker's chores beside a database."""

    database: Database
    watch: StoreWatch
    maintenance: Maintenance


def a_bench() -> Bench:
    database, clock = Database(), LoopClock()
    metrics = Metrics(CollectorRegistry(), version="0", instance="worker-1")
    watch = StoreWatch(HealthState(clock), metrics, clock)
    maintenance = Maintenance(
        DatabaseProbe(ping=database.ping, skew_s=lambda: 0.0),
        Mock(spec=ReadStore),
        slots=Slots(1),
        clock=clock,
        metrics=metrics,
        store_watch=watch,
    )
    return Bench(database, watch, maintenance)


async def lag_of(change: Callable[[Database], None], *, at_s: float) -> float:
    """Return how long after a change the worker is said to be otherwise, to somebody who asks all the time."""
    bench = a_bench()
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(bench.maintenance.watch_database())
        await asyncio.sleep(at_s)
        before, changed_at = bench.watch.is_reachable, asyncio.get_running_loop().time()
        change(bench.database)
        while bench.watch.is_reachable is before:
            await asyncio.sleep(0.01)
            await bench.maintenance.look()
        watching.cancel()
    return asyncio.get_running_loop().time() - changed_at


async def pings_in(seconds: float, *, looks: int) -> int:
    """Return how often the database is asked while so many ask at once at the end of each second."""
    bench = a_bench()
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(bench.maintenance.watch_database())
        for _ in range(int(seconds)):
            await asyncio.sleep(1)
            await asyncio.gather(*(bench.maintenance.look() for _ in range(looks)))
        watching.cancel()
    return bench.database.pings


@pytest.mark.parametrize("at_s", [number * 0.1 for number in range(50)])
def test_a_database_that_falls_silent_at_any_moment_is_noticed_in_time(at_s: float) -> None:
    def falls_silent(database: Database) -> None:
        database.is_there = False

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        lag = runner.run(lag_of(falls_silent, at_s=10 + at_s))

    assert lag < TRUTH_S


def test_a_database_that_is_back_is_noticed_in_time() -> None:
    async def lag() -> float:
        bench = a_bench()
        bench.database.is_there = False
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(bench.maintenance.watch_database())
            await asyncio.sleep(10)
            bench.database.is_there, back_at = True, asyncio.get_running_loop().time()
            while not bench.watch.is_reachable:
                await asyncio.sleep(0.01)
            watching.cancel()
        return asyncio.get_running_loop().time() - back_at

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(lag()) < TRUTH_S


def test_a_worker_that_nobody_asks_sends_nothing_but_a_look_at_the_clock() -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(pings_in(300, looks=0)) <= 11


def test_however_many_ask_the_database_is_asked_once() -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(pings_in(60, looks=16)) <= 63
