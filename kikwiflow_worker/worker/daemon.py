"""The worker: start, claim and run, drain, stop."""

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Protocol

from kikwiflow_worker.acquirer.acquirer import Acquirer, AcquirerHooks, AcquirerOptions
from kikwiflow_worker.acquirer.claim_book import ClaimBook
from kikwiflow_worker.acquirer.pacing import Pacing
from kikwiflow_worker.acquirer.renewal import LockRenewer
from kikwiflow_worker.acquirer.slots import Slots
from kikwiflow_worker.acquirer.wake_ups import WakeUpWatch
from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import KikwiflowError, StoreRefusedError, StoreUnavailableError
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.protocol import LockKeeper, TaskQueue, WakeUps
from kikwiflow_worker.store.values import HandOn
from kikwiflow_worker.store.views import WorkerRecord
from kikwiflow_worker.telemetry import Event, Metrics, emit
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.health import HealthState
from kikwiflow_worker.worker.lanes import CommitLanes, LaneOptions
from kikwiflow_worker.worker.loop_monitor import LoopMonitor
from kikwiflow_worker.worker.maintenance import DatabaseProbe, Maintenance
from kikwiflow_worker.worker.registry import HandlerRegistry
from kikwiflow_worker.worker.reporting import StepReport
from kikwiflow_worker.worker.runner import RunnerHooks, RunnerParts, TaskRunner
from kikwiflow_worker.worker.store_watch import StoreWatch
from kikwiflow_worker.worker.supervision import end, run_on, supervised
from kikwiflow_worker.worker.systemd import Notifier

_START_PAUSE_S = 0.5

_FINISH_S = 5.0
"""Beyond grace and cancellation, for the last commits and releases."""
_LANES = 2
"""Groups of commits under way at once: with one the worker waits for the database, more than two bring nothing."""


class StopResult(IntEnum):
    """How the worker stopped; the value is the process's exit code."""

    DRAINED = 0
    DEADLINE_PASSED = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker behaves; lengths in seconds.

    Attributes:
        worker_id: Instance name and boot id: a restarted process with the same name is somebody else.
        version: Of this package.
        change_streams: Whether to be woken by the database.
        claim_batch_size: Tasks at most that one look claims.
        commit_group_size: Tasks at most that share a transaction.
        hand_on: Whether the next task of a path may be born claimed.
    """

    instance_name: str
    worker_id: str
    version: str
    concurrency: int = 10
    lock_s: float = 30.0
    poll_interval_s: float = 1.0
    poll_max_s: float = 5.0
    change_streams: bool = True
    claim_batch_size: int = 1000
    commit_group_size: int = 64
    hand_on: bool = True
    grace_s: float = 25.0
    cancel_s: float = 5.0
    startup_timeout_s: float = 30.0
    handler_block_warning_s: float = 1.0

    @property
    def lock(self) -> timedelta:
        """How long a claim lasts unless renewed."""
        return timedelta(seconds=self.lock_s)

    @property
    def cold_stop_s(self) -> float:
        """How long a stop may take from the second request; the process has to end within ``cancel_s`` as a whole."""
        return self.cancel_s * 0.9

    @property
    def stop_s(self) -> float:
        """How long a stop may take, from the first request to the end."""
        return self.grace_s + self.cancel_s + _FINISH_S


class WorkerStore(Protocol):
    """What the worker needs of a database beside the ports."""

    queue: TaskQueue
    wake_ups: WakeUps

    async def prepare(self) -> None:
        """Check the server and create what is missing."""
        ...

    async def ping(self) -> object:
        """Ask whether the database answers."""
        ...

    def skew_s(self) -> float:
        """Return how many seconds the host's clock is ahead of the database's."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the worker reports to."""

    clock: Clock
    metrics: Metrics
    health: HealthState
    notifier: Notifier


class Worker:
    """One worker process.

    Args:
        services: The ports and settings of operations, over ``store``.
        keeper: Renews locks over a connection of its own.
    """

    def __init__(
        self,
        options: WorkerOptions,
        store: WorkerStore,
        services: Services,
        keeper: LockKeeper,
        registry: HandlerRegistry,
        surroundings: Surroundings,
    ) -> None:
        self._options = options
        self._store = store
        self._services = services
        self._clock = surroundings.clock
        self._metrics = surroundings.metrics
        self._health = surroundings.health
        self._notifier = surroundings.notifier
        self._handlers = HandlerRuntime(registry, threads=options.concurrency)
        self._book = ClaimBook()
        self._slots = Slots(options.concurrency)
        self._renewer = LockRenewer(
            keeper,
            self._book,
            worker_id=options.worker_id,
            lock=options.lock,
            clock=self._clock,
            metrics=self._metrics,
        )
        self._monitor = LoopMonitor(
            clock=self._clock,
            metrics=self._metrics,
            running=self._handlers.running,
            warning_seconds=options.handler_block_warning_s,
            on_beat=self._health.beat,
        )
        self._store_watch = StoreWatch(self._health, self._metrics, self._clock)
        self._lanes = CommitLanes(services.runtime, self._book, self._lane_options())
        self._runner = TaskRunner(
            services,
            store.queue,
            RunnerParts(
                handlers=self._handlers,
                book=self._book,
                slots=self._slots,
                lanes=self._lanes,
                report=StepReport(self._clock, self._metrics, services.tracing),
            ),
            clock=self._clock,
            hooks=RunnerHooks(
                on_claimable=self._wake,
                may_hand_on=self._may_hand_on,
                does_older_work_wait=self._does_older_work_wait,
            ),
        )
        self._stop_requests = 0
        self._acquirer: Acquirer | None = None
        self._started_at: datetime | None = None

    def _lane_options(self) -> LaneOptions:
        options = self._options
        hand_on = HandOn(
            worker_id=options.worker_id,
            lock=options.lock,
            capabilities=self._handlers.registry.capabilities,
        )
        return LaneOptions(
            group_size=options.commit_group_size,
            count=_LANES,
            hand_on=hand_on if options.hand_on else None,
        )

    def _may_hand_on(self) -> bool:
        return self._options.hand_on and not self._renewer.is_late

    def _does_older_work_wait(self) -> bool:
        return self._acquirer is not None and self._acquirer.backlog.is_old

    def _wake(self) -> None:
        if self._acquirer is not None:
            self._acquirer.wake()

    def request_stop(self) -> None:
        """Ask to drain; asked again, to cancel what runs. Call it on the event loop."""
        self._stop_requests += 1
        self._slots.poke()
        if self._acquirer is not None:
            self._acquirer.stop()

    async def run(self) -> StopResult:
        """Work until asked to stop.

        Raises:
            StoreUnavailableError: The database did not answer within the start-up time-out.
            StoreRefusedError: It refuses the credentials, or a certificate is not accepted.
            ConfigurationError: The server cannot be used.
        """
        if not await self._prepared():
            return StopResult.DRAINED
        self._renewer.start()
        try:
            maintenance = self._new_maintenance()
            loop = asyncio.get_running_loop()
            self._health.before_readiness(lambda: run_on(loop, maintenance.look))
            async with asyncio.TaskGroup() as group:
                chores = [group.create_task(chore) for chore in self._chores(maintenance)]
                result = await self._claim_and_run()
                await end(chores)
            await self._record_end()
        finally:
            self._health.before_readiness(None)
            self._handlers.close()
            self._renewer.stop()
        emit(Event.WORKER_STOPPED, result=result.name.lower())
        return result

    async def _prepared(self) -> bool:
        """Wait for the database; return False if asked to stop meanwhile."""
        timeout_s = self._options.startup_timeout_s
        failure: StoreUnavailableError | None = None
        try:
            with _beating(self._health):
                async with asyncio.timeout(timeout_s):
                    while not self._stop_requests:
                        failure = await self._try_to_prepare()
                        if failure is None:
                            return True
                        await self._clock.sleep(_START_PAUSE_S)
        except TimeoutError:
            raise StoreUnavailableError(
                f"the database was not available within {timeout_s:g} s; check its address and that it runs"
                + (f": {failure}" if failure else "")
            ) from failure
        return False

    async def _try_to_prepare(self) -> StoreUnavailableError | None:
        """Prepare the database; return why it could not be reached."""
        try:
            await self._store.prepare()
        except StoreRefusedError:
            raise  # to wait would not help
        except StoreUnavailableError as error:
            self._store_watch.heard(error)
            return error
        self._store_watch.heard(None)
        self._started_at = self._services.runtime.now()
        return None

    def _new_maintenance(self) -> Maintenance:
        return Maintenance(
            DatabaseProbe(ping=self._store.ping, skew_s=self._store.skew_s),
            self._services.reads,
            slots=self._slots,
            clock=self._clock,
            metrics=self._metrics,
            store_watch=self._store_watch,
        )

    def _chores(self, maintenance: Maintenance) -> list[Coroutine[object, object, None]]:
        chores: dict[str, Callable[[], Awaitable[None]]] = {
            "commit lanes": self._lanes.run,
            "loop monitor": self._monitor.run,
            "database watch": maintenance.watch_database,
            "worker record": lambda: maintenance.record_worker(self._record),
            "queue measures": maintenance.measure,
            "systemd": lambda: maintenance.notify_systemd(self._notifier, self._health),
        }
        return [supervised(name, run, self._clock) for name, run in chores.items()]

    async def _claim_and_run(self) -> StopResult:
        options = self._options
        pacing = Pacing(
            shortest_s=options.poll_interval_s, longest_s=options.poll_max_s, jitter=random.Random()
        )
        async with asyncio.TaskGroup() as steps:
            acquirer = self._acquirer = self._new_acquirer(pacing, steps)
            if self._stop_requests:
                acquirer.stop()
            self._health.set_started()
            self._notifier.ready()
            emit(
                Event.WORKER_STARTED,
                worker_id=options.worker_id,
                version=options.version,
                concurrency=options.concurrency,
                lock_s=options.lock_s,
                grace_s=options.grace_s,
                handlers=len(self._handlers.registry),
            )
            watch = WakeUpWatch(self._store.wake_ups, acquirer, pacing, self._clock)
            watching = (
                steps.create_task(supervised("wake-ups", watch.run, self._clock))
                if options.change_streams
                else None
            )
            await supervised("acquirer", acquirer.run, self._clock)
            if watching is not None:
                watching.cancel()
            return await self._drain()

    def _new_acquirer(self, pacing: Pacing, steps: asyncio.TaskGroup) -> Acquirer:
        options = self._options
        return Acquirer(
            self._store.queue,
            self._slots,
            pacing,
            options=AcquirerOptions(
                worker_id=options.worker_id,
                lock=options.lock,
                capabilities=self._handlers.registry.capabilities,
                batch_size=options.claim_batch_size,
            ),
            hooks=AcquirerHooks(
                may_claim=lambda: not self._renewer.is_late,
                dispatch=lambda claimed: self._runner.dispatch(claimed, steps),
                on_progress=self._health.progress,
                on_store=self._store_watch.heard,
            ),
            clock=self._clock,
            metrics=self._metrics,
        )

    async def _drain(self) -> StopResult:
        """Release what has not started, let the rest finish; past the grace or at a second request, cancel it."""
        self._health.set_draining()
        self._notifier.stopping()
        # A grace that is longer than the unit's TimeoutStopSec must not end in a SIGKILL.
        self._notifier.extend_timeout(self._options.stop_s)
        emit(Event.WORKER_DRAINING, running=self._slots.used, grace_s=self._options.grace_s)
        self._runner.drain()
        if await self._idle_within(self._options.grace_s, requests=2):
            return StopResult.DRAINED
        self._runner.cancel()
        await self._idle_within(self._options.cancel_s, requests=None)
        return StopResult.DEADLINE_PASSED

    async def _idle_within(self, seconds: float, *, requests: int | None) -> bool:
        """Wait until nothing runs; return False after ``seconds``, or when stop was asked for ``requests`` times."""

        def is_over() -> bool:
            return self._slots.used == 0 or (
                requests is not None and self._stop_requests >= requests
            )

        try:
            async with asyncio.timeout(seconds):
                await self._slots.wait_until(is_over)
        except TimeoutError:
            return False
        return self._slots.used == 0

    async def _record_end(self) -> None:
        """Say that this worker is gone, if the database answers; nothing depends on it."""
        if self._store_watch.is_reachable:
            with suppress(KikwiflowError):
                await self._services.reads.record_worker(replace(self._record(), state="stopped"))

    def _record(self) -> WorkerRecord:
        options = self._options
        now = self._services.runtime.now()
        return WorkerRecord(
            id=options.worker_id,
            instance_name=options.instance_name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=options.version,
            started_at=self._started_at or now,
            seen_at=now,
            state="draining" if self._stop_requests else "running",
            slots=options.concurrency,
            running=self._slots.used,
            handlers=tuple(sorted(self._handlers.registry.capabilities.stored)),
            event_loop_lag_s=round(self._monitor.take_largest_lag(), 3),
        )


@contextmanager
def _beating(health: HealthState) -> Iterator[None]:
    """Beat while the block waits, before the loop monitor does: what it waits for says nothing about the loop."""
    loop = asyncio.get_running_loop()
    is_over = False

    def beat() -> None:
        if not is_over:
            health.beat()
            loop.call_later(_START_PAUSE_S, beat)

    beat()
    try:
        yield
    finally:
        is_over = True
