"""When a row cannot be reached: pure rules over a stored row and what was found around it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from kikwiflow_worker.model.runtime import (
    ExternalTaskType,
    InstanceStatus,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.texts import tenant_scoped
from kikwiflow_worker.store.mongo.driver import Document

OWNERLESS = (
    TaskType.CANCEL_CHILDREN.value,
    TaskType.KEPT_MESSAGE.value,
    TaskType.BULK_JOB.value,
)
"""Tasks of these types belong to no instance: they outlive one, look for one, or change many."""


class Trouble(StrEnum):
    """What is wrong.

    LEFT_BEHIND names something that is not there, STRANDED waits for what never comes, NOT_CLAIMABLE is work that no
    worker can find, CLAIM is held by nobody, TWICE is there a second time, MESSAGE is kept and never delivered.
    """

    LEFT_BEHIND = "left behind"
    STRANDED = "stranded"
    NOT_CLAIMABLE = "not claimable"
    CLAIM = "claim"
    TWICE = "twice"
    MESSAGE = "message"


Suspicion = tuple[Trouble, str]
"""What looks wrong, and how in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What was found around some rows, by one read for each field.

    Attributes:
        now: The database's time.
        grace: How long something may take that should be done at once.
        instances: The status of the instances that were asked for and run.
        hosts: Those that are there and have not ended.
        joins: The pending branches of joins and call activities that are there.
        carried: Branches that a row carries.
        children: Starters whose child runs.
        parents_waiting: Starters that wait for their child.
        cancelling: Call activities and instances whose children are about to be cancelled.
        incidents: Tasks with an open incident.
        failed: Tasks that wait for a person.
        groups: Groups of correlation keys that are there.
        keys: Keys that still wait, by their group.
        with_rows: Instances that some row carries on.
        ended: Instances that are in the history.
        kept: Messages that are kept, by their stored id.
        keepers: Messages, by id and tenant, that a task tries to deliver.
    """

    now: datetime
    grace: timedelta
    instances: Mapping[str, str] = field(default_factory=dict)
    hosts: frozenset[str] = frozenset()
    joins: Mapping[str, frozenset[str]] = field(default_factory=dict)
    carried: frozenset[tuple[str, str]] = frozenset()
    children: frozenset[str] = frozenset()
    parents_waiting: frozenset[str] = frozenset()
    cancelling: frozenset[str] = frozenset()
    incidents: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    with_rows: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    keepers: frozenset[tuple[str, str | None]] = frozenset()

    def is_past(self, at: datetime | None) -> bool:
        """Return whether an instant has passed, and the grace after it."""
        return at is not None and at + self.grace < self.now


def suspect_task(row: Document, around: Around) -> Iterator[Suspicion]:
    """Yield what looks wrong with an executable task."""
    if row["type"] not in OWNERLESS:
        yield from _owner(row, around)
        yield from _branch(row, around)
    yield from _claim(row, around)
    match row["status"]:
        case TaskStatus.AWAITING_BRANCHES:
            yield from _join(row, around)
        case TaskStatus.STARTED if row["_id"] not in around.children:
            yield Trouble.STRANDED, "the child that it started does not run"
        case TaskStatus.ERROR if row["_id"] not in around.incidents:
            yield Trouble.STRANDED, "it waits for a person, and has no open incident"
        case _:
            pass


def suspect_external_task(row: Document, around: Around) -> Iterator[Suspicion]:
    """Yield what looks wrong with an external task."""
    yield from _owner(row, around)
    yield from _branch(row, around)
    group_id = row.get("coordinatorTaskId")
    if group_id is not None and group_id not in around.groups:
        yield Trouble.LEFT_BEHIND, f"its group {group_id} is not there"
    if row.get("type") == ExternalTaskType.GROUP:
        pending = frozenset(row.get("pendingCorrelationKeys", ()))
        lost = pending - around.keys.get(row["_id"], frozenset())
        if lost or not pending:
            count = len(lost)
            waits = f"{count} keys that nothing can match" if lost else "no key"
            yield Trouble.STRANDED, f"it waits for {waits}"


def suspect_instance(row: Document, around: Around) -> Iterator[Suspicion]:
    """Yield what looks wrong with a running instance."""
    instance_id = row["_id"]
    if instance_id not in around.with_rows:
        yield Trouble.STRANDED, "no row carries it on"
    if row["openPaths"] < 1:
        yield Trouble.STRANDED, f"it counts {row['openPaths']} open paths and has not ended"
    if instance_id in around.ended:
        yield Trouble.TWICE, "it runs, and is in the history"
    starter = row.get("starterTaskId")
    if starter is None or starter in around.parents_waiting:
        return
    if not {row.get("callerTaskId"), row.get("parentInstanceId")} & around.cancelling:
        parent = row.get("parentInstanceId")
        yield Trouble.LEFT_BEHIND, f"its parent {parent} does not wait for it any more"


def suspect_incident(row: Document, around: Around) -> Iterator[Suspicion]:
    """Yield what looks wrong with an open incident."""
    if row["executionId"] not in around.failed:
        yield Trouble.LEFT_BEHIND, f"its task {row['executionId']} does not wait for a person"


def suspect_message(row: Document, around: Around) -> Iterator[Suspicion]:
    """Yield what looks wrong with a kept message."""
    keeper = (row["messageId"], row.get("tenantId"))
    if row["keptUntil"] > around.now and keeper not in around.keepers:
        yield Trouble.MESSAGE, "it is kept, and no task delivers it"


def _owner(row: Document, around: Around) -> Iterator[Suspicion]:
    if row["processInstanceId"] not in around.instances:
        yield Trouble.LEFT_BEHIND, f"its instance {row['processInstanceId']} does not run"
    host_id = row.get("attachedToRefId")
    if host_id is not None and host_id not in around.hosts:
        yield Trouble.LEFT_BEHIND, f"its host {host_id} is not there"


def _branch(row: Document, around: Around) -> Iterator[Suspicion]:
    join_id, branch_id = row.get("joinTaskId"), row.get("branchId")
    if join_id is None:
        return
    if join_id not in around.joins:
        yield Trouble.LEFT_BEHIND, f"its join {join_id} is not there"
        return
    if row["status"] != TaskStatus.ARRIVED and branch_id not in around.joins[join_id]:
        yield Trouble.TWICE, f"its join {join_id} does not wait for its branch {branch_id}"


def _join(row: Document, around: Around) -> Iterator[Suspicion]:
    pending = row.get("pendingBranchIds") or []
    if not pending:
        yield Trouble.STRANDED, "it waits for no branch, and was not released"
    lost = [branch for branch in pending if (row["_id"], branch) not in around.carried]
    if lost:
        yield (
            Trouble.STRANDED,
            f"it waits for {len(lost)} of {len(pending)} branches that no row carries, such as {lost[0]}",
        )


def _claim(row: Document, around: Around) -> Iterator[Suspicion]:
    claimable_at, status = row.get("claimableAt"), row["status"]
    match status:
        case TaskStatus.LOCKED if claimable_at is None:
            yield Trouble.NOT_CLAIMABLE, "it is locked, and nobody can take it over"
        case TaskStatus.LOCKED if around.is_past(row.get("lockExpiresAt")):
            until = f"{row['lockExpiresAt']:%Y-%m-%d %H:%M:%S} UTC"
            holder = row.get("workerId")
            yield Trouble.CLAIM, f"{holder} held it until {until}, and no worker has taken it over"
        case TaskStatus.PENDING | TaskStatus.ARRIVED if claimable_at is None:
            instance = around.instances.get(row["processInstanceId"])
            is_parked = row.get("isParked") and instance == InstanceStatus.SUSPENDED
            if not is_parked and instance != InstanceStatus.CANCELLING:
                yield Trouble.NOT_CLAIMABLE, "it waits for a worker, and none can find it"
        case TaskStatus.ARRIVED if around.is_past(claimable_at):
            yield Trouble.CLAIM, "its branch has ended, and nobody has told its join"
        case _:
            pass
    if row["type"] == TaskType.KEPT_MESSAGE and around.is_past(claimable_at):
        yield from _keeper(row, around)


def _keeper(row: Document, around: Around) -> Iterator[Suspicion]:
    if tenant_scoped(row["taskDefinitionId"], row.get("tenantId")) not in around.kept:
        yield Trouble.LEFT_BEHIND, "its message is not kept any more, and it was not removed"
