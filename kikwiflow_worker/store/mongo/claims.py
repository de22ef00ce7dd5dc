"""Claiming due tasks one by one (protocol R2, R3, R5)."""

from datetime import timedelta
from typing import TypeAlias

from pymongo.errors import ExecutionTimeout, PyMongoError

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.runtime import Claim, ClaimedTask, TaskStatus
from kikwiflow_worker.store.mongo.arrivals import Arrivals
from kikwiflow_worker.store.mongo.codec import decode_instance, decode_task
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import MAJORITY, Client, Document, Session, settled
from kikwiflow_worker.store.mongo.errors import TRANSIENT_TRANSACTION, translated
from kikwiflow_worker.store.mongo.guards import UNLOCKED, held
from kikwiflow_worker.store.mongo.rotation import MAX_TENANTS, TenantRotation
from kikwiflow_worker.store.mongo.server_time import ServerTime

CLAIM_TIME_MS = 1_000
"""How long the server may look for a row to claim before the rows at the head are taken for locked."""

Sort: TypeAlias = list[tuple[str, int]]

_OLDEST_FIRST: Sort = [("claimableAt", 1)]
_URGENT_FIRST: Sort = [("priority", -1), ("claimableAt", 1)]
_OLDEST_EVERY = 4
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
        self._arrivals = arrivals
        self._time = server_time
        self._clock = clock
        self._blocked: dict[str, float] = {}
        self._rotation = TenantRotation(clock)
        self._last_tenant = ""
        self._turn = 0

    async def claim_due(
        self, *, worker_id: str, lock: timedelta, capabilities: Capabilities, limit: int
    ) -> tuple[ClaimedTask, ...]:
        """Claim due tasks, fair between tenants; see ``TaskQueue.claim_due``."""
        found: list[ClaimedTask] = []
        while len(found) < limit:
            claimed = await self._claim_one(worker_id, lock, capabilities)
            if claimed is None:
                break
            found.append(claimed)
        return tuple(found)

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
        self._turn = self._turn + 1 if claimed is not None else 0
        return claimed

    async def _claim_in_turn(
        self, eligible: Document, worker_id: str, lock: timedelta, session: Session
    ) -> ClaimedTask | None:
        """Claim for the tenant whose turn it is, its highest priority first; every fourth time just the oldest task.

        So one tenant's thousand tasks do not keep another's one waiting, and low priorities wait a bounded time. The first
        claim after an empty one takes the oldest too: idle polls cost one command.
        """
        if self._turn % _OLDEST_EVERY != 0:
            if self._rotation.is_stale:
                self._rotation.fill(await self._due_tenants(session))
            while not self._rotation.is_empty:
                tenant = self._rotation.next()
                own = {**eligible, "tenantId": tenant}
                claimed = await self._claim(own, worker_id, lock, session, sort=_URGENT_FIRST)
                if claimed is not None:
                    return claimed
                self._rotation.drop(tenant)
        return await self._claim(eligible, worker_id, lock, session, sort=_OLDEST_FIRST)

    async def _due_tenants(self, session: Session) -> list[str | None]:
        """Return tenants with due tasks, one index seek each; work without a tenant counts as one more."""
        tenants: list[str | None] = [None]
        after = self._last_tenant
        while len(tenants) <= MAX_TENANTS:
            found = {
                "tenantId": {"$gt": after},
                "claimableAt": {"$type": "date"},
                "$expr": {"$lte": ["$claimableAt", "$$NOW"]},
            }
            row = await settled(
                self._tasks.find_one(
                    found, {"tenantId": 1}, sort=[("tenantId", 1)], hint="tenants", session=session
                )
            )
            after = row["tenantId"] if row else ""
            if row is None:
                break
            tenants.append(after)
        self._last_tenant = after
        return tenants

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
                return await self._claim(found, worker_id, lock, session, sort=_OLDEST_FIRST)

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
        return await self._with_instance(row, worker_id, lock, asked_at, session)

    async def _with_instance(
        self, row: Document, worker_id: str, lock: timedelta, asked_at: float, session: Session
    ) -> ClaimedTask:
        claimed_at = row["lockExpiresAt"] - lock
        self._time.learn(claimed_at)
        task = decode_task(row)
        found = {"_id": task.instance_id}
        instance = await settled(self._instances.find_one(found, session=session))
        return ClaimedTask(
            task=task,
            claim=Claim(task.id, worker_id, task.epoch),
            instance=decode_instance(instance) if instance else None,
            claimed_at=claimed_at,
            locked_until=asked_at + lock.total_seconds(),
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
        for row in await due.limit(_LOOK_AROUND).to_list(_LOOK_AROUND):
            one = {**eligible, "_id": row["_id"]}
            asked_at = self._clock.monotonic()
            await settled(session.start_transaction(write_concern=MAJORITY))
            try:
                claimed = await settled(
                    self._tasks.find_one_and_update(
                        one, claim_pipeline(worker_id, lock), return_document=True, session=session
                    )
                )
                await settled(session.commit_transaction())
            except PyMongoError as error:
                if session.in_transaction:
                    await settled(session.abort_transaction())
                if not error.has_error_label(TRANSIENT_TRANSACTION):
                    raise
                self._blocked[row["_id"]] = self._clock.monotonic() + _BLOCKED_S
                continue
            if claimed is not None:
                return await self._with_instance(claimed, worker_id, lock, asked_at, session)
        return None

    def _not_blocked(self) -> Document:
        now = self._clock.monotonic()
        self._blocked = {task_id: until for task_id, until in self._blocked.items() if now < until}
        return {"_id": {"$nin": list(self._blocked)}} if self._blocked else {}


def due_filter(capabilities: Capabilities) -> Document:
    """Return the filter for tasks that can be claimed now by a worker with ``capabilities``.

    ``$type`` keeps out rows without the field, which ``$expr`` alone takes for earlier than every date.
    """
    return {
        "handlerName": {"$in": [None, *sorted(capabilities.stored)]},
        "claimableAt": {"$type": "date"},
        "status": {"$in": [TaskStatus.PENDING.value, TaskStatus.LOCKED.value]},
        "$expr": {"$lte": ["$claimableAt", "$$NOW"]},
    }


def claim_pipeline(worker_id: str, lock: timedelta) -> list[Document]:
    """Return the update that claims a row until ``lock`` from the database's now."""
    ends = lock_end(lock)
    lapsed = {"$cond": [{"$eq": ["$status", TaskStatus.LOCKED.value]}, 1, 0]}
    return [
        {
            "$set": {
                "status": TaskStatus.LOCKED.value,
                "workerId": {"$literal": worker_id},
                "lockExpiresAt": ends,
                "claimableAt": ends,
                "epoch": {"$add": ["$epoch", 1]},
                "crashCount": {"$add": ["$crashCount", lapsed]},
            }
        }
    ]


def release_pipeline() -> list[Document]:
    """Return the update that gives a row back: due when it was due before, at once if it had no date."""
    return [
        {
            "$set": {
                "status": TaskStatus.PENDING.value,
                "claimableAt": {"$ifNull": ["$dueDate", "$$NOW"]},
                "epoch": {"$add": ["$epoch", 1]},
            }
        },
        {"$unset": list(UNLOCKED)},
    ]


def lock_end(lock: timedelta) -> Document:
    """Return the expression for ``lock`` from the database's now."""
    return {"$add": ["$$NOW", int(lock.total_seconds() * 1000)]}
