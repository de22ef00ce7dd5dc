"""What a worker does beside its work: telling people and probes how it is."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kikwiflow_worker.acquirer.slots import Slots
from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import KikwiflowError, StoreUnavailableError
from kikwiflow_worker.store.protocol import ReadStore
from kikwiflow_worker.store.views import WorkerRecord
from kikwiflow_worker.telemetry import Event, Metrics, emit
from kikwiflow_worker.worker.health import HealthState
from kikwiflow_worker.worker.store_watch import StoreWatch
from kikwiflow_worker.worker.systemd import Notifier

TRUTH_S = 2.0
"""Within this, readiness tells the truth about the database."""

SILENCE_S = 0.5
"""How long an answer to anything counts: whoever asks for readiness after that makes the worker ping."""

ANSWER_S = 0.7
"""How long the answer to a ping may take: with the silence before it, less than ``TRUTH_S``."""

_AWAY_S = 0.5
"""Between two pings while the database is away."""

_CLOCK_S = 30.0
"""Between two pings at most, to compare the clocks."""

_RECORD_S = 10.0
_MEASURE_S = 30.0
_SKEW_WARNING_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseProbe:
    """How to ask the database something.

    Attributes:
        ping: Asks whether it answers, and learns its time.
        skew_s: Returns how many seconds the host's clock is ahead of the database's.
    """

    ping: Callable[[], Awaitable[object]]
    skew_s: Callable[[], float]


class Maintenance:
    """The periodic chores of one worker; each is isolated, none can stop the claims."""

    def __init__(
        self,
        probe: DatabaseProbe,
        reads: ReadStore,
        *,
        slots: Slots,
        clock: Clock,
        metrics: Metrics,
        store_watch: StoreWatch,
    ) -> None:
        self._probe = probe
        self._reads = reads
        self._slots = slots
        self._clock = clock
        self._metrics = metrics
        self._store_watch = store_watch
        self._warned_of_skew = False
        self._look = asyncio.Lock()

    async def look(self) -> None:
        """Ask the database whether it answers, unless something has been heard of it lately.

        Whoever asks for readiness calls it first: so the answer is true within ``TRUTH_S``, and a worker that nobody asks
        sends nothing.
        """
        async with self._look:
            if self._store_watch.is_reachable and self._store_watch.silence_s > SILENCE_S:
                await self._ping()

    async def watch_database(self) -> None:
        """Ask a database that is away until it is back, and any database now and then for its time."""
        pinged_at = -_CLOCK_S
        while True:
            is_clock_due = self._clock.monotonic() - pinged_at > _CLOCK_S
            if is_clock_due or not self._store_watch.is_reachable:
                pinged_at = self._clock.monotonic()
                await self._ping()
            await self._clock.sleep(_AWAY_S)

    async def _ping(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._probe.ping()
        except TimeoutError:
            self._store_watch.heard(
                StoreUnavailableError(f"the database did not answer within {ANSWER_S:g} s")
            )
        except KikwiflowError as error:
            self._store_watch.heard(error)
        else:
            self._store_watch.heard(None)
            self._look_at_clocks()

    async def record_worker(self, record: Callable[[], WorkerRecord]) -> None:
        """Note regularly that this worker is alive; for people, nothing depends on it."""
        while True:
            if self._store_watch.is_reachable:
                await self._reads.record_worker(record())
                self._store_watch.heard(None)
            await self._clock.sleep(_RECORD_S)

    async def measure(self) -> None:
        """Refresh the gauges."""
        while True:
            self._metrics.slots.labels(state="busy").set(self._slots.used)
            self._metrics.slots.labels(state="free").set(self._slots.free)
            if self._store_watch.is_reachable:
                queue = await self._reads.measure_queue()
                self._store_watch.heard(None)
                self._metrics.due_tasks.set(queue.due)
                self._metrics.oldest_due.set(queue.oldest_due_s)
                self._metrics.incidents_open.set(queue.open_incidents)
            await self._clock.sleep(_MEASURE_S)

    async def notify_systemd(self, notifier: Notifier, health: HealthState) -> None:
        """Feed the watchdog while the worker makes progress, and say in words what it does."""
        while True:
            if health.liveness().is_ok:
                notifier.watchdog()
            state = "reachable" if self._store_watch.is_reachable else "not reachable"
            notifier.status(
                f"{self._slots.used} running, {self._slots.free} free, database {state}"
            )
            await self._clock.sleep(notifier.watchdog_interval_s or _RECORD_S)

    def _look_at_clocks(self) -> None:
        skew = self._probe.skew_s()
        self._metrics.clock_skew.set(skew)
        is_skewed = abs(skew) > _SKEW_WARNING_S
        if is_skewed and not self._warned_of_skew:
            emit(Event.CLOCK_SKEWED, skew_s=round(skew, 1))
        self._warned_of_skew = is_skewed
