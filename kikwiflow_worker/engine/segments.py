"""The ways a segment begins: an instance starts, a claimed task runs, an external task is completed.

Each is a generator that yields effects, is sent replies, and returns the unit of work to commit.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TypeAlias

from kikwiflow_worker.engine.draft import Draft, Surroundings
from kikwiflow_worker.engine.effects import Effect, Failure, Reply
from kikwiflow_worker.engine.incidents import give_up
from kikwiflow_worker.engine.retries import GiveUp, TryAgain
from kikwiflow_worker.engine.visits import derived_id
from kikwiflow_worker.engine.walk import PathState, StepFailed, walk
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.nodes import FlowNode
from kikwiflow_worker.model.runtime import (
    ClaimedTask,
    ExecutableTask,
    ExternalTask,
    InstanceStatus,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    Change,
    CompleteExternalTask,
    EndPath,
    Guard,
    InsertInstance,
    InsertTask,
    RecordEnded,
    RemoveArrivals,
    RemoveTask,
    RescheduleTask,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import SetVariable, Variables


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """What a segment came to.

    Attributes:
        unit: What to commit.
        variables: The instance's variables at the segment's end, transient ones included.
        failure: Why the head task did not succeed, if it did not.
    """

    unit: UnitOfWork
    variables: Variables
    failure: Failure | None = None


Segment: TypeAlias = Generator[Effect, Reply, SegmentResult]


def start_instance(
    definition: ProcessDefinition, instance: ProcessInstance, surroundings: Surroundings
) -> Segment:
    """Run a new instance from its start event until it rests or ends.

    Raises:
        StepFailedError: A node failed; nothing is to be written.
        ExecutionError: The definition cannot be run; nothing is to be written.
    """
    draft = Draft(definition, instance, surroundings, caller_drives=True)
    state = yield from walk(draft, definition.start_node_id, None, after=instance.id)
    after = replace(instance, variables=draft.variables.stored)
    if state is PathState.ENDED:
        ended = replace(after, status=InstanceStatus.COMPLETED, ended_at=draft.now, open_paths=0)
        return _result(draft, (), (RecordEnded(ended),))
    return _result(draft, (), (InsertInstance(after), *draft.changes))


def complete_external_task(
    definition: ProcessDefinition,
    instance: ProcessInstance,
    task: ExternalTask,
    surroundings: Surroundings,
    *,
    variables: Variables,
    completed_by: str | None,
) -> Segment:
    """Go on after an external task with ``variables`` set, until the path rests or ends.

    Raises:
        StepFailedError: A node failed; nothing is to be written and the task stays open.
        VariableTooLargeError: With ``variables`` the instance would pass its limit; likewise.
        ExecutionError: The definition cannot be run; likewise.
    """
    draft = Draft(definition, instance, surroundings, caller_drives=True)
    node = definition.node(task.node_id)
    draft.variables.apply(tuple(SetVariable(name, value) for name, value in variables.items()), {})
    state = PathState.ENDED
    if node.outgoing:
        target = node.outgoing[0].target_node_id or ""
        state = yield from walk(
            draft, target, task.branch, after=task.id, at_boundary=node.commit_after
        )
    guard = CompleteExternalTask(
        task_id=task.id,
        instance_id=instance.id,
        node_id=task.node_id,
        completed_at=draft.now,
        completed_by=completed_by,
    )
    changes = (*draft.variable_changes(), *draft.changes)
    if state is PathState.ENDED:
        changes += (_arrival(draft, task),) if task.branch else (EndPath(instance.id, draft.now),)
    return _result(draft, (guard,), changes)


def run_task(
    definition: ProcessDefinition,
    claimed: ClaimedTask,
    instance: ProcessInstance,
    surroundings: Surroundings,
) -> Segment:
    """Run a claimed task and go on until the path rests or ends; a failure is part of the result, never raised.

    Raises:
        ExecutionError: The task's node is not in the definition, or is of a type that this release does not run.
    """
    task, claim = claimed.task, claimed.claim
    draft = Draft(definition, instance, surroundings, caller_drives=False)
    try:
        state = yield from walk(draft, task.node_id, task.branch, after=task.id, head=task)
    except StepFailed as step:
        return _failed(draft, claimed, step.node, step.failure)
    guard: Guard = RemoveTask(claim)
    changes = (*draft.variable_changes(), *draft.changes)
    if task.type is TaskType.JOIN_GATEWAY:
        changes = (RemoveArrivals(task.id), *changes)
    if state is PathState.ENDED and task.branch:
        guard = ArriveTask(claim, task.branch)
    elif state is PathState.ENDED:
        changes += (EndPath(draft.instance.id, draft.now),)
    return _result(draft, (guard,), changes)


def _failed(draft: Draft, claimed: ClaimedTask, node: FlowNode, failure: Failure) -> SegmentResult:
    """Return the retry or the incident of a claimed task that failed at its own node."""
    task, claim = claimed.task, claimed.claim
    verdict = draft.verdict(node, failure, attempts=task.attempts, retries_left=task.retries_left)
    match verdict:
        case TryAgain():
            guard: Guard = RescheduleTask(
                claim=claim,
                due_at=verdict.due_at,
                attempts=verdict.attempts,
                retries_left=verdict.retries_left,
                error=failure.message,
            )
            return SegmentResult(UnitOfWork((guard,), ()), draft.variables.visible(), failure)
        case GiveUp():
            unit = give_up(claimed, verdict.type, failure, now=draft.now, attempts=verdict.attempts)
            return SegmentResult(unit, draft.variables.visible(), failure)


def _arrival(draft: Draft, task: ExternalTask) -> InsertTask:
    """The record that a branch ended, for one that had no executable task of its own (protocol R9)."""
    return InsertTask(
        ExecutableTask(
            id=derived_id(task.id, "arrival"),
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


def _result(draft: Draft, guards: tuple[Guard, ...], changes: tuple[Change, ...]) -> SegmentResult:
    return SegmentResult(UnitOfWork(guards, changes), draft.variables.visible())
