"""Writing without transactions, for a standalone server and for the in-memory test harness.

The order is such that a crash can repeat a step but not lose one: successors first, kept from being claimed for a while,
then variables and ends, then the task's own row, then the successors are made claimable (protocol, answer 27).
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from kikwiflow_worker.errors import ClaimLostError, KikwiflowError
from kikwiflow_worker.model.runtime import ExecutableTask, TaskStatus
from kikwiflow_worker.model.unit_of_work import (
    Committed,
    CompleteExternalTask,
    Guard,
    InsertTask,
    UnitOfWork,
)
from kikwiflow_worker.store.mongo.codec import encode_task
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.commits import CommitParts, Commits, unit_name
from kikwiflow_worker.store.mongo.driver import settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.follow_ups import Written
from kikwiflow_worker.store.mongo.guards import ARRIVAL_GRACE
from kikwiflow_worker.store.mongo.writes import insert_if_absent
from kikwiflow_worker.store.values import GroupedUnit, GroupResult, HandOn


class StandaloneCommits(Commits):
    """Commits in an order that loses nothing, since it cannot be all or nothing."""

    def __init__(self, parts: CommitParts, collections: Collections) -> None:
        super().__init__(parts)
        self._tasks = collections.tasks
        self._sealing = collections.sealing

    async def commit(
        self,
        unit: UnitOfWork,
        *,
        hand_on: HandOn | None = None,  # noqa: ARG002 - no acknowledgement covers all of a unit
        most_attempts: int | None = None,  # noqa: ARG002 - there are no transactions
    ) -> Committed:
        """Write ``unit`` step by step; nothing is handed on.

        Raises:
            ClaimLostError: A guard matched nothing when it was looked at first; nothing was written.
        """
        now = self._parts.server_time.now()
        rows = [change.task for change in unit.changes if isinstance(change, InsertTask)]
        others = [change for change in unit.changes if not isinstance(change, InsertTask)]
        with translated(f"committing {unit_name(unit)}"):
            await self._look(unit)
            for row in rows:
                await self._insert_held_back(row, now)
            await self._parts.writes.insert(others)
            ended = await self._parts.writes.apply(others)
            for guard in unit.guards:
                await self._decide(guard, now, has_ended=bool(ended))
            for row in rows:
                await self._make_claimable(row)
        (committed,) = await self._parts.follow_ups.follow([Written(unit, ended)])
        return committed

    async def commit_group(
        self,
        units: Sequence[GroupedUnit],
        *,
        hand_on: HandOn | None,  # noqa: ARG002 - no acknowledgement covers all of a unit
    ) -> tuple[GroupResult, ...]:
        """Write units one after another."""
        return tuple([await self._settle(grouped.unit) for grouped in units])

    async def _settle(self, unit: UnitOfWork) -> GroupResult:
        try:
            return await self.commit(unit)
        except KikwiflowError as error:
            return error

    async def _look(self, unit: UnitOfWork) -> None:
        for guard in unit.guards:
            if not await self._parts.guards.is_open(guard):
                raise ClaimLostError(guard)

    async def _decide(self, guard: Guard, now: datetime, *, has_ended: bool) -> None:
        """Write a guard; where an instance has ended, its rows went with it and those of others are still there."""
        try:
            await self._parts.guards.write(guard, now=now)
        except ClaimLostError:
            if not has_ended:
                raise
            if isinstance(guard, CompleteExternalTask):
                await self._parts.guards.record_completion(guard)

    async def _insert_held_back(self, row: ExecutableTask, now: datetime) -> None:
        held_back = now + ARRIVAL_GRACE if row.status is TaskStatus.PENDING else row.claimable_at
        document = encode_task(replace(row, claimable_at=held_back), self._sealing)
        await insert_if_absent(self._tasks, document)

    async def _make_claimable(self, row: ExecutableTask) -> None:
        if row.status is TaskStatus.PENDING and row.claimable_at is not None:
            found = {"_id": row.id, "status": TaskStatus.PENDING.value, "epoch": row.epoch}
            await settled(
                self._tasks.update_one(found, {"$set": {"claimableAt": row.claimable_at}})
            )
