"""How each guard and each change of a unit of work is written."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from pymongo.errors import DuplicateKeyError

from kikwiflow_worker.errors import ClaimLostError, DuplicateStartError
from kikwiflow_worker.model.runtime import (
    Claim,
    IncidentStatus,
    InstanceStatus,
    ProcessInstance,
    TaskStatus,
)
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    Change,
    ChangeVariables,
    CompleteExternalTask,
    EndPath,
    FailTask,
    Guard,
    InsertExternalTask,
    InsertInstance,
    InsertTask,
    OpenIncident,
    RecordEnded,
    RemoveArrivals,
    RemoveTask,
    RescheduleTask,
    ReserveStartKey,
    guarded_task_id,
)
from kikwiflow_worker.model.variables import (
    AppendToVariable,
    IncrementVariable,
    SetVariable,
    UnsetVariable,
    VariableChange,
    net_changes,
)
from kikwiflow_worker.store.mongo.codec import (
    decode_instance,
    encode_external_task,
    encode_incident,
    encode_instance,
    encode_task,
    encode_value,
    encode_variable,
    escape_key,
)
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Collection, Document, Session, settled

UNLOCKED = {"workerId": "", "lockExpiresAt": "", "claimToken": ""}
"""What every way out of LOCKED unsets (protocol R3)."""

ARRIVAL_GRACE = timedelta(seconds=5)
"""How long the worker that committed an arrival has to deliver it before others do."""

_RUNNING = {"$in": [InstanceStatus.ACTIVE.value, InstanceStatus.SUSPENDED.value]}


def held(claim: Claim) -> Document:
    """Return the filter that a task matches only while ``claim`` holds (protocol R3)."""
    return {
        "_id": claim.task_id,
        "workerId": claim.worker_id,
        "epoch": claim.epoch,
        "status": TaskStatus.LOCKED.value,
        "hold": {"$exists": False},
    }


class Writes:
    """Writes guards and changes, inside a transaction if given its session."""

    def __init__(self, collections: Collections, retention: timedelta) -> None:
        self._collections = collections
        self._retention = retention

    async def guard(self, guard: Guard, *, now: datetime, session: Session = None) -> None:
        """Write a guard.

        Raises:
            ClaimLostError: It matched nothing.
        """
        matched = await self._guard(guard, now, session)
        if matched != 1:
            raise ClaimLostError(
                f"{type(guard).__name__} matched nothing: task {guarded_task_id(guard)} belongs to somebody else"
            )

    async def _guard(self, guard: Guard, now: datetime, session: Session) -> int:
        tasks = self._collections.tasks
        match guard:
            case RemoveTask(claim):
                return int(
                    (await settled(tasks.delete_one(held(claim), session=session))).deleted_count
                )
            case ArriveTask(claim=claim):
                update: Document = {
                    "$set": {
                        "status": TaskStatus.ARRIVED.value,
                        "claimableAt": now + ARRIVAL_GRACE,
                    },
                    "$unset": {**UNLOCKED, "attachedToRefId": "", "pendingBranchIds": ""},
                }
            case RescheduleTask(claim=claim):
                update = {
                    "$set": {
                        "status": TaskStatus.PENDING.value,
                        "dueDate": guard.due_at,
                        "claimableAt": guard.due_at,
                        "attempts": guard.attempts,
                        "retries": guard.retries_left,
                        "error": guard.error,
                        "crashCount": 0,
                    },
                    "$unset": UNLOCKED,
                }
            case FailTask(claim=claim):
                update = {
                    "$set": {
                        "status": TaskStatus.ERROR.value,
                        "attempts": guard.attempts,
                        "retries": 0,
                        "error": guard.error,
                    },
                    "$unset": {**UNLOCKED, "claimableAt": ""},
                }
            case CompleteExternalTask():
                return await self._complete_external(guard, session)
            case _:
                assert_never(guard)
        update["$inc"] = {"epoch": 1}
        return int(
            (await settled(tasks.update_one(held(claim), update, session=session))).matched_count
        )

    async def _complete_external(self, guard: CompleteExternalTask, session: Session) -> int:
        found = {"_id": guard.task_id, "status": "CREATED"}
        deleted = await settled(self._collections.external_tasks.delete_one(found, session=session))
        if deleted.deleted_count == 1:
            await self.record_completion(guard, session=session)
        return int(deleted.deleted_count)

    async def record_completion(
        self, guard: CompleteExternalTask, *, session: Session = None
    ) -> None:
        """Keep who completed an external task, for those who try again."""
        record = {
            "_id": guard.task_id,
            "processInstanceId": guard.instance_id,
            "taskDefinitionId": guard.node_id,
            "completedAt": guard.completed_at,
            "completedBy": guard.completed_by,
            "expiresAt": guard.completed_at + self._retention,
        }
        completions = self._collections.completed_external_tasks
        await settled(completions.insert_one(record, session=session))

    async def insert(self, changes: Sequence[Change], *, session: Session = None) -> None:
        """Write all inserts of new instances and tasks, one command per collection.

        Without a transaction a step may be repeated after a crash: then what is there already stays as it is.

        Raises:
            DuplicateStartError: The start key is in use.
        """
        collections = self._collections
        documents: list[tuple[Collection, list[Document]]] = [
            (
                collections.instances,
                [encode_instance(c.instance) for c in changes if isinstance(c, InsertInstance)],
            ),
            (
                collections.history,
                [self._ended(c.instance) for c in changes if isinstance(c, RecordEnded)],
            ),
            (
                collections.tasks,
                [encode_task(c.task) for c in changes if isinstance(c, InsertTask)],
            ),
            (
                collections.external_tasks,
                [
                    encode_external_task(c.task)
                    for c in changes
                    if isinstance(c, InsertExternalTask)
                ],
            ),
            (
                collections.incidents,
                [encode_incident(c.incident) for c in changes if isinstance(c, OpenIncident)],
            ),
        ]
        for change in changes:
            if isinstance(change, ReserveStartKey):
                await self._reserve(change, session)
        for collection, batch in documents:
            if batch and session is not None:
                await settled(collection.insert_many(batch, session=session))
            elif batch:
                for document in batch:
                    await insert_if_absent(collection, document)

    async def _reserve(self, change: ReserveStartKey, session: Session) -> None:
        record = {
            "_id": start_key_id(change.key, change.tenant_id),
            "processInstanceId": change.instance_id,
            "expiresAt": change.reserved_at + self._retention,
        }
        try:
            await settled(self._collections.start_keys.insert_one(record, session=session))
        except DuplicateKeyError:
            raise DuplicateStartError(f"start key {change.key!r} is in use") from None

    async def change(self, change: Change, *, session: Session = None) -> ProcessInstance | None:
        """Write a change that is no insert; return the instance if this ended it.

        Raises:
            ClaimLostError: The instance is being cancelled, or has ended.
        """
        match change:
            case ChangeVariables(instance_id, changes):
                found = {"_id": instance_id, "status": _RUNNING}
                update = variable_update(net_changes(changes))
                result = await settled(
                    self._collections.instances.update_one(found, update, session=session)
                )
                if result.matched_count != 1:
                    raise ClaimLostError(f"instance {instance_id} is not running any more")
                return None
            case RemoveArrivals(join_task_id):
                found = {"joinTaskId": join_task_id, "status": TaskStatus.ARRIVED.value}
                await settled(self._collections.tasks.delete_many(found, session=session))
                return None
            case EndPath(instance_id, ended_at):
                return await self._end_path(instance_id, ended_at, session)
            case _:
                return None

    async def _end_path(
        self, instance_id: str, ended_at: datetime, session: Session
    ) -> ProcessInstance | None:
        """End a path; whether it is the last is decided by what is stored now, never by what was loaded (R11)."""
        instances = self._collections.instances
        last = {"_id": instance_id, "status": _RUNNING, "openPaths": 1}
        document = await settled(instances.find_one_and_delete(last, session=session))
        if document is None:
            found = {"_id": instance_id, "status": _RUNNING}
            fewer = await settled(
                instances.update_one(found, {"$inc": {"openPaths": -1}}, session=session)
            )
            if fewer.matched_count != 1:
                raise ClaimLostError(f"instance {instance_id} is not running any more")
            return None
        return await self.end_instance(
            document, InstanceStatus.COMPLETED, ended_at, session=session
        )

    async def end_instance(
        self,
        document: Document,
        status: InstanceStatus,
        ended_at: datetime,
        *,
        session: Session = None,
        cancelled_by: str | None = None,
    ) -> ProcessInstance:
        """Move an instance whose document was just deleted into the history, with all that belongs to it."""
        instance = replace(
            decode_instance(document), status=status, ended_at=ended_at, open_paths=0
        )
        mine = {"processInstanceId": instance.id}
        await settled(self._collections.tasks.delete_many(mine, session=session))
        await settled(self._collections.external_tasks.delete_many(mine, session=session))
        expiry = {"$set": {"expiresAt": ended_at + self._retention}}
        await settled(self._collections.incidents.update_many(mine, expiry, session=session))
        await settled(
            self._collections.incidents.update_many(
                {**mine, "status": IncidentStatus.OPEN.value},
                {"$set": {"status": IncidentStatus.CLOSED.value}},
                session=session,
            )
        )
        record = self._ended(instance)
        if cancelled_by is not None:
            record["cancelledBy"] = cancelled_by
        await settled(self._collections.history.insert_one(record, session=session))
        return instance

    def _ended(self, instance: ProcessInstance) -> Document:
        ended_at = instance.ended_at or instance.started_at
        return {**encode_instance(instance), "expiresAt": ended_at + self._retention}


async def insert_if_absent(collection: Collection, document: Document) -> None:
    """Insert a document unless its id is there already."""
    fields = {field: value for field, value in document.items() if field != "_id"}
    found = {"_id": document["_id"]}
    await settled(collection.update_one(found, {"$setOnInsert": fields}, upsert=True))


def start_key_id(key: str, tenant_id: str | None) -> str:
    """Return the id under which a start key is kept; keys of different tenants never meet."""
    return f"{tenant_id or ''}\n{key}"


def variable_update(changes: Sequence[VariableChange]) -> Document:
    """Return the update for net changes of variables, each by its own path (protocol R17)."""
    update: Document = {}
    for change in changes:
        path = f"variables.{escape_key(change.name)}"
        match change:
            case SetVariable(name, value):
                update.setdefault("$set", {})[path] = encode_variable(name, value)
            case UnsetVariable():
                update.setdefault("$unset", {})[path] = ""
            case IncrementVariable(name, by):
                update.setdefault("$set", {})[f"{path}.name"] = name
                update.setdefault("$inc", {})[f"{path}.value"] = by
            case AppendToVariable(name, value):
                update.setdefault("$set", {})[f"{path}.name"] = name
                each = update.setdefault("$push", {}).setdefault(f"{path}.value", {"$each": []})
                each["$each"].append(encode_value(value))
            case _:
                assert_never(change)
    return update
