"""Whose rows a unit of work changes, as far as it can be read off the unit."""

from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from kikwiflow_worker.errors import TenantBoundError
from kikwiflow_worker.model.unit_of_work import (
    AbandonChildren,
    ArriveTask,
    AwaitNextChild,
    Change,
    ChangeVariables,
    CompleteExternalTask,
    Detach,
    EndHost,
    EndPath,
    FailTask,
    Guard,
    InsertExternalTask,
    InsertInstance,
    InsertTask,
    MatchKey,
    OpenIncident,
    OpenPath,
    RecordEnded,
    RecordEvent,
    RecordMessage,
    RecordProgress,
    RecordReport,
    RemoveArrivals,
    RemoveTask,
    RescheduleTask,
    ReserveStartKey,
    SettleMessage,
    StartChild,
    UnitOfWork,
)

_InPlace: TypeAlias = (
    AbandonChildren
    | ChangeVariables
    | Detach
    | EndPath
    | OpenPath
    | RecordEvent
    | RecordProgress
    | RemoveArrivals
)


@dataclass(slots=True)
class Subjects:
    """What a unit is about.

    Attributes:
        tenant_ids: For whom it inserts something.
        instance_ids: Instances that exist already.
        task_ids: Tasks that exist already.
    """

    tenant_ids: set[str | None] = field(default_factory=set)
    instance_ids: set[str] = field(default_factory=set)
    task_ids: set[str] = field(default_factory=set)


def subjects_of(unit: UnitOfWork) -> Subjects:
    """Return what a unit is about; what it inserts itself does not exist yet."""
    subjects = Subjects()
    new: set[str] = set()
    for guard in unit.guards:
        _add_guard(guard, subjects)
    for change in unit.changes:
        _add_change(change, subjects, new)
    subjects.instance_ids -= new
    subjects.task_ids -= new
    return subjects


def _add_guard(guard: Guard, subjects: Subjects) -> None:
    match guard:
        case SettleMessage():
            subjects.tenant_ids.add(guard.tenant_id)
        case CompleteExternalTask():
            subjects.task_ids.add(guard.task_id)
            subjects.instance_ids.add(guard.instance_id)
        case MatchKey():
            subjects.task_ids |= {guard.task_id, guard.group_id}
        case EndHost():
            subjects.task_ids.add(guard.task_id)
        case (
            RemoveTask()
            | ArriveTask()
            | RescheduleTask()
            | FailTask()
            | StartChild()
            | AwaitNextChild()
        ):
            subjects.task_ids.add(guard.claim.task_id)
        case _:
            assert_never(guard)


def _add_change(change: Change, subjects: Subjects, new: set[str]) -> None:
    match change:
        case InsertInstance() | RecordEnded():
            subjects.tenant_ids.add(change.instance.tenant_id)
            new.add(change.instance.id)
        case InsertTask() | InsertExternalTask():
            subjects.tenant_ids.add(change.task.tenant_id)
            subjects.instance_ids |= {change.task.instance_id} - {""}
            new.add(change.task.id)
        case ReserveStartKey():
            subjects.tenant_ids.add(change.tenant_id)
            subjects.instance_ids.add(change.instance_id)
        case OpenIncident():
            subjects.tenant_ids.add(change.incident.tenant_id)
            subjects.instance_ids.add(change.incident.instance_id)
        case RecordMessage():
            subjects.tenant_ids.add(change.message.tenant_id)
        case RecordReport():
            subjects.tenant_ids.add(change.report.tenant_id)
        case _:
            _add_change_in_place(change, subjects)


def _add_change_in_place(change: _InPlace, subjects: Subjects) -> None:
    match change:
        case RecordEvent():
            subjects.instance_ids.add(change.event.instance_id)
        case ChangeVariables() | OpenPath() | EndPath():
            subjects.instance_ids.add(change.instance_id)
        case AbandonChildren():
            subjects.instance_ids.add(change.instance_id)
            subjects.task_ids.add(change.coordinator_task_id)
        case RemoveArrivals():
            subjects.task_ids.add(change.join_task_id)
        case Detach():
            subjects.task_ids.add(change.host_id)
        case RecordProgress():
            raise TenantBoundError("only a worker records the progress of a bulk job")
        case _:
            assert_never(change)
