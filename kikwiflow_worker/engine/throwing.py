"""Throwing a message: to whoever waits for it, in the same commit, or to be kept (core reference 3.11)."""

from kikwiflow_worker.engine.asking import Asking, PathState, ask_keys, fail, unexpected
from kikwiflow_worker.engine.draft import Draft
from kikwiflow_worker.engine.effects import (
    Deliver,
    Delivered,
    Failure,
    NobodyWaits,
    fatal_failure,
    technical_failure,
)
from kikwiflow_worker.engine.keeping import KEEP_FOR, keep_message
from kikwiflow_worker.engine.visits import Visit
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.nodes import EventThrower


def throw(draft: Draft, visit: Visit, node: EventThrower, *, rests: bool) -> Asking[None]:
    """Throw the node's message; a failure stays with the node.

    A commit carries one delivery: the next thrower rests, and throws in a commit of its own.

    Args:
        rests: Whether a commit is due before the node.

    Raises:
        StepFailed: The node is the head of a claimed task and failed.
        StepFailedError: It failed and a caller drives the segment.
    """
    items = yield from ask_keys(draft, visit, node, rests=rests or draft.has_delivered)
    if isinstance(items, PathState):
        return items
    key = items[0].key
    reply = yield Deliver(key, draft.instance.tenant_id, draft.own_waits)
    match reply:
        case Delivered(_, unit):
            draft.has_delivered = True
            draft.guards.extend(unit.guards)
            draft.changes.extend(unit.changes)
            return None
        case NobodyWaits():
            failure = _kept_or_failed(draft, visit, node, key)
        case _:
            raise unexpected(node, reply)
    if failure is None:
        return None
    fail(draft, visit, failure)
    return PathState.RESTED


def _kept_or_failed(draft: Draft, visit: Visit, node: EventThrower, key: str) -> Failure | None:
    """Keep the message that nobody waits for, if the node says so; return why it could not be."""
    keep_for = node.extension_properties.get(KEEP_FOR)
    if keep_for is None:
        message = f"thrower {node.id}: no instance waits for its key; the throw is repeated as any failed task"
        return technical_failure("NotCorrelated", message)
    try:
        keep_message(draft, visit, key, keep_for)
    except ExecutionError as error:
        return fatal_failure(ExecutionError(f"thrower {node.id}: {KEEP_FOR}: {error}"))
    return None
