"""Running a claimed task: decide, then commit, whatever happens."""

import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from kikwiflow_worker.engine.effects import Failure, FailureKind, fatal_failure
from kikwiflow_worker.engine.incidents import give_up
from kikwiflow_worker.engine.messages import Delivery, end_wait
from kikwiflow_worker.engine.running import run_task
from kikwiflow_worker.engine.segments import SegmentResult
from kikwiflow_worker.errors import (
    ClaimLostError,
    DefinitionError,
    ExecutionError,
    StoreError,
    StoreUnavailableError,
    VariableTooLargeError,
)
from kikwiflow_worker.model.messages import MessageStatus
from kikwiflow_worker.model.runtime import (
    Branch,
    ClaimedTask,
    IncidentType,
    InstanceStatus,
    ProcessInstance,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    Committed,
    CompleteExternalTask,
    EndHost,
    FailTask,
    MatchKey,
    RemoveTask,
    RescheduleTask,
    SettleMessage,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import check_readable
from kikwiflow_worker.operations.bulk_steps import next_step
from kikwiflow_worker.operations.instances import MAX_RACES
from kikwiflow_worker.operations.services import (
    Invoker,
    Services,
    StepCancelledError,
    drive,
)
from kikwiflow_worker.step_metrics import StepMetrics

_CHILDREN_AT_ONCE = 100

_FIRST_LOOK_S = 1.0
_LONGEST_LOOK_S = 60.0
"""Between two looks whether somebody waits for a kept message; a wait that begins asks for a look at once."""

MAX_CRASHES = 3
"""Locks that may lapse with their worker before the task is left to a person (design I6)."""


class OutcomeKind(StrEnum):
    """What became of one run of a claimed task."""

    COMPLETED = "completed"
    RETRY_SCHEDULED = "retry_scheduled"
    KEPT = "kept"
    INCIDENT_OPENED = "incident_opened"
    CLAIM_LOST = "claim_lost"
    DISCARDED = "discarded"
    CANCELLED = "cancelled"
    PARKED = "parked"
    OVERTAKEN = "overtaken"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one run of a claimed task.

    Attributes:
        failure: What went wrong, if something did.
        unit: What was committed, if anything was.
    """

    kind: OutcomeKind
    committed: Committed = field(default_factory=Committed)
    failure: Failure | None = None
    unit: UnitOfWork | None = None


def count_step(
    metrics: StepMetrics, claimed: ClaimedTask, outcome: Outcome, duration_s: float
) -> None:
    """Count one run of a claimed task, by what became of it."""
    instance = claimed.instance
    metrics.ended(
        definition=instance.definition_key if instance else "",
        # Without an instance it names a message; a label for each would have no end.
        node=claimed.task.node_id if instance else "",
        outcome=outcome.kind.value,
        duration_s=duration_s,
    )


Commit = Callable[[UnitOfWork], Awaitable[Committed]]


async def execute_task(
    services: Services, invoker: Invoker, claimed: ClaimedTask, commit: Commit
) -> Outcome:
    """Run ``claimed`` and commit what came of it.

    Args:
        commit: Commits a unit; the worker's own waits for the database to come back.

    Raises:
        StepCancelledError: The step was stopped from outside; nothing was written.
        StoreUnavailableError: The database is away; the lock lapses and another worker takes the task.
    """
    if claimed.task.type is TaskType.KEPT_MESSAGE:
        return await _deliver_kept(services, invoker, claimed, commit)
    if claimed.task.type is TaskType.BULK_JOB:
        return await _go_on_with_job(services, claimed, commit)
    if claimed.task.type is TaskType.CANCEL_CHILDREN and claimed.task.branch is not None:
        return await _cancel_children(services, claimed, claimed.task.branch, commit)
    settled = await settle_first(services, claimed, commit)
    return settled or await finish_task(services, invoker, claimed, commit)


async def settle_first(services: Services, claimed: ClaimedTask, commit: Commit) -> Outcome | None:
    """Do what a claimed task needs instead of being run; None if it is to be run.

    Its instance has ended or is being cancelled or suspended, or its workers died of it.
    """
    instance = claimed.instance
    if instance is None:
        await services.runtime.discard_task(claimed.claim)
        return Outcome(OutcomeKind.DISCARDED)
    if (
        instance.status is InstanceStatus.CANCELLING
        or claimed.task.type is TaskType.CANCEL_INSTANCE
    ):
        swept = await services.runtime.sweep_cancelled(instance.id)
        return Outcome(OutcomeKind.CANCELLED if swept else OutcomeKind.DISCARDED)
    if instance.status is InstanceStatus.SUSPENDED and await services.runtime.park_task(
        claimed.claim
    ):
        return Outcome(OutcomeKind.PARKED)
    if claimed.task.crash_count >= MAX_CRASHES:
        return await _commit(services, claimed, _worker_lost(services, claimed), commit)
    return None


async def finish_task(
    services: Services, invoker: Invoker, claimed: ClaimedTask, commit: Commit
) -> Outcome:
    """Run a claimed task and commit what came of it; raises as ``execute_task``."""
    instance = claimed.instance
    if instance is None:
        return Outcome(OutcomeKind.CLAIM_LOST)
    for _ in range(MAX_RACES):
        result = await _run(services, invoker, claimed, instance)
        outcome = await _commit(services, claimed, result, commit)
        if outcome.kind is not OutcomeKind.OVERTAKEN:
            return outcome
        reloaded = await services.runtime.find_instance(instance.id)
        if reloaded is None:
            return Outcome(OutcomeKind.CLAIM_LOST)
        instance = reloaded
    return outcome


async def _deliver_kept(
    services: Services, invoker: Invoker, claimed: ClaimedTask, commit: Commit
) -> Outcome:
    """Deliver a kept message if somebody waits for it by now; look again later, less and less often, if not."""
    try:
        unit = await _kept_unit(services, invoker, claimed)
        stays = isinstance(unit.guards[0], RescheduleTask)
        kind = OutcomeKind.KEPT if stays else OutcomeKind.COMPLETED
        return Outcome(kind, await commit(unit), unit=unit)
    except ClaimLostError as lost:
        if isinstance(lost.guard, RemoveTask | RescheduleTask):
            return Outcome(OutcomeKind.CLAIM_LOST)
        reason = "somebody else was faster"
    except (StoreUnavailableError, StepCancelledError):
        raise
    except (ExecutionError, DefinitionError, StoreError) as error:
        reason = f"its receiver cannot take it: {error}"
    unit = UnitOfWork((_look_again(services, claimed, reason),), ())
    try:
        return Outcome(OutcomeKind.KEPT, await commit(unit), unit=unit)
    except ClaimLostError:
        return Outcome(OutcomeKind.CLAIM_LOST)


async def _kept_unit(services: Services, invoker: Invoker, claimed: ClaimedTask) -> UnitOfWork:
    """Return what delivers the message, or what lets its task look again or go."""
    task, now = claimed.task, services.runtime.now()
    message = await services.runtime.find_message(task.node_id, tenant_id=task.tenant_id)
    remove = RemoveTask(claimed.claim)
    if not message or message.status is not MessageStatus.KEPT or now >= message.kept_until:
        return UnitOfWork((remove,), ())
    receiver = await services.find_receiver(message.key, tenant_id=message.tenant_id)
    if receiver is None or receiver.instance.status is not InstanceStatus.ACTIVE:
        again = _look_again(services, claimed, "nobody waits for its key yet")
        return UnitOfWork((again,), ())
    delivery = Delivery(variables=message.variables, caller_drives=False)
    surroundings = services.surroundings(invoker.capabilities)
    services.tracing.link(receiver.task.traceparent)
    received = await drive(services, end_wait(receiver, delivery, surroundings), invoker)
    settle = SettleMessage(message.id, message.tenant_id)
    return UnitOfWork((remove, settle, *received.unit.guards), received.unit.changes)


def _look_again(services: Services, claimed: ClaimedTask, reason: str) -> RescheduleTask:
    attempts = claimed.task.attempts
    wait = min(_FIRST_LOOK_S * 2 ** min(attempts, 10), _LONGEST_LOOK_S)
    return RescheduleTask(
        claim=claimed.claim,
        due_at=services.runtime.now() + timedelta(seconds=wait),
        attempts=attempts + 1,
        retries_left=claimed.task.retries_left,
        error=reason,
    )


async def _go_on_with_job(services: Services, claimed: ClaimedTask, commit: Commit) -> Outcome:
    """Do the next items of a bulk job."""
    unit = await next_step(services, claimed)
    try:
        return Outcome(OutcomeKind.COMPLETED, await commit(unit), unit=unit)
    except ClaimLostError:
        return Outcome(OutcomeKind.CLAIM_LOST)


async def _cancel_children(
    services: Services, claimed: ClaimedTask, children: Branch, commit: Commit
) -> Outcome:
    """Cancel the children of a call activity that has ended before them, and theirs in turn."""
    while found := await services.runtime.find_children(children, limit=_CHILDREN_AT_ONCE):
        for child_id in found:
            await services.runtime.cancel_instance(child_id, cancelled_by=None)
    return await _commit(
        services, claimed, SegmentResult(UnitOfWork((RemoveTask(claimed.claim),), ()), {}), commit
    )


async def _commit(
    services: Services, claimed: ClaimedTask, result: SegmentResult, commit: Commit
) -> Outcome:
    """Commit the result; what the database refuses becomes an incident on an instance that is as it was."""
    try:
        try:
            committed = await commit(result.unit)
        except (ClaimLostError, StoreUnavailableError):
            raise
        except (StoreError, VariableTooLargeError) as error:
            result = _refused(services, claimed, error)
            committed = await commit(result.unit)
    except ClaimLostError as lost:
        return await _lost(claimed, lost, commit)
    return Outcome(_kind(result.unit), committed, result.failure, result.unit)


async def _lost(claimed: ClaimedTask, lost: ClaimLostError, commit: Commit) -> Outcome:
    """Tell a lost claim from a race that only the rest of the unit lost."""
    host = claimed.task.attached_to
    match lost.guard:
        case EndHost(task_id) if host is not None and task_id == host.host_id:
            # The host ended first: this event is void. Its row normally went with the host.
            with suppress(ClaimLostError):
                await commit(UnitOfWork((RemoveTask(claimed.claim),), ()))
            return Outcome(OutcomeKind.DISCARDED)
        case EndHost() | CompleteExternalTask() | MatchKey():
            # The receiver of its message was faster.
            return Outcome(OutcomeKind.OVERTAKEN)
        case _:
            return Outcome(OutcomeKind.CLAIM_LOST)


async def _run(
    services: Services, invoker: Invoker, claimed: ClaimedTask, instance: ProcessInstance
) -> SegmentResult:
    """Run the segment; an error of the engine or the definition becomes an incident, never a stuck task."""
    try:
        check_readable(instance.variables)
        definition = await services.get_definition(claimed.task.definition_id)
        surroundings = services.surroundings(invoker.capabilities)
        return await drive(services, run_task(definition, claimed, instance, surroundings), invoker)
    except (StepCancelledError, StoreUnavailableError):
        raise
    except (ExecutionError, DefinitionError) as error:
        return _refused(services, claimed, error)
    except Exception as error:
        failure = fatal_failure(error, stack_trace=traceback.format_exc())
        return _give_up(services, claimed, IncidentType.FAILED_JOB, failure)


def _worker_lost(services: Services, claimed: ClaimedTask) -> SegmentResult:
    crashes = claimed.task.crash_count
    failure = Failure(
        kind=FailureKind.FATAL,
        error_type="WorkerLost",
        message=f"its worker died {crashes} times while it ran; look at its memory use and its native code, then retry",
    )
    return _give_up(services, claimed, IncidentType.WORKER_LOST, failure)


def _refused(services: Services, claimed: ClaimedTask, error: Exception) -> SegmentResult:
    too_large = isinstance(error, VariableTooLargeError)
    kind = IncidentType.VARIABLES_TOO_LARGE if too_large else IncidentType.FAILED_JOB
    return _give_up(services, claimed, kind, fatal_failure(error))


def _give_up(
    services: Services, claimed: ClaimedTask, incident_type: IncidentType, failure: Failure
) -> SegmentResult:
    now = services.runtime.now()
    unit = give_up(claimed, incident_type, failure, now=now, attempts=claimed.task.attempts + 1)
    return SegmentResult(unit, {}, failure)


def _kind(unit: UnitOfWork) -> OutcomeKind:
    guard = unit.guards[0] if unit.guards else None
    match guard:
        case RescheduleTask():
            return OutcomeKind.RETRY_SCHEDULED
        case FailTask():
            return OutcomeKind.INCIDENT_OPENED
        case _:
            return OutcomeKind.COMPLETED
