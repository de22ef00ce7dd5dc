"""Changing and ending running instances, one at a time or many in one command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pymongo import DeleteMany, UpdateOne

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.events import EventType, OutboxEvent, finished_payload
from kikwiflow_worker.model.incidents import incident_for
from kikwiflow_worker.model.runtime import (
    IncidentStatus,
    IncidentType,
    InstanceStatus,
    Parent,
    ProcessInstance,
    TaskStatus,
)
from kikwiflow_worker.model.variables import SetVariable, VariableChange, net_changes
from kikwiflow_worker.store.mongo.codec import (
    decode_instance,
    decode_row,
    encode_incident,
    encode_instance,
)
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, Session, fetched, settled
from kikwiflow_worker.store.mongo.guards import ARRIVAL_GRACE
from kikwiflow_worker.store.mongo.outbox import Outbox, store_event
from kikwiflow_worker.store.mongo.sealing import seal_text
from kikwiflow_worker.store.mongo.variable_writes import (
    RUNNING,
    computed,
    fitting,
    variable_update,
    write_variables,
)

_AFTER_STEPS = 1_000_000
"""Positions in a commit from which events of its ends begin."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An instance whose document was just deleted, as it was then."""

    document: Document
    at: datetime


class InstanceWrites:
    """Writes to the instances, inside a transaction if given its session."""

    def __init__(self, collections: Collections, outbox: Outbox, retention: timedelta) -> None:
        self._collections = collections
        self._outbox = outbox
        self._retention = retention

    async def change(self, instance_id: str, update: Document, *, session: Session) -> None:
        """Update a running instance.

        Raises:
            ClaimLostError: It is being cancelled, or has ended.
        """
        found = {"_id": instance_id, "status": RUNNING}
        instances = self._collections.instances
        result = await settled(instances.update_one(found, update, session=session))
        if result.matched_count != 1:
            raise _not_running(instance_id)

    async def change_variables(
        self, instance_id: str, changes: Sequence[VariableChange], *, session: Session
    ) -> None:
        """Write net changes of variables of a running instance.

        Raises:
            ClaimLostError: It is being cancelled, or has ended.
            VariableTooLargeError: The document would pass ``MAX_DOCUMENT_BYTES``.
        """
        if not await write_variables(self._collections, instance_id, changes, session=session):
            raise _not_running(instance_id)

    async def variable_updates(
        self, changes: Mapping[str, Sequence[VariableChange]], session: Session
    ) -> dict[str, Document]:
        """Return the update for the net changes of variables of each instance, to be written in this transaction.

        Raises:
            StoreError: What is incremented or appended to is of another type, or cannot be decrypted.
        """
        sealing = self._collections.sealing
        made, _ = await computed(
            self._collections.instances, changes, sealing=sealing, session=session
        )
        return {one: variable_update(own, one, sealing) for one, own in made.items()}

    async def change_many(self, updates: Mapping[str, Document], *, session: Session) -> None:
        """Update running instances by their ids, in one command.

        Raises:
            ClaimLostError: At least one is being cancelled, has ended, or may become too large: alone it is seen which.
        """
        if not updates:
            return
        operations = [
            UpdateOne({"_id": instance_id, "status": RUNNING, **fitting(update)}, update)
            for instance_id, update in updates.items()
        ]
        instances = self._collections.instances
        result = await settled(instances.bulk_write(operations, session=session))
        if result.matched_count != len(updates):
            raise _not_running("of this commit")

    async def end_path(
        self, instance_id: str, ended_at: datetime, *, session: Session
    ) -> tuple[ProcessInstance, ...]:
        """End a path; whether it is the last is decided by what is stored now, never by what was loaded (R11)."""
        instances = self._collections.instances
        last = {"_id": instance_id, "status": RUNNING, "openPaths": 1}
        document = await settled(instances.find_one_and_delete(last, session=session))
        if document is None:
            await self.change(instance_id, {"$inc": {"openPaths": -1}}, session=session)
            return ()
        ended = [Ended(document, ended_at)]
        return await self.end(ended, InstanceStatus.COMPLETED, session=session)

    async def end_paths(
        self, opened: Mapping[str, int], ended_at: Mapping[str, datetime], *, session: Session
    ) -> tuple[ProcessInstance, ...]:
        """End paths of many instances in one transaction, which must have written everything else of them before.

        What is read here is deleted or changed here, so it cannot change in between (protocol R1, R11).

        Args:
            opened: By instance: how many more paths were opened than ended.
            ended_at: By instance: when its last path ended, if it ends.

        Raises:
            ClaimLostError: At least one is being cancelled, or has ended.
        """
        if not opened:
            return ()
        running = {"_id": {"$in": list(opened)}, "status": RUNNING}
        found = self._collections.instances.find(running, session=session)
        documents = await fetched(found, len(opened))
        last = [one for one in documents if one["openPaths"] + opened[one["_id"]] == 0]
        ending = {one["_id"] for one in last}
        operations: list[DeleteMany | UpdateOne] = [
            DeleteMany({"_id": {"$in": ids}, "status": RUNNING, "openPaths": paths})
            for paths, ids in _ids_by_paths(last).items()
        ]
        operations += [
            UpdateOne({"_id": one, "status": RUNNING}, {"$inc": {"openPaths": by}})
            for one, by in opened.items()
            if one not in ending
        ]
        result = await settled(self._collections.instances.bulk_write(operations, session=session))
        if result.deleted_count + result.matched_count != len(opened):
            raise _not_running("of this commit")
        ended = [Ended(one, ended_at[one["_id"]]) for one in last]
        return await self.end(ended, InstanceStatus.COMPLETED, session=session)

    async def end(
        self,
        ended: Sequence[Ended],
        status: InstanceStatus,
        *,
        session: Session = None,
        cancelled_by: str | None = None,
    ) -> tuple[ProcessInstance, ...]:
        """Move instances whose documents were just deleted into the history, with all that belongs to them."""
        if not ended:
            return ()
        instances = tuple(
            replace(
                decode_instance(one.document, self._collections.sealing),
                status=status,
                ended_at=one.at,
                open_paths=0,
            )
            for one in ended
        )
        latest = max(one.at for one in ended)
        await self._sweep([instance.id for instance in instances], latest, session)
        children = [(one, one.parent) for one in instances if one.parent is not None]
        if children and status is InstanceStatus.COMPLETED:
            await self._arrive_at_parents(children, latest, session)
        elif children:
            for child, parent in children:
                await self._fail_parent(child, parent, latest, session)
        by = {"cancelledBy": cancelled_by} if cancelled_by is not None else {}
        records = [{**self.record_of(instance), **by} for instance in instances]
        await settled(self._collections.history.insert_many(records, session=session))
        facts = [finished_event(instance) for instance in instances]
        await self._outbox.store(facts, first=_AFTER_STEPS, session=session)
        return instances

    def record_of(self, instance: ProcessInstance) -> Document:
        """Return the history's document of an ended instance."""
        ended_at = instance.ended_at or instance.started_at
        return {
            **encode_instance(instance, self._collections.sealing),
            "expiresAt": ended_at + self._retention,
        }

    async def _sweep(self, instance_ids: list[str], latest: datetime, session: Session) -> None:
        """Remove all rows, found by query, and let the incidents expire with the history."""
        mine = {"processInstanceId": {"$in": instance_ids}}
        await settled(self._collections.tasks.delete_many(mine, session=session))
        await settled(self._collections.external_tasks.delete_many(mine, session=session))
        was_open = {"$eq": ["$status", IncidentStatus.OPEN.value]}
        closed = {
            "expiresAt": latest + self._retention,
            "status": {"$cond": [was_open, IncidentStatus.CLOSED.value, "$status"]},
        }
        incidents = self._collections.incidents
        await settled(incidents.update_many(mine, [{"$set": closed}], session=session))

    async def _arrive_at_parents(
        self,
        children: Sequence[tuple[ProcessInstance, Parent]],
        latest: datetime,
        session: Session,
    ) -> None:
        """Turn the starters, which record the children for their coordinators, into arrivals (protocol R12).

        A starter that is gone belongs to a call activity that ended before its children: nobody waits.
        """
        starters = [parent.starter_task_id for _, parent in children]
        arrived = {"status": TaskStatus.ARRIVED.value, "claimableAt": latest + ARRIVAL_GRACE}
        told = await settled(
            self._collections.tasks.update_many(
                {"_id": {"$in": starters}, "status": TaskStatus.STARTED.value},
                {"$set": arrived, "$inc": {"epoch": 1}},
                session=session,
            )
        )
        if told.matched_count == 0:
            orphaned = [_orphaned(child, parent, latest) for child, parent in children]
            await self._outbox.store(orphaned, first=_AFTER_STEPS + 1, session=session)
            return
        if told.matched_count != len(children):
            raise ClaimLostError(None, "some children's call activities have ended, others wait")
        outputs: dict[str, list[VariableChange]] = {}
        for child, parent in children:
            given = parent.outputs_from(child.variables)
            sets = [SetVariable(name, value) for name, value in given.items()]
            if sets:
                outputs.setdefault(parent.instance_id, []).extend(sets)
        for parent_id, changes in outputs.items():
            await self.change_variables(parent_id, net_changes(changes), session=session)

    async def _fail_parent(
        self, child: ProcessInstance, parent: Parent, ended_at: datetime, session: Session
    ) -> None:
        """Turn the starter of a cancelled child into an incident of its parent (protocol, answer 24)."""
        message = f"its child instance {child.id} was cancelled; retry starts another one"
        sealing = self._collections.sealing
        error = seal_text(sealing, parent.starter_task_id, "error", message)
        failed = {"status": TaskStatus.ERROR.value, "error": error}
        starter = await settled(
            self._collections.tasks.find_one_and_update(
                {"_id": parent.starter_task_id, "status": TaskStatus.STARTED.value},
                {"$set": failed, "$inc": {"epoch": 1, "occurrence": 1}},
                return_document=True,
                session=session,
            )
        )
        if starter is None:
            return
        incident = incident_for(
            decode_row(starter, sealing),
            IncidentType.FAILED_JOB,
            message=f"ChildCancelled: {message}",
            now=ended_at,
        )
        await settled(
            self._collections.incidents.insert_one(
                encode_incident(incident, sealing), session=session
            )
        )


def _not_running(which: str) -> ClaimLostError:
    return ClaimLostError(None, f"instance {which} is not running any more")


def _ids_by_paths(documents: Sequence[Document]) -> dict[int, list[Any]]:
    ids: dict[int, list[Any]] = {}
    for document in documents:
        ids.setdefault(document["openPaths"], []).append(document["_id"])
    return ids


def finished_event(instance: ProcessInstance) -> OutboxEvent:
    """Return the event of an instance's end."""
    return store_event(
        EventType.PROCESS_INSTANCE_FINISHED,
        instance.id,
        instance_id=instance.id,
        definition_id=instance.definition_id,
        at=instance.ended_at or instance.started_at,
        payload=finished_payload(instance),
        inherited_rules=instance.inherited_rules,
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
