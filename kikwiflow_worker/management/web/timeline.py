"""What happened to an instance, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kikwiflow_worker.management.privacy import VariablePolicy
from kikwiflow_worker.management.web.formats import length
from kikwiflow_worker.model.events import SYSTEM_ACTOR, EventType, OutboxEvent
from kikwiflow_worker.model.variables import Value

Payload = Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the timeline.

    Attributes:
        kind: The event's stored name.
        title: What happened.
        node_id: Where, if it was at a node.
        detail: More about it, perhaps in several lines; may quote user code, never trusted.
        actor: Who did it; None for the engine.
        tone: ``bad``, ``good`` or nothing: how it is coloured.
    """

    at: datetime
    kind: str
    title: str
    node_id: str | None
    detail: str
    actor: str | None
    tone: str


_TITLES = {
    EventType.PROCESS_INSTANCE_STARTED: "Started",
    EventType.PROCESS_INSTANCE_FINISHED: "Ended",
    EventType.FLOW_NODE_FINISHED: "Finished",
    EventType.GATEWAY_ANSWER_RESOLVED: "Decided",
    EventType.EXTERNAL_TASK_CLAIMED: "Claimed",
    EventType.EXTERNAL_TASK_UNCLAIMED: "Given back",
    EventType.EXTERNAL_TASK_COMPLETED: "Completed",
    EventType.RETRY_SCHEDULED: "Failed, will be tried again",
    EventType.INCIDENT_CREATED: "Failed, waits for a person",
    EventType.INCIDENT_RESOLVED: "Put right",
    EventType.PROCESS_VARIABLE_CHANGED: "Variable changed",
    EventType.TIMER_FIRED: "Timer fired",
    EventType.ORPHANED_CHILD_COMPLETION: "Child ended, and nobody waited",
}
_BAD = frozenset(
    {EventType.RETRY_SCHEDULED, EventType.INCIDENT_CREATED, EventType.ORPHANED_CHILD_COMPLETION}
)
_GOOD = frozenset({EventType.INCIDENT_RESOLVED, EventType.EXTERNAL_TASK_COMPLETED})
_ORDER = {EventType.PROCESS_INSTANCE_STARTED: -1, EventType.PROCESS_INSTANCE_FINISHED: 1}
"""Of what one commit stored at the same instant."""
_NODE_FIELDS = ("flowNodeDefinitionId", "taskDefinitionId", "gatewayNodeId")


def entries_of(
    events: Sequence[OutboxEvent], policy: VariablePolicy, *, newest_first: bool
) -> tuple[Entry, ...]:
    """Return the lines of a page of events, in its order, as far as ``policy`` lets their payloads be seen."""
    told = reversed(events) if newest_first else events
    ordered = sorted(told, key=lambda event: (event.timestamp, _ORDER.get(event.type, 0)))
    if newest_first:
        ordered.reverse()
    return tuple(_entry(event, policy.event(event.type, event.payload)) for event in ordered)


def _entry(event: OutboxEvent, payload: Payload) -> Entry:
    actor = payload.get("actorId")
    return Entry(
        at=event.timestamp,
        kind=event.type.value,
        title=_title(event.type, payload),
        node_id=next((str(payload[name]) for name in _NODE_FIELDS if payload.get(name)), None),
        detail=_detail(event.type, payload),
        actor=str(actor) if actor and actor != SYSTEM_ACTOR else None,
        tone=_tone(event.type, payload),
    )


def _title(kind: EventType, payload: Payload) -> str:
    match kind, payload.get("nodeExecutionStatus"), payload.get("status"):
        case EventType.FLOW_NODE_FINISHED, "ERROR", _:
            return "Failed"
        case EventType.FLOW_NODE_FINISHED, "INTERRUPTED", _:
            return "Interrupted"
        case EventType.PROCESS_INSTANCE_FINISHED, _, "CANCELLED":
            return "Cancelled"
        case EventType.PROCESS_VARIABLE_CHANGED, _, _ if payload.get("removed"):
            return "Variable removed"
        case _:
            return _TITLES[kind]


def _tone(kind: EventType, payload: Payload) -> str:
    if kind in _BAD or payload.get("nodeExecutionStatus") == "ERROR":
        return "bad"
    return "good" if kind in _GOOD else ""


def _detail(kind: EventType, payload: Payload) -> str:
    match kind:
        case EventType.FLOW_NODE_FINISHED:
            by = _text(payload, "interruptedByNodeDefinitionId")
            parts = [by and f"by {by}", _took(payload), _text(payload, "errorMessage")]
        case EventType.PROCESS_INSTANCE_FINISHED:
            ms = payload.get("durationMs")
            parts = [f"after {length(ms / 1000)}" if isinstance(ms, int | float) else ""]
        case EventType.GATEWAY_ANSWER_RESOLVED:
            answer = _text(payload, "resolvedAnswer")
            parts = [f"answer {answer}" if answer else "no answer"]
        case EventType.RETRY_SCHEDULED:
            left = _text(payload, "retriesLeft")
            parts = [_text(payload, "errorMessage"), left and f"{left} attempts left"]
        case EventType.INCIDENT_CREATED | EventType.INCIDENT_RESOLVED:
            parts = [_text(payload, "message")]
        case EventType.PROCESS_VARIABLE_CHANGED:
            parts = [_text(payload, "name")]
        case EventType.EXTERNAL_TASK_CLAIMED | EventType.EXTERNAL_TASK_COMPLETED:
            assignee = _text(payload, "assignee")
            parts = [assignee and f"by {assignee}"]
        case _:
            parts = []
    return " · ".join(part for part in parts if part)


def _took(payload: Payload) -> str:
    started, finished = payload.get("startedAt"), payload.get("finishedAt")
    if isinstance(started, datetime) and isinstance(finished, datetime):
        return length(finished - started)
    return ""


def _text(payload: Payload, name: str) -> str:
    value = payload.get(name)
    return "" if value is None else str(value)
