"""What one finished step writes: guards first, then changes from a closed set.

A guard is itself the write that decides: it names the document that this unit and its rivals must all change, and it
matches nothing when somebody else was faster. Then the whole unit writes nothing (design 7, protocol R1).
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from kikwiflow_worker.model.bulk import BulkProgress
from kikwiflow_worker.model.events import OutboxEvent
from kikwiflow_worker.model.external_work import WorkReport
from kikwiflow_worker.model.messages import Message
from kikwiflow_worker.model.runtime import (
    Branch,
    Claim,
    ClaimedTask,
    ExecutableTask,
    ExternalTask,
    HostKind,
    Incident,
    Loop,
    ProcessInstance,
)
from kikwiflow_worker.model.variables import VariableChange


@dataclass(frozen=True, slots=True)
class RemoveTask:
    """The claimed task is done: its successors are among the changes, or its path ends."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class ArriveTask:
    """The claimed task ended its branch: it stays as the record of the arrival until its join has counted it."""

    claim: Claim
    branch: Branch


@dataclass(frozen=True, slots=True, kw_only=True)
class RescheduleTask:
    """The claimed task waits for another attempt."""

    claim: Claim
    due_at: datetime
    attempts: int
    retries_left: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailTask:
    """The claimed task waits for a person; an incident is among the changes."""

    claim: Claim
    attempts: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteExternalTask:
    """The external task is done; a second completion finds a record of the first.

    Attributes:
        definition_id: Of the version by which the unit was decided: a migration meanwhile makes it decide anew.
        pending_keys: For a group of keys: those that must still be pending, so that two last keys cannot both be the last.
    """

    task_id: str
    instance_id: str
    definition_id: str
    node_id: str
    completed_at: datetime
    completed_by: str | None
    pending_keys: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchKey:
    """One key of a group is matched, and others are still pending: the key's row and its group change together.

    Attributes:
        task_id: The row of the key.
        pending_keys: The group's keys before.
    """

    task_id: str
    group_id: str
    key: str
    pending_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndHost:
    """An interruptive event ends the task it is attached to; whoever ends the host first wins (protocol R10)."""

    task_id: str
    kind: HostKind


@dataclass(frozen=True, slots=True)
class StartChild:
    """The claimed starter has started its child: it stays as the record of it until the child's end (protocol R12)."""

    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitNextChild:
    """The claimed coordinator of a sequential call activity waits for one more child."""

    claim: Claim
    branch_id: str
    loop: Loop


@dataclass(frozen=True, slots=True)
class SettleMessage:
    """A kept message is delivered with this unit; another delivery of it finds it settled."""

    message_id: str
    tenant_id: str | None


CLAIM_GUARDS = RemoveTask | ArriveTask | RescheduleTask | FailTask | StartChild | AwaitNextChild

ClaimGuard: TypeAlias = CLAIM_GUARDS
"""Decides about the claimed task of a unit."""

Guard: TypeAlias = ClaimGuard | CompleteExternalTask | MatchKey | EndHost | SettleMessage


def guarded_task_id(guard: Guard) -> str:
    """Return the id of the task that a guard decides about."""
    match guard:
        case SettleMessage():
            return guard.message_id
        case CompleteExternalTask() | MatchKey() | EndHost():
            return guard.task_id
        case _:
            return guard.claim.task_id


@dataclass(frozen=True, slots=True)
class InsertInstance:
    """A new instance that has come to rest somewhere."""

    instance: ProcessInstance


@dataclass(frozen=True, slots=True)
class RecordEnded:
    """An instance that ran from start to end in one go goes straight into the history."""

    instance: ProcessInstance


@dataclass(frozen=True, slots=True)
class ReserveStartKey:
    """The caller's idempotency key of a start; a second start with it finds the first instance."""

    key: str
    instance_id: str
    tenant_id: str | None
    reserved_at: datetime


@dataclass(frozen=True, slots=True)
class InsertTask:
    """A new executable task, its id derived so that a repeated commit finds it already there."""

    task: ExecutableTask


@dataclass(frozen=True, slots=True)
class InsertExternalTask:
    """A new external task."""

    task: ExternalTask


@dataclass(frozen=True, slots=True)
class ChangeVariables:
    """Change variables of a running instance, each on its own: different variables never disturb each other."""

    instance_id: str
    changes: tuple[VariableChange, ...]


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """A failure that waits for a person."""

    incident: Incident


@dataclass(frozen=True, slots=True)
class RecordMessage:
    """A message that is kept, or whose delivery by this unit is remembered."""

    message: Message


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """A fact for programs that follow along."""

    event: OutboxEvent


@dataclass(frozen=True, slots=True)
class RecordReport:
    """What an external worker said about its claim, which this unit decides: a repeat finds it."""

    report: WorkReport


@dataclass(frozen=True, slots=True)
class RecordProgress:
    """A bulk job has come further; a job that was cancelled meanwhile stays cancelled."""

    job_id: str
    progress: BulkProgress
    at: datetime


@dataclass(frozen=True, slots=True)
class RemoveArrivals:
    """The join goes on: the records of its branches' arrivals are no longer needed."""

    join_task_id: str


@dataclass(frozen=True, slots=True)
class Detach:
    """The host has ended: everything attached to it goes, found by query, and the keys of a group with the group.

    Attributes:
        except_task_id: The boundary event's own row, which the unit decides about itself.
    """

    host_id: str
    except_task_id: str | None = None


@dataclass(frozen=True, slots=True)
class AbandonChildren:
    """The call activity ended before its children: starters go, and the children are cancelled by any worker (R12)."""

    instance_id: str
    definition_id: str
    coordinator_task_id: str
    abandoned_at: datetime


@dataclass(frozen=True, slots=True)
class OpenPath:
    """A path beside the others has begun; the instance ends only after it (protocol R11)."""

    instance_id: str


@dataclass(frozen=True, slots=True)
class EndPath:
    """A path of the instance has ended; the last one ends the instance, in the same transaction (protocol R11)."""

    instance_id: str
    ended_at: datetime


Change: TypeAlias = (
    InsertInstance
    | RecordEnded
    | ReserveStartKey
    | InsertTask
    | InsertExternalTask
    | ChangeVariables
    | OpenIncident
    | RecordMessage
    | RecordEvent
    | RecordReport
    | RecordProgress
    | RemoveArrivals
    | Detach
    | AbandonChildren
    | OpenPath
    | EndPath
)


@dataclass(frozen=True, slots=True)
class UnitOfWork:
    """All that one step writes, in one transaction or not at all."""

    guards: tuple[Guard, ...]
    changes: tuple[Change, ...]

    def traced(self, traceparent: str | None) -> "UnitOfWork":
        """Return this unit with the trace context in which it was decided on all tasks that it creates."""
        if traceparent is None:
            return self
        return replace(self, changes=tuple(_traced(change, traceparent) for change in self.changes))


def _traced(change: Change, traceparent: str) -> Change:
    match change:
        case InsertTask(task):
            return InsertTask(replace(task, traceparent=traceparent))
        case InsertExternalTask(external):
            return InsertExternalTask(replace(external, traceparent=traceparent))
        case _:
            return change


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit came to.

    Attributes:
        ended: The instances that this commit ended, as they went into the history.
        claimable: Executable tasks that any worker may claim at once: inserted due, or joins released by this commit.
        released: How many of them are joins whose last branch arrived.
        handed_on: The task that was born claimed by the worker that committed; not counted in ``claimable``.
    """

    ended: tuple[ProcessInstance, ...] = ()
    claimable: int = 0
    released: int = 0
    handed_on: ClaimedTask | None = None
