"""Chores: none that fails stops another, and the watchdog is fed while the worker makes progress only."""

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from kikwiflow_worker.acquirer.slots import Slots
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import StoreRefusedError
from kikwiflow_worker.telemetry import Event, Metrics
from kikwiflow_worker.testing import ManualClock
from kikwiflow_worker.worker import supervision
from kikwiflow_worker.worker.health import HealthState
from kikwiflow_worker.worker.maintenance import DatabaseProbe, Maintenance
from kikwiflow_worker.worker.store_watch import StoreWatch
from kikwiflow_worker.worker.supervision import end, run_on, supervised


class NoSleep(ManualClock):
    """A clock on which every sleep is over at once."""

    async def sleep(self, seconds: float) -> None:
        self.advance(timedelta(seconds=seconds))
        await asyncio.sleep(0)


@pytest.mark.field_case("S-50")
async def test_a_chore_that_fails_is_reported_and_started_again_and_stops_no_other() -> None:
    clock, runs, other = NoSleep(), 0, 0

    async def fails_twice() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise RuntimeError("sort exceeded its memory limit")

    async def goes_on() -> None:
        nonlocal other
        for _ in range(10):
            other += 1
            await asyncio.sleep(0)

    with capture_logs() as lines:
        async with asyncio.TaskGroup() as group:
            group.create_task(supervised("queue measures", fails_twice, clock))
            group.create_task(supervised("acquirer", goes_on, clock))

    crashed = [line["service"] for line in lines if line["event"] == "service.crashed"]
    assert crashed == ["queue measures"] * 2
    assert (runs, other) == (3, 10)


class HeardEnoughError(Exception):
    """The chore has spoken often enough."""


class FakeNotifier:
    """Remembers what systemd hears; ends the chore after a few rounds."""

    watchdog_interval_s = 30.0

    def __init__(self) -> None:
        self.fed_at: list[float] = []
        self.rounds = 0

    def watchdog(self) -> None:
        self.fed_at.append(self.rounds)

    def status(self, _text: str) -> None:
        self.rounds += 1
        if self.rounds == 5:
            raise HeardEnoughError


@pytest.mark.field_case("S-53")
async def test_the_watchdog_is_fed_only_while_the_acquirer_makes_progress() -> None:
    clock, notifier = NoSleep(), FakeNotifier()
    metrics = Metrics(CollectorRegistry(), version="1", instance="w")
    health = HealthState(clock, beat_limit_s=1_000, progress_limit_s=60)
    health.set_started()
    nothing: Any = None
    maintenance = Maintenance(
        DatabaseProbe(ping=nothing, skew_s=lambda: 0.0),
        nothing,
        slots=Slots(1),
        clock=clock,
        metrics=metrics,
        store_watch=StoreWatch(health, metrics, clock),
    )
    speaks: Any = notifier

    with suppress(HeardEnoughError):
        await maintenance.notify_systemd(speaks, health)

    assert notifier.fed_at == [0, 1, 2], "not after 60 s without a step"


async def test_a_part_that_swallows_a_cancellation_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kikwiflow_worker.worker.supervision._CANCEL_AGAIN_S", 0.01)
    swallowed = []

    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        swallowed.append(True)
        await asyncio.Event().wait()

    async def obedient() -> None:
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        parts = [group.create_task(stubborn()), group.create_task(obedient())]
        await asyncio.sleep(0)
        await asyncio.wait_for(end(parts), 5)

    assert swallowed == [True]
    assert all(part.cancelled() for part in parts)


async def test_a_database_that_keeps_a_part_out_is_no_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kikwiflow_worker.worker.supervision._PAUSE_S", 0)
    structlog.reset_defaults()
    runs = []

    async def part() -> None:
        runs.append(True)
        if len(runs) == 1:
            raise StoreRefusedError("recording this worker was refused")

    with capture_logs() as lines:
        await supervised("worker record", part, SystemClock())

    (line,) = lines
    assert line["event"] == Event.STORE_UNAVAILABLE
    assert line["doing"] == "worker record"
    assert len(runs) == 2


def test_another_thread_waits_for_what_it_lets_run_on_the_loop() -> None:
    ran: list[str] = []

    async def action() -> None:
        await asyncio.sleep(0)
        ran.append(threading.current_thread().name)

    async def main() -> None:
        await asyncio.to_thread(run_on, asyncio.get_running_loop(), action)
        assert ran == [threading.current_thread().name]

    asyncio.run(main())


def test_another_thread_does_not_wait_for_a_loop_that_has_ended() -> None:
    loop = asyncio.new_event_loop()
    loop.close()

    run_on(loop, lambda: asyncio.sleep(3600))


def test_another_thread_waits_no_longer_than_a_second_for_a_loop_that_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervision, "_TURN_S", 0.01)
    loop = asyncio.new_event_loop()

    run_on(loop, lambda: asyncio.sleep(0))

    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
