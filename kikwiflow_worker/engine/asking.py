"""Asking user code for what a node needs, and what becomes of the node when that fails."""

from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import datetime
from enum import Enum
from typing import Literal, TypeAlias, TypeVar

from kikwiflow_worker.engine.correlation_keys import CorrelatingNode, resolve_keys
from kikwiflow_worker.engine.draft import Draft
from kikwiflow_worker.engine.due_dates import due_at, given_due_date
from kikwiflow_worker.engine.effects import (
    AskCorrelationKeys,
    AskDueDate,
    DueDateGiven,
    Effect,
    Failure,
    KeysGiven,
    Raised,
    Reply,
    UserCode,
    fatal_failure,
)
from kikwiflow_worker.engine.recording import record_failure
from kikwiflow_worker.engine.visits import Visit
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.handler import CorrelationItem, StepView
from kikwiflow_worker.model.capability import Capability, HandlerKind
from kikwiflow_worker.model.nodes import (
    BoundaryInterruptiveTimer,
    CorrelationProvider,
    FlowNode,
    TimerProvider,
    TimerTaskNode,
)
from kikwiflow_worker.model.variables import Variables

T = TypeVar("T")


class PathState(Enum):
    """How a walk ended: RESTED left a row that carries the token on, ENDED left nothing."""

    RESTED = "rested"
    ENDED = "ended"


Rested: TypeAlias = Literal[PathState.RESTED]
Asking: TypeAlias = Generator[Effect, Reply, T | Rested]
Steps: TypeAlias = Generator[Effect, Reply, PathState]


class StepFailed(Exception):  # noqa: N818 - it never leaves the engine
    """The head node of a claimed task failed; the task itself is retried or becomes an incident."""

    def __init__(self, node: FlowNode, failure: Failure) -> None:
        self.node = node
        self.failure = failure
        super().__init__(failure.message)


def attempt(
    draft: Draft,
    visit: Visit,
    ask: Callable[[Capability, StepView, Variables], UserCode],
    accept: Callable[[Reply | None], T],
    *,
    rests: bool = False,
    rescue: Callable[[Raised], T | None] = lambda _: None,
) -> Asking[T]:
    """Leave the node to a worker, or ask what it needs and accept the reply; a failure stays with the node.

    Args:
        accept: Takes the reply, or None where the node needs no user code.
        rests: Whether a commit is due before the node.
        rescue: Takes what user code raised, and returns how to go on, or None.

    Raises:
        StepFailed: The node is the head of a claimed task and failed.
        StepFailedError: It failed and a caller drives the segment.
    """
    capability = visit.capability
    is_missing = capability is not None and not draft.can_run(capability)
    if visit.head is None and (rests or is_missing):
        draft.rest_at(visit)
        return PathState.RESTED
    try:
        reply = None
        if capability is not None:
            reply = yield ask(capability, draft.view(visit), draft.variables.visible())
            draft.time_passed(getattr(reply, "at", None))
        if not isinstance(reply, Raised):
            return accept(reply)
        rescued = rescue(reply)
        if rescued is not None:
            return rescued
        failure = reply.failure
    except ExecutionError as error:
        failure = fatal_failure(error)
    fail(draft, visit, failure)
    return PathState.RESTED


def fail(draft: Draft, visit: Visit, failure: Failure) -> None:
    """Let the node's failure become the retry or incident of the claimed task, or of a new row.

    Raises:
        StepFailed: The node is the head of a claimed task.
        StepFailedError: A caller drives the segment.
    """
    if visit.head is not None:
        raise StepFailed(visit.node, failure)
    task, verdict = draft.fail_inline(visit, failure)
    record_failure(draft, visit.node, task, verdict, failure)


def ask_due_date(
    draft: Draft, visit: Visit, node: TimerTaskNode | BoundaryInterruptiveTimer
) -> Asking[datetime]:
    """Return when a timer is due."""

    def accept(reply: Reply | None) -> datetime:
        if reply is not None and not isinstance(reply, DueDateGiven):
            raise unexpected(node, reply)
        value = reply.value if reply else given_due_date(node, draft.variables.visible())
        return due_at(value, now=draft.now, timer=node.id)

    capability = None
    if node.provider_type is TimerProvider.BEAN:
        capability = Capability(HandlerKind.DUE_DATE_PROVIDER, node.provider_bean or "")
    return (yield from attempt(draft, replace(visit, capability=capability), AskDueDate, accept))


def ask_keys(
    draft: Draft, visit: Visit, node: CorrelatingNode, *, rests: bool = False
) -> Asking[tuple[CorrelationItem, ...]]:
    """Return the correlation keys of a node."""

    def accept(reply: Reply | None) -> tuple[CorrelationItem, ...]:
        if reply is not None and not isinstance(reply, KeysGiven):
            raise unexpected(node, reply)
        provided = reply.items if reply else None
        return resolve_keys(node, draft.variables.visible(), provided=provided)

    asked = replace(visit, capability=keys_provider(node))
    return (yield from attempt(draft, asked, AskCorrelationKeys, accept, rests=rests))


def keys_provider(node: CorrelatingNode) -> Capability | None:
    """Return the provider that a node takes its correlation keys from, if it is one."""
    if node.provider_type is not CorrelationProvider.BEAN:
        return None
    return Capability(HandlerKind.CORRELATION_KEYS_PROVIDER, node.provider_bean or "")


def unexpected(node: FlowNode, reply: Reply | None) -> TypeError:
    """Return the error for a reply that does not fit what was asked."""
    return TypeError(f"node {node.id} cannot be answered with {type(reply).__name__}")
