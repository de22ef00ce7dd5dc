"""Handing on: the first row that a unit inserts is born claimed by the worker that commits it (protocol R16)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.runtime import (
    Claim,
    ClaimedTask,
    ExecutableTask,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import Change, InsertTask
from kikwiflow_worker.store.mongo.codec import decode_instance
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Session, fetched
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.values import HandOn

_NOT_OF_A_PATH = {
    TaskType.ARRIVAL,
    TaskType.CANCEL_INSTANCE,
    TaskType.CANCEL_CHILDREN,
    TaskType.KEPT_MESSAGE,
    TaskType.BULK_JOB,
}

_FIRST_EPOCH = 1


@dataclass(frozen=True, slots=True)
class Born:
    """A task that one attempt of a commit inserts claimed; a licence to run it only once that commit is acknowledged."""

    task: ExecutableTask
    claim: Claim
    claimed_at: datetime
    locked_until: float


class HandingOn:
    """Lets tasks be born claimed, and loads their instances after the commit."""

    def __init__(self, collections: Collections, server_time: ServerTime, clock: Clock) -> None:
        self._instances = collections.instances
        self._sealing = collections.sealing
        self._time = server_time
        self._clock = clock

    def bear(
        self, changes: Sequence[Change], hand_on: HandOn | None
    ) -> tuple[Sequence[Change], Born | None]:
        """Return the changes with their first runnable task claimed; the lock counts from this attempt of the commit."""
        if hand_on is None:
            return changes, None
        now = self._time.now()
        for position, change in enumerate(changes):
            if isinstance(change, InsertTask) and _can_run(change.task, hand_on.capabilities, now):
                born = self._born(change.task, hand_on, now)
                return (
                    *changes[:position],
                    InsertTask(born.task),
                    *changes[position + 1 :],
                ), born
        return changes, None

    def _born(self, task: ExecutableTask, hand_on: HandOn, now: datetime) -> Born:
        locked = replace(
            task,
            status=TaskStatus.LOCKED,
            worker_id=hand_on.worker_id,
            lock_expires_at=now + hand_on.lock,
            claimable_at=now + hand_on.lock,
            epoch=_FIRST_EPOCH,
        )
        return Born(
            locked,
            Claim(task.id, hand_on.worker_id, _FIRST_EPOCH),
            claimed_at=now,
            locked_until=self._clock.monotonic() + hand_on.lock.total_seconds(),
        )

    async def load(
        self, born: Sequence[Born], *, session: Session = None
    ) -> dict[str, ClaimedTask]:
        """Return the claimed tasks by their ids, with their instances as the majority knows them after the commit.

        Read after the commit, like after a claim, so that a suspended or cancelled instance and what other branches
        changed are seen (protocol R8, R9).

        Raises:
            StoreUnavailableError: The database did not answer; the tasks are found as unknown locks (protocol R4).
        """
        if not born:
            return {}
        ids = sorted({one.task.instance_id for one in born})
        with translated("loading the instances of tasks handed on"):
            found = self._instances.find({"_id": {"$in": ids}}, session=session)
            documents = await fetched(found, len(ids))
        instances = {
            document["_id"]: decode_instance(document, self._sealing) for document in documents
        }
        return {
            one.task.id: ClaimedTask(
                task=one.task,
                claim=one.claim,
                instance=instances.get(one.task.instance_id),
                claimed_at=one.claimed_at,
                locked_until=one.locked_until,
            )
            for one in born
        }


def _can_run(task: ExecutableTask, capabilities: Capabilities, now: datetime) -> bool:
    return (
        task.status is TaskStatus.PENDING
        and task.claimable_at is not None
        and task.claimable_at <= now
        and task.type not in _NOT_OF_A_PATH
        and (task.handler_name is None or task.handler_name in capabilities.stored)
    )
