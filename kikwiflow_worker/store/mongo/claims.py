"""Claiming due tasks one by one (protocol R2, R3, R5)."""

from datetime import timedelta

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.runtime import Claim, ClaimedTask, TaskStatus
from kikwiflow_worker.store.mongo.arrivals import Arrivals
from kikwiflow_worker.store.mongo.codec import decode_instance, decode_task
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Client, Document, Session, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.writes import UNLOCKED, held


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

    async def claim_due(
        self, *, worker_id: str, lock: timedelta, capabilities: Capabilities
    ) -> ClaimedTask | None:
        """Claim the task that has been claimable longest; see ``TaskQueue.claim_due``."""
        return await self._claim(due_filter(capabilities), worker_id, lock)

    async def claim(self, task_id: str, *, worker_id: str, lock: timedelta) -> ClaimedTask | None:
        """Claim one task by id, due or not; see ``TaskQueue.claim``."""
        return await self._claim(
            {"_id": task_id, "status": TaskStatus.PENDING.value}, worker_id, lock
        )

    async def release(self, claim: Claim) -> bool:
        """Give a task back unrun; see ``TaskQueue.release``."""
        with translated(f"releasing task {claim.task_id}"):
            result = await settled(self._tasks.update_one(held(claim), release_pipeline()))
        return bool(result.matched_count == 1)

    async def deliver_arrivals(self, *, limit: int) -> int:
        """Deliver branches whose delivery was interrupted; see ``TaskQueue.deliver_arrivals``."""
        return await self._arrivals.deliver_found(limit=limit)

    async def _claim(
        self, eligible: Document, worker_id: str, lock: timedelta
    ) -> ClaimedTask | None:
        with translated("claiming a task"):
            session = await settled(self._client.start_session(causal_consistency=True))
            async with session:
                asked_at = self._clock.monotonic()
                row = await settled(
                    self._tasks.find_one_and_update(
                        eligible,
                        claim_pipeline(worker_id, lock),
                        sort=[("claimableAt", 1)],
                        return_document=True,
                        session=session,
                    )
                )
                if row is None:
                    return None
                self._time.learn(row["lockExpiresAt"] - lock)
                return await self._claimed(row, worker_id, asked_at + lock.total_seconds(), session)

    async def _claimed(
        self, row: Document, worker_id: str, until: float, session: Session
    ) -> ClaimedTask:
        task = decode_task(row)
        found = {"_id": task.instance_id}
        instance = await settled(self._instances.find_one(found, session=session))
        return ClaimedTask(
            task=task,
            claim=Claim(task.id, worker_id, task.epoch),
            instance=decode_instance(instance) if instance else None,
            locked_until=until,
        )


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
