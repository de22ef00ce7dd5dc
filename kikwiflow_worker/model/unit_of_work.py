"""What one finished step writes: guards first, then changes from a closed set.

A guard is itself the write that decides: it names the document that this unit and its rivals must all change, and it
matches nothing when somebody else was faster. Then the whole unit writes nothing (design 7, protocol R1).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from kikwiflow_worker.model.runtime import (
    Branch,
    Claim,
    ExecutableTask,
    ExternalTask,
    Incident,
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
    """The external task is done; a second completion finds a record of the first."""

    task_id: str
    instance_id: str
    node_id: str
    completed_at: datetime
    completed_by: str | None


Guard: TypeAlias = RemoveTask | ArriveTask | RescheduleTask | FailTask | CompleteExternalTask


def guarded_task_id(guard: Guard) -> str:
    """Return the id of the task that a guard decides about."""
    return guard.task_id if isinstance(guard, CompleteExternalTask) else guard.claim.task_id


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
class RemoveArrivals:
    """The join goes on: the records of its branches' arrivals are no longer needed."""

    join_task_id: str


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
    | RemoveArrivals
    | EndPath
)


@dataclass(frozen=True, slots=True)
class UnitOfWork:
    """All that one step writes, in one transaction or not at all."""

    guards: tuple[Guard, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit came to.

    Attributes:
        ended: The instance as it went into the history, if this commit ended it.
        claimable: Executable tasks that any worker may claim at once: inserted due, or joins released by this commit.
        released: How many of them are joins whose last branch arrived.
    """

    ended: ProcessInstance | None = None
    claimable: int = 0
    released: int = 0
