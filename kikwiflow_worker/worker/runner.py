"""Running claimed tasks: one asyncio task each, from the claim to the end of the claim."""

import asyncio
from collections.abc import Callable

import structlog

from kikwiflow_worker.acquirer.acquirer import SUSPECT_CRASHES
from kikwiflow_worker.acquirer.claim_book import ClaimBook
from kikwiflow_worker.acquirer.slots import Slots
from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.model.runtime import ClaimedTask
from kikwiflow_worker.model.unit_of_work import Committed, UnitOfWork
from kikwiflow_worker.operations.execution import Commit, Outcome, execute_task
from kikwiflow_worker.operations.services import CancelReason, Services, StepCancelledError
from kikwiflow_worker.store.protocol import TaskQueue
from kikwiflow_worker.telemetry import Event, emit
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.invoker import StepInvoker
from kikwiflow_worker.worker.reporting import StepReport

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class TaskRunner:
    """Runs claimed tasks and sees to it that each claim ends: committed, released or lost.

    Nothing here is ever cancelled, so that no commit is torn: ``cancel`` reaches the handlers only.
    """

    def __init__(
        self,
        services: Services,
        queue: TaskQueue,
        handlers: HandlerRuntime,
        *,
        book: ClaimBook,
        slots: Slots,
        clock: Clock,
        report: StepReport,
    ) -> None:
        self._services = services
        self._queue = queue
        self._handlers = handlers
        self._book = book
        self._slots = slots
        self._clock = clock
        self._report = report
        self._steps: dict[str, StepInvoker] = {}
        self._is_stopping = False
        self._gives_up = False

    def dispatch(
        self, claimed: ClaimedTask, group: asyncio.TaskGroup, on_claimable: Callable[[], None]
    ) -> None:
        """Take a slot and run ``claimed`` in ``group``; a task that still runs here is left alone.

        Args:
            on_claimable: Called when the commit made work claimable.
        """
        if self._book.holds(claimed.task.id):
            emit(
                Event.CLAIM_LOST,
                task_id=claimed.task.id,
                reason="an earlier run of it goes on here",
            )
            return
        self._slots.take()
        group.create_task(self._run(claimed, on_claimable), name=f"task {claimed.task.id}")

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

    async def _run(self, claimed: ClaimedTask, on_claimable: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        step = self._handlers.invoker()
        task = claimed.task

        def lost() -> None:
            loop.call_soon_threadsafe(step.cancel, CancelReason.CLAIM_LOST)

        instance = claimed.instance
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
        self._steps[task.id] = step
        try:
            with self._book.holding(claimed, lost):
                await self._until_ended(claimed, step, on_claimable)
        finally:
            del self._steps[task.id]
            self._slots.give_back()

    async def _until_ended(
        self, claimed: ClaimedTask, step: StepInvoker, on_claimable: Callable[[], None]
    ) -> None:
        try:
            if claimed.task.crash_count >= SUSPECT_CRASHES:
                await self._slots.wait_until(lambda: self._slots.used == 1 or self._is_stopping)
            is_locked = self._book.is_locked(claimed.claim, self._clock.monotonic())
            if self._is_stopping or not is_locked:
                await self._release(claimed)
                return
            with self._report.step(claimed) as report:
                outcome = await execute_task(
                    self._services, step, claimed, self._commit_of(claimed)
                )
                report.ended(outcome)
            self._after(outcome, on_claimable)
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

    def _commit_of(self, claimed: ClaimedTask) -> Commit:
        async def commit(unit: UnitOfWork) -> Committed:
            pause = _FIRST_PAUSE_S
            while True:
                try:
                    with self._book.committing(claimed.claim):
                        return await self._services.runtime.commit(unit)
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

    def _after(self, outcome: Outcome, on_claimable: Callable[[], None]) -> None:
        if outcome.committed.claimable:
            on_claimable()

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
