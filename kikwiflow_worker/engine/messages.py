"""Segments that begin from outside: an external task is completed, a message arrives."""

from dataclasses import dataclass

from kikwiflow_worker.engine.asking import PathState
from kikwiflow_worker.engine.attachments import has_interruptive_event, has_waiting_event
from kikwiflow_worker.engine.draft import Draft, Surroundings
from kikwiflow_worker.engine.recording import record_completed, record_finished
from kikwiflow_worker.engine.running import host_end
from kikwiflow_worker.engine.segments import Segment, SegmentResult, result_of
from kikwiflow_worker.engine.visits import derived_id, part_id
from kikwiflow_worker.engine.walk import target_of, walk
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.events import NodeStatus
from kikwiflow_worker.model.nodes import MatchPolicy
from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    ExternalTaskType,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    Change,
    CompleteExternalTask,
    Detach,
    EndHost,
    EndPath,
    InsertTask,
    MatchKey,
)
from kikwiflow_worker.model.variables import SetVariable, Variables


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A waiting external task with what belongs to it.

    Attributes:
        group: The group that ``task`` is a key of, if it is one.
    """

    definition: ProcessDefinition
    instance: ProcessInstance
    task: ExternalTask
    group: ExternalTask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What comes from outside.

    Attributes:
        variables: Set before the path goes on.
        actor: Who completes or correlates.
        caller_drives: Whether failures go to the caller; a thrower is none, its receiver's failures stay there.
    """

    variables: Variables
    actor: str | None = None
    caller_drives: bool = True


def end_wait(receiver: Receiver, delivery: Delivery, surroundings: Surroundings) -> Segment:
    """End an external task, or match one key of a group, and go on until the path rests or ends.

    Raises:
        StepFailedError: A node failed and a caller drives the segment; nothing is to be written and the task stays open.
        VariableTooLargeError: With its variables the instance would pass its limit; likewise.
        ExecutionError: The definition cannot be run; likewise.
    """
    draft = Draft(
        receiver.definition,
        receiver.instance,
        surroundings,
        origin=receiver.task.id,
        caller_drives=delivery.caller_drives,
    )
    sets = tuple(SetVariable(name, value) for name, value in delivery.variables.items())
    draft.variables.apply(sets, {})
    draft.own_waits = _ended_by(receiver)
    # What a thrower's message leads to is committed with the throw; it throws its own messages after that.
    draft.has_delivered = not delivery.caller_drives
    task, group = receiver.task, receiver.group
    if group is None:
        return (yield from _go_on(draft, task, delivery.actor))
    left = tuple(key for key in group.pending_keys if key != task.correlation_key)
    if left and group.match_policy is not MatchPolicy.ANY:
        guard = MatchKey(
            task_id=task.id,
            group_id=group.id,
            key=task.correlation_key or "",
            pending_keys=group.pending_keys,
        )
        return result_of(draft, (guard,), draft.variable_changes())
    return (yield from _go_on(draft, group, delivery.actor))


def _ended_by(receiver: Receiver) -> frozenset[str]:
    """Return the rows with a correlation key that go with the receiver's task."""
    if receiver.group is None:
        return frozenset({receiver.task.id})
    return frozenset(derived_id(receiver.group.id, key) for key in receiver.group.pending_keys)


def _go_on(draft: Draft, task: ExternalTask, actor: str | None) -> Segment:
    node = draft.definition.node(task.node_id)
    attached = task.attached_to
    before: tuple[Change, ...] = ()
    at_boundary = node.commit_after
    if attached is not None:
        draft.guards.append(EndHost(attached.host_id, attached.host_kind))
        before = host_end(draft, attached, except_task_id=task.id)
        at_boundary = True
    elif has_waiting_event(draft.definition, node) or task.type is ExternalTaskType.GROUP:
        before = (Detach(task.id),)
        at_boundary = at_boundary or has_interruptive_event(draft.definition, node)
    state = PathState.ENDED
    if node.outgoing:
        target = target_of(node, node.outgoing[0])
        state = yield from walk(draft, target, task.branch, after=task.id, at_boundary=at_boundary)
    return _ended(draft, task, actor, state, before)


def _ended(
    draft: Draft,
    task: ExternalTask,
    actor: str | None,
    state: PathState,
    before: tuple[Change, ...],
) -> SegmentResult:
    record_completed(draft, task, actor)
    if task.attached_to is not None:
        host = draft.definition.node(task.attached_to.host_node_id)
        interrupted = NodeStatus.INTERRUPTED
        record_finished(draft, host, None, interrupted, interrupted_by=task.node_id)
    guard = CompleteExternalTask(
        task_id=task.id,
        instance_id=task.instance_id,
        definition_id=task.definition_id,
        node_id=task.node_id,
        completed_at=draft.now,
        completed_by=actor,
        pending_keys=task.pending_keys if task.type is ExternalTaskType.GROUP else None,
    )
    changes = (*before, *draft.variable_changes(), *draft.changes)
    if state is PathState.ENDED:
        joins = task.branch is not None and task.branch.join_task_id is not None
        changes += (_arrival(draft, task),) if joins else (EndPath(task.instance_id, draft.now),)
    return result_of(draft, (guard,), changes)


def _arrival(draft: Draft, task: ExternalTask) -> InsertTask:
    """The record that a branch ended, for one that had no executable task of its own (protocol R9)."""
    return InsertTask(
        ExecutableTask(
            id=part_id(task.id, "arrival"),
            type=TaskType.ARRIVAL,
            node_id=task.node_id,
            instance_id=task.instance_id,
            definition_id=task.definition_id,
            created_at=draft.now,
            status=TaskStatus.ARRIVED,
            claimable_at=draft.now,
            tenant_id=task.tenant_id,
            branch=task.branch,
        )
    )
