"""What a running step has gathered so far: working variables, new rows, and the ids derived for them."""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import NAMESPACE_OID, UUID, uuid5

from kikwiflow_worker.engine.effects import Failure
from kikwiflow_worker.engine.incidents import incident_of
from kikwiflow_worker.engine.retries import (
    GiveUp,
    RetryDefaults,
    TryAgain,
    attempts_allowed,
    decide,
)
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.handler import StepView
from kikwiflow_worker.model.capability import Capabilities, Capability
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.nodes import ExecutableTaskNode, FlowNode, RetryPolicy
from kikwiflow_worker.model.runtime import (
    Branch,
    ExecutableTask,
    ExternalTask,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    Change,
    ChangeVariables,
    InsertExternalTask,
    InsertTask,
    OpenIncident,
)
from kikwiflow_worker.model.variables import (
    Value,
    VariableChange,
    Variables,
    apply_change,
    check_total,
    net_changes,
)

MAX_INLINE_NODES = 1000
"""A segment that ran this many nodes rests at the next task, so that a loop neither starves others nor never commits."""


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


class Draft:
    """The mutable state of one segment; it lives only while the segment's generator runs.

    Args:
        root_id: What new ids are derived from: the id of the row, external task or instance that the segment starts
            from (protocol R5).
        head: The claimed task the segment starts from, if any.
        caller_drives: Whether failures go to the caller instead of becoming retries and incidents.
    """

    def __init__(
        self,
        *,
        definition: ProcessDefinition,
        instance: ProcessInstance,
        root_id: str,
        head: ExecutableTask | None,
        caller_drives: bool,
        surroundings: Surroundings,
    ) -> None:
        self.definition = definition
        self.instance = instance
        self.head = head
        self.now = surroundings.now
        self.variables: dict[str, Value] = dict(instance.variables)
        self._transient: dict[str, Value] = {}
        self.changes: list[Change] = []
        self._root_id = root_id
        self._caller_drives = caller_drives
        self._capabilities = surroundings.capabilities
        self._retry_defaults = surroundings.retry_defaults
        self._variable_changes: list[VariableChange] = []
        self._ordinals: Counter[str] = Counter()
        self._visited = 0

    def visit(self) -> bool:
        """Count one node; return whether the segment has run long enough to rest at the next task.

        Raises:
            ExecutionError: It has run far longer without meeting any task: the definition loops for ever.
        """
        self._visited += 1
        if self._visited > 2 * MAX_INLINE_NODES:
            raise ExecutionError(
                f"more than {2 * MAX_INLINE_NODES} nodes without a task to rest at; "
                "the definition has a loop of gateways that never ends"
            )
        return self._visited > MAX_INLINE_NODES

    def can_run(self, capability: Capability) -> bool:
        """Return whether this process has the handler or provider."""
        return capability in self._capabilities

    def derive_id(self, node_id: str) -> str:
        """Return the id for the next visit of a node in this segment, the same whenever the segment is repeated."""
        ordinal = self._ordinals[node_id]
        self._ordinals[node_id] += 1
        return str(uuid5(_namespace(self._root_id), f"{node_id}#{ordinal}"))

    def view(self, node: FlowNode, *, visit_id: str, attempts: int) -> StepView:
        """Return what user code may know about this visit of ``node``."""
        instance = self.instance
        return StepView(
            instance_id=instance.id,
            business_key=instance.business_key,
            business_value=instance.business_value,
            tenant_id=instance.tenant_id,
            definition_key=self.definition.key,
            definition_version=self.definition.version,
            node_id=node.id,
            node_name=node.name,
            attempt=attempts + 1,
            idempotency_key=visit_id,
            extension_properties=node.extension_properties,
        )

    def visible(self) -> dict[str, Value]:
        """Return what user code sees: the stored variables, and over them the transient ones."""
        return {**self.variables, **self._transient}

    def apply(self, changes: tuple[VariableChange, ...], transient: Variables) -> None:
        """Take over a handler's changes, all or none.

        Raises:
            VariableTooLargeError: All variables together would pass the limit of an instance.
        """
        touched = {change.name for change in changes}
        self._transient = {
            name: value for name, value in self._transient.items() if name not in touched
        }
        self._transient.update(transient)
        if not changes:
            return
        changed = dict(self.variables)
        for change in changes:
            apply_change(changed, change)
        check_total(changed)
        self.variables = changed
        self._variable_changes.extend(changes)

    def variable_changes(self) -> tuple[Change, ...]:
        """Return the net changes of variables as changes of the unit of work; empty if there are none."""
        net = net_changes(self._variable_changes)
        return (ChangeVariables(self.instance.id, net),) if net else ()

    def rest_at(
        self,
        node: FlowNode,
        task_type: TaskType,
        *,
        task_id: str,
        branch: Branch | None,
        capability: Capability | None = None,
        due_at: datetime | None = None,
    ) -> None:
        """Add an executable task that waits for its due time and for a worker with the capability."""
        self.insert(
            self._task(
                node,
                task_type,
                task_id=task_id,
                branch=branch,
                capability=capability,
                due_at=due_at,
            )
        )

    def rest_at_join(
        self, node: FlowNode, *, task_id: str, branch: Branch | None, pending: tuple[str, ...]
    ) -> None:
        """Add the join task that waits for the ``pending`` branches."""
        self.insert(
            ExecutableTask(
                id=task_id,
                type=TaskType.JOIN_GATEWAY,
                node_id=node.id,
                instance_id=self.instance.id,
                definition_id=self.definition.id,
                created_at=self.now,
                status=TaskStatus.AWAITING_BRANCHES,
                retries_left=self._retry_defaults.max_retries,
                priority=self.instance.priority,
                tenant_id=self.instance.tenant_id,
                branch=branch,
                pending_branch_ids=pending,
            )
        )

    def wait_outside(self, node: FlowNode, *, task_id: str, branch: Branch | None) -> None:
        """Add an external task."""
        self.changes.append(
            InsertExternalTask(
                ExternalTask(
                    id=task_id,
                    node_id=node.id,
                    instance_id=self.instance.id,
                    definition_id=self.definition.id,
                    created_at=self.now,
                    name=node.name,
                    description=node.description,
                    tenant_id=self.instance.tenant_id,
                    branch=branch,
                )
            )
        )

    def fail_inline(
        self,
        node: FlowNode,
        task_type: TaskType,
        failure: Failure,
        *,
        task_id: str,
        branch: Branch | None,
        capability: Capability | None,
    ) -> None:
        """Keep what was done so far and add the failed node as a task of its own, with its retry or its incident.

        So no handler that succeeded runs again, and attempts are counted for the node that fails (design 10).

        Raises:
            StepFailedError: A caller drives the segment.
        """
        if self._caller_drives:
            raise StepFailedError(self.instance.id, node.id, failure) from failure.cause
        born = self._task(
            node, task_type, task_id=task_id, branch=branch, capability=capability, due_at=None
        )
        verdict = self.verdict(node, failure, attempts=0, retries_left=born.retries_left)
        match verdict:
            case TryAgain():
                self.insert(
                    replace(
                        born,
                        claimable_at=verdict.due_at,
                        due_at=verdict.due_at,
                        attempts=verdict.attempts,
                        retries_left=verdict.retries_left,
                        error=failure.message,
                    )
                )
            case GiveUp():
                self.insert(
                    replace(
                        born,
                        status=TaskStatus.ERROR,
                        claimable_at=None,
                        attempts=verdict.attempts,
                        retries_left=0,
                        error=failure.message,
                    )
                )
                self.changes.append(
                    OpenIncident(incident_of(born, verdict.type, failure, now=self.now))
                )

    def verdict(
        self, node: FlowNode, failure: Failure, *, attempts: int, retries_left: int
    ) -> TryAgain | GiveUp:
        """Decide about a failure at ``node`` by the node's own policy."""
        return decide(
            failure,
            attempts=attempts,
            retries_left=retries_left,
            policy=_policy(node),
            defaults=self._retry_defaults,
            now=self.now,
        )

    def insert(self, task: ExecutableTask) -> None:
        """Add an executable task."""
        self.changes.append(InsertTask(task))

    def _task(
        self,
        node: FlowNode,
        task_type: TaskType,
        *,
        task_id: str,
        branch: Branch | None,
        capability: Capability | None,
        due_at: datetime | None,
    ) -> ExecutableTask:
        return ExecutableTask(
            id=task_id,
            type=task_type,
            node_id=node.id,
            instance_id=self.instance.id,
            definition_id=self.definition.id,
            created_at=self.now,
            due_at=due_at,
            claimable_at=due_at or self.now,
            retries_left=attempts_allowed(_policy(node), self._retry_defaults),
            handler_name=capability.stored if capability else None,
            priority=self.instance.priority,
            tenant_id=self.instance.tenant_id,
            branch=branch,
        )


def _policy(node: FlowNode) -> RetryPolicy | None:
    return node.retry_policy if isinstance(node, ExecutableTaskNode) else None


def _namespace(root_id: str) -> UUID:
    try:
        return UUID(root_id)
    except ValueError:
        return uuid5(NAMESPACE_OID, root_id)
