"""Walking from node to node until the path rests or ends.

A generator: it yields an ``Effect`` when it needs user code and is sent the ``Reply``. It runs inline while it can, and
leaves a task where it cannot: at a transaction boundary, a wait state, a split, a timer, at a handler that this process
does not have, and at a node that failed (design 3).
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from enum import Enum
from functools import partial

from kikwiflow_worker.engine.draft import Draft
from kikwiflow_worker.engine.due_dates import due_at, given_due_date
from kikwiflow_worker.engine.effects import (
    Answered,
    AskAnswer,
    AskDueDate,
    CallHandler,
    DueDateGiven,
    Effect,
    Failure,
    HandlerReturned,
    Raised,
    Reply,
    fatal_failure,
)
from kikwiflow_worker.engine.gateways import choose_flow
from kikwiflow_worker.engine.visits import Visit, derived_id
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.handler import StepView
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
from kikwiflow_worker.model.variables import Variables, to_text


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
Step = Generator[Effect, Reply, str | PathState]
"""One node: returns the next node's id, or how the path ended."""


def walk(
    draft: Draft,
    node_id: str,
    branch: Branch | None,
    *,
    after: str,
    at_boundary: bool = False,
    head: ExecutableTask | None = None,
) -> Steps:
    """Walk from ``node_id`` until the path rests or ends.

    Args:
        branch: The parallel branch that this path belongs to.
        after: The visit that this path comes from: the id of an instance, an external task or a branch.
        at_boundary: Whether the next task must become a row, because a commit is due before it.
        head: The claimed task that rests at ``node_id``, if that node is being resumed.

    Raises:
        StepFailed: The head node failed.
        StepFailedError: A node failed and a caller drives the segment.
    """
    return (yield from _Walk(draft, branch, after, at_boundary).run(node_id, head))


class _Walk:
    """One path: its branch, the visit it has come to, and whether the next task must rest."""

    def __init__(self, draft: Draft, branch: Branch | None, after: str, at_boundary: bool) -> None:
        self._draft = draft
        self._branch = branch
        self._visit_id = after
        self._at_boundary = at_boundary

    def run(self, node_id: str, head: ExecutableTask | None) -> Steps:
        while True:
            self._at_boundary = self._draft.count_node() or self._at_boundary
            node = self._draft.definition.node(node_id)
            self._visit_id = head.id if head else derived_id(self._visit_id, node.id)
            target = yield from self._step(node, head)
            if isinstance(target, PathState):
                return target
            self._at_boundary = self._at_boundary or (
                node.commit_after and not isinstance(node, ParallelGateway)
            )
            node_id, head = target, None

    def _step(self, node: FlowNode, head: ExecutableTask | None) -> Step:
        match node:
            case StartEvent():
                return _next(node)
            case EndEvent():
                return PathState.ENDED
            case JoinGateway():
                arrives = self._branch is not None and head is None
                return PathState.ENDED if arrives else _next(node)
            case ExternalTaskNode():
                self._draft.wait_outside(self._visit(node, TaskType.STANDARD))
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

    def _executable_task(self, node: ExecutableTaskNode, head: ExecutableTask | None) -> Step:
        def accept(reply: Reply | None) -> str | PathState:
            if not isinstance(reply, HandlerReturned):
                raise _unexpected(node, reply)
            self._draft.variables.apply(reply.changes, reply.transient)
            return _next(node)

        capability = Capability(HandlerKind.TASK_HANDLER, node.handler_name or "")
        visit = self._visit(node, TaskType.STANDARD, capability, head)
        rests = self._at_boundary or node.commit_before
        transient = self._draft.variables.transient_names
        call = partial(CallHandler, transient=transient)
        return (yield from self._attempt(visit, call, accept, rests=rests))

    def _exclusive_gateway(self, node: ExclusiveGateway, head: ExecutableTask | None) -> Step:
        def accept(reply: Reply | None) -> str | PathState:
            if isinstance(reply, Answered):
                answer = reply.answer
            elif reply is None:
                answer = to_text(self._draft.variables.visible().get(node.provider_variable or ""))
            else:
                raise _unexpected(node, reply)
            return _target(node, choose_flow(node, answer).target_node_id)

        capability = None
        if node.provider_type is GatewayProvider.BEAN:
            capability = Capability(HandlerKind.ANSWER_PROVIDER, node.provider_bean or "")
        visit = self._visit(node, TaskType.EXCLUSIVE_GATEWAY, capability, head)
        return (yield from self._attempt(visit, AskAnswer, accept))

    def _timer(self, node: TimerTaskNode, head: ExecutableTask | None) -> Step:
        def accept(reply: Reply | None) -> str | PathState:
            if isinstance(reply, DueDateGiven):
                value = reply.value
            elif reply is None:
                value = given_due_date(node, self._draft.variables.visible())
            else:
                raise _unexpected(node, reply)
            due = due_at(value, now=self._draft.now, timer=node.id)
            waiting = replace(
                visit, id=derived_id(visit.id, node.id), task_type=TaskType.TIMER_TASK
            )
            self._draft.rest_at(replace(waiting, capability=None), due_at=due)
            return PathState.RESTED

        if head is not None and head.type is TaskType.TIMER_TASK:
            return _next(node)
        capability = None
        if node.provider_type is TimerProvider.BEAN:
            capability = Capability(HandlerKind.DUE_DATE_PROVIDER, node.provider_bean or "")
        visit = self._visit(node, TaskType.TIMER_SCHEDULE, capability, head)
        return (yield from self._attempt(visit, AskDueDate, accept))

    def _split(self, node: ParallelGateway) -> Step:
        """Start every branch in this commit; go straight on if none of them rests (protocol R9)."""
        draft = self._draft
        join = draft.definition.node(node.target_join_id or "")
        join_task_id = derived_id(self._visit_id, join.id)
        pending: list[str] = []
        for index, flow in enumerate(node.outgoing):
            inner = Branch(f"{join_task_id}:{index}", join_task_id)
            target = _target(node, flow.target_node_id)
            state = yield from walk(draft, target, inner, after=inner.id, at_boundary=True)
            if state is PathState.RESTED:
                pending.append(inner.id)
        if pending:
            waiting = Visit(join_task_id, join, TaskType.JOIN_GATEWAY, self._branch)
            draft.rest_at_join(waiting, pending=tuple(pending))
            return PathState.RESTED
        self._visit_id = join_task_id
        self._at_boundary = self._at_boundary or join.commit_after
        return _next(join)

    def _attempt(
        self,
        visit: Visit,
        ask: Callable[[Capability, StepView, Variables], Effect],
        accept: Callable[[Reply | None], str | PathState],
        *,
        rests: bool = False,
    ) -> Step:
        """Leave the node to a worker, or ask what it needs and accept the reply; a failure stays with the node.

        Args:
            accept: Takes the reply, or None where the node needs no user code.
            rests: Whether a commit is due before the node.
        """
        draft, capability = self._draft, visit.capability
        is_missing = capability is not None and not draft.can_run(capability)
        if visit.head is None and (rests or is_missing):
            draft.rest_at(visit)
            return PathState.RESTED
        try:
            reply = (
                (yield ask(capability, draft.view(visit), draft.variables.visible()))
                if capability
                else None
            )
            if not isinstance(reply, Raised):
                return accept(reply)
            failure = reply.failure
        except ExecutionError as error:
            failure = fatal_failure(error)
        if visit.head is not None:
            raise StepFailed(visit.node, failure)
        draft.fail_inline(visit, failure)
        return PathState.RESTED

    def _visit(
        self,
        node: FlowNode,
        task_type: TaskType,
        capability: Capability | None = None,
        head: ExecutableTask | None = None,
    ) -> Visit:
        return Visit(self._visit_id, node, task_type, self._branch, capability, head)


def _next(node: FlowNode) -> str | PathState:
    return _target(node, node.outgoing[0].target_node_id) if node.outgoing else PathState.ENDED


def _target(node: FlowNode, target: str | None) -> str:
    if target is None:
        raise ExecutionError(
            f"a flow out of node {node.id} has no targetNodeId; deploy a version that has one"
        )
    return target


def _unexpected(node: FlowNode, reply: Reply | None) -> TypeError:
    return TypeError(f"node {node.id} cannot be answered with {type(reply).__name__}")
