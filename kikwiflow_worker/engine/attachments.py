"""What waits beside a task: boundary events of a host, and the keys of an event catcher."""

from dataclasses import replace

from kikwiflow_worker.engine.asking import PathState, Steps, ask_due_date, ask_keys, fail
from kikwiflow_worker.engine.boundary_rules import boundary_event_ids
from kikwiflow_worker.engine.draft import Draft
from kikwiflow_worker.engine.effects import Failure, fatal_failure
from kikwiflow_worker.engine.schedules import first_occurrence
from kikwiflow_worker.engine.visits import Visit, derived_id, part_id
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.handler import CorrelationItem
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.nodes import (
    BoundaryErrorHandler,
    BoundaryInterruptiveCatchEvent,
    BoundaryInterruptiveTimer,
    BoundaryNonInterruptiveTimer,
    CatchType,
    EventCatcher,
    ExecutableTaskNode,
    FlowNode,
    MatchPolicy,
)
from kikwiflow_worker.model.runtime import Attachment, ExternalTaskType, HostKind, TaskType


def attach_boundary_events(draft: Draft, host: Visit, kind: HostKind) -> Steps:
    """Add the rows of the boundary events that wait beside a host; always rests.

    A boundary event that cannot be set up becomes a row of its own with its incident; the host is there all the same.
    """
    for event_id in boundary_event_ids(host.node):
        event = draft.definition.node(event_id)
        attached = Attachment(host.id, host.node.id, kind)
        visit = Visit(
            derived_id(host.id, event.id),
            event,
            TaskType.TIMER_SCHEDULE,
            branch=host.branch,
            attached_to=attached,
        )
        yield from set_up(draft, visit)
    return PathState.RESTED


def set_up(draft: Draft, visit: Visit) -> Steps:
    """Add the row by which a boundary event waits; rests."""
    event = visit.node
    match event:
        case BoundaryInterruptiveTimer():
            due = yield from ask_due_date(draft, visit, event)
            if not isinstance(due, PathState):
                timer = replace(visit, id=derived_id(visit.id, event.id), head=None)
                draft.rest_at(replace(timer, task_type=TaskType.INTERRUPTIVE_TIMER), due_at=due)
        case BoundaryNonInterruptiveTimer():
            _add_first_cycle(draft, visit, event)
        case BoundaryInterruptiveCatchEvent():
            asked = replace(visit, task_type=TaskType.KEY_RESOLUTION)
            items = yield from ask_keys(draft, asked, event)
            if not isinstance(items, PathState):
                waiting = replace(visit, id=derived_id(visit.id, event.id))
                draft.wait_for_key(waiting, ExternalTaskType.BOUNDARY_CATCH, items[0])
        case _:
            pass
    return PathState.RESTED


def wait_for_keys(draft: Draft, visit: Visit, catcher: EventCatcher) -> Steps:
    """Add the rows by which an event catcher waits, and its boundary events; rests."""
    items = yield from ask_keys(draft, visit, catcher)
    if isinstance(items, PathState):
        return PathState.RESTED
    waiting = replace(visit, id=derived_id(visit.id, catcher.id), head=None, capability=None)
    if catcher.catch_type is CatchType.STANDALONE:
        draft.wait_for_key(waiting, ExternalTaskType.CATCHER, items[0])
    else:
        _wait_for_group(draft, waiting, catcher, items)
    return (yield from attach_boundary_events(draft, waiting, HostKind.EXTERNAL_TASK))


def has_interruptive_event(definition: ProcessDefinition, node: FlowNode) -> bool:
    """Return whether something may end ``node`` before it is done."""
    return any(
        isinstance(
            definition.node(event_id), BoundaryInterruptiveTimer | BoundaryInterruptiveCatchEvent
        )
        for event_id in boundary_event_ids(node)
    )


def has_waiting_event(definition: ProcessDefinition, node: FlowNode) -> bool:
    """Return whether a boundary event of ``node`` waits as a row; an error handler does not."""
    return any(
        not isinstance(definition.node(event_id), BoundaryErrorHandler)
        for event_id in boundary_event_ids(node)
    )


def find_error_handler(
    definition: ProcessDefinition, node: ExecutableTaskNode, failure: Failure
) -> BoundaryErrorHandler | None:
    """Return the first error handler of ``node``, in its order, that takes the business error (core reference 3.17)."""
    for event_id in node.boundary_event_ids:
        event = definition.node(event_id)
        if isinstance(event, BoundaryErrorHandler) and event.error_code in {None, failure.code}:
            return event
    return None


def _add_first_cycle(draft: Draft, visit: Visit, timer: BoundaryNonInterruptiveTimer) -> None:
    try:
        first = first_occurrence(timer, now=draft.now)
    except ExecutionError as error:
        fail(draft, visit, fatal_failure(error))
        return
    if first is not None:
        cycle = replace(
            visit,
            id=part_id(visit.id, f"cycle#{first.number}"),
            task_type=TaskType.NON_INTERRUPTIVE_TIMER,
            head=None,
        )
        draft.rest_at(cycle, due_at=first.due_at, occurrence=first.number)


def _wait_for_group(
    draft: Draft, waiting: Visit, catcher: EventCatcher, items: tuple[CorrelationItem, ...]
) -> None:
    policy = catcher.match_policy or MatchPolicy.ALL
    for item in items:
        key = replace(waiting, id=derived_id(waiting.id, item.key), branch=None)
        draft.wait_for_key(
            key, ExternalTaskType.GROUP_KEY, item, group_id=waiting.id, match_policy=policy
        )
    draft.wait_outside(
        waiting,
        type=ExternalTaskType.GROUP,
        match_policy=policy,
        pending_keys=tuple(item.key for item in items),
        total_keys=len(items),
    )
