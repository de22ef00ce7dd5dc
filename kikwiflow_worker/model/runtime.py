"""The stored records of running processes, as immutable values.

Stored names are those of the Java engine where the meaning is the same; ``store.mongo.codec`` maps them, nothing else
does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from kikwiflow_worker.model.nodes import MatchPolicy
from kikwiflow_worker.model.variables import Value, Variables


class InstanceStatus(StrEnum):
    """Where an instance is in its life. COMPLETED and CANCELLED are only found in the history."""

    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"
    CANCELLING = "CANCELLING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"


class TaskType(StrEnum):
    """What an executable task does when it is run.

    STANDARD runs a handler, EXCLUSIVE_GATEWAY asks for an answer, TIMER_SCHEDULE asks for a due date, KEY_RESOLUTION asks
    for correlation keys, TIMER_TASK goes on after its due date, INTERRUPTIVE_TIMER ends its host then,
    NON_INTERRUPTIVE_TIMER fires beside it, EVENT_THROW delivers a message, JOIN_GATEWAY goes on after its branches,
    CALL_ACTIVITY_STARTER starts one child and CALL_ACTIVITY_COORDINATOR goes on after all of them, ARRIVAL records the
    end of a branch that had no executable task of its own, CANCEL_INSTANCE carries out a cancellation and
    CANCEL_CHILDREN that of children whose call activity is gone, KEPT_MESSAGE looks for somebody who waits for a message,
    BULK_JOB goes on with a bulk job.
    """

    STANDARD = "STANDARD"
    EXCLUSIVE_GATEWAY = "EXCLUSIVE_GATEWAY"
    TIMER_SCHEDULE = "TIMER_SCHEDULE"
    KEY_RESOLUTION = "KEY_RESOLUTION"
    TIMER_TASK = "TIMER_TASK"
    INTERRUPTIVE_TIMER = "INTERRUPTIVE_TIMER"
    NON_INTERRUPTIVE_TIMER = "NON_INTERRUPTIVE_TIMER"
    EVENT_THROW = "EVENT_THROW"
    JOIN_GATEWAY = "JOIN_GATEWAY"
    CALL_ACTIVITY_COORDINATOR = "CALL_ACTIVITY_COORDINATOR"
    CALL_ACTIVITY_STARTER = "CALL_ACTIVITY_STARTER"
    ARRIVAL = "ARRIVAL"
    CANCEL_INSTANCE = "CANCEL_INSTANCE"
    CANCEL_CHILDREN = "CANCEL_CHILDREN"
    KEPT_MESSAGE = "KEPT_MESSAGE"
    BULK_JOB = "BULK_JOB"


class TaskStatus(StrEnum):
    """Where an executable task is in its life.

    PENDING waits for its due time, LOCKED is held by a worker, AWAITING_BRANCHES is a join whose branches are still
    under way, STARTED is a call activity's child that runs, ARRIVED is a branch that ended and has yet to be counted by its join, ERROR waits for a person.
    """

    PENDING = "PENDING"
    LOCKED = "LOCKED"
    AWAITING_BRANCHES = "AWAITING_BRANCHES"
    STARTED = "STARTED"
    ARRIVED = "ARRIVED"
    ERROR = "ERROR"


class IncidentType(StrEnum):
    """Why a task waits for a person."""

    FAILED_JOB = "FAILED_JOB"
    UNHANDLED_BUSINESS_ERROR = "UNHANDLED_BUSINESS_ERROR"
    VARIABLES_TOO_LARGE = "VARIABLES_TOO_LARGE"
    WORKER_LOST = "WORKER_LOST"


class IncidentStatus(StrEnum):
    """OPEN waits for a person, RESOLVED was retried, CLOSED ended with its instance."""

    OPEN = "OPEN"
    RESOLVED = "RESOLVED"
    CLOSED = "CLOSED"


class ExternalTaskType(StrEnum):
    """What an external task waits for.

    TASK for a person or program, CATCHER for one correlation key, GROUP for all or any of the keys of its GROUP_KEY rows,
    BOUNDARY_CATCH for the key that ends its host.
    """

    TASK = "EXTERNAL_TASK"
    CATCHER = "EVENT_CATCHER_STANDALONE"
    GROUP = "EVENT_CATCHER_PARENT"
    GROUP_KEY = "EVENT_CATCHER_CHILD"
    BOUNDARY_CATCH = "BOUNDARY_INTERRUPTIVE_CATCH_EVENT"


class ExternalTaskStatus(StrEnum):
    """CREATED waits; CORRELATED is a key of a group that has been matched."""

    CREATED = "CREATED"
    CORRELATED = "CORRELATED"


class HostKind(StrEnum):
    """Which collection the host of a boundary event is in."""

    EXECUTABLE_TASK = "EXECUTABLE_TASK"
    EXTERNAL_TASK = "EXTERNAL_TASK"


@dataclass(frozen=True, slots=True)
class Branch:
    """One of several parallel paths, and the join task that waits for it.

    Attributes:
        join_task_id: None for the private path of a non-interruptive event, which nobody waits for.
    """

    id: str
    join_task_id: str | None


@dataclass(frozen=True, slots=True)
class Attachment:
    """The task that a boundary event belongs to."""

    host_id: str
    host_node_id: str
    host_kind: HostKind


@dataclass(frozen=True, slots=True)
class Parent:
    """The call activity that a child instance was started by.

    Attributes:
        starter_task_id: The row that records the child's end for its coordinator (protocol R12).
        depth: How many call activities are above the child; 1 for a child of a started instance.
        outputs: Which variables of the child the parent gets at its end, and under which name.
    """

    instance_id: str
    coordinator_task_id: str
    branch_id: str
    starter_task_id: str
    depth: int
    outputs: tuple[tuple[str, str], ...] = ()

    def outputs_from(self, variables: Variables) -> dict[str, Value]:
        """Return what the parent gets of a child's ``variables``; those that the child lacks are left out."""
        return {theirs: variables[own] for own, theirs in self.outputs if own in variables}


@dataclass(frozen=True, slots=True)
class Loop:
    """Where a call activity is in its collection.

    Attributes:
        index: Of the element, from 0.
        element: For a starter: what its child gets; a tuple of one, so that an element may be None.
        pending: For a sequential coordinator: the elements whose child is not started yet.
    """

    index: int
    element: tuple[Value, ...] = ()
    pending: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInstance:
    """One run of a definition.

    Attributes:
        definition_id: The version it started with and keeps.
        open_paths: Paths that have not ended: the main one, plus one per path opened by a non-interruptive event.
            Parallel branches are not paths: their join stands for them.
        priority: 0 (last) to 9 (first).
        inherited_rules: Who may read and write the variables that it had from its parent, by their names, as the
            definitions of its ancestors say (``model.variable_rules``); its own definition's rules come on top.
    """

    id: str
    business_key: str
    definition_id: str
    definition_key: str
    definition_version: int
    started_at: datetime
    status: InstanceStatus = InstanceStatus.ACTIVE
    variables: Variables = field(default_factory=dict)
    business_value: Decimal | None = None
    tenant_id: str | None = None
    origin: str | None = None
    started_by: str | None = None
    priority: int = 5
    open_paths: int = 1
    ended_at: datetime | None = None
    parent: Parent | None = None
    inherited_rules: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, order=True)
class TopicNode:
    """A node that has a topic, in whatever version of its definition: as a fetch names it."""

    definition_key: str
    node_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutableTask:
    """A stored unit of due work that a worker runs: a token that rests in front of, or at, a node.

    Attributes:
        due_at: Not before this instant; None is at once.
        claimable_at: What the claim looks at: the due time while PENDING, the lock's end while LOCKED, the time of the
            next delivery while ARRIVED, else None.
        epoch: Raised by every change in place; the fencing token of a claim.
        attempts: Failures so far.
        retries_left: Attempts left before an incident.
        crash_count: Locks that lapsed because their worker died.
        attached_to: The host of a boundary event.
        is_skipped: A person decided that its handler is not needed: the path goes on as if it had run.
        occurrence: Which cycle of a recurring timer this is, from 1.
        handler_name: What a worker must have to run it, as ``Capability.stored``; None runs anywhere.
        topic_node: Its node, if that has a topic: external workers can fetch it by this as well.
        traceparent: The trace context in which it was created; None without traces.
    """

    id: str
    type: TaskType
    node_id: str
    instance_id: str
    definition_id: str
    created_at: datetime
    status: TaskStatus = TaskStatus.PENDING
    due_at: datetime | None = None
    claimable_at: datetime | None = None
    worker_id: str | None = None
    lock_expires_at: datetime | None = None
    epoch: int = 0
    attempts: int = 0
    retries_left: int = 0
    crash_count: int = 0
    error: str | None = None
    handler_name: str | None = None
    priority: int = 5
    tenant_id: str | None = None
    branch: Branch | None = None
    pending_branch_ids: tuple[str, ...] = ()
    attached_to: Attachment | None = None
    occurrence: int | None = None
    loop: Loop | None = None
    is_skipped: bool = False
    topic_node: TopicNode | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalTask:
    """A stored wait that someone outside ends.

    Attributes:
        correlation_key: What a message must carry to end it.
        display_name: The key in words for people.
        pending_keys: For a GROUP: the keys that have not been matched.
        group_id: For a GROUP_KEY: its GROUP.
        traceparent: The trace context in which it was created; None without traces.
    """

    id: str
    node_id: str
    instance_id: str
    definition_id: str
    created_at: datetime
    name: str | None = None
    description: str | None = None
    assignee: str | None = None
    tenant_id: str | None = None
    branch: Branch | None = None
    type: ExternalTaskType = ExternalTaskType.TASK
    status: ExternalTaskStatus = ExternalTaskStatus.CREATED
    correlation_key: str | None = None
    display_name: str | None = None
    match_policy: MatchPolicy | None = None
    pending_keys: tuple[str, ...] = ()
    total_keys: int | None = None
    group_id: str | None = None
    attached_to: Attachment | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A failure that waits for a person.

    Attributes:
        task_id: The executable task that failed; it is in status ERROR while the incident is open.
    """

    id: str
    type: IncidentType
    message: str
    stack_trace: str
    instance_id: str
    definition_id: str
    task_id: str
    node_id: str
    created_at: datetime
    status: IncidentStatus = IncidentStatus.OPEN
    tenant_id: str | None = None
    resolved_at: datetime | None = None
    resolved_by: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The exclusive right to decide what becomes of one task, while its epoch lasts.

    Every write for a claimed task carries all three in its filter (design I1).
    """

    task_id: str
    worker_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTask:
    """A task this worker holds, with its instance as it was after the claim.

    Attributes:
        instance: None if it has ended.
        claimed_at: When it was claimed, by the database's clock.
        locked_until: When the lock lapses unless renewed, on the worker's monotonic clock, in seconds.
    """

    task: ExecutableTask
    claim: Claim
    instance: ProcessInstance | None
    claimed_at: datetime
    locked_until: float
