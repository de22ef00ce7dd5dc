"""What can be wrong with the extension properties that the engine reads."""

from collections.abc import Iterator, Mapping

from kikwiflow_worker.engine.calls import OUTPUTS
from kikwiflow_worker.engine.findings import at, error, unreadable, warning
from kikwiflow_worker.engine.keeping import KEEP_FOR
from kikwiflow_worker.engine.schedules import MAX_CATCH_UP, MISSED_FIRES, TIME_ZONE
from kikwiflow_worker.engine.time_values import delay_after
from kikwiflow_worker.engine.timing_rules import ANY_INSTANT
from kikwiflow_worker.errors import ExecutionError, Problem
from kikwiflow_worker.model.file_problems import closest
from kikwiflow_worker.model.nodes import TOPIC, ExecutableTaskNode, FlowNode

_PREFIX = "kikwiflow."

_READ: Mapping[str, tuple[str, ...]] = {
    "BOUNDARY_NON_INTERRUPTIVE_TIMER": (TIME_ZONE, MISSED_FIRES, MAX_CATCH_UP),
    "CALL_ACTIVITY_COORDINATOR": (OUTPUTS,),
    "EVENT_THROWER": (KEEP_FOR,),
    "EXECUTABLE_TASK": (TOPIC,),
    "EXTERNAL_TASK": (TOPIC,),
}
_ALL = tuple(name for names in _READ.values() for name in names)


def property_problems(node: FlowNode) -> Iterator[Problem]:
    """Yield everything that is wrong with the properties of a node; those of a schedule are checked with it."""
    for name, value in node.extension_properties.items():
        path = at(node.id, "extensionProperties", name)
        if not name.startswith(_PREFIX):
            continue
        if name not in _ALL:
            guess = closest(name, _ALL)
            own = f"use a prefix of your own; {_PREFIX!r} is the engine's"
            yield warning(
                path,
                f"{name!r} is not a property that the engine reads",
                f"did you mean {guess!r}?" if guess else own,
            )
        elif name not in _READ.get(node.type, ()):
            yield warning(path, f"{name!r} has no effect on {node.type}", "remove it")
        elif name == TOPIC:
            yield from _topic_problems(node, path, value)
        elif name == KEEP_FOR:
            yield from _length_problems(path, value)
        elif name == OUTPUTS:
            yield from _output_problems(path, value)


def _topic_problems(node: FlowNode, path: str, value: str) -> Iterator[Problem]:
    """Yield what is wrong with a topic; an external task that has a good one is read as an executable task."""
    if not isinstance(node, ExecutableTaskNode):
        yield error(path, f"{value!r} names no topic", "write a name, such as render_invoice")
    elif node.handler_name != value:
        yield warning(
            path,
            f"executor {node.handler_name!r} names the handler, so the topic has no effect",
            "remove it: external workers fetch by the name of the handler",
        )


def _length_problems(path: str, value: str) -> Iterator[Problem]:
    try:
        ends_at = delay_after(value, ANY_INSTANT)
    except ExecutionError as reason:
        yield unreadable(path, value, reason)
        return
    if ends_at <= ANY_INSTANT:
        yield error(path, f"{value!r} is not longer than zero", "write a duration such as PT1H")


def _output_problems(path: str, value: str) -> Iterator[Problem]:
    for entry in value.split(","):
        if not all(name.strip() for name in entry.split("=")) or entry.count("=") > 1:
            yield error(
                path,
                f"{entry.strip()!r} names no variable",
                "write names with commas between them, as total, decision=approval",
            )
