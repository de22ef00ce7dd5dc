"""Claiming many tasks with one guarded update (protocol R4)."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pymongo.errors import ExecutionTimeout, OperationFailure, PyMongoError

from kikwiflow_worker.model.runtime import TaskStatus
from kikwiflow_worker.store.mongo.claim_filters import CLAIM_TIME_MS, DUE, claim_pipeline
from kikwiflow_worker.store.mongo.driver import (
    BY_ID,
    MAJORITY,
    Collection,
    Document,
    Session,
    fetched,
    settled,
)
from kikwiflow_worker.store.mongo.errors import TRANSIENT_TRANSACTION
from kikwiflow_worker.store.mongo.turns import (
    OLDEST_EVERY,
    OLDEST_FIRST,
    URGENT_FIRST,
    Sort,
    Turns,
)

FEWEST_IN_BATCH = 3
"""From so many wanted tasks on, a batch takes less time than claims one by one (measured: ADR 0024)."""

_SEEN_PER_CLAIM = 4
"""Candidates read for each task wanted: workers that choose at random among them hardly meet."""

_TENANTS_AT_ONCE = 4
"""Tenants that one batch is shared between; the next batch goes on with the next ones."""

_ROUNDS = 3
"""Tries while others win everything that was chosen."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch came to.

    Attributes:
        rows: The rows that are claimed now.
        held_up: Rows that an open transaction holds: the claim ran out of time over them.
    """

    rows: Sequence[Document] = ()
    held_up: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Band:
    """A part of the due tasks that has a share in a batch.

    Attributes:
        share: With 0 it is looked at all the same: others may have less than their share.
        is_turn: Whether it stands for a tenant whose turn it is, which passes when nothing is found.
        index: To be used; None leaves the choice to the server.
    """

    found: Document
    sort: Sort
    share: int
    is_turn: bool = False
    index: str | None = None


class BatchClaims:
    """Claims batches for one worker."""

    def __init__(self, tasks: Collection, turns: Turns, chance: random.Random) -> None:
        self._tasks = tasks
        self._turns = turns
        self._chance = chance

    async def claim(
        self, eligible: Document, worker_id: str, lock: timedelta, limit: int, session: Session
    ) -> Batch:
        """Claim at most ``limit`` rows; none if nothing is due, or if others won all that was chosen, a few times."""
        for _ in range(_ROUNDS):
            bands = await self._bands(eligible, limit, session)
            batch = await self._claim_once(bands, worker_id, lock, limit, session)
            if batch is not None:
                return batch
        return Batch()

    async def claim_bands(
        self, bands: Sequence[Band], worker_id: str, lock: timedelta, limit: int, session: Session
    ) -> Batch:
        """Claim at most ``limit`` rows of ``bands``, whoever's turn it is; else as ``claim``."""
        for _ in range(_ROUNDS):
            batch = await self._claim_once(bands, worker_id, lock, limit, session)
            if batch is not None:
                return batch
        return Batch()

    async def _claim_once(
        self, bands: Sequence[Band], worker_id: str, lock: timedelta, limit: int, session: Session
    ) -> Batch | None:
        """Claim what is chosen; None if others won all of it."""
        chosen = await self._choose(bands, limit, session)
        if not chosen:
            return Batch()
        batch = await self._take(chosen, worker_id, lock, session)
        return batch if batch.rows or batch.held_up else None

    async def _choose(self, bands: Sequence[Band], limit: int, session: Session) -> dict[str, int]:
        """Return the ids of rows to claim with the epochs that they were seen at: from each band its share, at random."""
        chosen: dict[str, int] = {}
        others: dict[str, int] = {}
        for band in bands:
            hint = {"hint": band.index} if band.index else {}
            found = self._tasks.find(
                band.found, {"epoch": 1}, sort=band.sort, session=session, **hint
            )
            seen = await fetched(found, max(band.share, 1) * _SEEN_PER_CLAIM)
            if not seen and band.is_turn:
                self._turns.drop(band.found["tenantId"])
            new = [row for row in seen if row["_id"] not in chosen]
            self._chance.shuffle(new)
            share = min(band.share, limit - len(chosen))
            chosen |= {row["_id"]: row["epoch"] for row in new[:share]}
            others |= {row["_id"]: row["epoch"] for row in new[share:]}
        spare = [task_id for task_id in others if task_id not in chosen]
        for task_id in spare[: limit - len(chosen)]:
            chosen[task_id] = others[task_id]
        return chosen

    async def _bands(self, eligible: Document, limit: int, session: Session) -> list[Band]:
        """Return the oldest of all, and the most urgent of the tenants whose turn it is."""
        if self._turns.is_after_nothing:
            return [Band(eligible, OLDEST_FIRST, limit)]
        oldest = -(-limit // OLDEST_EVERY)
        tenants = await self._turns.next_tenants(_TENANTS_AT_ONCE, session)
        bands = [Band(eligible, OLDEST_FIRST, oldest if tenants else limit)]
        for number, tenant in enumerate(tenants):
            share = (limit - oldest + number) // len(tenants)
            own = {**eligible, "tenantId": tenant}
            bands += [Band(own, URGENT_FIRST, share, is_turn=True)] if share else []
        return bands

    async def _take(
        self, chosen: dict[str, int], worker_id: str, lock: timedelta, session: Session
    ) -> Batch:
        """Claim what is as it was seen, and read back what was won: others may have been faster."""
        token = f"{self._chance.getrandbits(128):032x}"
        claim = claim_pipeline(worker_id, lock, token=token)
        own = {
            "_id": {"$in": list(chosen)},
            "workerId": worker_id,
            "claimToken": token,
            "status": TaskStatus.LOCKED.value,
        }
        held_up: frozenset[str] = frozenset()
        try:
            if not await self._update({**_as_seen(chosen), **DUE}, claim, session):
                return Batch()
        except ExecutionTimeout:
            held_up = await self._take_apart(chosen, claim, session)
        rows = await fetched(self._tasks.find(own, session=session, hint=BY_ID), len(chosen))
        return Batch(rows, held_up)

    async def _take_apart(
        self, chosen: dict[str, int], claim: list[Document], session: Session
    ) -> frozenset[str]:
        """Claim rows in transactions, and return those that another one holds.

        A plain update waits for such a row; in a transaction it is refused at once, and halves are tried.
        """
        await settled(session.start_transaction(write_concern=MAJORITY))
        try:
            found = {**_as_seen(chosen), **DUE}
            await settled(self._tasks.update_many(found, claim, hint=BY_ID, session=session))
            await settled(session.commit_transaction())
        except PyMongoError as error:
            if session.in_transaction:
                await settled(session.abort_transaction())
            if not error.has_error_label(TRANSIENT_TRANSACTION):
                raise
        else:
            return frozenset()
        if len(chosen) == 1:
            return frozenset(chosen)
        seen = list(chosen.items())
        halves = dict(seen[: len(seen) // 2]), dict(seen[len(seen) // 2 :])
        return frozenset().union(*[await self._take_apart(half, claim, session) for half in halves])

    async def _update(self, found: Document, change: list[Document], session: Session) -> int:
        """Update many rows within the time limit of a claim, which the driver's own method cannot give."""
        command = {
            "update": self._tasks.name,
            "updates": [{"q": found, "u": change, "multi": True, "hint": BY_ID}],
            "writeConcern": MAJORITY.document,
            "maxTimeMS": CLAIM_TIME_MS,
        }
        reply = await settled(self._tasks.database.command(command, session=session))
        for refused in (*reply.get("writeErrors", ()), reply.get("writeConcernError")):
            if refused is not None:
                raise OperationFailure(refused.get("errmsg", ""), refused.get("code"), refused)
        return int(reply["n"])


def _as_seen(chosen: dict[str, int]) -> Document:
    """Return the filter for rows at the epochs they were seen at: one that was claimed and came back is another."""
    by_epoch: defaultdict[int, list[str]] = defaultdict(list)
    for task_id, epoch in chosen.items():
        by_epoch[epoch].append(task_id)
    arms = [{"epoch": epoch, "_id": {"$in": ids}} for epoch, ids in by_epoch.items()]
    return arms[0] if len(arms) == 1 else {"_id": {"$in": list(chosen)}, "$or": arms}
