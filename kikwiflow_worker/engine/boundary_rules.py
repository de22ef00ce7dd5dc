"""Which boundary event may hang on which node, and whether both sides agree."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from kikwiflow_worker.engine.findings import Suggestions, at, error, warning
from kikwiflow_worker.errors import Problem
from kikwiflow_worker.model.definition import DefinitionFile
from kikwiflow_worker.model.nodes import (
    BoundaryErrorHandler,
    BoundaryEvent,
    BoundaryInterruptiveCatchEvent,
    CallActivity,
    EventCatcher,
    ExecutableTaskNode,
    ExternalTaskNode,
    FlowNode,
    TimerTaskNode,
)

Host: TypeAlias = (
    ExecutableTaskNode | ExternalTaskNode | TimerTaskNode | EventCatcher | CallActivity
)
"""A node that boundary events can be attached to."""

_DEADLINE = "BOUNDARY_INTERRUPTIVE_TIMER"
_REMINDER = "BOUNDARY_NON_INTERRUPTIVE_TIMER"
_ERROR_HANDLER = "BOUNDARY_ERROR_HANDLER"
_CATCH_EVENT = "BOUNDARY_INTERRUPTIVE_CATCH_EVENT"

_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "EXECUTABLE_TASK": (_REMINDER, _ERROR_HANDLER),
    # An error handler is accepted here as the Java engine accepts it; without a topic it can never fire.
    "EXTERNAL_TASK": (_DEADLINE, _REMINDER, _CATCH_EVENT, _ERROR_HANDLER),
    "TIMER_TASK": (_DEADLINE, _REMINDER, _CATCH_EVENT),
    "EVENT_CATCHER": (_DEADLINE, _REMINDER),
    "CALL_ACTIVITY_COORDINATOR": (_DEADLINE, _REMINDER),
}
_CATCH_EVENT_HOSTS = (ExternalTaskNode, TimerTaskNode)


def boundary_event_ids(node: FlowNode) -> tuple[str, ...]:
    """Return the keys of the boundary events that a node lists."""
    return node.boundary_event_ids if isinstance(node, Host) else ()


def boundary_problems(definition: DefinitionFile) -> Iterator[Problem]:
    """Yield everything that is wrong between boundary events and their hosts."""
    hosts: dict[str, list[str]] = {}
    suggestions = Suggestions(definition.flow_nodes)
    for node in definition.flow_nodes.values():
        for event_id in boundary_event_ids(node):
            hosts.setdefault(event_id, []).append(node.id)
    for node in definition.flow_nodes.values():
        if isinstance(node, Host):
            yield from _list_problems(node, definition, suggestions)
            yield from _error_code_problems(node, definition)
        if isinstance(node, BoundaryEvent):
            yield from _attachment_problems(node, hosts.get(node.id, []), definition)


def _list_problems(
    host: Host, definition: DefinitionFile, suggestions: Suggestions
) -> Iterator[Problem]:
    allowed = _ALLOWED["EXTERNAL_TASK" if _is_external(host) else host.type]
    listed: set[str] = set()
    for index, event_id in enumerate(host.boundary_event_ids):
        path = at(host.id, "boundaryEventIds", index)
        event = definition.flow_nodes.get(event_id)
        if event is None:
            yield error(path, f"there is no node {event_id!r}", suggestions.of(event_id))
        elif event.type not in allowed:
            yield error(
                path,
                f"{event_id!r} is of type {event.type}, which cannot be attached to {host.type}",
                f"attach one of {', '.join(allowed)}",
            )
        elif event_id in listed:
            yield error(path, f"{event_id!r} is listed twice", "list it once")
        elif isinstance(event, BoundaryErrorHandler) and isinstance(host, ExternalTaskNode):
            yield warning(
                path,
                f"{event_id!r} can never fire, an external task runs no handler",
                "attach it to the executable task whose errors it is for, or let programs do this one (kikwiflow.topic)",
            )
        listed.add(event_id)


def _is_external(node: FlowNode | None) -> bool:
    return isinstance(node, ExecutableTaskNode) and node.is_external


def _error_code_problems(host: Host, definition: DefinitionFile) -> Iterator[Problem]:
    """Yield the handlers that another one, listed before them, always wins over."""
    catch_all: str | None = None
    codes: set[str] = set()
    for index, event_id in enumerate(host.boundary_event_ids):
        event = definition.flow_nodes.get(event_id)
        if not isinstance(event, BoundaryErrorHandler):
            continue
        path = at(host.id, "boundaryEventIds", index)
        if catch_all is not None:
            yield warning(
                path,
                f"{event_id!r} never fires, {catch_all!r} before it catches every error",
                f"list {catch_all!r} last",
            )
        elif event.error_code is None:
            catch_all = event_id
        elif event.error_code in codes:
            yield warning(
                path,
                f"{event_id!r} never fires, one before it has the same errorCode",
                "keep one handler for each errorCode",
            )
        else:
            codes.add(event.error_code)


def _attachment_problems(
    event: BoundaryEvent, hosts: list[str], definition: DefinitionFile
) -> Iterator[Problem]:
    path = at(event.id, "attachedToRef")
    attached_to = definition.flow_nodes.get(event.attached_to_ref or "")
    if isinstance(event, BoundaryInterruptiveCatchEvent) and not (
        isinstance(attached_to, _CATCH_EVENT_HOSTS) or _is_external(attached_to)
    ):
        found = f"{event.attached_to_ref!r}" if attached_to is None else attached_to.type
        yield error(
            path,
            f"a catch event is attached to an EXTERNAL_TASK or a TIMER_TASK, not to {found}",
            "write the key of such a node",
        )
    if not hosts:
        host = event.attached_to_ref or "its host"
        yield warning(
            at(event.id),
            "no node lists this boundary event, so it never fires",
            f"add {event.id!r} to boundaryEventIds of {host}",
        )
    elif event.attached_to_ref is not None and event.attached_to_ref not in hosts:
        yield warning(
            path,
            f"{event.attached_to_ref!r} does not list this event, {', '.join(hosts)} does",
            "name the node that lists it; the list decides",
        )
