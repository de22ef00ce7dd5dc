"""Cancelling an instance: marker first, then one transaction that finds its rows by query (protocol R8)."""

from datetime import datetime
from uuid import NAMESPACE_OID, uuid5

from kikwiflow_worker.model.runtime import Branch, ExecutableTask, InstanceStatus, TaskType
from kikwiflow_worker.store.mongo.codec import encode_task
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Session, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.instances import Ended, InstanceWrites
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.transactions import Transactions
from kikwiflow_worker.store.mongo.writes import children_canceller

_MANY_ROWS = 1000
_CANCELLABLE = [InstanceStatus.ACTIVE.value, InstanceStatus.SUSPENDED.value]


class Cancellation:
    """Cancels instances."""

    def __init__(
        self,
        collections: Collections,
        instances: InstanceWrites,
        transactions: Transactions,
        server_time: ServerTime,
    ) -> None:
        self._collections = collections
        self._instances = instances
        self._transactions = transactions
        self._time = server_time

    async def cancel(self, instance_id: str, *, cancelled_by: str | None) -> bool:
        """Mark and sweep; see ``RuntimeStore.cancel_instance``."""

        async def mark(session: Session) -> bool:
            now = self._time.now()
            marker = {"status": InstanceStatus.CANCELLING.value, "cancelledBy": cancelled_by}
            marked = await settled(
                self._collections.instances.find_one_and_update(
                    {"_id": instance_id, "status": {"$in": _CANCELLABLE}},
                    {"$set": marker},
                    session=session,
                )
            )
            if marked is None:
                return False
            sweeper = _sweeper(instance_id, marked["processDefinitionId"], now)
            await settled(
                self._collections.tasks.insert_one(
                    encode_task(sweeper, self._collections.sealing), session=session
                )
            )
            return True

        marked = await self._transactions.run(f"marking instance {instance_id} as cancelled", mark)
        return await self.sweep(instance_id) or marked

    async def sweep(self, instance_id: str) -> bool:
        """Carry out a marked cancellation; see ``RuntimeStore.sweep_cancelled``."""
        found = {"_id": instance_id, "status": InstanceStatus.CANCELLING.value}
        with translated(f"cancelling instance {instance_id}"):
            # Nothing takes the marker back: what a majority read says here stays true.
            if await settled(self._collections.instances.find_one(found, {"_id": 1})) is None:
                return False
            mine = {"processInstanceId": instance_id}
            rows = await settled(self._collections.tasks.count_documents(mine, limit=_MANY_ROWS))
            if rows == _MANY_ROWS:
                await self._calm(instance_id)

        async def sweep(session: Session) -> bool:
            document = await settled(
                self._collections.instances.find_one_and_delete(found, session=session)
            )
            if document is None:
                return False
            await self._instances.end(
                [Ended(document, self._time.now())],
                InstanceStatus.CANCELLED,
                session=session,
                cancelled_by=document.get("cancelledBy"),
            )
            child = {"parentInstanceId": instance_id}
            instances = self._collections.instances
            if await settled(instances.find_one(child, {"_id": 1}, session=session)):
                children = Branch(instance_id, None)
                row = children_canceller(
                    children, document["processDefinitionId"], self._time.now()
                )
                await settled(
                    self._collections.tasks.insert_one(
                        encode_task(row, self._collections.sealing), session=session
                    )
                )
            return True

        return await self._transactions.run(f"cancelling instance {instance_id}", sweep)

    async def _calm(self, instance_id: str) -> None:
        """Take many rows out of the claims before the one transaction, so that it does not conflict for ever."""
        active = {
            "processInstanceId": instance_id,
            "claimableAt": {"$exists": True},
            "type": {"$ne": TaskType.CANCEL_INSTANCE.value},
        }
        changed = 1
        while changed:
            update = {"$unset": {"claimableAt": ""}, "$inc": {"epoch": 1}}
            changed = (
                await settled(self._collections.tasks.update_many(active, update))
            ).modified_count


def _sweeper(instance_id: str, definition_id: str, now: datetime) -> ExecutableTask:
    """Return the task by which any worker finds the marked instance if the caller dies."""
    return ExecutableTask(
        id=str(uuid5(NAMESPACE_OID, f"cancel:{instance_id}")),
        type=TaskType.CANCEL_INSTANCE,
        node_id="",
        instance_id=instance_id,
        definition_id=definition_id,
        created_at=now,
        claimable_at=now,
    )
