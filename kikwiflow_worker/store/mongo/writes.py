"""How each change of a unit of work is written."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import NAMESPACE_OID, uuid5

from pymongo.errors import DuplicateKeyError

from kikwiflow_worker.errors import ClaimLostError, DuplicateMessageError, DuplicateStartError
from kikwiflow_worker.model.events import EventType, OutboxEvent, finished_payload
from kikwiflow_worker.model.incidents import incident_for
from kikwiflow_worker.model.messages import Message
from kikwiflow_worker.model.runtime import (
    Branch,
    ExecutableTask,
    IncidentStatus,
    IncidentType,
    InstanceStatus,
    Parent,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.texts import tenant_scoped
from kikwiflow_worker.model.unit_of_work import (
    AbandonChildren,
    Change,
    ChangeVariables,
    Detach,
    EndPath,
    InsertExternalTask,
    InsertInstance,
    InsertTask,
    OpenIncident,
    OpenPath,
    RecordEnded,
    RecordEvent,
    RecordMessage,
    RemoveArrivals,
    ReserveStartKey,
)
from kikwiflow_worker.model.variables import (
    SetVariable,
    VariableChange,
    net_changes,
)
from kikwiflow_worker.store.mongo.codec import (
    decode_instance,
    decode_task,
    encode_external_task,
    encode_incident,
    encode_instance,
    encode_message,
    encode_task,
)
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Collection, Document, Session, settled
from kikwiflow_worker.store.mongo.guards import ARRIVAL_GRACE
from kikwiflow_worker.store.mongo.outbox import Outbox, store_event
from kikwiflow_worker.store.mongo.variable_writes import RUNNING, variable_update, write_variables

_AFTER_STEPS = 1_000_000
"""Positions in a commit from which events of its ends begin."""


class Writes:
    """Writes changes, inside a transaction if given its session."""

    def __init__(self, collections: Collections, outbox: Outbox, retention: timedelta) -> None:
        self._collections = collections
        self._outbox = outbox
        self._retention = retention

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
            if isinstance(change, RecordMessage):
                await self._record_message(change.message, session)
        await self._outbox.store(_events_of(changes), session=session)
        for collection, batch in documents:
            if batch and session is not None:
                await settled(collection.insert_many(batch, session=session))
            elif batch:
                for document in batch:
                    await insert_if_absent(collection, document)

    async def _reserve(self, change: ReserveStartKey, session: Session) -> None:
        record = {
            "_id": tenant_scoped(change.key, change.tenant_id),
            "processInstanceId": change.instance_id,
            "expiresAt": change.reserved_at + self._retention,
        }
        try:
            await settled(self._collections.start_keys.insert_one(record, session=session))
        except DuplicateKeyError:
            raise DuplicateStartError(f"start key {change.key!r} is in use") from None

    async def _record_message(self, message: Message, session: Session) -> None:
        try:
            document = encode_message(message)
            await settled(self._collections.messages.insert_one(document, session=session))
        except DuplicateKeyError:
            raise DuplicateMessageError(f"message {message.id!r} is known") from None

    async def apply(
        self, changes: Sequence[Change], *, session: Session = None
    ) -> tuple[ProcessInstance, ...]:
        """Write all changes that are no inserts, in their order; return the instances that this ended.

        Raises:
            ClaimLostError: An instance is being cancelled, or has ended.
        """
        ended = [await self._change(change, session=session) for change in changes]
        return tuple(instance for instance in ended if instance is not None)

    async def _change(self, change: Change, *, session: Session) -> ProcessInstance | None:
        match change:
            case ChangeVariables(instance_id, changes):
                await self._write_variables(instance_id, net_changes(changes), session)
                return None
            case RemoveArrivals(join_task_id):
                found = {"joinTaskId": join_task_id, "status": TaskStatus.ARRIVED.value}
                await settled(self._collections.tasks.delete_many(found, session=session))
                return None
            case Detach(host_id, except_task_id):
                await self._detach(host_id, except_task_id, session)
                return None
            case AbandonChildren():
                await self._abandon_children(change, session)
                return None
            case OpenPath(instance_id):
                await self._change_running(instance_id, {"$inc": {"openPaths": 1}}, session)
                return None
            case EndPath(instance_id, ended_at):
                return await self._end_path(instance_id, ended_at, session)
            case _:
                return None

    async def _write_variables(
        self, instance_id: str, changes: Sequence[VariableChange], session: Session
    ) -> None:
        update = variable_update(changes)
        if not await write_variables(
            self._collections.instances, instance_id, update, session=session
        ):
            raise _not_running(instance_id)

    async def _change_running(self, instance_id: str, update: Document, session: Session) -> None:
        found = {"_id": instance_id, "status": RUNNING}
        result = await settled(
            self._collections.instances.update_one(found, update, session=session)
        )
        if result.matched_count != 1:
            raise _not_running(instance_id)

    async def _detach(self, host_id: str, except_task_id: str | None, session: Session) -> None:
        """Remove what hangs on a host, found by query: later cycles of a timer have ids that nobody loaded (R10)."""
        attached: Document = {"attachedToRefId": host_id}
        if except_task_id is not None:
            attached["_id"] = {"$ne": except_task_id}
        await self._close_incidents(attached, host_id, session)
        external_tasks = self._collections.external_tasks
        await settled(self._collections.tasks.delete_many(attached, session=session))
        await settled(external_tasks.delete_many(attached, session=session))
        keys = {"coordinatorTaskId": host_id}
        await settled(external_tasks.delete_many(keys, session=session))

    async def _close_incidents(self, going: Document, host_id: str, session: Session) -> None:
        """Close the open incidents of a host and of the rows that go with it: there is nothing left to retry."""
        failed = self._collections.tasks.find(
            {**going, "status": TaskStatus.ERROR.value}, {"_id": 1}, session=session
        )
        ids = [host_id, *[row["_id"] for row in await failed.to_list(None)]]
        await settled(
            self._collections.incidents.update_many(
                {"executionId": {"$in": ids}, "status": IncidentStatus.OPEN.value},
                {"$set": {"status": IncidentStatus.CLOSED.value}},
                session=session,
            )
        )

    async def _abandon_children(self, change: AbandonChildren, session: Session) -> None:
        """Remove starters and leave one task by which any worker cancels the children (protocol R12)."""
        starters = {"joinTaskId": change.coordinator_task_id}
        await self._close_incidents(starters, change.coordinator_task_id, session)
        await settled(self._collections.tasks.delete_many(starters, session=session))
        row = children_canceller(
            Branch("children", change.coordinator_task_id),
            change.definition_id,
            change.abandoned_at,
        )
        await settled(self._collections.tasks.insert_one(encode_task(row), session=session))

    async def _end_path(
        self, instance_id: str, ended_at: datetime, session: Session
    ) -> ProcessInstance | None:
        """End a path; whether it is the last is decided by what is stored now, never by what was loaded (R11)."""
        instances = self._collections.instances
        last = {"_id": instance_id, "status": RUNNING, "openPaths": 1}
        document = await settled(instances.find_one_and_delete(last, session=session))
        if document is None:
            await self._change_running(instance_id, {"$inc": {"openPaths": -1}}, session)
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
        if instance.parent is not None:
            await self._tell_parent(instance, instance.parent, ended_at, session)
        record = self._ended(instance)
        if cancelled_by is not None:
            record["cancelledBy"] = cancelled_by
        await settled(self._collections.history.insert_one(record, session=session))
        await self._outbox.store([_finished(instance)], first=_AFTER_STEPS, session=session)
        return instance

    async def _tell_parent(
        self, child: ProcessInstance, parent: Parent, ended_at: datetime, session: Session
    ) -> None:
        """Turn the starter, which records the child for its coordinator, into an arrival or an incident (R12).

        A starter that is gone belongs to a call activity that ended before its children: nobody waits.
        """
        tasks = self._collections.tasks
        found = {"_id": parent.starter_task_id, "status": TaskStatus.STARTED.value}
        if child.status is InstanceStatus.COMPLETED:
            arrived = {
                "status": TaskStatus.ARRIVED.value,
                "claimableAt": ended_at + ARRIVAL_GRACE,
            }
            update: Document = {"$set": arrived, "$inc": {"epoch": 1}}
            told = await settled(tasks.update_one(found, update, session=session))
            if told.matched_count == 0:
                orphaned = [_orphaned(child, parent, ended_at)]
                await self._outbox.store(orphaned, first=_AFTER_STEPS + 1, session=session)
                return
            outputs = parent.outputs_from(child.variables)
            if outputs:
                changes = [SetVariable(name, value) for name, value in outputs.items()]
                await self._write_variables(parent.instance_id, changes, session)
            return
        message = f"its child instance {child.id} was cancelled; retry starts another one"
        failed = {"status": TaskStatus.ERROR.value, "error": message}
        starter = await settled(
            tasks.find_one_and_update(
                found,
                {"$set": failed, "$inc": {"epoch": 1, "occurrence": 1}},
                return_document=True,
                session=session,
            )
        )
        if starter is not None:
            incident = incident_for(
                decode_task(starter),
                IncidentType.FAILED_JOB,
                message=f"ChildCancelled: {message}",
                now=ended_at,
            )
            await settled(
                self._collections.incidents.insert_one(encode_incident(incident), session=session)
            )

    def _ended(self, instance: ProcessInstance) -> Document:
        ended_at = instance.ended_at or instance.started_at
        return {**encode_instance(instance), "expiresAt": ended_at + self._retention}


def children_canceller(children: Branch, definition_id: str, now: datetime) -> ExecutableTask:
    """Return the task by which any worker cancels children; it belongs to no instance, so it outlives the parent.

    Args:
        children: Those of one coordinator (its ``join_task_id``), or all of the instance that its ``id`` names.
    """
    of = children.join_task_id or children.id
    return ExecutableTask(
        id=str(uuid5(NAMESPACE_OID, f"cancel children of {of}")),
        type=TaskType.CANCEL_CHILDREN,
        node_id="",
        instance_id="",
        definition_id=definition_id,
        created_at=now,
        claimable_at=now,
        branch=children,
    )


def _not_running(instance_id: str) -> ClaimLostError:
    return ClaimLostError(None, f"instance {instance_id} is not running any more")


def _events_of(changes: Sequence[Change]) -> list[OutboxEvent]:
    """Return the events among the changes, and those that follow from them, in their order."""
    events: list[OutboxEvent] = []
    for change in changes:
        match change:
            case RecordEvent(event):
                events.append(event)
            case RecordEnded(instance):
                events.append(_finished(instance))
            case _:
                pass
    return events


def _finished(instance: ProcessInstance) -> OutboxEvent:
    return store_event(
        EventType.PROCESS_INSTANCE_FINISHED,
        instance.id,
        instance_id=instance.id,
        definition_id=instance.definition_id,
        at=instance.ended_at or instance.started_at,
        payload=finished_payload(instance),
    )


def _orphaned(child: ProcessInstance, parent: Parent, at: datetime) -> OutboxEvent:
    return store_event(
        EventType.ORPHANED_CHILD_COMPLETION,
        child.id,
        instance_id=child.id,
        definition_id=child.definition_id,
        at=at,
        payload={
            "processInstanceId": child.id,
            "processDefinitionId": child.definition_id,
            "tenantId": child.tenant_id,
            "parentInstanceId": parent.instance_id,
            "joinTaskId": parent.coordinator_task_id,
            "branchId": parent.branch_id,
            "occurredAt": at,
        },
    )


async def insert_if_absent(collection: Collection, document: Document) -> None:
    """Insert a document unless its id is there already."""
    fields = {field: value for field, value in document.items() if field != "_id"}
    found = {"_id": document["_id"]}
    await settled(collection.update_one(found, {"$setOnInsert": fields}, upsert=True))
