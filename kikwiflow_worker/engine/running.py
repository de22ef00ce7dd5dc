"""Segments that begin with a claimed task."""

from dataclasses import replace
from datetime import timedelta

from kikwiflow_worker.engine.asking import PathState, StepFailed
from kikwiflow_worker.engine.attachments import has_waiting_event
from kikwiflow_worker.engine.calls import add_starter, branch_of, new_child
from kikwiflow_worker.engine.draft import Draft, Surroundings
from kikwiflow_worker.engine.effects import (
    DefinitionFound,
    Failure,
    FindDefinition,
    fatal_failure,
    technical_failure,
    waiting_failure,
)
from kikwiflow_worker.engine.incidents import give_up
from kikwiflow_worker.engine.recording import record_cycle, record_failure, record_finished
from kikwiflow_worker.engine.retries import GiveUp, TryAgain
from kikwiflow_worker.engine.schedules import is_missed, next_occurrence
from kikwiflow_worker.engine.segments import Segment, SegmentResult, result_of, start_instance
from kikwiflow_worker.engine.visits import Visit, part_id
from kikwiflow_worker.engine.walk import walk
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.events import NodeStatus
from kikwiflow_worker.model.nodes import BoundaryNonInterruptiveTimer, CallActivity, FlowNode
from kikwiflow_worker.model.runtime import (
    Attachment,
    Branch,
    ClaimedTask,
    ExecutableTask,
    Loop,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    AbandonChildren,
    ArriveTask,
    AwaitNextChild,
    Change,
    Detach,
    EndHost,
    EndPath,
    Guard,
    InsertTask,
    OpenPath,
    RecordEnded,
    RemoveArrivals,
    RemoveTask,
    RescheduleTask,
    StartChild,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import SetVariable

_SUSPENDED_DELAY = timedelta(seconds=30)
"""Between two looks whether the definition of a child may be started again."""


def run_task(
    definition: ProcessDefinition,
    claimed: ClaimedTask,
    instance: ProcessInstance,
    surroundings: Surroundings,
) -> Segment:
    """Run a claimed task and go on until the path rests or ends; a failure is part of the result, never raised.

    Raises:
        ExecutionError: The task's node is not in the definition, or the definition cannot be run.
    """
    task = claimed.task
    origin = f"{task.id}:{task.epoch}"
    draft = Draft(definition, instance, surroundings, origin=origin, caller_drives=False)
    node = definition.node(task.node_id)
    try:
        match task.type, node:
            case TaskType.CALL_ACTIVITY_STARTER, CallActivity():
                return (yield from _start_child(draft, claimed, node, surroundings))
            case TaskType.CALL_ACTIVITY_COORDINATOR, CallActivity() if (
                task.loop and task.loop.pending
            ):
                return _start_next_child(draft, claimed, node, task.loop)
            case TaskType.NON_INTERRUPTIVE_TIMER, BoundaryNonInterruptiveTimer():
                return (yield from _fire_beside(draft, claimed, node))
            case TaskType.INTERRUPTIVE_TIMER, _ if task.attached_to:
                return (yield from _end_host(draft, claimed, node, task.attached_to))
            case _:
                return (yield from _go_on(draft, claimed, node))
    except StepFailed as step:
        return _failed(draft, claimed, step.node, step.failure)


def _go_on(draft: Draft, claimed: ClaimedTask, node: FlowNode) -> Segment:
    task = claimed.task
    state = yield from walk(draft, node.id, task.branch, after=task.id, head=task)
    before: tuple[Change, ...] = ()
    if task.type is TaskType.JOIN_GATEWAY or _has_called(task):
        before += (RemoveArrivals(task.id),)
    if _is_host(task) and has_waiting_event(draft.definition, node):
        before += (Detach(task.id),)
    return _ended(draft, claimed, state, before)


def _has_called(task: ExecutableTask) -> bool:
    """Return whether a task is a call activity whose children were started; without a loop it has yet to start them."""
    return task.type is TaskType.CALL_ACTIVITY_COORDINATOR and task.loop is not None


def _is_host(task: ExecutableTask) -> bool:
    """Return whether boundary events can wait beside a task: not while its node is only being set up."""
    if task.type is TaskType.CALL_ACTIVITY_COORDINATOR:
        return _has_called(task)
    is_set_up = task.type not in {TaskType.TIMER_SCHEDULE, TaskType.KEY_RESOLUTION}
    return is_set_up and task.attached_to is None


def _end_host(draft: Draft, claimed: ClaimedTask, node: FlowNode, attached: Attachment) -> Segment:
    """The deadline has come: the host goes, with everything else attached to it, and the path goes on here.

    The first executable task after it runs in a separate step, so that no handler runs before the race with the host's
    own completion is decided.
    """
    task = claimed.task
    state = yield from walk(draft, node.id, task.branch, after=task.id, at_boundary=True, head=task)
    host = draft.definition.node(attached.host_node_id)
    record_finished(draft, host, None, NodeStatus.INTERRUPTED, interrupted_by=node.id)
    draft.guards.insert(0, EndHost(attached.host_id, attached.host_kind))
    before = host_end(draft, attached, except_task_id=task.id)
    return _ended(draft, claimed, state, before)


def host_end(draft: Draft, attached: Attachment, *, except_task_id: str) -> tuple[Change, ...]:
    """Return the changes that go with the end of a host by one of its events."""
    changes: tuple[Change, ...] = (Detach(attached.host_id, except_task_id),)
    if isinstance(draft.definition.node(attached.host_node_id), CallActivity):
        abandon = AbandonChildren(
            draft.instance.id, draft.definition.id, attached.host_id, draft.now
        )
        changes += (abandon,)
    return changes


def _fire_beside(
    draft: Draft, claimed: ClaimedTask, timer: BoundaryNonInterruptiveTimer
) -> Segment:
    """The reminder fires: a path of its own begins, and the next cycle follows from the schedule."""
    task = claimed.task
    due_at = task.due_at or draft.now
    missed = is_missed(timer, due_at=due_at, now=draft.now)
    state = PathState.ENDED
    if not missed:
        private = Branch(part_id(task.id, "path"), None)
        state = yield from walk(draft, timer.id, private, after=task.id, head=task)
    cycle = next_occurrence(
        timer,
        previous=due_at,
        occurrence=task.occurrence or 1,
        now=draft.now,
        created_at=task.created_at,
        ran=not missed,
    )
    if not missed:
        record_cycle(draft, timer, cycle.due_at if cycle else None)
    # The path is open before anything that a thrown message leads to could end the last of the others.
    opens: tuple[Change, ...] = (OpenPath(draft.instance.id),) if state is PathState.RESTED else ()
    changes = (*opens, *draft.variable_changes(), *draft.changes)
    if cycle is not None:
        following = replace(
            task,
            id=part_id(task.id, f"cycle#{cycle.due_at.isoformat()}"),
            status=TaskStatus.PENDING,
            due_at=cycle.due_at,
            claimable_at=cycle.due_at,
            worker_id=None,
            lock_expires_at=None,
            epoch=0,
            attempts=0,
            crash_count=0,
            error=None,
            occurrence=cycle.number,
        )
        changes += (InsertTask(following),)
    return result_of(draft, (RemoveTask(claimed.claim),), changes)


def _start_child(
    draft: Draft, claimed: ClaimedTask, node: CallActivity, surroundings: Surroundings
) -> Segment:
    """Start one child of a call activity; the starter stays as the record of it, and arrives with the child's end."""
    key = node.called_element or ""
    reply = yield FindDefinition(key)
    if not isinstance(reply, DefinitionFound) or reply.definition is None:
        message = f"call activity {node.id} calls {key!r}, which is not deployed; deploy it"
        raise StepFailed(node, technical_failure("DefinitionNotFound", message))
    if reply.is_suspended:
        message = f"call activity {node.id} calls {key!r}, which is suspended; it is tried again"
        raise StepFailed(node, waiting_failure("DefinitionSuspended", message, _SUSPENDED_DELAY))
    try:
        child = new_child(draft.instance, claimed.task, node, reply.definition, draft)
    except ExecutionError as error:
        raise StepFailed(node, fatal_failure(error)) from error
    started = yield from start_instance(reply.definition, child, surroundings, caller_drives=False)
    guard: Guard = StartChild(claimed.claim)
    changes = started.unit.changes
    branch = claimed.task.branch
    ended = [change.instance for change in changes if isinstance(change, RecordEnded)]
    if branch and ended and child.parent:
        guard = ArriveTask(claimed.claim, branch)
        outputs = child.parent.outputs_from(ended[-1].variables)
        draft.variables.apply(tuple(SetVariable(*output) for output in outputs.items()), {})
        changes += draft.variable_changes()
    unit = UnitOfWork((guard, *started.unit.guards), changes)
    return SegmentResult(unit, draft.variables.visible())


def _start_next_child(
    draft: Draft, claimed: ClaimedTask, node: CallActivity, loop: Loop
) -> SegmentResult:
    """Start the next child of a sequence; the coordinator waits for that one."""
    task, index = claimed.task, loop.index + 1
    coordinator = Visit(task.id, node, TaskType.CALL_ACTIVITY_COORDINATOR)
    add_starter(draft, coordinator, index, loop.pending[0])
    guard = AwaitNextChild(
        claim=claimed.claim,
        branch_id=branch_of(task.id, index).id,
        loop=Loop(index, pending=loop.pending[1:]),
    )
    return result_of(draft, (guard,), (RemoveArrivals(task.id), *draft.changes))


def _ended(
    draft: Draft, claimed: ClaimedTask, state: PathState, before: tuple[Change, ...]
) -> SegmentResult:
    branch = claimed.task.branch
    arrives = state is PathState.ENDED and branch is not None and branch.join_task_id is not None
    guard: Guard = RemoveTask(claimed.claim)
    if arrives and branch is not None:
        guard = ArriveTask(claimed.claim, branch)
    changes = (*before, *draft.variable_changes(), *draft.changes)
    if state is PathState.ENDED and not arrives:
        changes += (EndPath(draft.instance.id, draft.now),)
    return result_of(draft, (guard,), changes)


def _failed(draft: Draft, claimed: ClaimedTask, node: FlowNode, failure: Failure) -> SegmentResult:
    """Return the retry or the incident of a claimed task that failed at its own node."""
    task = claimed.task
    verdict = draft.verdict(node, failure, attempts=task.attempts, retries_left=task.retries_left)
    # What else the step was about to change is dropped; that it failed is kept.
    draft.changes.clear()
    record_failure(draft, node, task, verdict, failure)
    events = tuple(draft.changes)
    match verdict:
        case TryAgain():
            guard = RescheduleTask(
                claim=claimed.claim,
                due_at=verdict.due_at,
                attempts=verdict.attempts,
                retries_left=verdict.retries_left,
                error=failure.message,
            )
            return SegmentResult(UnitOfWork((guard,), events), draft.variables.visible(), failure)
        case GiveUp():
            unit = give_up(claimed, verdict.type, failure, now=draft.now, attempts=verdict.attempts)
            unit = UnitOfWork(unit.guards, (*unit.changes, *events))
            return SegmentResult(unit, draft.variables.visible(), failure)
