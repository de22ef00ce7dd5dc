"""The runtime port: loading, committing, cancelling, and what people do to single records."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.messages import Message
from kikwiflow_worker.model.runtime import (
    Branch,
    Claim,
    ExternalTask,
    ExternalTaskStatus,
    InstanceStatus,
    ProcessInstance,
    TaskStatus,
)
from kikwiflow_worker.model.texts import tenant_scoped
from kikwiflow_worker.model.unit_of_work import Committed, UnitOfWork
from kikwiflow_worker.store.mongo.cancellation import Cancellation
from kikwiflow_worker.store.mongo.codec import (
    decode_external_task,
    decode_instance,
    decode_message,
)
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.commits import Commits
from kikwiflow_worker.store.mongo.driver import Document, Session, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.groups import GroupCommits
from kikwiflow_worker.store.mongo.guards import UNLOCKED, held
from kikwiflow_worker.store.mongo.repairs import Repairs
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.standalone import StandaloneCommits
from kikwiflow_worker.store.mongo.transactions import Transactions
from kikwiflow_worker.store.values import PLAIN_RETRY, GroupedUnit, GroupResult, HandOn, Resolution


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPaths:
    """The ways to commit: alone, in groups, and without transactions."""

    alone: Commits
    groups: GroupCommits
    standalone: StandaloneCommits


class _NotSuspendedError(Exception):
    """The instance went on before its task was parked; aborts the transaction."""


class Runtime:
    """The runtime port of one database; contracts are those of ``RuntimeStore``."""

    def __init__(
        self,
        collections: Collections,
        commits: CommitPaths,
        cancellation: Cancellation,
        repairs: Repairs,
        transactions: Transactions,
        server_time: ServerTime,
    ) -> None:
        self._collections = collections
        self._commits = commits
        self._cancellation = cancellation
        self._repairs = repairs
        self._transactions = transactions
        self._time = server_time

    def now(self) -> datetime:
        """Return the database's time as known here."""
        return self._time.now()

    async def find_instance(self, instance_id: str) -> ProcessInstance | None:
        """Return a running instance."""
        with translated(f"loading instance {instance_id}"):
            document = await settled(self._collections.instances.find_one({"_id": instance_id}))
        return decode_instance(document, self._collections.sealing) if document else None

    async def find_ended_instance(self, instance_id: str) -> ProcessInstance | None:
        """Return an instance from the history."""
        with translated(f"loading ended instance {instance_id}"):
            document = await settled(self._collections.history.find_one({"_id": instance_id}))
        return decode_instance(document, self._collections.sealing) if document else None

    async def find_started(self, key: str, *, tenant_id: str | None) -> str | None:
        """Return the id of the instance that a start key was used for."""
        with translated("looking up a start key"):
            found = {"_id": tenant_scoped(key, tenant_id)}
            record = await settled(self._collections.start_keys.find_one(found))
        return record["processInstanceId"] if record else None

    async def find_external_task(self, task_id: str) -> ExternalTask | None:
        """Return an open external task."""
        with translated(f"loading external task {task_id}"):
            document = await settled(self._collections.external_tasks.find_one({"_id": task_id}))
        return decode_external_task(document) if document else None

    async def find_waiting(
        self, key: str, *, tenant_id: str | None, taken: frozenset[str]
    ) -> ExternalTask | None:
        """Return the external task that has waited longest for a key."""
        found: Document = {
            "correlationKey": key,
            "tenantId": tenant_id,
            "status": ExternalTaskStatus.CREATED.value,
        }
        if taken:
            found["_id"] = {"$nin": sorted(taken)}
        oldest = [("createdAt", 1), ("_id", 1)]
        with translated("looking for who waits for a key"):
            document = await settled(self._collections.external_tasks.find_one(found, sort=oldest))
        return decode_external_task(document) if document else None

    async def find_message(self, message_id: str, *, tenant_id: str | None) -> Message | None:
        """Return a message that is kept or remembered."""
        with translated("looking up a message"):
            found = {"_id": tenant_scoped(message_id, tenant_id)}
            document = await settled(self._collections.messages.find_one(found))
        return decode_message(document, self._collections.sealing) if document else None

    async def find_children(self, children: Branch, *, limit: int) -> tuple[str, ...]:
        """Return ids of running child instances."""
        of: Document = (
            {"callerTaskId": children.join_task_id}
            if children.join_task_id
            else {"parentInstanceId": children.id}
        )
        with translated("looking for child instances"):
            found = self._collections.instances.find(of, {"_id": 1}).limit(limit)
            return tuple(row["_id"] for row in await found.to_list(limit))

    async def commit(self, unit: UnitOfWork) -> Committed:
        """Write the whole unit or nothing."""
        paths = self._commits
        alone = paths.alone if self._transactions.enabled else paths.standalone
        return await alone.commit(unit)

    async def commit_group(
        self, units: Sequence[GroupedUnit], *, hand_on: HandOn | None
    ) -> tuple[GroupResult, ...]:
        """Write each unit wholly or not at all."""
        if self._transactions.enabled:
            return await self._commits.groups.commit(units, hand_on=hand_on)
        return await self._commits.standalone.commit_group(units, hand_on=hand_on)

    async def discard_task(self, claim: Claim) -> bool:
        """Remove a claimed task whose instance has ended."""

        async def discard(session: Session) -> bool:
            tasks = self._collections.tasks
            row = await settled(tasks.find_one_and_delete(held(claim), session=session))
            if row is None:
                return True
            found = {"_id": row["processInstanceId"]}
            instance = await settled(self._collections.instances.find_one(found, session=session))
            if instance is not None:
                await settled(tasks.insert_one(row, session=session))
            return instance is None

        return await self._transactions.run(f"discarding task {claim.task_id}", discard)

    async def cancel_instance(self, instance_id: str, *, cancelled_by: str | None) -> bool:
        """Mark the instance, then sweep it."""
        return await self._cancellation.cancel(instance_id, cancelled_by=cancelled_by)

    async def sweep_cancelled(self, instance_id: str) -> bool:
        """Carry out a marked cancellation."""
        return await self._cancellation.sweep(instance_id)

    async def suspend_instance(self, instance_id: str) -> bool:
        """Let a running instance rest."""
        return await self._change_status(
            instance_id, InstanceStatus.ACTIVE, InstanceStatus.SUSPENDED
        )

    async def resume_instance(self, instance_id: str) -> bool:
        """Let a suspended instance go on."""

        async def resume(session: Session) -> bool:
            found = {"_id": instance_id, "status": InstanceStatus.SUSPENDED.value}
            active = {"$set": {"status": InstanceStatus.ACTIVE.value}}
            changed = await settled(
                self._collections.instances.update_one(found, active, session=session)
            )
            if changed.matched_count == 0:
                return False
            now = self._time.now()
            parked = {"processInstanceId": instance_id, "isParked": True}
            due: Document = {
                "$set": {"claimableAt": now},
                "$unset": {"isParked": ""},
                "$inc": {"epoch": 1},
            }
            await settled(self._collections.tasks.update_many(parked, due, session=session))
            return True

        return await self._transactions.run(f"resuming instance {instance_id}", resume)

    async def park_task(self, claim: Claim) -> bool:
        """Take a claimed task out of the claims until its instance is resumed."""

        async def park(session: Session) -> bool:
            parked: Document = {
                "$set": {"status": TaskStatus.PENDING.value, "isParked": True},
                "$unset": {**UNLOCKED, "claimableAt": ""},
                "$inc": {"epoch": 1},
            }
            row = await settled(
                self._collections.tasks.find_one_and_update(held(claim), parked, session=session)
            )
            if row is None:
                raise ClaimLostError(None, f"task {claim.task_id} belongs to somebody else")
            suspended = {
                "_id": row["processInstanceId"],
                "status": InstanceStatus.SUSPENDED.value,
            }
            fenced = await settled(
                self._collections.instances.update_one(
                    suspended, {"$inc": {"fence": 1}}, session=session
                )
            )
            if fenced.matched_count == 0:
                raise _NotSuspendedError
            return True

        try:
            return await self._transactions.run(f"parking task {claim.task_id}", park)
        except _NotSuspendedError:
            return False

    async def _change_status(
        self, instance_id: str, before: InstanceStatus, after: InstanceStatus
    ) -> bool:
        found = {"_id": instance_id, "status": before.value}
        with translated(f"changing instance {instance_id} to {after}"):
            changed = await settled(
                self._collections.instances.update_one(found, {"$set": {"status": after.value}})
            )
        return bool(changed.matched_count == 1)

    async def retry_incident(
        self,
        incident_id: str,
        *,
        retries: int,
        resolved_by: str | None,
        resolution: Resolution = PLAIN_RETRY,
    ) -> bool:
        """Let the incident's task go on and resolve the incident."""
        return await self._repairs.retry_incident(
            incident_id, retries=retries, resolved_by=resolved_by, resolution=resolution
        )

    async def override_task(
        self, task_id: str, *, retries: int | None, due_at: datetime | None, by: str | None
    ) -> bool:
        """Give a task other attempts or another due time."""
        return await self._repairs.override_task(task_id, retries=retries, due_at=due_at, by=by)

    async def forget_instance(self, instance_id: str) -> bool:
        """Remove an ended instance from the history."""
        return await self._repairs.forget_instance(instance_id)

    async def migrate_instance(
        self,
        instance_id: str,
        *,
        before_id: str,
        after: ProcessDefinition,
        nodes: frozenset[str],
    ) -> bool:
        """Let a running instance go on with another version."""
        return await self._repairs.migrate_instance(
            instance_id, before_id=before_id, after=after, nodes=nodes
        )

    async def assign_external_task(
        self, task_id: str, *, assignee: str | None, expected: str | None
    ) -> bool:
        """Change the assignee if it is ``expected`` now."""
        return await self._repairs.assign_external_task(
            task_id, assignee=assignee, expected=expected
        )
