"""The ports: what the rest of the package needs from a store, in domain words.

Four narrow protocols instead of one repository: the acquirer sees ``TaskQueue`` and ``LockKeeper`` only, the runner adds
``RuntimeStore`` and ``DefinitionStore``, views for people use ``ReadStore``.

All instants are aware, in UTC, to the millisecond. Every method may raise ``StoreUnavailableError``: the store did not
answer in time; unless a method says otherwise, it can be called again with the same arguments.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.definition import DefinitionFile, ProcessDefinition
from kikwiflow_worker.model.messages import Message
from kikwiflow_worker.model.runtime import (
    Branch,
    Claim,
    ClaimedTask,
    ExecutableTask,
    ExternalTask,
    Incident,
    ProcessInstance,
)
from kikwiflow_worker.model.unit_of_work import Committed, UnitOfWork
from kikwiflow_worker.store.values import PLAIN_RETRY, GroupedUnit, GroupResult, HandOn, Resolution
from kikwiflow_worker.store.views import (
    CompletedExternalTask,
    DefinitionSummary,
    ExternalTaskQuery,
    IncidentQuery,
    InstanceQuery,
    Page,
    QueueMeasures,
    TaskQuery,
    WorkerRecord,
)


class TaskQueue(Protocol):
    """Claiming due work."""

    async def claim_due(
        self, *, worker_id: str, lock: timedelta, capabilities: Capabilities, limit: int
    ) -> tuple[ClaimedTask, ...]:
        """Claim at most ``limit`` due tasks, and load their instances in one read.

        Tenants take turns; within one the highest priority comes first, then what has been claimable longest. A part of all
        claims takes what has been claimable longest of all, so that no priority and no tenant waits for ever.

        Eligible is a task that is PENDING and due, or LOCKED with a lock that lapsed, both by the database's clock, and
        that needs no handler or one of ``capabilities``. The claim raises ``epoch``, and ``crash_count`` if the task was
        LOCKED; it is acknowledged by the majority before the instance is read (protocol R2, R3, R5). Claims whose reply is
        lost lapse, or are found by ``LockKeeper.release_unknown``.

        Fewer than ``limit`` does not mean that no more is due, since others may have been faster; none means it, or that
        others claimed all that was seen.
        """
        ...

    async def claim(self, task_id: str, *, worker_id: str, lock: timedelta) -> ClaimedTask | None:
        """Claim one task by id, due or not, unless it is held by a worker or does not wait for one."""
        ...

    async def release(self, claim: Claim) -> bool:
        """Give a task back unrun, due as before; return False if the claim is lost. Uses no attempt."""
        ...

    async def deliver_arrivals(self, *, limit: int) -> int:
        """Count branches that ended but whose join has not heard of it; return how many (protocol R9)."""
        ...


class WakeUps(Protocol):
    """Hints that work has become claimable; a hint may come late, twice or not at all: the poll is the truth."""

    def watch(self) -> AsyncGenerator[None, None]:
        """Yield once as soon as it sees, then whenever tasks became claimable at once, by whichever process.

        The first hint stands for all that became claimable before, and comes again when a lost connection is replaced,
        which it does with pauses of its own. Several tasks at once may be one hint. It ends when the server has no change streams, which a
        standalone server has not. Close it with ``aclose``.
        """
        ...


class LockKeeper(Protocol):
    """Renewing locks; synchronous, for a thread that no handler can block."""

    def renew(self, claims: Sequence[Claim], *, lock: timedelta) -> frozenset[Claim]:
        """Let the locks end ``lock`` from now; return the claims that are lost. One claim's loss spoils no other."""
        ...

    def release_unknown(self, worker_id: str, *, known: frozenset[str]) -> int:
        """Release tasks locked under ``worker_id`` whose ids are not ``known``: claims whose reply was lost.

        Only those found in two calls in a row are released, so that a claim under way is never taken for one
        (protocol R4). Uses no attempt and counts no crash.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class RuntimeStore(Protocol):
    """Loading and committing the state of running instances."""

    def now(self) -> datetime:
        """Return the database's time as known here: its last answer plus the monotonic time since (protocol R19)."""
        ...

    async def find_instance(self, instance_id: str) -> ProcessInstance | None:
        """Return a running instance, as the majority knows it; None if it has ended."""
        ...

    async def find_ended_instance(self, instance_id: str) -> ProcessInstance | None:
        """Return an instance from the history."""
        ...

    async def find_started(self, key: str, *, tenant_id: str | None) -> str | None:
        """Return the id of the instance that a start key was used for, as the majority knows it."""
        ...

    async def find_external_task(self, task_id: str) -> ExternalTask | None:
        """Return an open external task."""
        ...

    async def find_waiting(
        self, key: str, *, tenant_id: str | None, taken: frozenset[str]
    ) -> ExternalTask | None:
        """Return the external task that has waited longest for a correlation key in this tenant.

        Args:
            taken: Ids of tasks to leave out.
        """
        ...

    async def find_message(self, message_id: str, *, tenant_id: str | None) -> Message | None:
        """Return a message that is kept or remembered, as the majority knows it."""
        ...

    async def find_children(self, children: Branch, *, limit: int) -> tuple[str, ...]:
        """Return ids of running child instances.

        Args:
            children: Those of the coordinator that ``join_task_id`` names, or of the instance that ``id`` names.
        """
        ...

    async def commit(self, unit: UnitOfWork) -> Committed:
        """Write the whole unit or nothing, acknowledged by the majority.

        An unknown result is settled by committing again (protocol R6). After the transaction, branches that arrived are
        delivered to their joins; if that is interrupted, ``deliver_arrivals`` does it. Never cancel a call in progress.

        Raises:
            ClaimLostError: A guard matched nothing. Nothing was written.
            DuplicateStartError: The start key is in use. Nothing was written.
            DuplicateMessageError: The message id is in use. Nothing was written.
            VariableTooLargeError: A document would pass the database's limit. Nothing was written.
        """
        ...

    async def commit_group(
        self, units: Sequence[GroupedUnit], *, hand_on: HandOn | None
    ) -> tuple[GroupResult, ...]:
        """Write each unit wholly or not at all, as many as possible in one transaction; return one result for each.

        A unit whose guard matches nothing is left out and has a ``ClaimLostError`` as its result; units that must not share
        a transaction do not (protocol R15). What ``commit`` raises about a unit is its result here. A unit whose result is
        a ``StoreUnavailableError`` can be committed again; so can a unit of a call that was interrupted: if it was
        written after all, its guard matches nothing. Never cancel a call in progress.

        A unit that meets another transaction again and again, such as one that a dead worker left open, is given up after
        half a second with a ``StoreUnavailableError`` where it has company: the units behind it do not wait for it.

        With ``hand_on``, the first task that a unit inserts, if it is due and can run at this worker, is born LOCKED by it
        with epoch 1, and is in the result with its instance as the majority knew it after the commit.
        """
        ...

    async def discard_task(self, claim: Claim) -> bool:
        """Remove a claimed task whose instance has ended; return False if there is one after all (protocol, answer 9)."""
        ...

    async def cancel_instance(self, instance_id: str, *, cancelled_by: str | None) -> bool:
        """Mark the instance, then remove it and all its tasks in one transaction; False if it is not running.

        Durable from the marker on: if the caller dies between the two, any worker finishes (protocol R8).
        """
        ...

    async def sweep_cancelled(self, instance_id: str) -> bool:
        """Carry out a marked cancellation; False if somebody else has."""
        ...

    async def suspend_instance(self, instance_id: str) -> bool:
        """Let a running instance rest; False if it is not ACTIVE."""
        ...

    async def resume_instance(self, instance_id: str) -> bool:
        """Let a suspended instance go on with its parked tasks, in one transaction; False if it is not SUSPENDED."""
        ...

    async def park_task(self, claim: Claim) -> bool:
        """Take a claimed task out of the claims until its instance is resumed.

        Decided on the instance's document, so that a resume at the same time is never missed; False if the instance is not
        suspended any more (protocol R8).

        Raises:
            ClaimLostError: The claim is lost.
        """
        ...

    async def retry_incident(
        self,
        incident_id: str,
        *,
        retries: int,
        resolved_by: str | None,
        resolution: Resolution = PLAIN_RETRY,
    ) -> bool:
        """Let the incident's task go on, with new attempts due now, and resolve the incident; False if it is not open."""
        ...

    async def override_task(
        self, task_id: str, *, retries: int | None, due_at: datetime | None, by: str | None
    ) -> bool:
        """Give a task that waits, or that waits for a person, other attempts or another due time.

        A task in ERROR waits again, and its incident is resolved. False if the task is neither PENDING nor in ERROR.
        """
        ...

    async def forget_instance(self, instance_id: str) -> bool:
        """Remove an ended instance from the history, with its incidents; False if it is not there."""
        ...

    async def migrate_instance(
        self,
        instance_id: str,
        *,
        before_id: str,
        after: ProcessDefinition,
        nodes: frozenset[str],
    ) -> bool:
        """Let a running instance go on with another version, in one transaction that changes every row of it.

        Workers that hold a claim of it lose it. False if it does not run, not with the version ``before_id``, or rests
        by now at a node that is not one of ``nodes``.
        """
        ...

    async def assign_external_task(
        self, task_id: str, *, assignee: str | None, expected: str | None
    ) -> bool:
        """Change the assignee if it is ``expected`` now; False if it is not."""
        ...


class DefinitionStore(Protocol):
    """Deployed definitions; immutable once stored."""

    async def put(self, file: DefinitionFile, *, activate: bool) -> "Deployment":
        """Store ``file`` as the next version of its key, unless it is there already.

        Equal content (by checksum) to the latest version stores nothing. Equal content to an older version stores
        nothing either, unless ``activate`` makes it the latest again. Atomic: two deploys at once never share a number.
        """
        ...

    async def put_all(
        self, files: Sequence[DefinitionFile], *, activate: bool
    ) -> "tuple[Deployment, ...]":
        """Store all ``files`` as ``put`` does, in their order and in one transaction: all of them or none."""
        ...

    async def find(self, definition_id: str) -> ProcessDefinition | None:
        """Return one version by its id."""
        ...

    async def find_by_key(
        self, key: str, *, version: int | None = None
    ) -> ProcessDefinition | None:
        """Return the given version, or the latest."""
        ...

    async def suspend(self, key: str, *, suspended: bool) -> int:
        """Mark all versions of a key, so that none is started; return how many there are."""
        ...

    async def find_to_start(self, key: str, *, version: int | None = None) -> "Startable | None":
        """Return the given version, or the latest, and whether it must not be started; one look at both."""
        ...


@dataclass(frozen=True, slots=True)
class Startable:
    """A version that instances could be started with, and whether they must not now."""

    definition: ProcessDefinition
    is_suspended: bool


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a deploy came to.

    Attributes:
        created: Whether a new version was stored.
        is_latest: Whether new instances start with it.
    """

    definition: ProcessDefinition
    created: bool
    is_latest: bool


class ReadStore(Protocol):
    """Views for people: paged, capped, bounded in time; never the base of a decision."""

    async def list_definitions(self, *, key: str | None = None) -> tuple[DefinitionSummary, ...]:
        """Return the latest version of every key, or all versions of one, newest first."""
        ...

    async def list_instances(
        self, query: InstanceQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ProcessInstance]:
        """Return instances, newest first."""
        ...

    async def list_tasks(
        self, query: TaskQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ExecutableTask]:
        """Return executable tasks, oldest first."""
        ...

    async def list_external_tasks(
        self, query: ExternalTaskQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ExternalTask]:
        """Return open external tasks, oldest first."""
        ...

    async def list_incidents(
        self, query: IncidentQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Incident]:
        """Return incidents, newest first."""
        ...

    async def find_incident(self, incident_id: str) -> Incident | None:
        """Return one incident."""
        ...

    async def find_task(self, task_id: str) -> ExecutableTask | None:
        """Return one executable task."""
        ...

    async def find_completed_external_task(self, task_id: str) -> "CompletedExternalTask | None":
        """Return the record of a completion, kept as long as the history."""
        ...

    async def count_by_status(self, *, definition_key: str | None = None) -> dict[str, int]:
        """Return how many instances there are by status, ended ones included; each count stops at a cap."""
        ...

    async def list_workers(self) -> tuple[WorkerRecord, ...]:
        """Return the workers that were seen lately."""
        ...

    async def measure_queue(self) -> QueueMeasures:
        """Return figures for metrics; each count stops at a cap."""
        ...

    async def record_worker(self, record: WorkerRecord) -> None:
        """Note that a worker is alive."""
        ...
