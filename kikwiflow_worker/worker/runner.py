"""Running claimed tasks: one asyncio task and one slot each, and whatever is handed on from it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from kikwiflow_worker.acquirer.acquirer import SUSPECT_CRASHES
from kikwiflow_worker.acquirer.claim_book import ClaimBook
from kikwiflow_worker.acquirer.slots import Slots
from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.model.runtime import ClaimedTask
from kikwiflow_worker.model.unit_of_work import Committed, UnitOfWork
from kikwiflow_worker.operations.execution import Commit, execute_task
from kikwiflow_worker.operations.services import CancelReason, Services, StepCancelledError
from kikwiflow_worker.store.protocol import TaskQueue
from kikwiflow_worker.telemetry import Event, emit
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.invoker import StepInvoker
from kikwiflow_worker.worker.lanes import CommitLanes
from kikwiflow_worker.worker.reporting import StepReport

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0

MAX_CHAIN_STEPS = 100
MAX_CHAIN_S = 1.0
"""How long a chain of tasks that are handed on may become before it makes room for others (protocol R16)."""

SHORTER_BY = 10
"""By how much chains are shorter while older work waits too long: it gets its turn ten times as often, and what a claim
saves is still shared by ten tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerParts:
    """Parts of the worker that the runner works with; it shares them with the acquirer and the renewal of locks."""

    handlers: HandlerRuntime
    book: ClaimBook
    slots: Slots
    lanes: CommitLanes
    report: StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerHooks:
    """What the runner tells and asks the worker.

    Attributes:
        on_claimable: A commit made work claimable.
        may_hand_on: Whether a task may be born claimed by this worker.
        does_older_work_wait: Whether due work has waited too long.
    """

    on_claimable: Callable[[], None]
    may_hand_on: Callable[[], bool]
    does_older_work_wait: Callable[[], bool]


@dataclass(slots=True)
class _Chain:
    """A claimed task and those that were handed on from it, which share its slot.

    Attributes:
        began_at: On the monotonic clock, in seconds.
        steps: How many of them have begun.
    """

    began_at: float
    steps: int = 0


class TaskRunner:
    """Runs claimed tasks and sees to it that each claim ends: committed, released or lost.

    Nothing here is ever cancelled, so that no commit is torn: ``cancel`` reaches the handlers only.
    """

    def __init__(
        self,
        services: Services,
        queue: TaskQueue,
        parts: RunnerParts,
        *,
        clock: Clock,
        hooks: RunnerHooks,
    ) -> None:
        self._services = services
        self._queue = queue
        self._handlers = parts.handlers
        self._book = parts.book
        self._slots = parts.slots
        self._lanes = parts.lanes
        self._report = parts.report
        self._clock = clock
        self._hooks = hooks
        self._steps: dict[str, StepInvoker] = {}
        self._suspect_id: str | None = None
        self._is_stopping = False
        self._gives_up = False

    def dispatch(self, claimed: ClaimedTask, group: asyncio.TaskGroup) -> None:
        """Take a slot and run ``claimed`` in ``group``; a task that still runs here is left alone."""
        if self._book.holds(claimed.task.id):
            emit(
                Event.CLAIM_LOST,
                task_id=claimed.task.id,
                reason="an earlier run of it goes on here",
            )
            return
        self._slots.take()
        if _is_suspect(claimed) and self._suspect_id is None:
            self._suspect_id = claimed.task.id
        step = self._hold(claimed, asyncio.get_running_loop())
        group.create_task(self._run(claimed, step), name=f"task {claimed.task.id}")

    def drain(self) -> None:
        """Start no handler any more: claims whose handler has not started are released."""
        self._is_stopping = True
        self._slots.poke()

    def cancel(self) -> None:
        """Cancel the handlers that run and release their claims; commits under way are finished."""
        self.drain()
        self._gives_up = True
        for step in list(self._steps.values()):
            step.cancel(CancelReason.STOPPING)

    def _hold(self, claimed: ClaimedTask, loop: asyncio.AbstractEventLoop) -> StepInvoker:
        """Let the claim be renewed from now on; return what runs its user code."""
        step = self._handlers.invoker()

        def lost() -> None:
            loop.call_soon_threadsafe(step.cancel, CancelReason.CLAIM_LOST)

        self._book.hold(claimed, lost)
        self._steps[claimed.task.id] = step
        return step

    def _let_go(self, claimed: ClaimedTask) -> None:
        self._book.let_go(claimed.claim)
        del self._steps[claimed.task.id]

    async def _run(self, first: ClaimedTask, step: StepInvoker) -> None:
        """Run a claimed task and what is handed on from it, one after the other in the same slot."""
        loop = asyncio.get_running_loop()
        chain = _Chain(self._clock.monotonic())
        claimed = first
        try:
            while True:
                chain.steps += 1
                following = await self._until_ended(claimed, step, chain)
                if following is None:
                    break
                ended, claimed = claimed, following
                step = self._hold(claimed, loop)
                self._let_go(ended)
        finally:
            self._let_go(claimed)
            if self._suspect_id == first.task.id:
                self._suspect_id = None
            self._slots.give_back()

    async def _until_ended(
        self, claimed: ClaimedTask, step: StepInvoker, chain: _Chain
    ) -> ClaimedTask | None:
        """Run a task to the end of its claim; return the claimed task that was handed on from it."""
        task, instance = claimed.task, claimed.instance
        structlog.contextvars.bind_contextvars(
            task_id=task.id,
            instance_id=task.instance_id,
            node_id=task.node_id,
            definition_id=task.definition_id,
            definition_key=instance.definition_key if instance else None,
            definition_version=instance.definition_version if instance else None,
            attempt=task.attempts + 1,
            worker_id=claimed.claim.worker_id,
            epoch=claimed.claim.epoch,
        )
        try:
            if not _is_suspect(claimed) or await self._is_left_alone(claimed):
                return await self._step(claimed, step, chain)
            await self._release(claimed)
        except StepCancelledError as cancelled:
            if cancelled.reason is CancelReason.STOPPING:
                await self._release(claimed)
            else:
                emit(Event.CLAIM_LOST, reason="its handler was cancelled")
        except StoreUnavailableError as error:
            emit(Event.STORE_UNAVAILABLE, doing="running a task", error=str(error))
            await self._release(claimed)
        except Exception:
            # The claim lapses and the task runs again; three such lapses open an incident.
            structlog.get_logger().exception(Event.SERVICE_CRASHED, service="task runner")
        return None

    async def _is_left_alone(self, claimed: ClaimedTask) -> bool:
        """Wait until a suspect is the only task of this process; return False if there is another suspect already.

        That one would be blamed for the death of this one: it must not even be held meanwhile (protocol R18).
        """
        if self._suspect_id != claimed.task.id:
            return False
        await self._slots.wait_until(lambda: self._slots.used == 1 or self._is_stopping)
        return True

    async def _step(
        self, claimed: ClaimedTask, step: StepInvoker, chain: _Chain
    ) -> ClaimedTask | None:
        """Run the task and commit what came of it, or give it back if it must not start."""
        is_locked = self._book.is_locked(claimed.claim, self._clock.monotonic())
        if self._is_stopping or not is_locked:
            await self._release(claimed)
            return None
        with self._report.step(claimed) as report:
            commit = self._commit_of(claimed, chain)
            outcome = await execute_task(self._services, step, claimed, commit)
            report.ended(outcome)
        if outcome.committed.claimable:
            self._hooks.on_claimable()
        return outcome.committed.handed_on

    def _commit_of(self, claimed: ClaimedTask, chain: _Chain) -> Commit:
        def may_hand_on() -> bool:
            return self._may_hand_on(chain)

        async def commit(unit: UnitOfWork) -> Committed:
            traced = self._report.traced(claimed, unit)
            pause = _FIRST_PAUSE_S
            while True:
                try:
                    return await self._lanes.commit(claimed, traced, may_hand_on)
                except StoreUnavailableError as error:
                    if self._gives_up:
                        raise
                    emit(
                        Event.STORE_UNAVAILABLE,
                        doing="committing",
                        error=str(error),
                        retry_in_s=pause,
                    )
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)

        return commit

    def _may_hand_on(self, chain: _Chain) -> bool:
        shorter_by = SHORTER_BY if self._hooks.does_older_work_wait() else 1
        lasted = self._clock.monotonic() - chain.began_at
        return (
            not self._is_stopping
            and self._suspect_id is None
            and chain.steps * shorter_by < MAX_CHAIN_STEPS
            and lasted * shorter_by < MAX_CHAIN_S
            and self._hooks.may_hand_on()
        )

    async def _release(self, claimed: ClaimedTask) -> None:
        """Give the task back; while the database is away, wait for it, since a lapsed lock counts as a crash."""
        while True:
            try:
                if await self._queue.release(claimed.claim):
                    emit(Event.TASK_RELEASED)
                return
            except StoreUnavailableError as error:
                if self._gives_up:
                    emit(
                        Event.STORE_UNAVAILABLE,
                        doing="releasing a task, its lock lapses",
                        error=str(error),
                    )
                    return
            await self._clock.sleep(_LONGEST_PAUSE_S)


def _is_suspect(claimed: ClaimedTask) -> bool:
    return claimed.task.crash_count >= SUSPECT_CRASHES
