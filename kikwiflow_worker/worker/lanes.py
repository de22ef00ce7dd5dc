"""Commit lanes: steps that finish together share a transaction, its round trips and its flush (design 7, protocol R15)."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kikwiflow_worker.acquirer.claim_book import ClaimBook
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.model.runtime import ClaimedTask
from kikwiflow_worker.model.unit_of_work import Committed, InsertTask, UnitOfWork
from kikwiflow_worker.store.protocol import RuntimeStore
from kikwiflow_worker.store.values import GroupedUnit, HandOn

_PATIENCE_S = 1.0
"""After this time a lane leaves its group to itself and takes the next: what holds one unit up holds up no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneOptions:
    """How commits are grouped.

    Attributes:
        group_size: Units of a group at most; 1 gives each unit a transaction of its own, at once.
        count: How many groups are under way at most.
        hand_on: For whom tasks may be born claimed; None for nobody.
    """

    group_size: int
    count: int
    hand_on: HandOn | None


@dataclass(frozen=True, slots=True)
class _Entry:
    """A unit that waits for its commit, and whoever waits for the outcome."""

    claimed: ClaimedTask
    unit: UnitOfWork
    may_hand_on: Callable[[], bool]
    outcome: "asyncio.Future[Committed]"


class _Lane:
    """Units in the order in which they came; one group of them is under way at a time."""

    def __init__(self) -> None:
        self._waiting: deque[_Entry] = deque()
        self._is_filled = asyncio.Event()

    def add(self, entry: _Entry) -> None:
        self._waiting.append(entry)
        self._is_filled.set()

    async def take(self, size: int) -> list[_Entry]:
        """Wait for a unit; take it with those that wait as well, ``size`` at most."""
        await self._is_filled.wait()
        taken = [self._waiting.popleft() for _ in range(min(size, len(self._waiting)))]
        if not self._waiting:
            self._is_filled.clear()
        return taken


class CommitLanes:
    """Commits units in groups.

    No timer: a lane takes what is there when its group before has returned. So a lone unit is committed at once, and
    groups grow with the load. All units of one instance go through the same lane, where they do not conflict.
    """

    def __init__(self, runtime: RuntimeStore, book: ClaimBook, options: LaneOptions) -> None:
        self._runtime = runtime
        self._book = book
        self._options = options
        self._lanes = [_Lane() for _ in range(options.count)]

    async def commit(
        self, claimed: ClaimedTask, unit: UnitOfWork, may_hand_on: Callable[[], bool]
    ) -> Committed:
        """Commit ``unit`` of ``claimed``; see ``RuntimeStore.commit``.

        Args:
            may_hand_on: Asked when the commit is under way: whether a task of the unit may be born claimed.
        """
        entry = _Entry(claimed, unit, may_hand_on, asyncio.get_running_loop().create_future())
        if self._options.group_size == 1:
            await self._write([entry])
        else:
            self._lanes[hash(claimed.task.instance_id) % len(self._lanes)].add(entry)
        return await entry.outcome

    async def run(self) -> None:
        """Write groups until cancelled; cancel it only when nobody waits for a commit any more."""
        async with asyncio.TaskGroup() as tasks:
            for lane in self._lanes:
                tasks.create_task(self._run_lane(lane, tasks), name="commit lane")

    async def _run_lane(self, lane: _Lane, tasks: asyncio.TaskGroup) -> None:
        while True:
            group = await lane.take(self._options.group_size)
            writing = tasks.create_task(self._write(group), name="commit group")
            # Whoever hears of an outcome has a turn before this goes on, and its next unit joins the next group.
            await asyncio.wait({writing}, timeout=_PATIENCE_S)

    async def _write(self, group: Sequence[_Entry]) -> None:
        """Commit a group and tell everyone in it; each hears of its own unit only."""
        for entry, result in zip(group, await self._results(group), strict=True):
            if entry.outcome.done():
                continue
            if isinstance(result, Committed):
                entry.outcome.set_result(result)
            else:
                entry.outcome.set_exception(result)

    async def _results(self, group: Sequence[_Entry]) -> Sequence[Committed | Exception]:
        units = [GroupedUnit(entry.unit, entry.may_hand_on()) for entry in group]
        births = [task_id for unit in units if unit.may_hand_on for task_id in _births(unit.unit)]
        claims = [entry.claimed.claim for entry in group]
        try:
            with self._book.committing(claims, births=births) as ended:
                results = await self._runtime.commit_group(units, hand_on=self._options.hand_on)
                ended.update(
                    claim
                    for claim, result in zip(claims, results, strict=True)
                    if isinstance(result, Committed)
                )
                return results
        except StoreUnavailableError as error:
            return [error] * len(group)
        except Exception as error:
            if len(group) == 1:
                return [error]
        # What one unit cannot survive must not become a crash of the others: their guards let each be tried again.
        return [result for entry in group for result in await self._results([entry])]


def _births(unit: UnitOfWork) -> list[str]:
    return [change.task.id for change in unit.changes if isinstance(change, InsertTask)]
