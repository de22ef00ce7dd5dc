"""Which units of work may share a transaction (protocol R15)."""

from collections.abc import Sequence
from dataclasses import dataclass

from kikwiflow_worker.model.unit_of_work import (
    CLAIM_GUARDS,
    AbandonChildren,
    Change,
    Detach,
    EndHost,
    InsertTask,
    RecordMessage,
    RecordProgress,
    RecordReport,
    ReserveStartKey,
    UnitOfWork,
)

_ALONE = ReserveStartKey | RecordMessage | AbandonChildren | RecordReport | RecordProgress
"""Changes that may find their document there already, or that others change beside: it would abort the others with them."""


@dataclass(slots=True)
class _Group:
    positions: list[int]
    rows: set[str]


def group_units(units: Sequence[UnitOfWork]) -> tuple[tuple[int, ...], ...]:
    """Return the positions of ``units`` in groups, each for one transaction; a group of one is to be committed alone.

    Two units that decide about the same row, or about a row and what is attached to it, are never in one group: both
    guards would hold in the transaction's snapshot. Units of client operations, and those that end the waits of other
    instances, are alone.
    """
    shared: list[_Group] = []
    alone: list[tuple[int, ...]] = []
    for position, unit in enumerate(units):
        if not _may_share(unit):
            alone.append((position,))
            continue
        rows = _rows(unit)
        free = next((group for group in shared if group.rows.isdisjoint(rows)), None)
        if free is None:
            shared.append(_Group([position], rows))
        else:
            free.positions.append(position)
            free.rows |= rows
    return (*(tuple(group.positions) for group in shared), *alone)


def _may_share(unit: UnitOfWork) -> bool:
    return (
        sum(isinstance(guard, CLAIM_GUARDS) for guard in unit.guards) == 1
        and all(isinstance(guard, CLAIM_GUARDS | EndHost) for guard in unit.guards)
        and not any(isinstance(change, _ALONE) for change in unit.changes)
    )


def _rows(unit: UnitOfWork) -> set[str]:
    """Return the ids of the rows that the unit decides about, and of the hosts that they or its new rows belong to."""
    decided = {
        guard.task_id if isinstance(guard, EndHost) else guard.claim.task_id
        for guard in unit.guards
        if isinstance(guard, CLAIM_GUARDS | EndHost)
    }
    return decided | {host for change in unit.changes if (host := _host(change)) is not None}


def _host(change: Change) -> str | None:
    match change:
        case Detach(host_id):
            return host_id
        case InsertTask(task) if task.attached_to is not None:
            return task.attached_to.host_id
        case _:
            return None
