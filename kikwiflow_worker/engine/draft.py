"""What a running step has gathered so far: working variables, new rows, and the ids derived for them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kikwiflow_worker.engine.effects import Failure
from kikwiflow_worker.engine.incidents import incident_of
from kikwiflow_worker.engine.retries import (
    GiveUp,
    RetryDefaults,
    TryAgain,
    Verdict,
    attempts_allowed,
    decide,
)
from kikwiflow_worker.engine.visits import Visit, derived_id
from kikwiflow_worker.engine.working_variables import WorkingVariables
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.handler import CorrelationItem, StepView
from kikwiflow_worker.model.capability import Capabilities, Capability
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.events import EventLevel, EventType, OutboxEvent, is_recorded
from kikwiflow_worker.model.limits import MAX_INLINE_NODES, MAX_NESTED_SPLITS, MAX_STEP_NODES
from kikwiflow_worker.model.nodes import ExecutableTaskNode, FlowNode, RetryPolicy
from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    ExternalTaskType,
    Loop,
    ProcessInstance,
    TaskStatus,
    TopicNode,
)
from kikwiflow_worker.model.unit_of_work import (
    Change,
    ChangeVariables,
    Guard,
    InsertExternalTask,
    InsertTask,
    OpenIncident,
    RecordEvent,
)
from kikwiflow_worker.model.variables import Value


class StepFailedError(ExecutionError):
    """A step that a caller drives (start, complete) failed; nothing was written.

    Attributes:
        node_id: The node that failed.
        failure: What happened; the handler's own exception is the ``__cause__``.
    """

    def __init__(self, instance_id: str, node_id: str, failure: Failure) -> None:
        self.node_id = node_id
        self.failure = failure
        super().__init__(
            f"node {node_id} of instance {instance_id} failed: {failure.error_type}: {failure.message}; "
            "nothing was changed, the call can be repeated"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a segment takes from the process that runs it.

    Attributes:
        now: The database's time, as the worker knows it (protocol R19).
        capabilities: The handlers and providers this process has.
    """

    now: datetime
    capabilities: Capabilities
    retry_defaults: RetryDefaults
    event_level: EventLevel = EventLevel.OFF


class Draft:
    """The mutable state of one segment; it lives only while the segment's generator runs.

    Args:
        origin: What the segment begins with, and which claim of it: names the events of this segment.
        caller_drives: Whether failures go to the caller instead of becoming retries and incidents.
    """

    def __init__(
        self,
        definition: ProcessDefinition,
        instance: ProcessInstance,
        surroundings: Surroundings,
        *,
        origin: str,
        caller_drives: bool,
    ) -> None:
        self.definition = definition
        self.instance = instance
        self.now = surroundings.now
        self.variables = WorkingVariables(instance.variables)
        self.guards: list[Guard] = []
        """Of other instances' tasks that this segment decides about, besides its own."""
        self.changes: list[Change] = []
        self.own_waits: frozenset[str] = frozenset()
        """External tasks that this segment ends itself: still stored while it runs, they wait for no message."""
        self.has_delivered = False
        """Whether a message is delivered in this commit; the next one is looked for after it, never beside it."""
        self._surroundings = surroundings
        self._caller_drives = caller_drives
        self._visited = 0
        self._nesting = 0
        self._origin = origin
        self._events = 0

    def count_node(self) -> bool:
        """Count one node; return whether the segment has run long enough to rest at the next task.

        Raises:
            ExecutionError: All its paths together pass more nodes than one commit may.
        """
        self._visited += 1
        if self._visited > MAX_STEP_NODES:
            raise ExecutionError(
                f"one step passes more than {MAX_STEP_NODES:,} nodes (MAX_STEP_NODES); "
                "set commitBefore on a task of the branches, or make the splits smaller"
            )
        return self._visited > MAX_INLINE_NODES

    def enter_split(self, split: FlowNode) -> None:
        """Begin the branches of a split.

        Raises:
            ExecutionError: It is inside too many others that have no task to rest at between them.
        """
        self._nesting += 1
        if self._nesting > MAX_NESTED_SPLITS:
            raise ExecutionError(
                f"split {split.id} is inside more than {MAX_NESTED_SPLITS} others without a task between them "
                "(MAX_NESTED_SPLITS); put one before it"
            )

    def leave_split(self) -> None:
        """End the branches of a split."""
        self._nesting -= 1

    def time_passed(self, now: datetime | None) -> None:
        """Note the time after user code ran: due dates and retries are counted from there."""
        if now is not None:
            self.now = max(self.now, now)

    def records(self, event: EventType) -> bool:
        """Return whether events of this type are stored; if not, their payload need not be put together."""
        return is_recorded(event, self._surroundings.event_level)

    def record(self, event: EventType, payload: Mapping[str, Value]) -> None:
        """Add an event, if events of its type are stored; call it where the thing happens, to keep the order."""
        if not self.records(event):
            return
        self._events += 1
        fact = OutboxEvent(
            id=derived_id(self._origin, f"event#{self._events}"),
            type=event,
            timestamp=self.now,
            instance_id=self.instance.id,
            definition_id=self.definition.id,
            payload=payload,
            inherited_rules=self.instance.inherited_rules,
        )
        self.changes.append(RecordEvent(fact))

    def can_run(self, capability: Capability) -> bool:
        """Return whether this process has the handler or provider."""
        return capability in self._surroundings.capabilities

    def view(self, visit: Visit) -> StepView:
        """Return what user code may know about a visit."""
        instance, node = self.instance, visit.node
        return StepView(
            instance_id=instance.id,
            business_key=instance.business_key,
            business_value=instance.business_value,
            tenant_id=instance.tenant_id,
            definition_key=self.definition.key,
            definition_version=self.definition.version,
            node_id=node.id,
            node_name=node.name,
            attempt=visit.head.attempts + 1 if visit.head else 1,
            idempotency_key=visit.id,
            extension_properties=node.extension_properties,
        )

    def variable_changes(self) -> tuple[Change, ...]:
        """Return the changes of variables as changes of the unit of work; empty if there are none."""
        changes = self.variables.changes
        return (ChangeVariables(self.instance.id, changes),) if changes else ()

    def rest_at(
        self, visit: Visit, *, due_at: datetime | None = None, occurrence: int | None = None
    ) -> None:
        """Add an executable task that waits for its due time and for a worker with the capability."""
        self._insert(self._task(visit, due_at=due_at, occurrence=occurrence))

    def rest_at_join(
        self, visit: Visit, *, pending: tuple[str, ...], loop: Loop | None = None
    ) -> None:
        """Add the join or coordinator that waits for the ``pending`` branches; without any it goes on at once."""
        task = self._task(visit, pending_branch_ids=pending, loop=loop)
        if pending:
            task = replace(task, status=TaskStatus.AWAITING_BRANCHES, claimable_at=None)
        self._insert(task)

    def rest_at_starter(self, visit: Visit, loop: Loop) -> None:
        """Add the task that starts one child of a call activity."""
        self._insert(self._task(visit, loop=loop))

    def wait_outside(self, visit: Visit, **waits_for: Any) -> None:
        """Add an external task; ``waits_for`` are further fields of ``ExternalTask``."""
        task = ExternalTask(
            id=visit.id,
            node_id=visit.node.id,
            instance_id=self.instance.id,
            definition_id=self.definition.id,
            created_at=self.now,
            name=visit.node.name,
            description=visit.node.description,
            tenant_id=self.instance.tenant_id,
            branch=visit.branch,
            attached_to=visit.attached_to,
        )
        self.changes.append(InsertExternalTask(replace(task, **waits_for)))

    def wait_for_key(
        self, visit: Visit, waits: ExternalTaskType, item: CorrelationItem, **waits_for: Any
    ) -> None:
        """Add an external task that one correlation key ends."""
        key = {"correlation_key": item.key, "display_name": item.display_name}
        self.wait_outside(visit, type=waits, **key, **waits_for)

    def fail_inline(self, visit: Visit, failure: Failure) -> tuple[ExecutableTask, Verdict]:
        """Keep what was done so far and add the failed node as a task of its own, with its retry or its incident.

        So no handler that succeeded runs again, and attempts are counted for the node that fails (design 10). Returns that
        task as it was born, and what was decided about it.

        Raises:
            StepFailedError: A caller drives the segment.
        """
        if self._caller_drives:
            raise StepFailedError(self.instance.id, visit.node.id, failure) from failure.cause
        born = self._task(visit)
        verdict = self.verdict(visit.node, failure, attempts=0, retries_left=born.retries_left)
        failed = replace(born, attempts=verdict.attempts, error=failure.message)
        match verdict:
            case TryAgain(due_at=due_at, retries_left=left):
                self._insert(replace(failed, claimable_at=due_at, due_at=due_at, retries_left=left))
            case GiveUp():
                error = TaskStatus.ERROR
                self._insert(replace(failed, status=error, claimable_at=None, retries_left=0))
                incident = incident_of(born, verdict.type, failure, now=self.now)
                self.changes.append(OpenIncident(incident))
        return born, verdict

    def verdict(
        self, node: FlowNode, failure: Failure, *, attempts: int, retries_left: int
    ) -> TryAgain | GiveUp:
        """Decide about a failure at ``node`` by the node's own policy."""
        return decide(
            failure,
            attempts=attempts,
            retries_left=retries_left,
            policy=_policy(node),
            defaults=self._surroundings.retry_defaults,
            now=self.now,
        )

    def _insert(self, task: ExecutableTask) -> None:
        self.changes.append(InsertTask(task))

    def _task(
        self, visit: Visit, *, due_at: datetime | None = None, **fields: Any
    ) -> ExecutableTask:
        return ExecutableTask(
            id=visit.id,
            type=visit.task_type,
            node_id=visit.node.id,
            instance_id=self.instance.id,
            definition_id=self.definition.id,
            created_at=self.now,
            due_at=due_at,
            claimable_at=due_at or self.now,
            retries_left=attempts_allowed(_policy(visit.node), self._surroundings.retry_defaults),
            handler_name=visit.capability.stored if visit.capability else None,
            priority=self.instance.priority,
            tenant_id=self.instance.tenant_id,
            branch=visit.branch,
            attached_to=visit.attached_to,
            topic_node=_topic_node(self.definition.key, visit.node),
            **fields,
        )


def _topic_node(definition_key: str, node: FlowNode) -> TopicNode | None:
    if isinstance(node, ExecutableTaskNode) and node.is_external:
        return TopicNode(definition_key, node.id)
    return None


def _policy(node: FlowNode) -> RetryPolicy | None:
    return node.retry_policy if isinstance(node, ExecutableTaskNode) else None
