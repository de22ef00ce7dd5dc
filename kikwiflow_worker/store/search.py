"""The port for people who look for something: searches, counts, timelines and figures, all of them bounded.

Routes and pages reach it as ``caller.services.searches``, narrowed to whoever asks.

Never the base of a decision: what is found may have changed meanwhile. Every method can be narrowed to one tenant, by
``tenant_id`` of its query or by the argument of that name; None does not matter, and sees all tenants.

A page is found by one index and keyset cursors. What the index does not know, such as the value of a variable, is tested
on at most ``EXAMINED_PER_ROW`` documents for each row of the page. A page that has examined as many ends there: it holds what
was found, perhaps nothing, and its ``next_cursor`` goes on behind the last document examined. So no search needs an index on
everything, none reads a whole collection, and all of it is found in the end; ``next_cursor`` None is the end.

Counts stop at a cap and say so: ``Count``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from kikwiflow_worker.model.events import EventType, NodeStatus, OutboxEvent
from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    Incident,
    IncidentStatus,
    IncidentType,
    InstanceStatus,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.variables import Variables
from kikwiflow_worker.store.views import Page, WorkerRecord

EXAMINED_PER_ROW = 50
"""Documents that a page examines for each row that it may hold, at most."""

COUNT_CAP = 10_000
"""Where counts stop that the keys of an index answer."""

EXAMINED_PER_COUNT = 1_000
"""Where counts stop that documents must be examined for."""

PATH_CAP = 1_000
"""Visits of one path that are returned, at most: the first ones."""

RUNNING = (InstanceStatus.ACTIVE, InstanceStatus.SUSPENDED, InstanceStatus.CANCELLING)
ENDED = (InstanceStatus.COMPLETED, InstanceStatus.CANCELLED)


T = TypeVar("T")


def only(value: T | None) -> tuple[T, ...]:
    """Return what a search is narrowed to: one value, or nothing at all."""
    return () if value is None else (value,)


@dataclass(frozen=True, slots=True)
class Count:
    """How many there are, or, if ``is_capped``, how many there are at least."""

    value: int
    is_capped: bool = False

    def __str__(self) -> str:
        return f"{self.value:,}+" if self.is_capped else f"{self.value:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSearch:
    """Which instances to find; all that is given must fit, an empty tuple does not matter.

    Found newest first; with ``node_id``, in the order in which they came to the node, the first one first.

    Attributes:
        statuses: Of running and of ended ones, in one list; empty finds the running ones.
        node_id: Where one of its paths stands now; only running instances stand anywhere.
        started_after: This instant or later.
        started_before: Before this instant.
        variables: Names and the values that they must have, of the same type, equal as a whole.
        variables_exist: Names that must be there, whatever the value.
        not_inherited: Names for which an instance has inherited no rule: a search must not tell what that masks.
    """

    definition_ids: tuple[str, ...] = ()
    definition_keys: tuple[str, ...] = ()
    node_id: str | None = None
    parent_id: str | None = None
    tenant_id: str | None = None
    statuses: tuple[InstanceStatus, ...] = ()
    business_keys: tuple[str, ...] = ()
    started_after: datetime | None = None
    started_before: datetime | None = None
    variables: Variables = field(default_factory=dict)
    variables_exist: tuple[str, ...] = ()
    not_inherited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSearch:
    """Which executable tasks to find, oldest first.

    Attributes:
        retrying: Only those that failed and wait for another attempt.
    """

    instance_id: str | None = None
    definition_ids: tuple[str, ...] = ()
    definition_keys: tuple[str, ...] = ()
    node_id: str | None = None
    tenant_id: str | None = None
    statuses: tuple[TaskStatus, ...] = ()
    types: tuple[TaskType, ...] = ()
    handler_name: str | None = None
    retrying: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalTaskSearch:
    """Which open external tasks to find, oldest first; with ``due_before``, the most urgent first.

    Attributes:
        unassigned: Only those that nobody has claimed.
        for_people: Only what a person or program completes, not the waits for messages.
        due_before: Only those that a timer ends before this instant.
    """

    instance_id: str | None = None
    definition_ids: tuple[str, ...] = ()
    definition_keys: tuple[str, ...] = ()
    node_id: str | None = None
    tenant_id: str | None = None
    assignee: str | None = None
    unassigned: bool = False
    correlation_key: str | None = None
    for_people: bool = False
    due_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentSearch:
    """Which incidents to find, newest first.

    Attributes:
        status: None finds those that were put right as well.
        created_after: This instant or later.
        created_before: Before this instant.
    """

    instance_id: str | None = None
    definition_ids: tuple[str, ...] = ()
    definition_keys: tuple[str, ...] = ()
    node_id: str | None = None
    tenant_id: str | None = None
    type: IncidentType | None = None
    status: IncidentStatus | None = IncidentStatus.OPEN
    created_after: datetime | None = None
    created_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerSearch:
    """Which timers that have not fired to find, the next one first: of timer tasks, and those that are attached to a host."""

    instance_id: str | None = None
    definition_ids: tuple[str, ...] = ()
    definition_keys: tuple[str, ...] = ()
    node_id: str | None = None
    tenant_id: str | None = None
    due_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """Something that happened to an instance; ``cursor`` lists what happened after it."""

    event: OutboxEvent
    cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One time that an instance finished a node.

    Attributes:
        started_at: None if it is not known.
        interrupted_by: The boundary event that ended it, for INTERRUPTED.
    """

    node_id: str
    started_at: datetime | None
    finished_at: datetime
    status: NodeStatus
    interrupted_by: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The path that an instance took, as far as it is known.

    Attributes:
        visits: In their order, at most ``PATH_CAP``.
        flows: Ids of the flows that its gateways chose.
        is_complete: Whether that is all: False if events are not stored at level ``full``, have expired, or are too many.
            Without events the visits are those of external tasks that were completed.
    """

    visits: tuple[Visit, ...]
    flows: tuple[str, ...]
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """How many paths of an instance stand at a node now, and how many of them wait for a person after a failure."""

    tokens: int
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFigures:
    """What one node of one version has to do.

    Attributes:
        tokens: Paths that stand there. At a boundary event: how many wait for it. A join has none: its branches have.
        incidents: Open ones.
        average: Of its last successful visits, from their start to their end; None without events at level ``full``.
        sampled: How many visits ``average`` is of.
    """

    tokens: Count
    incidents: Count
    average: timedelta | None = None
    sampled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionFigures:
    """What all versions of one key have to do.

    Attributes:
        running: Instances, suspended ones included.
        incidents: Open ones.
        completed: Instances that ended within the last ``ENDED_LATELY``.
        cancelled: The same.
    """

    running: Count
    incidents: Count
    completed: Count
    cancelled: Count


ENDED_LATELY = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerWait:
    """Due tasks that need one handler.

    Attributes:
        handler_name: As ``Capability.stored``.
        oldest: Since when the oldest has been claimable.
        is_served: Whether a worker seen lately has the handler, or fetches it as a topic or by node, for each of them; if not,
            some wait for ever. Where it is fetched by node, that is told by the hundred oldest.
    """

    handler_name: str
    waiting: Count
    oldest: datetime
    is_served: bool


@dataclass(frozen=True, slots=True)
class WorkerLook:
    """A worker, and for how many seconds it has not reported; ``is_silent`` when that is longer than it should be."""

    worker: WorkerRecord
    silent_s: float
    is_silent: bool

    @property
    def is_alive(self) -> bool:
        """Whether it reports, and has not said that it stops."""
        return not self.is_silent and self.worker.state != "stopped"

    @property
    def free(self) -> int:
        """How many slots have nothing to do."""
        return max(0, self.worker.slots - self.worker.running)


class SearchStore(Protocol):
    """Searches, counts, timelines and figures: paged, capped, bounded in time."""

    async def search_instances(
        self, query: InstanceSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[ProcessInstance]:
        """Return instances."""
        ...

    async def count_instances(self, query: InstanceSearch) -> Count:
        """Return how many instances a search would find; for a node, how many paths stand there."""
        ...

    async def search_tasks(
        self, query: TaskSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[ExecutableTask]:
        """Return executable tasks."""
        ...

    async def count_tasks(self, query: TaskSearch) -> Count:
        """Return how many executable tasks a search would find."""
        ...

    async def search_external_tasks(
        self, query: ExternalTaskSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[ExternalTask]:
        """Return open external tasks."""
        ...

    async def count_external_tasks(self, query: ExternalTaskSearch) -> Count:
        """Return how many open external tasks a search would find."""
        ...

    async def find_deadlines(
        self, task_ids: Sequence[str], *, tenant_id: str | None = None
    ) -> Mapping[str, datetime]:
        """Return when a timer ends each of these tasks, for those that have one; at most 500 ids."""
        ...

    async def find_business_keys(
        self, instance_ids: Sequence[str], *, tenant_id: str | None = None
    ) -> Mapping[str, str]:
        """Return the business keys of running instances, for those that run; at most 500 ids."""
        ...

    async def search_incidents(
        self, query: IncidentSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[Incident]:
        """Return incidents."""
        ...

    async def count_incidents(self, query: IncidentSearch) -> Count:
        """Return how many incidents a search would find."""
        ...

    async def search_timers(
        self, query: TimerSearch, *, limit: int = 20, cursor: str | None = None
    ) -> Page[ExecutableTask]:
        """Return timers that have not fired; ``due_at`` is when they do."""
        ...

    async def list_events(
        self,
        instance_id: str,
        *,
        tenant_id: str | None = None,
        types: tuple[EventType, ...] = (),
        newest_first: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[TimelineEvent]:
        """Return what happened to an instance, running or ended, in its order; what is stored depends on the event level.

        The ``cursor`` of an event, from whichever page, goes on with what happened after it, and with ``newest_first`` with
        what happened before. So after the last page in order, that of its last event gives what happens afterwards.
        """
        ...

    async def find_path(self, instance_id: str, *, tenant_id: str | None = None) -> Path:
        """Return the path that an instance took."""
        ...

    async def find_standing(
        self, instance_id: str, *, tenant_id: str | None = None
    ) -> Mapping[str, Standing]:
        """Return where a running instance stands, by node; empty for one that has ended."""
        ...

    async def measure_nodes(
        self, definition_id: str, node_ids: Sequence[str], *, tenant_id: str | None = None
    ) -> Mapping[str, NodeFigures]:
        """Return figures for each of these nodes of one version."""
        ...

    async def measure_definitions(
        self, keys: Sequence[str], *, tenant_id: str | None = None
    ) -> Mapping[str, DefinitionFigures]:
        """Return figures for each of these keys."""
        ...

    async def list_handler_waits(self, *, tenant_id: str | None = None) -> tuple[HandlerWait, ...]:
        """Return what due tasks need, those without a worker first."""
        ...

    async def list_workers(self) -> tuple[WorkerLook, ...]:
        """Return the workers that were seen in the last day, by name."""
        ...
