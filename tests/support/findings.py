"""Findings of validation, and nodes that are right in themselves."""

from kikwiflow_worker.engine.validation import validate
from kikwiflow_worker.errors import Problem
from tests.support.definitions import Json, a_file, a_node, a_start, an_end, read

DEADLINE = "BOUNDARY_INTERRUPTIVE_TIMER"
REMINDER = "BOUNDARY_NON_INTERRUPTIVE_TIMER"
HANDLER = "BOUNDARY_ERROR_HANDLER"
CATCH = "BOUNDARY_INTERRUPTIVE_CATCH_EVENT"


def problems_of(*nodes: Json, **fields: object) -> list[Problem]:
    return validate(read(a_file(*nodes, **fields)))


def errors_of(*nodes: Json, **fields: object) -> dict[str, str]:
    return {found.path: found.message for found in problems_of(*nodes, **fields) if found.is_error}


def warnings_of(*nodes: Json, **fields: object) -> dict[str, str]:
    problems = problems_of(*nodes, **fields)
    assert not [found for found in problems if found.is_error]
    return {found.path: found.message for found in problems}


def errors_around(node: Json, *others: Json) -> dict[str, str]:
    """Return the errors of START -> node and whatever it leads to."""
    return errors_of(a_start(str(node["id"])), node, *others, an_end())


def warnings_around(node: Json, *others: Json) -> dict[str, str]:
    return warnings_of(a_start(str(node["id"])), node, *others, an_end())


def a_gateway(node_id: str, *flows: Json, **fields: object) -> Json:
    chosen = {"providerType": "VARIABLE", "providerVariable": "carrier", **fields}
    return a_node(node_id, "EXCLUSIVE_GATEWAY", *flows, **chosen)


def a_split(*targets: str, join: str | None = "JOIN", node_id: str = "SPLIT") -> Json:
    return a_node(node_id, "PARALLEL_GATEWAY", *targets, targetJoinId=join)


def a_join(target: str = "END", *, node_id: str = "JOIN") -> Json:
    return a_node(node_id, "JOIN_GATEWAY", target)


def a_timer(**fields: object) -> Json:
    chosen = {"providerType": "STATIC", "staticValue": "PT1H", **fields}
    return a_node("TIMER", "TIMER_TASK", "END", **chosen)


def an_event(node_type: str, node_id: str = "EVENT", **fields: object) -> Json:
    """Return a boundary event that is right in itself."""
    own: dict[str, Json] = {
        "BOUNDARY_INTERRUPTIVE_TIMER": {"providerType": "STATIC", "staticValue": "PT1H"},
        "BOUNDARY_NON_INTERRUPTIVE_TIMER": {"schedulePolicy": {"type": "RATE_DURATION", "expression": "PT1H"}},
        "BOUNDARY_ERROR_HANDLER": {},
        "BOUNDARY_INTERRUPTIVE_CATCH_EVENT": {
            "providerType": "STATIC", "staticKey": "cancel", "attachedToRef": "HOST",
        },
    }  # fmt: skip
    return a_node(node_id, node_type, "END", **{**own[node_type], **fields})


def a_host(node_type: str, *event_ids: str) -> Json:
    own: dict[str, Json] = {
        "EXECUTABLE_TASK": {"executor": "weigh_parcel"},
        "EXTERNAL_TASK": {},
        "TIMER_TASK": {"providerType": "STATIC", "staticValue": "PT1H"},
        "EVENT_CATCHER": {"catchType": "STANDALONE", "providerType": "STATIC", "staticKey": "paid"},
        "CALL_ACTIVITY_COORDINATOR": {"calledElement": "child"},
    }
    return a_node("HOST", node_type, "END", boundaryEventIds=list(event_ids), **own[node_type])
