"""Readiness tells the truth about the database in time, whatever moment it goes away or comes back at."""

import asyncio
import selectors
from collections.abc import Callable
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

    async def ping(self) -> None:
        if not self.is_there:
            await asyncio.get_running_loop().create_future()


async def lag_of(change: Callable[[Database], None], *, at_s: float) -> float:
    """Return how long after a change the worker is said to be otherwise."""
    database, clock = Database(), LoopClock()
    health = HealthState(clock)
    metrics = Metrics(CollectorRegistry(), version="0", instance="worker-1")
    watch = StoreWatch(health, metrics, clock)
    maintenance = Maintenance(
        DatabaseProbe(ping=database.ping, skew_s=lambda: 0.0),
        Mock(spec=ReadStore),
        slots=Slots(1),
        clock=clock,
        metrics=metrics,
        store_watch=watch,
    )
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(maintenance.watch_database())
        await asyncio.sleep(at_s)
        before, changed_at = watch.is_reachable, asyncio.get_running_loop().time()
        change(database)
        while watch.is_reachable is before:
            await asyncio.sleep(0.01)
        watching.cancel()
    return asyncio.get_running_loop().time() - changed_at


@pytest.mark.parametrize("at_s", [number * 0.1 for number in range(50)])
def test_a_database_that_falls_silent_at_any_moment_is_noticed_in_time(at_s: float) -> None:
    def falls_silent(database: Database) -> None:
        database.is_there = False

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        lag = runner.run(lag_of(falls_silent, at_s=10 + at_s))

    assert lag < TRUTH_S
