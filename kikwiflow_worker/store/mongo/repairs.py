"""What people do to single instances and tasks: other attempts, another version, forgetting."""

from datetime import datetime

from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.events import EventType, external_task_payload, resolved_payload
from kikwiflow_worker.model.runtime import (
    ExternalTask,
    IncidentStatus,
    TaskStatus,
)
from kikwiflow_worker.model.variables import SetVariable
from kikwiflow_worker.store.mongo.codec import decode_external_task, decode_incident
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, Session, settled
from kikwiflow_worker.store.mongo.guards import UNLOCKED
from kikwiflow_worker.store.mongo.outbox import Outbox, store_event
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.transactions import Transactions
from kikwiflow_worker.store.mongo.variable_writes import RUNNING, write_variables
from kikwiflow_worker.store.values import PLAIN_RETRY, Resolution


class Repairs:
    """Repairs of one database, each in one transaction; contracts are those of ``RuntimeStore``."""

    def __init__(
        self,
        collections: Collections,
        outbox: Outbox,
        transactions: Transactions,
        server_time: ServerTime,
    ) -> None:
        self._collections = collections
        self._outbox = outbox
        self._transactions = transactions
        self._time = server_time

    async def retry_incident(
        self,
        incident_id: str,
        *,
        retries: int,
        resolved_by: str | None,
        resolution: Resolution = PLAIN_RETRY,
    ) -> bool:
        """Let the incident's task go on and resolve the incident."""

        async def retry(session: Session) -> bool:
            now = self._time.now()
            incident = await self._resolve({"_id": incident_id}, resolved_by, now, session)
            if incident is None:
                return False
            task = {"_id": incident["executionId"], "status": TaskStatus.ERROR.value}
            fresh = fresh_attempts(retries, now)
            if resolution.skip:
                fresh["$set"]["isSkipped"] = True
            await settled(self._collections.tasks.update_one(task, fresh, session=session))
            if resolution.variables:
                sets = [SetVariable(name, value) for name, value in resolution.variables.items()]
                await write_variables(
                    self._collections, incident["processInstanceId"], sets, session=session
                )
            return True

        return await self._transactions.run(f"retrying incident {incident_id}", retry)

    async def assign_external_task(
        self, task_id: str, *, assignee: str | None, expected: str | None
    ) -> bool:
        """Change the assignee if it is ``expected`` now."""

        async def assign(session: Session) -> bool:
            current = {"$exists": False} if expected is None else expected
            change: Document = (
                {"$unset": {"assignee": ""}}
                if assignee is None
                else {"$set": {"assignee": assignee}}
            )
            changed = await settled(
                self._collections.external_tasks.find_one_and_update(
                    {"_id": task_id, "assignee": current}, change, session=session
                )
            )
            if changed is None:
                return False
            await self._record_assignment(decode_external_task(changed), assignee, session)
            return True

        return await self._transactions.run(f"assigning external task {task_id}", assign)

    async def _record_assignment(
        self, before: ExternalTask, assignee: str | None, session: Session
    ) -> None:
        now = self._time.now()
        claimed = EventType.EXTERNAL_TASK_CLAIMED
        event = claimed if assignee is not None else EventType.EXTERNAL_TASK_UNCLAIMED
        payload = external_task_payload(before, actor=assignee or before.assignee)
        own = {"assignee": assignee, "claimedAt": now}
        if assignee is None:
            own = {"assignee": None, "previousAssignee": before.assignee, "unclaimedAt": now}
        fact = store_event(
            event,
            f"{before.id}:{now.isoformat()}:{assignee}",
            instance_id=before.instance_id,
            definition_id=before.definition_id,
            at=now,
            payload={**payload, **own},
        )
        await self._outbox.store([fact], session=session)

    async def override_task(
        self, task_id: str, *, retries: int | None, due_at: datetime | None, by: str | None
    ) -> bool:
        """Give a task other attempts or another due time."""

        async def override(session: Session) -> bool:
            now = self._time.now()
            tasks = self._collections.tasks
            changed: Document = {}
            if retries is not None:
                changed["retries"] = retries
            if due_at is not None:
                changed |= {"dueDate": due_at, "claimableAt": due_at}
            waiting = {
                "_id": task_id,
                "status": TaskStatus.PENDING.value,
                "isParked": {"$exists": False},
            }
            update = {"$set": changed, "$inc": {"epoch": 1}}
            pending = await settled(tasks.update_one(waiting, update, session=session))
            if pending.matched_count:
                return True
            failed = {"_id": task_id, "status": TaskStatus.ERROR.value}
            fresh = fresh_attempts(retries or 1, due_at or now)
            revived = await settled(tasks.update_one(failed, fresh, session=session))
            if revived.matched_count:
                await self._resolve({"executionId": task_id}, by, now, session)
            return bool(revived.matched_count)

        return await self._transactions.run(f"changing the attempts of task {task_id}", override)

    async def forget_instance(self, instance_id: str) -> bool:
        """Remove an ended instance from the history."""

        async def forget(session: Session) -> bool:
            history = self._collections.history
            deleted = await settled(history.delete_one({"_id": instance_id}, session=session))
            mine = {"processInstanceId": instance_id}
            for collection in (
                self._collections.incidents,
                self._collections.completed_external_tasks,
            ):
                await settled(collection.delete_many(mine, session=session))
            return bool(deleted.deleted_count)

        return await self._transactions.run(f"forgetting instance {instance_id}", forget)

    async def migrate_instance(
        self,
        instance_id: str,
        *,
        before_id: str,
        after: ProcessDefinition,
        nodes: frozenset[str],
    ) -> bool:
        """Let a running instance go on with another version."""

        async def migrate(session: Session) -> bool:
            # Every row that is read here is changed below: none can move on meanwhile (protocol R1, R7).
            strange: Document = {
                "processInstanceId": instance_id,
                "taskDefinitionId": {"$nin": sorted(nodes)},
            }
            for collection in (self._collections.tasks, self._collections.external_tasks):
                if await settled(collection.find_one(strange, {"_id": 1}, session=session)):
                    return False
            found = {"_id": instance_id, "processDefinitionId": before_id, "status": RUNNING}
            version = {
                "processDefinitionId": after.id,
                "processDefinitionVersion": after.version,
            }
            moved = await settled(
                self._collections.instances.update_one(found, {"$set": version}, session=session)
            )
            if moved.matched_count == 0:
                return False
            mine: Document = {"processInstanceId": instance_id}
            to_after: Document = {"$set": {"processDefinitionId": after.id}}
            tasks = self._collections.tasks
            await settled(
                tasks.update_many(mine, {**to_after, "$inc": {"epoch": 1}}, session=session)
            )
            held = {**mine, "status": TaskStatus.LOCKED.value}
            freed: Document = {
                "$set": {"status": TaskStatus.PENDING.value, "claimableAt": self._time.now()},
                "$unset": UNLOCKED,
            }
            await settled(tasks.update_many(held, freed, session=session))
            external_tasks = self._collections.external_tasks
            await settled(external_tasks.update_many(mine, to_after, session=session))
            incidents = self._collections.incidents
            await settled(incidents.update_many(mine, to_after, session=session))
            return True

        return await self._transactions.run(f"migrating instance {instance_id}", migrate)

    async def _resolve(
        self, found: Document, by: str | None, now: datetime, session: Session
    ) -> Document | None:
        resolved = {
            "status": IncidentStatus.RESOLVED.value,
            "resolvedAt": now,
            "resolvedBy": by,
        }
        incident: Document | None = await settled(
            self._collections.incidents.find_one_and_update(
                {**found, "status": IncidentStatus.OPEN.value},
                {"$set": resolved},
                session=session,
            )
        )
        if incident is not None and self._outbox.takes(EventType.INCIDENT_RESOLVED):
            resolved_one = decode_incident(incident, self._collections.sealing)
            event = store_event(
                EventType.INCIDENT_RESOLVED,
                resolved_one.id,
                instance_id=resolved_one.instance_id,
                definition_id=resolved_one.definition_id,
                at=now,
                payload=resolved_payload(resolved_one, actor=by, at=now),
            )
            await self._outbox.store([event], session=session)
        return incident


def fresh_attempts(retries: int, due_at: datetime) -> Document:
    """Return the update that lets a failed task wait again."""
    return {
        "$set": {
            "status": TaskStatus.PENDING.value,
            "dueDate": due_at,
            "claimableAt": due_at,
            "attempts": 0,
            "retries": retries,
            "crashCount": 0,
        },
        "$unset": {"error": ""},
        "$inc": {"epoch": 1},
    }
