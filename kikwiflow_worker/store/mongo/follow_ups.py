"""What follows a commit: branches reach their joins, kept messages are woken, tasks handed on get their instances."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from kikwiflow_worker.errors import StoreError
from kikwiflow_worker.model.messages import MessageStatus
from kikwiflow_worker.model.runtime import ClaimedTask, ProcessInstance, TaskStatus, TaskType
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    Change,
    Committed,
    InsertExternalTask,
    InsertTask,
    UnitOfWork,
)
from kikwiflow_worker.store.mongo.arrivals import Arrival, Arrivals
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.guards import UNLOCKED
from kikwiflow_worker.store.mongo.handing_on import Born, HandingOn
from kikwiflow_worker.store.mongo.server_time import ServerTime

MAX_WOKEN = 1_000
"""Kept messages that one commit lets be tried at once."""


@dataclass(frozen=True, slots=True)
class Written:
    """A unit whose commit is acknowledged.

    Attributes:
        ended: The instances that it ended.
        born: Its task that was born claimed.
    """

    unit: UnitOfWork
    ended: tuple[ProcessInstance, ...] = ()
    born: Born | None = None


class FollowUps:
    """Does what follows a commit, for all units of a transaction at once.

    The units are committed, whatever happens here: what fails is done by whoever finds it. An arrival is a row that any
    worker delivers, a kept message looks again by itself, and a task handed on is found as an unknown lock.
    """

    def __init__(
        self,
        collections: Collections,
        arrivals: Arrivals,
        handing_on: HandingOn,
        server_time: ServerTime,
    ) -> None:
        self._collections = collections
        self._arrivals = arrivals
        self._handing_on = handing_on
        self._time = server_time

    async def follow(self, written: Sequence[Written]) -> tuple[Committed, ...]:
        """Return what the commit of each unit came to."""
        arrivals = [_arrivals_of(one) for one in written]
        released: set[str] = set()
        if any(arrivals):
            with suppress(StoreError):
                released |= await self._arrivals.deliver([each for of in arrivals for each in of])
        woken = 0
        with suppress(StoreError):
            woken = await self._wake_messages(written)
        handed_on: dict[str, ClaimedTask] = {}
        with suppress(StoreError):
            born = [one.born for one in written if one.born is not None]
            handed_on = await self._handing_on.load(born)
        results = []
        now = self._time.now()
        for one, arrived in zip(written, arrivals, strict=True):
            joins = released & {arrival.join_task_id for arrival in arrived}
            released -= joins
            claimable = _count_claimable(one, now) + len(joins) + woken
            woken = 0
            task = handed_on.get(one.born.task.id) if one.born else None
            results.append(Committed(one.ended, claimable, len(joins), task))
        return tuple(results)

    async def _wake_messages(self, written: Sequence[Written]) -> int:
        """Let kept messages be tried at once for which these units began to wait; return how many (protocol R13)."""
        changes = [change for one in written for change in one.unit.changes]
        waits = [change.task for change in changes if isinstance(change, InsertExternalTask)]
        keys = sorted({task.correlation_key for task in waits if task.correlation_key is not None})
        if not keys:
            return 0
        kept = {"correlationKey": {"$in": keys}, "status": MessageStatus.KEPT.value}
        with translated("waking kept messages"):
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


def _arrivals_of(written: Written) -> list[Arrival]:
    """Return the arrivals of a unit: its own task turned into one, one inserted, and those of children that ended."""
    unit = written.unit
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
    parents = [child.parent for child in written.ended if child.parent is not None]
    return [
        Arrival(task_id, branch.join_task_id, branch.id)
        for task_id, branch in recorded
        if branch.join_task_id is not None
    ] + [
        Arrival(parent.starter_task_id, parent.coordinator_task_id, parent.branch_id)
        for parent in parents
    ]


def _count_claimable(written: Written, now: datetime) -> int:
    found = sum(1 for change in written.unit.changes if _is_claimable(change, now))
    return found - 1 if written.born else found


def _is_claimable(change: Change, now: datetime) -> bool:
    return (
        isinstance(change, InsertTask)
        and change.task.status is TaskStatus.PENDING
        and change.task.claimable_at is not None
        and change.task.claimable_at <= now
    )
