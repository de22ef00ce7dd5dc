"""Walking from node to node until the path rests or ends.

A generator: it yields an ``Effect`` when it needs user code and is sent the ``Reply``. It runs inline while it can, and
leaves a task where it cannot: at a transaction boundary, a wait state, a split, a timer, at a handler that this process
does not have, and at a node that failed (design 3).
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import count

from kikwiflow_worker.engine.asking import (
    PathState,
    Steps,
    ask_due_date,
    attempt,
    keys_provider,
    unexpected,
)
from kikwiflow_worker.engine.attachments import (
    attach_boundary_events,
    find_error_handler,
    has_interruptive_event,
    has_waiting_event,
    set_up,
    wait_for_keys,
)
from kikwiflow_worker.engine.calls import call
from kikwiflow_worker.engine.draft import Draft
from kikwiflow_worker.engine.effects import (
    Answered,
    AskAnswer,
    CallHandler,
    Effect,
    FailureKind,
    HandlerReturned,
    Raised,
    Reply,
)
from kikwiflow_worker.engine.gateways import choose_flow
from kikwiflow_worker.engine.recording import record_answer, record_finished
from kikwiflow_worker.engine.throwing import throw
from kikwiflow_worker.engine.visits import Visit, derived_id
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.capability import Capability, HandlerKind
from kikwiflow_worker.model.events import EventType, NodeStatus
from kikwiflow_worker.model.limits import MAX_INLINE_NODES
from kikwiflow_worker.model.nodes import (
    BoundaryErrorHandler,
    BoundaryEvent,
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
    SequenceFlow,
    StartEvent,
    TimerTaskNode,
)
from kikwiflow_worker.model.runtime import Branch, ExecutableTask, HostKind, TaskType
from kikwiflow_worker.model.variables import to_text

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
        self._answered: Callable[[], None] | None = None

    def run(self, node_id: str, head: ExecutableTask | None) -> Steps:
        for passed in count(1):
            if passed > 2 * MAX_INLINE_NODES:
                raise ExecutionError(
                    f"a path passes more than {2 * MAX_INLINE_NODES:,} nodes without a task to rest at "
                    "(twice MAX_INLINE_NODES); the definition has a loop of gateways that never ends"
                )
            self._at_boundary = self._draft.count_node() or self._at_boundary
            node = self._draft.definition.node(node_id)
            self._visit_id = head.id if head else derived_id(self._visit_id, node.id)
            started_at = self._draft.now
            target = yield from self._step(node, head)
            if self._draft.records(EventType.FLOW_NODE_FINISHED):
                self._record(node, head, started_at, target)
            if self._answered is not None:
                self._answered()
                self._answered = None
            if isinstance(target, PathState):
                return target
            node_id, head = target, None
        raise AssertionError("counting never ends")

    def _step(self, node: FlowNode, head: ExecutableTask | None) -> Step:  # noqa: C901 - one case per node type
        match node:
            case StartEvent():
                return self._leave(node)
            case EndEvent():
                return PathState.ENDED
            case JoinGateway():
                return PathState.ENDED if self._arrives(node, head) else self._leave(node)
            case ExternalTaskNode():
                waiting = self._visit(node, TaskType.STANDARD)
                self._draft.wait_outside(waiting)
                return (
                    yield from attach_boundary_events(self._draft, waiting, HostKind.EXTERNAL_TASK)
                )
            case ExecutableTaskNode():
                return (yield from self._executable_task(node, head))
            case ExclusiveGateway():
                return (yield from self._exclusive_gateway(node, head))
            case ParallelGateway():
                return (yield from self._split(node))
            case TimerTaskNode():
                return (yield from self._timer(node, head))
            case EventCatcher():
                visit = self._visit(node, TaskType.KEY_RESOLUTION, head=head)
                return (yield from wait_for_keys(self._draft, visit, node))
            case EventThrower():
                return (yield from self._thrower(node, head))
            case CallActivity():
                return (yield from self._call_activity(node, head))
            case (
                BoundaryInterruptiveTimer()
                | BoundaryNonInterruptiveTimer()
                | BoundaryErrorHandler()
                | BoundaryInterruptiveCatchEvent()
            ):
                return (yield from self._boundary_event(node, head))

    def _record(
        self,
        node: FlowNode,
        head: ExecutableTask | None,
        started_at: datetime,
        target: str | PathState,
    ) -> None:
        is_silent = isinstance(node, ParallelGateway) or self._arrives(node, head)
        if target is not PathState.RESTED and not is_silent:
            record_finished(self._draft, node, started_at, self._status_of(target))

    def _arrives(self, node: FlowNode, head: ExecutableTask | None) -> bool:
        """Return whether a branch ends here: at any join or end, which is then not run itself."""
        ends = isinstance(node, EndEvent | JoinGateway)
        return ends and self._branch is not None and head is None

    def _status_of(self, target: str | PathState) -> NodeStatus:
        """Return how the node that led to ``target`` finished: an error handler is led to by an interruption only."""
        by_error = isinstance(target, str) and isinstance(
            self._draft.definition.node(target), BoundaryErrorHandler
        )
        return NodeStatus.INTERRUPTED if by_error else NodeStatus.SUCCESS

    def _boundary_event(self, node: BoundaryEvent, head: ExecutableTask | None) -> Step:
        """Go on where an event has fired; or set up one whose provider was missing where its host was created."""
        if head is not None and head.type in {TaskType.TIMER_SCHEDULE, TaskType.KEY_RESOLUTION}:
            visit = self._visit(node, head.type, head=head)
            return (yield from set_up(self._draft, replace(visit, attached_to=head.attached_to)))
        return self._leave(node)

    def _executable_task(self, node: ExecutableTaskNode, head: ExecutableTask | None) -> Step:
        draft = self._draft

        def accept(reply: Reply | None) -> str | PathState:
            if not isinstance(reply, HandlerReturned):
                raise unexpected(node, reply)
            draft.variables.apply(reply.changes, reply.transient)
            return self._leave(node)

        def rescue(raised: Raised) -> str | None:
            if raised.failure.kind is not FailureKind.BUSINESS:
                return None
            handler = find_error_handler(draft.definition, node, raised.failure)
            if handler is None:
                return None
            draft.variables.apply(raised.changes, raised.transient)
            return handler.id

        if head is not None:
            self._decided_by(node)
            if head.is_skipped:
                return self._leave(node)
        capability = Capability(HandlerKind.TASK_HANDLER, node.handler_name or "")
        visit = self._visit(node, TaskType.STANDARD, capability, head)
        if head is None and has_waiting_event(draft.definition, node):
            draft.rest_at(visit)
            return (yield from attach_boundary_events(draft, visit, HostKind.EXECUTABLE_TASK))
        call = partial(CallHandler, transient=draft.variables.transient_names)
        rests = self._at_boundary or node.commit_before
        return (yield from attempt(draft, visit, call, accept, rests=rests, rescue=rescue))

    def _exclusive_gateway(self, node: ExclusiveGateway, head: ExecutableTask | None) -> Step:
        def accept(reply: Reply | None) -> str | PathState:
            if isinstance(reply, Answered):
                answer = reply.answer
            elif reply is None:
                visible = self._draft.variables.visible()
                answer = to_text(visible.get(node.provider_variable or ""))
            else:
                raise unexpected(node, reply)
            flow = choose_flow(node, answer)
            self._answered = partial(record_answer, self._draft, node, answer, flow)
            return self._leave(node, flow)

        capability = None
        if node.provider_type is GatewayProvider.BEAN:
            capability = Capability(HandlerKind.ANSWER_PROVIDER, node.provider_bean or "")
        visit = self._visit(node, TaskType.EXCLUSIVE_GATEWAY, capability, head)
        return (yield from attempt(self._draft, visit, AskAnswer, accept))

    def _timer(self, node: TimerTaskNode, head: ExecutableTask | None) -> Step:
        draft = self._draft
        if head is not None and head.type is TaskType.TIMER_TASK:
            self._decided_by(node)
            return self._leave(node)
        visit = self._visit(node, TaskType.TIMER_SCHEDULE, head=head)
        due = yield from ask_due_date(draft, visit, node)
        if isinstance(due, PathState):
            return due
        waiting = Visit(
            derived_id(visit.id, node.id), node, TaskType.TIMER_TASK, branch=self._branch
        )
        draft.rest_at(waiting, due_at=due)
        return (yield from attach_boundary_events(draft, waiting, HostKind.EXECUTABLE_TASK))

    def _thrower(self, node: EventThrower, head: ExecutableTask | None) -> Step:
        visit = self._visit(node, TaskType.EVENT_THROW, keys_provider(node), head)
        rests = self._at_boundary or node.commit_before
        rested = yield from throw(self._draft, visit, node, rests=rests)
        return self._leave(node) if rested is None else rested

    def _call_activity(self, node: CallActivity, head: ExecutableTask | None) -> Step:
        if head is not None and head.loop is not None:
            self._decided_by(node)
            return self._leave(node)
        visit = self._visit(node, TaskType.CALL_ACTIVITY_COORDINATOR, head=head)
        return (yield from call(self._draft, visit, node))

    def _split(self, node: ParallelGateway) -> Step:
        """Start every branch in this commit; go straight on if none of them rests (protocol R9)."""
        draft = self._draft
        record_finished(draft, node, draft.now)
        join = draft.definition.node(node.target_join_id or "")
        join_task_id = derived_id(self._visit_id, join.id)
        pending: list[str] = []
        draft.enter_split(node)
        for index, flow in enumerate(node.outgoing):
            inner = Branch(f"{join_task_id}:{index}", join_task_id)
            target = target_of(node, flow)
            state = yield from walk(draft, target, inner, after=inner.id, at_boundary=True)
            if state is PathState.RESTED:
                pending.append(inner.id)
        draft.leave_split()
        if pending:
            waiting = Visit(join_task_id, join, TaskType.JOIN_GATEWAY, self._branch)
            draft.rest_at_join(waiting, pending=tuple(pending))
            return PathState.RESTED
        record_finished(draft, join, draft.now)
        self._visit_id = join_task_id
        return self._leave(join)

    def _decided_by(self, node: FlowNode) -> None:
        """Let what follows a host wait for the commit that decides between the host and its events (protocol, 20)."""
        if has_interruptive_event(self._draft.definition, node):
            self._at_boundary = True

    def _leave(self, node: FlowNode, flow: SequenceFlow | None = None) -> str | PathState:
        """Return where the path goes on after ``node``: along ``flow``, or the first one."""
        self._at_boundary = self._at_boundary or node.commit_after
        if flow is None:
            flow = node.outgoing[0] if node.outgoing else None
        return target_of(node, flow) if flow else PathState.ENDED

    def _visit(
        self,
        node: FlowNode,
        task_type: TaskType,
        capability: Capability | None = None,
        head: ExecutableTask | None = None,
    ) -> Visit:
        return Visit(self._visit_id, node, task_type, self._branch, capability, head)


def target_of(node: FlowNode, flow: SequenceFlow) -> str:
    """Return the node that a flow leads to.

    Raises:
        ExecutionError: It leads nowhere; a deploy refuses such a file.
    """
    if flow.target_node_id is None:
        raise ExecutionError(
            f"a flow out of node {node.id} has no targetNodeId; deploy a version that has one"
        )
    return flow.target_node_id
