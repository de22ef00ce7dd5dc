"""What people and programs ask for, and the rows that they get."""

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from kikwiflow_worker.model.runtime import IncidentStatus, IncidentType, TaskStatus, TopicNode

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; ``next_cursor`` continues after it and is None at the end."""

    items: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionSummary:
    """A row of the list of definitions; no instance starts while it is suspended."""

    id: str
    key: str
    version: int
    name: str | None
    deployed_at: datetime
    is_suspended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """What a worker last said about itself. For people only: nothing depends on it.

    Attributes:
        event_loop_lag_s: How late its event loop woke up at worst since the record before; None if it did not say.
        is_external: It fetches tasks, and only that is known of it: ``handlers`` are its topics, its other fields are empty.
        nodes: Whose tasks an external worker fetches, whatever their topic.
        tenant_id: Whose tasks an external worker may fetch; None for those of all.
        busy_s: For how many seconds after ``seen_at`` an external worker may be busy with what it fetched, and not be heard.
    """

    id: str
    instance_name: str
    host: str
    pid: int
    version: str
    started_at: datetime
    seen_at: datetime
    state: str
    slots: int
    running: int
    handlers: tuple[str, ...]
    event_loop_lag_s: float | None = None
    is_external: bool = False
    nodes: tuple[TopicNode, ...] = ()
    tenant_id: str | None = None
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMeasures:
    """How much work waits.

    Attributes:
        due: Tasks that could be claimed now, counted up to ``DUE_CAP``.
        oldest_due_s: Seconds since the oldest of them became claimable.
    """

    due: int
    oldest_due_s: float
    open_incidents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedExternalTask:
    """Who completed an external task, and when."""

    task_id: str
    instance_id: str
    node_id: str
    completed_at: datetime
    completed_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceQuery:
    """Which instances to list; a field that is None does not matter.

    Attributes:
        ended: True lists the history, False the running ones.
        parent_id: The instance whose call activity started them; for running ones only.
    """

    ended: bool = False
    definition_key: str | None = None
    business_key: str | None = None
    tenant_id: str | None = None
    status: str | None = None
    parent_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuery:
    """Which executable tasks to list.

    Attributes:
        retrying: Only those that failed and wait for another attempt.
    """

    instance_id: str | None = None
    status: TaskStatus | None = None
    node_id: str | None = None
    handler_name: str | None = None
    retrying: bool = False
    tenant_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalTaskQuery:
    """Which external tasks to list; ``unassigned`` lists those that nobody has claimed."""

    instance_id: str | None = None
    node_id: str | None = None
    assignee: str | None = None
    unassigned: bool = False
    tenant_id: str | None = None
    correlation_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentQuery:
    """Which incidents to list.

    Attributes:
        definition_ids: Of versions, those of one key as a rule; None for all.
    """

    instance_id: str | None = None
    status: IncidentStatus | None = IncidentStatus.OPEN
    type: IncidentType | None = None
    node_id: str | None = None
    definition_ids: tuple[str, ...] | None = None
    tenant_id: str | None = None
