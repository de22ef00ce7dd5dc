"""Nodes for races; every correlation key comes from the variable ``key``."""

from tests.support.definitions import Json, a_node

KEY: Json = {"providerType": "VARIABLE", "providerVariable": "key"}
HOUR: Json = {"providerType": "STATIC", "staticValue": "PT1H"}


def wait(node_id: str, target: str = "END", *events: str) -> Json:
    """Return an external task with boundary events."""
    return a_node(node_id, "EXTERNAL_TASK", target, boundaryEventIds=list(events))


def step(node_id: str, target: str = "END", **fields: object) -> Json:
    """Return a task with a handler that does nothing; a worker runs it."""
    return a_node(
        node_id, "EXECUTABLE_TASK", target, **{"executor": "work", "commitBefore": True, **fields}
    )


def timer(node_id: str, target: str = "END", *events: str) -> Json:
    """Return a timer task of an hour."""
    return a_node(node_id, "TIMER_TASK", target, boundaryEventIds=list(events), **HOUR)


def deadline(host: str, target: str = "LATE") -> Json:
    """Return the boundary timer ``DEADLINE`` that ends its host."""
    return a_node("DEADLINE", "BOUNDARY_INTERRUPTIVE_TIMER", target, attachedToRef=host, **HOUR)


def reminder(host: str, target: str = "NUDGE") -> Json:
    """Return the recurring boundary timer ``REMINDER``."""
    policy = {"type": "RATE_DURATION", "expression": "PT1H"}
    return a_node(
        "REMINDER",
        "BOUNDARY_NON_INTERRUPTIVE_TIMER",
        target,
        attachedToRef=host,
        schedulePolicy=policy,
    )


def catch_event(host: str, target: str = "CAUGHT") -> Json:
    """Return the boundary catch event ``CATCH`` that ends its host."""
    return a_node("CATCH", "BOUNDARY_INTERRUPTIVE_CATCH_EVENT", target, attachedToRef=host, **KEY)


def catcher(node_id: str, target: str = "END", *events: str) -> Json:
    """Return an event catcher for one key."""
    return a_node(
        node_id,
        "EVENT_CATCHER",
        target,
        catchType="STANDALONE",
        boundaryEventIds=list(events),
        **KEY,
    )


def group(node_id: str, policy: str, target: str = "END") -> Json:
    """Return an event catcher for the keys ``a-<key>`` and ``b-<key>``."""
    return a_node(
        node_id,
        "EVENT_CATCHER",
        target,
        catchType="GROUP",
        matchPolicy=policy,
        providerType="TEMPLATE",
        correlationTemplates=[{"keySegments": _segments(letter)} for letter in "ab"],
    )


def thrower(node_id: str, target: str = "END", **fields: object) -> Json:
    """Return an event thrower that a worker runs."""
    return a_node(node_id, "EVENT_THROWER", target, **{"commitBefore": True, **KEY, **fields})


def call(node_id: str, target: str = "END", *events: str, **fields: object) -> Json:
    """Return a call activity that starts the process ``child``."""
    return a_node(
        node_id,
        "CALL_ACTIVITY_COORDINATOR",
        target,
        calledElement="child",
        boundaryEventIds=list(events),
        **fields,
    )


def split(*targets: str) -> Json:
    """Return a split whose branches meet at ``JOIN``."""
    return a_node("SPLIT", "PARALLEL_GATEWAY", *targets, targetJoinId="JOIN")


def join(target: str = "END") -> Json:
    """Return the join of ``split``."""
    return a_node("JOIN", "JOIN_GATEWAY", target)


def _segments(letter: str) -> list[Json]:
    return [{"type": "LITERAL", "value": f"{letter}-"}, {"type": "VARIABLE", "value": "key"}]
