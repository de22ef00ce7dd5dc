"""A store on mongomock, for tests of handlers and definitions. Never evidence for claims, commits or transactions.

mongomock has no transactions, no ``$$NOW`` and not every aggregation operator, so claims and pulls are written here
without them, on one event loop and with the clock that the test moves.
"""

from datetime import timedelta
from typing import Any

from bson.codec_options import CodecOptions

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.runtime import Claim, ClaimedTask, TaskStatus
from kikwiflow_worker.store.mongo.arrivals import Arrivals
from kikwiflow_worker.store.mongo.claims import Claims
from kikwiflow_worker.store.mongo.codec import decode_claimed, decode_instance
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Client, Database, Document
from kikwiflow_worker.store.mongo.guards import UNLOCKED, held
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.store import MongoStore, SilentObserver, StoreOptions


class InMemoryArrivals(Arrivals):
    """Pulls branches by reading and writing."""

    def __init__(self, collections: Collections, server_time: ServerTime) -> None:
        super().__init__(collections)
        self._time = server_time

    async def _pull(self, join_task_id: str, arrived: list[str]) -> bool:
        waiting = {"_id": join_task_id, "status": TaskStatus.AWAITING_BRANCHES.value}
        join = await self._tasks.find_one(waiting)
        if join is None:
            return False
        left = [branch for branch in join["pendingBranchIds"] if branch not in arrived]
        change: Document = {"pendingBranchIds": left}
        if not left:
            change |= {"status": TaskStatus.PENDING.value, "claimableAt": self._time.now()}
        await self._tasks.update_one(waiting, {"$set": change})
        return not left


class InMemoryClaims(Claims):
    """Claims by plain updates at the time of the test's clock."""

    async def claim_due(
        self, *, worker_id: str, lock: timedelta, capabilities: Capabilities, limit: int
    ) -> tuple[ClaimedTask, ...]:
        """Claim the tasks that have been claimable longest."""
        eligible = {
            "handlerName": {"$in": [None, *sorted(capabilities.stored)]},
            "status": TaskStatus.PENDING.value,
            "claimableAt": {"$lte": self._time.now()},
        }
        taken: list[ClaimedTask] = []
        while len(taken) < limit and (one := await self._take(eligible, worker_id, lock)):
            taken.append(one)
        return tuple(taken)

    async def claim(self, task_id: str, *, worker_id: str, lock: timedelta) -> ClaimedTask | None:
        """Claim one task by id, due or not."""
        found = {"_id": task_id, "status": TaskStatus.PENDING.value}
        return await self._take(found, worker_id, lock)

    async def release(self, claim: Claim) -> bool:
        """Give a task back unrun."""
        change = {
            "$set": {"status": TaskStatus.PENDING.value, "claimableAt": self._time.now()},
            "$unset": UNLOCKED,
            "$inc": {"epoch": 1},
        }
        result = await self._tasks.update_one(held(claim), change)
        return bool(result.matched_count == 1)

    async def _take(
        self, eligible: Document, worker_id: str, lock: timedelta
    ) -> ClaimedTask | None:
        now = self._time.now()
        change = {
            "$set": {
                "status": TaskStatus.LOCKED.value,
                "workerId": worker_id,
                "lockExpiresAt": now + lock,
                "claimableAt": now + lock,
            },
            "$inc": {"epoch": 1},
        }
        row = await self._tasks.find_one_and_update(
            eligible, change, sort=[("claimableAt", 1)], return_document=True
        )
        if row is None:
            return None
        found = await self._instances.find_one({"_id": row["processInstanceId"]})
        known = {found["_id"]: decode_instance(found, self._sealing)} if found else {}
        task, instance = decode_claimed(row, known, self._sealing)
        return ClaimedTask(
            task=task,
            claim=Claim(task.id, worker_id, task.epoch),
            instance=instance,
            claimed_at=now,
            locked_until=self._clock.monotonic() + lock.total_seconds(),
        )


class InMemoryStore(MongoStore):
    """A database that lives as long as this object.

    Raises:
        ConfigurationError: The extra ``testing`` is not installed.
    """

    def __init__(self, clock: Clock) -> None:
        try:
            from mongomock_motor import AsyncMongoMockClient  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise ConfigurationError(
                "the in-memory harness needs the extra: pip install 'kikwiflow-worker[testing]'"
            ) from error
        super().__init__(
            AsyncMongoMockClient(),
            "kikwiflow",
            clock=clock,
            options=StoreOptions(allow_standalone=True),
            observer=SilentObserver(),
            owns_client=False,
        )
        self._transactions.enabled = False

    def _open_database(self, client: Client, name: str) -> Database:
        return client.get_database(name, codec_options=CodecOptions(tz_aware=True))

    def _new_arrivals(self, collections: Collections) -> Arrivals:
        return InMemoryArrivals(collections, self.server_time)

    def _new_claims(self, *parts: Any) -> Claims:
        return InMemoryClaims(*parts)
