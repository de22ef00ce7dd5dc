import asyncio
import threading
import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from structlog.typing import EventDict

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.telemetry import Metrics
from kikwiflow_worker.worker.loop_monitor import LoopMonitor, RunningHandlers

WARNING_SECONDS = 0.06
BLOCK_SECONDS = 0.2


def a_monitor(running: RunningHandlers, registry: CollectorRegistry | None = None) -> LoopMonitor:
    metrics = Metrics(registry or CollectorRegistry(), version="1", instance="a")
    return LoopMonitor(
        clock=SystemClock(), metrics=metrics, running=running, warning_seconds=WARNING_SECONDS
    )


async def watched(
    monitor: LoopMonitor, *blocks: float, running: RunningHandlers | None = None
) -> None:
    """Run the monitor while a handler blocks the loop for each of ``blocks``."""

    async def handler() -> None:
        for seconds in blocks:
            time.sleep(seconds)  # noqa: ASYNC251 - blocking is what is tested
            await asyncio.sleep(WARNING_SECONDS)

    async def described() -> None:
        if running is None:
            await handler()
        else:
            with running.running("handler calculateRisk of node RISK, task t1"):
                await handler()

    async with asyncio.TaskGroup() as group:
        monitoring = group.create_task(monitor.run())
        await asyncio.sleep(0)
        await group.create_task(described(), name="the-offender")
        monitoring.cancel()


def blocks(logs: Sequence[EventDict]) -> list[EventDict]:
    """Return the lines about the handler's sleep; a busy machine may hold up the whole process elsewhere as well."""
    return [line for line in logs if str(line["frame"]).endswith("handler")]


async def test_a_handler_that_blocks_is_named_with_its_time_and_frame() -> None:
    running = RunningHandlers()

    with capture_logs() as logs:
        await watched(a_monitor(running), BLOCK_SECONDS, running=running)

    (line,) = blocks(logs)
    assert (line["event"], line["log_level"]) == ("handler.blocked_loop", "warning")
    assert line["running"] == "handler calculateRisk of node RISK, task t1"
    assert WARNING_SECONDS <= line["blocked_s"] <= BLOCK_SECONDS + 1
    assert "test_loop_monitor.py" in line["frame"]


async def test_each_block_is_reported_once() -> None:
    running = RunningHandlers()

    with capture_logs() as logs:
        await watched(a_monitor(running), BLOCK_SECONDS, BLOCK_SECONDS, running=running)

    assert len(blocks(logs)) == 2


async def test_code_that_is_no_handler_is_named_by_its_task() -> None:
    with capture_logs() as logs:
        await watched(a_monitor(RunningHandlers()), BLOCK_SECONDS)

    assert [line["running"] for line in blocks(logs)] == ["asyncio task the-offender"]


async def test_the_lag_is_measured_at_each_beat() -> None:
    registry = CollectorRegistry()

    with capture_logs():
        await watched(a_monitor(RunningHandlers(), registry), BLOCK_SECONDS)

    assert (
        registry.get_sample_value("kikwiflow_event_loop_lag_seconds_sum") or 0
    ) > BLOCK_SECONDS / 2


async def test_the_largest_lag_is_told_once_and_measured_anew_from_then_on() -> None:
    monitor = a_monitor(RunningHandlers())

    with capture_logs():
        await watched(monitor, BLOCK_SECONDS, BLOCK_SECONDS / 10)

    assert monitor.take_largest_lag() > BLOCK_SECONDS / 2
    assert monitor.take_largest_lag() == 0.0


async def test_each_beat_is_passed_on_and_the_thread_ends_with_the_monitor() -> None:
    beaten = asyncio.Event()
    metrics = Metrics(CollectorRegistry(), version="1", instance="a")
    monitor = LoopMonitor(
        clock=SystemClock(),
        metrics=metrics,
        running=RunningHandlers(),
        warning_seconds=1,
        on_beat=beaten.set,
    )

    async with asyncio.TaskGroup() as group:
        monitoring = group.create_task(monitor.run())
        async with asyncio.timeout(5):
            await beaten.wait()
        monitoring.cancel()

    assert "loop-monitor" not in [thread.name for thread in threading.enumerate()]


def test_a_monitor_that_does_not_run_reports_nothing() -> None:
    with capture_logs() as logs:
        a_monitor(RunningHandlers()).check()

    assert logs == []


async def test_a_description_lasts_as_long_as_its_block() -> None:
    running = RunningHandlers()
    task = asyncio.current_task()

    with running.running("outer"):
        with running.running("inner"):
            inside = running.describe(task)
        after = running.describe(task)

    assert (inside, after) == ("inner", "outer")
    assert running.describe(task).startswith("asyncio task ")


def test_no_task_means_a_callback() -> None:
    assert RunningHandlers().describe(None) == "a callback of the event loop"


async def test_noting_what_runs_outside_a_task_is_a_programming_error() -> None:
    outcome: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def callback() -> None:
        try:
            with RunningHandlers().running("x"):
                outcome.set_result(None)
        except RuntimeError as error:
            outcome.set_result(error)

    asyncio.get_running_loop().call_soon(callback)

    assert "no current asyncio task" in str(await outcome)
