"""How each change of a unit of work is written."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import chain
from uuid import NAMESPACE_OID, uuid5

from pymongo.errors import DuplicateKeyError

from kikwiflow_worker.errors import DuplicateMessageError, DuplicateStartError
from kikwiflow_worker.model.events import OutboxEvent
from kikwiflow_worker.model.messages import Message
from kikwiflow_worker.model.runtime import (
    Branch,
    ExecutableTask,
    IncidentStatus,
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
    RecordProgress,
    RecordReport,
    RemoveArrivals,
    ReserveStartKey,
)
from kikwiflow_worker.model.variables import (
    net_changes,
)
from kikwiflow_worker.store.mongo.bulk import record_progress
from kikwiflow_worker.store.mongo.codec import (
    encode_external_task,
    encode_incident,
    encode_instance,
    encode_message,
    encode_task,
)
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Collection, Document, Session, settled
from kikwiflow_worker.store.mongo.instances import InstanceWrites, finished_event
from kikwiflow_worker.store.mongo.outbox import Outbox
from kikwiflow_worker.store.mongo.work_reports import insert_report


class Writes:
    """Writes changes, inside a transaction if given its session."""

    def __init__(
        self,
        collections: Collections,
        outbox: Outbox,
        instances: InstanceWrites,
        retention: timedelta,
    ) -> None:
        self._collections = collections
        self._outbox = outbox
        self._instances = instances
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
                [
                    encode_instance(c.instance, collections.sealing)
                    for c in changes
                    if isinstance(c, InsertInstance)
                ],
            ),
            (
                collections.history,
                [
                    self._instances.record_of(c.instance)
                    for c in changes
                    if isinstance(c, RecordEnded)
                ],
            ),
            (
                collections.tasks,
                [
                    encode_task(c.task, collections.sealing)
                    for c in changes
                    if isinstance(c, InsertTask)
                ],
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
                [
                    encode_incident(c.incident, collections.sealing)
                    for c in changes
                    if isinstance(c, OpenIncident)
                ],
            ),
        ]
        for change in changes:
            if isinstance(change, ReserveStartKey):
                await self._reserve(change, session)
            if isinstance(change, RecordMessage):
                await self._record_message(change.message, session)
            if isinstance(change, RecordReport):
                await insert_report(self._collections.work_reports, change.report, session=session)
        if self._outbox.is_on:
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
            document = encode_message(message, self._collections.sealing)
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
        return tuple(chain.from_iterable(ended))

    async def _change(self, change: Change, *, session: Session) -> tuple[ProcessInstance, ...]:
        match change:
            case ChangeVariables(instance_id, changes):
                await self._instances.change_variables(
                    instance_id, net_changes(changes), session=session
                )
            case RemoveArrivals(join_task_id):
                await self.remove_arrivals([join_task_id], session=session)
            case Detach():
                await self.detach([change], session=session)
            case AbandonChildren():
                await self._abandon_children(change, session)
            case OpenPath(instance_id):
                opened = {"$inc": {"openPaths": 1}}
                await self._instances.change(instance_id, opened, session=session)
            case EndPath(instance_id, ended_at):
                return await self._instances.end_path(instance_id, ended_at, session=session)
            case RecordProgress():
                await record_progress(self._collections.bulk_jobs, change, session=session)
            case _:
                pass
        return ()

    async def remove_arrivals(self, join_task_ids: list[str], *, session: Session) -> None:
        """Remove the records of the branches that ended at these joins."""
        if not join_task_ids:
            return
        found = {"joinTaskId": {"$in": join_task_ids}, "status": TaskStatus.ARRIVED.value}
        await settled(self._collections.tasks.delete_many(found, session=session))

    async def detach(self, detached: Sequence[Detach], *, session: Session) -> None:
        """Remove what hangs on hosts, found by query: later cycles of a timer have ids that nobody loaded (R10)."""
        if not detached:
            return
        host_ids = [one.host_id for one in detached]
        hosts = {"$in": host_ids}
        kept = [one.except_task_id for one in detached if one.except_task_id is not None]
        attached: Document = {"attachedToRefId": hosts, **({"_id": {"$nin": kept}} if kept else {})}
        await self._close_incidents(attached, host_ids, session)
        await settled(self._collections.tasks.delete_many(attached, session=session))
        with_keys = {"$or": [attached, {"coordinatorTaskId": hosts}]}
        await settled(self._collections.external_tasks.delete_many(with_keys, session=session))

    async def _close_incidents(
        self, going: Document, host_ids: list[str], session: Session
    ) -> None:
        """Close the open incidents of hosts and of the rows that go with them: there is nothing left to retry."""
        failed = self._collections.tasks.find(
            {**going, "status": TaskStatus.ERROR.value}, {"_id": 1}, session=session
        )
        ids = [*host_ids, *[row["_id"] for row in await failed.to_list(None)]]
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
        await self._close_incidents(starters, [change.coordinator_task_id], session)
        await settled(self._collections.tasks.delete_many(starters, session=session))
        row = children_canceller(
            Branch("children", change.coordinator_task_id),
            change.definition_id,
            change.abandoned_at,
        )
        await settled(
            self._collections.tasks.insert_one(
                encode_task(row, self._collections.sealing), session=session
            )
        )


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


def _events_of(changes: Sequence[Change]) -> list[OutboxEvent]:
    """Return the events among the changes, and those that follow from them, in their order."""
    events: list[OutboxEvent] = []
    for change in changes:
        match change:
            case RecordEvent(event):
                events.append(event)
            case RecordEnded(instance):
                events.append(finished_event(instance))
            case _:
                pass
    return events


async def insert_if_absent(collection: Collection, document: Document) -> None:
    """Insert a document unless its id is there already."""
    fields = {field: value for field, value in document.items() if field != "_id"}
    found = {"_id": document["_id"]}
    await settled(collection.update_one(found, {"$setOnInsert": fields}, upsert=True))
