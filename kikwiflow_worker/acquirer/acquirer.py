"""The claim loop: as many tasks as there are free slots, and only what this worker can run."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from kikwiflow_worker.acquirer.backlog import Backlog
from kikwiflow_worker.acquirer.pacing import Pacing
from kikwiflow_worker.acquirer.slots import Slots
from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import KikwiflowError
from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.runtime import ClaimedTask
from kikwiflow_worker.store.protocol import TaskQueue
from kikwiflow_worker.telemetry import Event, Metrics, emit

SUSPECT_CRASHES = 2
"""A task with this many lapsed locks runs alone in its process, so that a further crash can be blamed on it (R18)."""

OLD_S = 10.0
"""Due tasks that have waited for longer make the chains of this worker shorter (protocol R16)."""

_WAITING_STEP_S = 5.0
"""How often waiting for a slot counts as progress: a worker that is full of long handlers works as it should."""

_SWEEP_INTERVAL_S = 10.0
_SWEEP_LIMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquirerOptions:
    """Whom to claim for, for how long, what, and how much at a time."""

    worker_id: str
    lock: timedelta
    capabilities: Capabilities
    batch_size: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquirerHooks:
    """What the acquirer tells and asks the worker.

    Attributes:
        may_claim: Whether claiming makes sense now; not while the renewal of locks is late.
        dispatch: Takes a claimed task and a slot, and runs it; must not wait.
        on_progress: A poll was completed, or a step of a back-off was counted.
        on_store: The store answered (None), or failed with this error.
    """

    may_claim: Callable[[], bool]
    dispatch: Callable[[ClaimedTask], None]
    on_progress: Callable[[], None]
    on_store: Callable[[KikwiflowError | None], None]


class Acquirer:
    """Claims due tasks and hands them on."""

    def __init__(
        self,
        queue: TaskQueue,
        slots: Slots,
        pacing: Pacing,
        *,
        options: AcquirerOptions,
        hooks: AcquirerHooks,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._queue = queue
        self._slots = slots
        self._pacing = pacing
        self._options = options
        self._hooks = hooks
        self.backlog = Backlog(limit_s=OLD_S)
        """Whether due work waits too long."""
        self._clock = clock
        self._metrics = metrics
        self._woken = asyncio.Event()
        self._is_stopping = False
        self._idles = asyncio.Event()
        self._idled_at = self._swept_at = clock.monotonic()

    def wake(self) -> None:
        """Poll at once: work has become claimable, here or elsewhere."""
        self._woken.set()

    async def wait_idle(self) -> None:
        """Wait until a poll has found nothing, and the next one is waited for."""
        await self._idles.wait()

    @property
    def busy_s(self) -> float:
        """For how many seconds polls have not waited for each other: they found work, or there was no slot for it."""
        return 0.0 if self._idles.is_set() else self._clock.monotonic() - self._idled_at

    def stop(self) -> None:
        """Claim nothing more; ``run`` returns after the claim that is under way."""
        self._is_stopping = True
        self._woken.set()
        self._slots.poke()

    async def run(self) -> None:
        """Claim until stopped. A store that fails is asked again, with back-off, for ever."""
        while True:
            await self._until(lambda: self._slots.free > 0)
            if self._is_stopping:
                return
            self._woken.clear()
            claimed = await self._poll(min(self._slots.free, self._options.batch_size))
            self._hooks.on_progress()
            for each in claimed:
                self._hand_out(each)
            if any(each.task.crash_count >= SUSPECT_CRASHES for each in claimed):
                await self._until(lambda: self._slots.used == 0)
            released = await self._sweep()
            if claimed or released:
                self._pacing.found_work()
            else:
                await self._idle()

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for ``condition`` or the stop, counting steps of the wait as progress."""
        while not (condition() or self._is_stopping):
            with suppress(TimeoutError):
                async with asyncio.timeout(_WAITING_STEP_S):
                    await self._slots.wait_until(lambda: condition() or self._is_stopping)
            self._hooks.on_progress()

    async def _poll(self, limit: int) -> Sequence[ClaimedTask]:
        if not self._hooks.may_claim():
            return ()
        options = self._options
        started = self._clock.monotonic()
        try:
            claimed = await self._queue.claim_due(
                worker_id=options.worker_id,
                lock=options.lock,
                capabilities=options.capabilities,
                limit=limit,
            )
        except KikwiflowError as error:
            self._hooks.on_store(error)
            return ()
        self._hooks.on_store(None)
        self._metrics.claim_duration.observe(self._clock.monotonic() - started)
        self.backlog.polled(claimed, limit=limit)
        if not claimed:
            self._metrics.claim_empty.inc()
        return claimed

    async def _sweep(self) -> int:
        """Now and then, deliver the branches whose delivery was interrupted; return how many."""
        now = self._clock.monotonic()
        if now - self._swept_at <= _SWEEP_INTERVAL_S or self._is_stopping:
            return 0
        self._swept_at = now
        try:
            return await self._queue.deliver_arrivals(limit=_SWEEP_LIMIT)
        except KikwiflowError as error:
            self._hooks.on_store(error)
            return 0

    def _hand_out(self, claimed: ClaimedTask) -> None:
        task = claimed.task
        self._metrics.steps.claimed(is_rescued=bool(task.crash_count))
        if task.crash_count:
            emit(
                Event.TASK_RESCUED,
                task_id=task.id,
                instance_id=task.instance_id,
                node_id=task.node_id,
                crash_count=task.crash_count,
            )
        emit(
            Event.TASK_CLAIMED, task_id=task.id, instance_id=task.instance_id, node_id=task.node_id
        )
        self._hooks.dispatch(claimed)

    async def _idle(self) -> None:
        wait = self._pacing.next_wait_s()
        emit(Event.ACQUIRER_BACKED_OFF, wait_s=round(wait, 3))
        self._idles.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._woken.wait()
        self._idles.clear()
        self._idled_at = self._clock.monotonic()
