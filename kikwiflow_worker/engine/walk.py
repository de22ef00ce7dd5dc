"""Walking from node to node until the path rests or ends.

A generator: it yields an ``Effect`` when it needs user code and is sent the ``Reply``. It runs inline while it can, and
leaves a task where it cannot: at a transaction boundary, a wait state, a split, a timer, at a handler that this process
does not have, and at a node that failed (design 3).
"""

from collections.abc import Generator
from enum import Enum

from kikwiflow_worker.engine.draft import Draft
from kikwiflow_worker.engine.due_dates import due_at
from kikwiflow_worker.engine.effects import (
    Answered,
    AskAnswer,
    AskDueDate,
    CallHandler,
    DueDateGiven,
    Effect,
    Failure,
    FailureKind,
    HandlerReturned,
    Raised,
    Reply,
)
from kikwiflow_worker.engine.gateways import choose_flow
from kikwiflow_worker.errors import ExecutionError, VariableError
from kikwiflow_worker.model.capability import Capability, HandlerKind
from kikwiflow_worker.model.nodes import (
    BoundaryErrorHandler,
    BoundaryInterruptiveCatchEvent,
    BoundaryInterruptiveTimer,
    BoundaryNonInterruptiveTimer,
    CallActivity,
    EndEvent,
    EventCatcher,
    EventThrower,
    ExclusiveGateway,
    ExecutableTaskNode,
    ExternalTaskNode,
    FlowNode,
    GatewayProvider,
    JoinGateway,
    ParallelGateway,
    StartEvent,
    TimerProvider,
    TimerTaskNode,
)
from kikwiflow_worker.model.runtime import Branch, ExecutableTask, TaskType
from kikwiflow_worker.model.variables import to_text


class PathState(Enum):
    """How a walk ended: RESTED left a row that carries the token on, ENDED left nothing."""

    RESTED = "rested"
    ENDED = "ended"


class StepFailed(Exception):  # noqa: N818 - it never leaves the engine
    """The head node of a claimed task failed; the task itself is retried or becomes an incident."""

    def __init__(self, node: FlowNode, failure: Failure) -> None:
        self.node = node
        self.failure = failure
        super().__init__(failure.message)


Steps = Generator[Effect, Reply, PathState]


def walk(
    draft: Draft,
    node_id: str,
    branch: Branch | None,
    *,
    at_boundary: bool,
    head: ExecutableTask | None,
) -> Steps:
    """Walk from ``node_id`` until the path rests or ends.

    Args:
        branch: The parallel branch that this path belongs to.
        at_boundary: Whether the next task must become a row, because a commit is due before it.
        head: The claimed task that rests at ``node_id``, if that node is being resumed.

    Raises:
        StepFailed: The head node failed.
        StepFailedError: A node failed and a caller drives the segment.
    """
    return (yield from _Walk(draft, branch).run(node_id, at_boundary, head))


class _Walk:
    """One path: a branch and the rule whether the next task must rest."""

    def __init__(self, draft: Draft, branch: Branch | None) -> None:
        self._draft = draft
        self._branch = branch
        self._at_boundary = False

    def run(self, node_id: str, at_boundary: bool, head: ExecutableTask | None) -> Steps:
        self._at_boundary = at_boundary
        while True:
            self._at_boundary = self._draft.visit() or self._at_boundary
            node = self._draft.definition.node(node_id)
            target = yield from self._step(node, head)
            if isinstance(target, PathState):
                return target
            self._at_boundary = self._at_boundary or node.commit_after
            node_id, head = target, None

    def _step(
        self, node: FlowNode, head: ExecutableTask | None
    ) -> Generator[Effect, Reply, str | PathState]:
        """Do what the node is for; return the next node's id, or how the path ended."""
        match node:
            case StartEvent():
                return _next(node)
            case EndEvent():
                return PathState.ENDED
            case JoinGateway():
                arrives = self._branch is not None and head is None
                return PathState.ENDED if arrives else _next(node)
            case ExternalTaskNode():
                self._draft.wait_outside(
                    node, task_id=self._draft.derive_id(node.id), branch=self._branch
                )
                return PathState.RESTED
            case ExecutableTaskNode():
                return (yield from self._executable_task(node, head))
            case ExclusiveGateway():
                return (yield from self._exclusive_gateway(node, head))
            case ParallelGateway():
                return (yield from self._split(node))
            case TimerTaskNode():
                return (yield from self._timer(node, head))
            case (
                EventCatcher()
                | EventThrower()
                | CallActivity()
                | BoundaryInterruptiveTimer()
                | BoundaryNonInterruptiveTimer()
                | BoundaryErrorHandler()
                | BoundaryInterruptiveCatchEvent()
            ):
                raise ExecutionError(
                    f"node {node.id} has the type {node.type}, which this release does not run; "
                    "deploy a version without it or use a newer worker"
                )

    def _executable_task(
        self, node: ExecutableTaskNode, head: ExecutableTask | None
    ) -> Generator[Effect, Reply, str | PathState]:
        draft, capability = (
            self._draft,
            Capability(HandlerKind.TASK_HANDLER, node.handler_name or ""),
        )
        visit_id = head.id if head else draft.derive_id(node.id)
        rests = self._at_boundary or node.commit_before or not draft.can_run(capability)
        if head is None and rests:
            draft.rest_at(
                node,
                TaskType.STANDARD,
                task_id=visit_id,
                branch=self._branch,
                capability=capability,
            )
            return PathState.RESTED
        view = draft.view(node, visit_id=visit_id, attempts=head.attempts if head else 0)
        reply = yield CallHandler(capability, view, draft.visible())
        try:
            match reply:
                case HandlerReturned(changes, transient):
                    draft.apply(changes, transient)
                    return _next(node)
                case Raised(failure):
                    pass
                case _:
                    raise TypeError(f"a handler cannot be answered with {reply!r}")
        except VariableError as error:
            failure = _fatal(error)
        return self._failed(node, TaskType.STANDARD, failure, visit_id, capability, head)

    def _exclusive_gateway(
        self, node: ExclusiveGateway, head: ExecutableTask | None
    ) -> Generator[Effect, Reply, str | PathState]:
        draft = self._draft
        visit_id = head.id if head else draft.derive_id(node.id)
        capability = None
        failure: Failure
        try:
            if node.provider_type is GatewayProvider.BEAN:
                capability = Capability(HandlerKind.ANSWER_PROVIDER, node.provider_bean or "")
                if head is None and not draft.can_run(capability):
                    draft.rest_at(
                        node,
                        TaskType.EXCLUSIVE_GATEWAY,
                        task_id=visit_id,
                        branch=self._branch,
                        capability=capability,
                    )
                    return PathState.RESTED
                view = draft.view(node, visit_id=visit_id, attempts=head.attempts if head else 0)
                reply = yield AskAnswer(capability, view, draft.visible())
            else:
                reply = Answered(to_text(draft.visible().get(node.provider_variable or "")))
            match reply:
                case Answered(answer):
                    return _target(node, choose_flow(node, answer).target_node_id)
                case Raised(raised):
                    failure = raised
                case _:
                    raise TypeError(f"a gateway cannot be answered with {reply!r}")
        except ExecutionError as error:
            failure = _fatal(error)
        return self._failed(node, TaskType.EXCLUSIVE_GATEWAY, failure, visit_id, capability, head)

    def _timer(
        self, node: TimerTaskNode, head: ExecutableTask | None
    ) -> Generator[Effect, Reply, str | PathState]:
        if head is not None and head.type is TaskType.TIMER_TASK:
            return _next(node)
        draft = self._draft
        visit_id = head.id if head else draft.derive_id(node.id)
        capability = None
        failure: Failure
        try:
            if node.provider_type is TimerProvider.BEAN:
                capability = Capability(HandlerKind.DUE_DATE_PROVIDER, node.provider_bean or "")
                if head is None and not draft.can_run(capability):
                    draft.rest_at(
                        node,
                        TaskType.TIMER_SCHEDULE,
                        task_id=visit_id,
                        branch=self._branch,
                        capability=capability,
                    )
                    return PathState.RESTED
                view = draft.view(node, visit_id=visit_id, attempts=head.attempts if head else 0)
                reply = yield AskDueDate(capability, view, draft.visible())
            else:
                reply = DueDateGiven(self._given_due_date(node))
            match reply:
                case DueDateGiven(value):
                    due = due_at(value, now=draft.now)
                    task_id = draft.derive_id(node.id) if head else visit_id
                    draft.rest_at(
                        node, TaskType.TIMER_TASK, task_id=task_id, branch=self._branch, due_at=due
                    )
                    return PathState.RESTED
                case Raised(raised):
                    failure = raised
                case _:
                    raise TypeError(f"a timer cannot be answered with {reply!r}")
        except ExecutionError as error:
            failure = _fatal(error)
        return self._failed(node, TaskType.TIMER_SCHEDULE, failure, visit_id, capability, head)

    def _given_due_date(self, node: TimerTaskNode) -> str:
        if node.provider_type is TimerProvider.STATIC:
            return node.static_value or ""
        name = node.provider_variable or ""
        text = to_text(self._draft.visible().get(name))
        if text is None:
            raise ExecutionError(
                f"timer {node.id} takes its due date from variable {name!r}, which is missing or null; "
                "set it to an ISO-8601 instant or duration and retry"
            )
        return text

    def _split(self, node: ParallelGateway) -> Generator[Effect, Reply, str | PathState]:
        """Start every branch in this commit; go straight on if none of them rests (protocol R9)."""
        draft = self._draft
        join = draft.definition.node(node.target_join_id or "")
        join_task_id = draft.derive_id(join.id)
        pending: list[str] = []
        for index, flow in enumerate(node.outgoing):
            inner = Branch(f"{join_task_id}:{index}", join_task_id)
            state = yield from walk(
                draft, _target(node, flow.target_node_id), inner, at_boundary=True, head=None
            )
            if state is PathState.RESTED:
                pending.append(inner.id)
        if not pending:
            return _next(join)
        draft.rest_at_join(join, task_id=join_task_id, branch=self._branch, pending=tuple(pending))
        return PathState.RESTED

    def _failed(
        self,
        node: FlowNode,
        task_type: TaskType,
        failure: Failure,
        visit_id: str,
        capability: Capability | None,
        head: ExecutableTask | None,
    ) -> PathState:
        if head is not None:
            raise StepFailed(node, failure)
        self._draft.fail_inline(
            node, task_type, failure, task_id=visit_id, branch=self._branch, capability=capability
        )
        return PathState.RESTED


def _next(node: FlowNode) -> str | PathState:
    return _target(node, node.outgoing[0].target_node_id) if node.outgoing else PathState.ENDED


def _target(node: FlowNode, target: str | None) -> str:
    if target is None:
        raise ExecutionError(
            f"a flow out of node {node.id} has no targetNodeId; deploy a version that has one"
        )
    return target


def _fatal(error: ExecutionError) -> Failure:
    """An error that no repetition heals: a person has to change a variable or the definition."""
    return Failure(
        kind=FailureKind.FATAL, error_type=type(error).__name__, message=str(error), cause=error
    )
