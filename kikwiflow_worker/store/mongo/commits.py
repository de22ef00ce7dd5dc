"""Commits units of work: one transaction each, then the delivery of branches that arrived."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from kikwiflow_worker.errors import ConfigurationError, KikwiflowError, StoreError
from kikwiflow_worker.model.messages import MessageStatus
from kikwiflow_worker.model.runtime import (
    ClaimedTask,
    ExecutableTask,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    Committed,
    InsertExternalTask,
    InsertTask,
    UnitOfWork,
    guarded_task_id,
)
from kikwiflow_worker.store.mongo.arrivals import Arrival, Arrivals
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Session, settled
from kikwiflow_worker.store.mongo.guards import UNLOCKED, Guards
from kikwiflow_worker.store.mongo.handing_on import Born, HandingOn
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.transactions import Transactions
from kikwiflow_worker.store.mongo.writes import Writes
from kikwiflow_worker.store.protocol import GroupedUnit, GroupResult, HandOn

MAX_WOKEN = 1_000
"""Kept messages that one commit lets be tried at once."""


class Commits:
    """Writes a unit in one transaction (design 7)."""

    def __init__(
        self,
        collections: Collections,
        guards: Guards,
        writes: Writes,
        arrivals: Arrivals,
        transactions: Transactions,
        server_time: ServerTime,
        handing_on: HandingOn,
    ) -> None:
        self._collections = collections
        self._guards = guards
        self._writes = writes
        self._arrivals = arrivals
        self._transactions = transactions
        self._time = server_time
        self._handing_on = handing_on

    async def commit(self, unit: UnitOfWork, *, hand_on: HandOn | None = None) -> Committed:
        """Commit ``unit`` in a transaction of its own; see ``RuntimeStore.commit``."""

        async def write(session: Session) -> tuple[tuple[ProcessInstance, ...], Born | None]:
            now = self._time.now()
            changes, born = self._handing_on.bear(unit.changes, hand_on)
            for guard in unit.guards:
                await self._guards.write(guard, now=now, session=session)
            await self._writes.insert(changes, session=session)
            return await self._writes.apply(changes, session=session), born

        ended, born = await self._transactions.run(f"committing {unit_name(unit)}", write)
        committed = await self.follow_up(unit, ended)
        return await self._handed_on(committed, born) if born else committed

    async def commit_group(
        self, units: Sequence[GroupedUnit], *, hand_on: HandOn | None
    ) -> tuple[GroupResult, ...]:
        """Commit units one after another; see ``RuntimeStore.commit_group``."""
        return tuple([await self._settle(grouped, hand_on) for grouped in units])

    async def _settle(self, grouped: GroupedUnit, hand_on: HandOn | None) -> GroupResult:
        try:
            return await self.commit(grouped.unit, hand_on=hand_on if grouped.may_hand_on else None)
        except KikwiflowError as error:
            return error

    async def _handed_on(self, committed: Committed, born: Born) -> Committed:
        """Add the task that was born claimed; if its instance cannot be read, the task is found as an unknown lock."""
        claimed: ClaimedTask | None = None
        with suppress(StoreError, ConfigurationError):
            claimed = (await self._handing_on.load([born]))[born.task.id]
        return replace(committed, handed_on=claimed, claimable=committed.claimable - 1)

    async def follow_up(self, unit: UnitOfWork, ended: tuple[ProcessInstance, ...]) -> Committed:
        """Deliver the branches that arrived with ``unit``, and say what its commit came to."""
        claimable = sum(1 for change in unit.changes if _is_claimable(change, self._time.now()))
        arrivals = [*_arrivals_of(unit), *_arrived_children(ended)]
        released = 0
        if arrivals:
            # The unit is committed, whatever happens now; whoever finds an arrival delivers it.
            with suppress(StoreError, ConfigurationError):
                released = await self._arrivals.deliver(arrivals)
        # The same for messages that were kept until somebody waits: their own tasks look again in time.
        with suppress(StoreError, ConfigurationError):
            claimable += await self._wake_messages(unit)
        return Committed(ended=ended, claimable=claimable + released, released=released)

    async def _wake_messages(self, unit: UnitOfWork) -> int:
        """Let kept messages be tried at once for which this unit began to wait; return how many."""
        waits = [change.task for change in unit.changes if isinstance(change, InsertExternalTask)]
        keys = [task.correlation_key for task in waits if task.correlation_key is not None]
        if not keys:
            return 0
        kept = {"correlationKey": {"$in": keys}, "status": MessageStatus.KEPT.value}
        found = self._collections.messages.find(kept, {"messageId": 1}).limit(MAX_WOKEN)
        ids = [row["messageId"] for row in await found.to_list(MAX_WOKEN)]
        if not ids:
            return 0
        # A look that is under way may have been too early: it loses its claim and is repeated.
        waiting = {
            "type": TaskType.KEPT_MESSAGE.value,
            "taskDefinitionId": {"$in": ids},
            "status": {"$in": [TaskStatus.PENDING.value, TaskStatus.LOCKED.value]},
        }
        due = {
            "$set": {"status": TaskStatus.PENDING.value, "claimableAt": self._time.now()},
            "$unset": UNLOCKED,
            "$inc": {"epoch": 1},
        }
        woken = await settled(self._collections.tasks.update_many(waiting, due))
        return int(woken.matched_count)


def _arrivals_of(unit: UnitOfWork) -> list[Arrival]:
    """Return the arrivals that the unit records: its own task turned into one, or one inserted."""
    recorded = [
        (guard.claim.task_id, guard.branch)
        for guard in unit.guards
        if isinstance(guard, ArriveTask)
    ]
    inserted = [change.task for change in unit.changes if isinstance(change, InsertTask)]
    recorded += [
        (task.id, task.branch)
        for task in inserted
        if task.status is TaskStatus.ARRIVED and task.branch
    ]
    return [
        Arrival(task_id, branch.join_task_id, branch.id)
        for task_id, branch in recorded
        if branch.join_task_id is not None
    ]


def _arrived_children(ended: tuple[ProcessInstance, ...]) -> list[Arrival]:
    """Return the arrivals at the coordinators of instances that have ended as children."""
    parents = [child.parent for child in ended if child.parent is not None]
    return [
        Arrival(parent.starter_task_id, parent.coordinator_task_id, parent.branch_id)
        for parent in parents
    ]


def unit_name(unit: UnitOfWork) -> str:
    """Return words that name the unit in messages."""
    if not unit.guards:
        return "a change without a task"
    return f"the outcome of task {guarded_task_id(unit.guards[0])}"


def _is_claimable(change: object, now: datetime) -> bool:
    if not isinstance(change, InsertTask):
        return False
    task: ExecutableTask = change.task
    return (
        task.status is TaskStatus.PENDING
        and task.claimable_at is not None
        and task.claimable_at <= now
    )
