"""The task queue: claiming due tasks, few of them one by one, many together (protocol R2 to R5)."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from pymongo.errors import ExecutionTimeout, PyMongoError

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.runtime import Claim, ClaimedTask, TaskStatus
from kikwiflow_worker.store.mongo.arrivals import Arrivals
from kikwiflow_worker.store.mongo.batch_claims import FEWEST_IN_BATCH, Band, BatchClaims
from kikwiflow_worker.store.mongo.claim_filters import (
    CLAIM_TIME_MS,
    claim_pipeline,
    due_filter,
    release_pipeline,
)
from kikwiflow_worker.store.mongo.codec import decode_claimed, decode_instance
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import (
    MAJORITY,
    Client,
    Document,
    Session,
    fetched,
    settled,
)
from kikwiflow_worker.store.mongo.errors import TRANSIENT_TRANSACTION, translated
from kikwiflow_worker.store.mongo.guards import held
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.turns import OLDEST_FIRST, URGENT_FIRST, Sort, Turns

_LOOK_AROUND = 100
_BLOCKED_S = 5.0


class Claims:
    """The task queue of one database."""

    def __init__(
        self,
        client: Client,
        collections: Collections,
        arrivals: Arrivals,
        server_time: ServerTime,
        clock: Clock,
    ) -> None:
        self._client = client
        self._tasks = collections.tasks
        self._instances = collections.instances
        self._sealing = collections.sealing
        self._arrivals = arrivals
        self._time = server_time
        self._clock = clock
        self._blocked: dict[str, float] = {}
        self._turns = Turns(collections.tasks, clock)
        self._batches = BatchClaims(collections.tasks, self._turns, random.Random())

    async def claim_due(
        self, *, worker_id: str, lock: timedelta, capabilities: Capabilities, limit: int
    ) -> tuple[ClaimedTask, ...]:
        """Claim due tasks, fair between tenants; see ``TaskQueue.claim_due``."""
        if limit >= FEWEST_IN_BATCH:
            return await self._claim_batch(worker_id, lock, capabilities, limit)
        found: list[ClaimedTask] = []
        while len(found) < limit:
            claimed = await self._claim_one(worker_id, lock, capabilities)
            if claimed is None:
                break
            found.append(claimed)
        return tuple(found)

    async def _claim_batch(
        self, worker_id: str, lock: timedelta, capabilities: Capabilities, limit: int
    ) -> tuple[ClaimedTask, ...]:
        eligible = due_filter(capabilities) | self._not_blocked()
        with translated(f"claiming up to {limit} tasks"):
            async with await settled(
                self._client.start_session(causal_consistency=True)
            ) as session:
                asked_at = self._clock.monotonic()
                batch = await self._batches.claim(eligible, worker_id, lock, limit, session)
                self._block(batch.held_up)
                claimed = await self._with_instances(batch.rows, worker_id, lock, asked_at, session)
        self._turns.count(found=bool(claimed))
        return claimed

    async def _claim_one(
        self, worker_id: str, lock: timedelta, capabilities: Capabilities
    ) -> ClaimedTask | None:
        eligible = due_filter(capabilities) | self._not_blocked()
        with translated("claiming a task"):
            async with await settled(
                self._client.start_session(causal_consistency=True)
            ) as session:
                try:
                    claimed = await self._claim_in_turn(eligible, worker_id, lock, session)
                except ExecutionTimeout:
                    claimed = await self._claim_around(eligible, worker_id, lock, session)
        self._turns.count(found=claimed is not None)
        return claimed

    async def _claim_in_turn(
        self, eligible: Document, worker_id: str, lock: timedelta, session: Session
    ) -> ClaimedTask | None:
        """Claim for the tenant whose turn it is, its highest priority first; every fourth time just the oldest task."""
        if not self._turns.is_oldest_first:
            async for tenant in self._turns.tenants(session):
                own = {**eligible, "tenantId": tenant}
                claimed = await self._claim(own, worker_id, lock, session, sort=URGENT_FIRST)
                if claimed is not None:
                    return claimed
                self._turns.drop(tenant)
        return await self._claim(eligible, worker_id, lock, session, sort=OLDEST_FIRST)

    async def claim_bands(
        self, bands: Sequence[Band], *, worker_id: str, lock: timedelta, limit: int
    ) -> tuple[ClaimedTask, ...]:
        """Claim at most ``limit`` tasks out of ``bands``, whoever's turn it is."""
        free = self._not_blocked()
        bands = [replace(band, found=band.found | free) for band in bands]
        with translated(f"claiming up to {limit} tasks for an external worker"):
            async with await settled(
                self._client.start_session(causal_consistency=True)
            ) as session:
                asked_at = self._clock.monotonic()
                batch = await self._batches.claim_bands(bands, worker_id, lock, limit, session)
                self._block(batch.held_up)
                return await self._with_instances(batch.rows, worker_id, lock, asked_at, session)

    async def claim(self, task_id: str, *, worker_id: str, lock: timedelta) -> ClaimedTask | None:
        """Claim one task by id, due or not; see ``TaskQueue.claim``."""
        found: Document = {
            "_id": task_id,
            "status": TaskStatus.PENDING.value,
            "isParked": {"$exists": False},
        }
        with translated(f"claiming task {task_id}"):
            async with await settled(
                self._client.start_session(causal_consistency=True)
            ) as session:
                return await self._claim(found, worker_id, lock, session, sort=OLDEST_FIRST)

    async def release(self, claim: Claim) -> bool:
        """Give a task back unrun; see ``TaskQueue.release``."""
        with translated(f"releasing task {claim.task_id}"):
            result = await settled(self._tasks.update_one(held(claim), release_pipeline()))
        return bool(result.matched_count == 1)

    async def deliver_arrivals(self, *, limit: int) -> int:
        """Deliver branches whose delivery was interrupted; see ``TaskQueue.deliver_arrivals``."""
        return await self._arrivals.deliver_found(limit=limit)

    async def _claim(
        self,
        eligible: Document,
        worker_id: str,
        lock: timedelta,
        session: Session,
        *,
        sort: Sort,
    ) -> ClaimedTask | None:
        asked_at = self._clock.monotonic()
        row = await settled(
            self._tasks.find_one_and_update(
                eligible,
                claim_pipeline(worker_id, lock),
                sort=sort,
                return_document=True,
                session=session,
                maxTimeMS=CLAIM_TIME_MS,
            )
        )
        if row is None:
            return None
        (claimed,) = await self._with_instances([row], worker_id, lock, asked_at, session)
        return claimed

    async def _with_instances(
        self,
        rows: Sequence[Document],
        worker_id: str,
        lock: timedelta,
        asked_at: float,
        session: Session,
    ) -> tuple[ClaimedTask, ...]:
        """Load the instances of claimed rows in one read, after the claim (protocol R5)."""
        if not rows:
            return ()
        self._time.learn(max(row["lockExpiresAt"] for row in rows) - lock)
        ids = sorted({row["processInstanceId"] for row in rows})
        found = self._instances.find({"_id": {"$in": ids}}, session=session)
        instances = {
            document["_id"]: decode_instance(document, self._sealing)
            for document in await fetched(found, len(ids))
        }
        claimed = [decode_claimed(row, instances, self._sealing) for row in rows]
        return tuple(
            ClaimedTask(
                task=task,
                claim=Claim(task.id, worker_id, task.epoch),
                instance=instance,
                claimed_at=row["lockExpiresAt"] - lock,
                locked_until=asked_at + lock.total_seconds(),
            )
            for row, (task, instance) in zip(rows, claimed, strict=True)
        )

    async def _claim_around(
        self, eligible: Document, worker_id: str, lock: timedelta, session: Session
    ) -> ClaimedTask | None:
        """Claim the first due task that no open transaction holds.

        A worker that dies between a transaction's first write and its commit leaves its row write-locked until the
        server aborts the transaction. A plain claim waits for that row, the head of the queue; inside a transaction of
        its own it is refused at once. Rows found locked so are left out of claims for a while.
        """
        due = self._tasks.find(eligible, {"_id": 1}, session=session).sort([("claimableAt", 1)])
        for row in await fetched(due, _LOOK_AROUND):
            own = {**eligible, "_id": row["_id"]}
            asked_at = self._clock.monotonic()
            await settled(session.start_transaction(write_concern=MAJORITY))
            try:
                claimed = await settled(
                    self._tasks.find_one_and_update(
                        own, claim_pipeline(worker_id, lock), return_document=True, session=session
                    )
                )
                await settled(session.commit_transaction())
            except PyMongoError as error:
                if session.in_transaction:
                    await settled(session.abort_transaction())
                if not error.has_error_label(TRANSIENT_TRANSACTION):
                    raise
                self._block([row["_id"]])
                continue
            if claimed is not None:
                (one,) = await self._with_instances([claimed], worker_id, lock, asked_at, session)
                return one
        return None

    def _block(self, task_ids: Iterable[str]) -> None:
        """Leave rows that an open transaction holds out of claims for a while."""
        until = self._clock.monotonic() + _BLOCKED_S
        self._blocked |= dict.fromkeys(task_ids, until)

    def _not_blocked(self) -> Document:
        now = self._clock.monotonic()
        self._blocked = {task_id: until for task_id, until in self._blocked.items() if now < until}
        return {"_id": {"$nin": list(self._blocked)}} if self._blocked else {}
