"""Finds the handler that blocks the event loop.

One blocking call in a coroutine stops every other task of the worker, so it must be named, not only felt. A coroutine
beats on the loop; a thread, which no handler can block, watches the beats.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.telemetry import Event, Metrics, emit

_MAX_INTERVAL_SECONDS = 0.25


class RunningHandlers:
    """What each asyncio task of the worker is running, for people to read.

    Written by the loop and read by the watching thread; each step is one atomic operation on a dict.
    """

    def __init__(self) -> None:
        self._descriptions: dict[asyncio.Task[object], str] = {}

    @contextmanager
    def running(self, description: str) -> Iterator[None]:
        """Note, while the block lasts, that the current asyncio task runs ``description``."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("running() is for coroutines; there is no current asyncio task here")
        before = self._descriptions.get(task)
        self._descriptions[task] = description
        try:
            yield
        finally:
            if before is None:
                del self._descriptions[task]
            else:
                self._descriptions[task] = before

    def describe(self, task: asyncio.Task[object] | None) -> str:
        """Return what ``task`` runs, or the best name there is."""
        if task is None:
            return "a callback of the event loop"
        return self._descriptions.get(task) or f"asyncio task {task.get_name()}"


class LoopMonitor:
    """Watches that the event loop turns, and warns once for each time it is blocked.

    Args:
        clock: Measures the time between beats.
        metrics: Gets the lag of each beat.
        running: What the tasks of the loop are running.
        warning_seconds: How long the loop may stand still before a warning.
        on_beat: Called on the loop at each beat, for the liveness probe.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        metrics: Metrics,
        running: RunningHandlers,
        warning_seconds: float,
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._running = running
        self._warning_seconds = warning_seconds
        self._on_beat = on_beat
        self._interval = min(warning_seconds / 4, _MAX_INTERVAL_SECONDS)
        self._stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._last_beat = 0.0
        self._largest_lag = 0.0
        self._warned_beat: float | None = None

    async def run(self) -> None:
        """Beat until cancelled, with a thread that watches; the thread has ended when this returns."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._last_beat = self._clock.monotonic()
        self._stop.clear()
        watcher = threading.Thread(target=self._watch, name="loop-monitor", daemon=True)
        watcher.start()
        try:
            while True:
                await self._clock.sleep(self._interval)
                self._beat()
        finally:
            self._stop.set()
            watcher.join(timeout=1.0)

    def check(self) -> None:
        """Warn if the loop has stood still for too long and this block was not reported yet; for any thread."""
        last_beat = self._last_beat
        blocked = self._clock.monotonic() - last_beat
        if self._loop is None or blocked < self._warning_seconds or self._warned_beat == last_beat:
            return
        self._warned_beat = last_beat
        emit(
            Event.HANDLER_BLOCKED_LOOP,
            running=self._running.describe(asyncio.current_task(self._loop)),
            blocked_s=round(blocked, 3),
            frame=self._top_frame(),
            hint="call blocking code from a plain function (it runs in a thread) or use asyncio.to_thread",
        )

    def take_largest_lag(self) -> float:
        """Return how many seconds late the loop woke up at worst since this was asked before, and begin anew."""
        largest, self._largest_lag = self._largest_lag, 0.0
        return largest

    def _beat(self) -> None:
        now = self._clock.monotonic()
        lag = max(0.0, now - self._last_beat - self._interval)
        self._metrics.event_loop_lag.observe(lag)
        self._largest_lag = max(self._largest_lag, lag)
        self._last_beat = now
        self._on_beat()

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self.check()

    def _top_frame(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return "unknown"
        return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
