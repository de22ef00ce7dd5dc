"""How each guard of a unit of work is written: the writes that decide who wins."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, assert_never

from pymongo import DeleteMany, UpdateOne

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.messages import MessageStatus
from kikwiflow_worker.model.runtime import Claim, ExternalTaskStatus, HostKind, TaskStatus
from kikwiflow_worker.model.texts import tenant_scoped
from kikwiflow_worker.model.unit_of_work import (
    CLAIM_GUARDS,
    ArriveTask,
    AwaitNextChild,
    ClaimGuard,
    CompleteExternalTask,
    EndHost,
    FailTask,
    Guard,
    MatchKey,
    RemoveTask,
    RescheduleTask,
    SettleMessage,
    StartChild,
)
from kikwiflow_worker.store.mongo.codec import encode_loop
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import (
    BY_ID,
    Collection,
    Document,
    Session,
    fetched,
    settled,
)
from kikwiflow_worker.store.mongo.sealing import Sealing, seal_text

UNLOCKED = {"workerId": "", "lockExpiresAt": "", "claimToken": "", "fetchedAt": ""}
"""What every way out of LOCKED unsets (protocol R3)."""

ARRIVAL_GRACE = timedelta(seconds=5)
"""How long the worker that committed an arrival has to deliver it before others do."""


def held(claim: Claim) -> Document:
    """Return the filter that a task matches only while ``claim`` holds (protocol R3)."""
    return {
        "_id": claim.task_id,
        "workerId": claim.worker_id,
        "epoch": claim.epoch,
        "status": TaskStatus.LOCKED.value,
    }


class Guards:
    """Writes guards, inside a transaction if given its session."""

    def __init__(self, collections: Collections, retention: timedelta) -> None:
        self._collections = collections
        self._retention = retention

    async def write(self, guard: Guard, *, now: datetime, session: Session = None) -> None:
        """Write a guard.

        Raises:
            ClaimLostError: It matched nothing.
        """
        match guard:
            case CompleteExternalTask():
                matched = await self._complete_external(guard, session)
            case MatchKey():
                matched = await self._match_key(guard, session)
            case EndHost():
                matched = await self._end_host(guard, session)
            case SettleMessage():
                matched = await self._settle(guard, session)
            case _:
                matched = await self._decide(guard, now, session)
        if matched != 1:
            raise ClaimLostError(guard)

    async def write_many(self, guards: Sequence[Guard], *, now: datetime, session: Session) -> None:
        """Write guards of one transaction, few commands for all of them.

        Raises:
            ClaimLostError: They matched fewer documents than they are.
        """
        tasks, external_tasks = self._collections.tasks, self._collections.external_tasks
        deletes, updates = _claim_writes(guards, now, self._collections.sealing)
        hosts = [guard for guard in guards if isinstance(guard, EndHost)]
        kinds = {kind: [one.task_id for one in hosts if one.kind is kind] for kind in HostKind}
        if ids := kinds[HostKind.EXECUTABLE_TASK]:
            deletes.append(DeleteMany(_endable({"$in": ids}), hint=BY_ID))
        matched = 0
        if deletes or updates:
            written = await settled(tasks.bulk_write([*deletes, *updates], session=session))
            matched += written.deleted_count + written.matched_count
        if ids := kinds[HostKind.EXTERNAL_TASK]:
            found = _endable({"$in": ids})
            ended = await settled(external_tasks.delete_many(found, session=session))
            matched += ended.deleted_count
        if matched != len(guards):
            raise ClaimLostError(None, f"{len(guards) - matched} tasks belong to somebody else")

    async def find_held(self, claims: Sequence[Claim], *, session: Session) -> frozenset[Claim]:
        """Return the claims that hold in the transaction of ``session``."""
        found = {
            "_id": {"$in": [claim.task_id for claim in claims]},
            "status": TaskStatus.LOCKED.value,
        }
        fields = {"workerId": 1, "epoch": 1}
        rows = self._collections.tasks.find(found, fields, hint=BY_ID, session=session)
        return frozenset(
            Claim(row["_id"], row["workerId"], row["epoch"])
            for row in await fetched(rows, len(claims))
        )

    async def is_open(self, guard: Guard) -> bool:
        """Return whether a guard would match now; for a server without transactions."""
        match guard:
            case CompleteExternalTask():
                found = _completable(guard)
                return await settled(self._collections.external_tasks.find_one(found)) is not None
            case MatchKey():
                found = _matchable(guard)
                return await settled(self._collections.external_tasks.find_one(found)) is not None
            case EndHost():
                found = _endable(guard.task_id)
                return await settled(self._hosts(guard.kind).find_one(found)) is not None
            case SettleMessage():
                found = _kept(guard)
                return await settled(self._collections.messages.find_one(found)) is not None
            case _:
                return (
                    await settled(self._collections.tasks.find_one(held(guard.claim))) is not None
                )

    async def _decide(self, guard: ClaimGuard, now: datetime, session: Session) -> int:
        tasks, found = self._collections.tasks, held(guard.claim)
        if isinstance(guard, RemoveTask):
            return int((await settled(tasks.delete_one(found, session=session))).deleted_count)
        update = {**decision(guard, now, self._collections.sealing), "$inc": {"epoch": 1}}
        return int((await settled(tasks.update_one(found, update, session=session))).matched_count)

    async def _settle(self, guard: SettleMessage, session: Session) -> int:
        delivered = {"$set": {"status": MessageStatus.DELIVERED.value}}
        messages = self._collections.messages
        settled_one = await settled(messages.update_one(_kept(guard), delivered, session=session))
        return int(settled_one.matched_count)

    async def _end_host(self, guard: EndHost, session: Session) -> int:
        hosts = self._hosts(guard.kind)
        deleted = await settled(hosts.delete_one(_endable(guard.task_id), session=session))
        return int(deleted.deleted_count)

    async def _match_key(self, guard: MatchKey, session: Session) -> int:
        external_tasks = self._collections.external_tasks
        left = [key for key in guard.pending_keys if key != guard.key]
        narrowed = await settled(
            external_tasks.update_one(
                {"_id": guard.group_id, "pendingCorrelationKeys": list(guard.pending_keys)},
                {"$set": {"pendingCorrelationKeys": left}},
                session=session,
            )
        )
        if narrowed.matched_count != 1:
            return 0
        correlated = {"$set": {"status": ExternalTaskStatus.CORRELATED.value}}
        matched = await settled(
            external_tasks.update_one(_matchable(guard), correlated, session=session)
        )
        return int(matched.matched_count)

    async def _complete_external(self, guard: CompleteExternalTask, session: Session) -> int:
        external_tasks = self._collections.external_tasks
        deleted = await settled(external_tasks.delete_one(_completable(guard), session=session))
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

    def _hosts(self, kind: HostKind) -> Collection:
        collections = self._collections
        return collections.tasks if kind is HostKind.EXECUTABLE_TASK else collections.external_tasks


def _claim_writes(
    guards: Sequence[Guard], now: datetime, sealing: Sealing | None
) -> tuple[list[DeleteMany], list[UpdateOne]]:
    """Return what guards do to their claimed tasks: removals of one worker and epoch are one write (protocol R4)."""
    removed: dict[tuple[str, int], list[str]] = {}
    updates: list[UpdateOne] = []
    for guard in guards:
        if isinstance(guard, RemoveTask):
            claim = guard.claim
            removed.setdefault((claim.worker_id, claim.epoch), []).append(claim.task_id)
        elif isinstance(guard, CLAIM_GUARDS):
            update = {**decision(guard, now, sealing), "$inc": {"epoch": 1}}
            updates.append(UpdateOne(held(guard.claim), update, hint=BY_ID))
    deletes = [
        DeleteMany({**held(Claim("", worker_id, epoch)), "_id": {"$in": ids}}, hint=BY_ID)
        for (worker_id, epoch), ids in removed.items()
    ]
    return deletes, updates


def decision(guard: ClaimGuard, now: datetime, sealing: Sealing | None) -> Document:
    """Return what a guard makes of its claimed task, besides the raised epoch."""
    match guard:
        case RemoveTask():
            return {}
        case ArriveTask():
            return {
                "$set": {"status": TaskStatus.ARRIVED.value, "claimableAt": now + ARRIVAL_GRACE},
                "$unset": {**UNLOCKED, "attachedToRefId": "", "pendingBranchIds": ""},
            }
        case RescheduleTask():
            return {
                "$set": {
                    "status": TaskStatus.PENDING.value,
                    "dueDate": guard.due_at,
                    "claimableAt": guard.due_at,
                    "attempts": guard.attempts,
                    "retries": guard.retries_left,
                    "error": seal_text(sealing, guard.claim.task_id, "error", guard.error),
                    "crashCount": 0,
                },
                "$unset": UNLOCKED,
            }
        case FailTask():
            return {
                "$set": {
                    "status": TaskStatus.ERROR.value,
                    "attempts": guard.attempts,
                    "retries": 0,
                    "error": seal_text(sealing, guard.claim.task_id, "error", guard.error),
                },
                "$unset": {**UNLOCKED, "claimableAt": ""},
            }
        case StartChild():
            return {
                "$set": {"status": TaskStatus.STARTED.value},
                "$unset": {**UNLOCKED, "claimableAt": ""},
            }
        case AwaitNextChild():
            return {
                "$set": {
                    "status": TaskStatus.AWAITING_BRANCHES.value,
                    "pendingBranchIds": [guard.branch_id],
                    **encode_loop(guard.loop, guard.claim.task_id, sealing),
                },
                "$unset": {**UNLOCKED, "claimableAt": ""},
            }
        case _:
            assert_never(guard)


def _kept(guard: SettleMessage) -> Document:
    return {
        "_id": tenant_scoped(guard.message_id, guard.tenant_id),
        "status": MessageStatus.KEPT.value,
    }


def _completable(guard: CompleteExternalTask) -> Document:
    found: Document = {
        "_id": guard.task_id,
        "status": ExternalTaskStatus.CREATED.value,
        "processDefinitionId": guard.definition_id,
    }
    if guard.pending_keys is not None:
        found["pendingCorrelationKeys"] = list(guard.pending_keys)
    return found


def _endable(task_id: Any) -> Document:
    """A host that has ended its branch is there as the record of that: it counts as gone (protocol R10)."""
    return {"_id": task_id, "status": {"$ne": TaskStatus.ARRIVED.value}}


def _matchable(guard: MatchKey) -> Document:
    return {"_id": guard.task_id, "status": ExternalTaskStatus.CREATED.value}
