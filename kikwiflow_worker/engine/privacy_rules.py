"""What can be wrong with what a definition says about who may read its variables."""

from collections.abc import Iterator

from kikwiflow_worker.engine.findings import at, error, warning
from kikwiflow_worker.errors import Problem
from kikwiflow_worker.model.definition import DefinitionFile
from kikwiflow_worker.model.json_source import json_path
from kikwiflow_worker.model.nodes import (
    BoundaryInterruptiveCatchEvent,
    BoundaryInterruptiveTimer,
    CallActivity,
    CorrelationProvider,
    EventCatcher,
    EventThrower,
    FlowNode,
    SegmentType,
    TimerTaskNode,
)
from kikwiflow_worker.model.variable_rules import (
    VARIABLE_RULE,
    VariableRule,
    everybody_reads,
    masked_names,
    rules_of,
)

_HINT = "take another variable for it, or let everybody read this one"


def privacy_problems(definition: DefinitionFile) -> Iterator[Problem]:
    """Yield rules that cannot be read, and places where a variable that is masked would be shown all the same."""
    for name, text in definition.extension_properties.items():
        if name.startswith(VARIABLE_RULE):
            yield from _rule_problems(name, text)
    masked = masked_names(rules_of(definition), everybody_reads)
    for node in definition.flow_nodes.values() if masked else ():
        yield from _shown_problems(node, masked)


def _rule_problems(name: str, text: str) -> Iterator[Problem]:
    path = json_path(("extensionProperties", name))
    if name == VARIABLE_RULE:
        yield error(path, "names no variable", f"write its name behind {VARIABLE_RULE!r}")
    try:
        VariableRule.parse(text)
    except ValueError as reason:
        what, _, hint = str(reason).partition("; ")
        yield error(path, what, hint)


def _shown_problems(node: FlowNode, masked: frozenset[str]) -> Iterator[Problem]:
    shown = [(path, name, "a correlation key", "keys") for path, name in _key_variables(node)]
    if isinstance(node, TimerTaskNode | BoundaryInterruptiveTimer) and node.provider_variable:
        path = at(node.id, "providerVariable")
        shown.append((path, node.provider_variable, "a due date", "due dates"))
    for path, name, what, they in shown:
        if name in masked:
            yield error(
                path,
                f"makes {what} of variable {name!r}, which is masked: {they} are stored and shown as they are",
                _HINT,
            )
    if isinstance(node, CallActivity) and node.collection_variable in masked:
        element = node.element_variable
        if element is not None and element not in masked:
            yield warning(
                at(node.id, "elementVariable"),
                f"variable {element!r} is shown, and holds what is masked in {node.collection_variable!r}",
                f"add the property {VARIABLE_RULE}{element}",
            )


def _key_variables(node: FlowNode) -> Iterator[tuple[str, str]]:
    """Yield the variables of which a node makes keys and labels, each with its path."""
    if not isinstance(node, EventCatcher | EventThrower | BoundaryInterruptiveCatchEvent):
        return
    if node.provider_type is CorrelationProvider.VARIABLE and node.provider_variable:
        yield at(node.id, "providerVariable"), node.provider_variable
    if node.provider_type is not CorrelationProvider.TEMPLATE:
        return
    for number, template in enumerate(node.correlation_templates):
        for field, segments in (
            ("keySegments", template.key_segments),
            ("displayNameSegments", template.display_name_segments),
        ):
            for position, segment in enumerate(segments):
                if segment.type is SegmentType.VARIABLE and segment.value:
                    path = at(node.id, "correlationTemplates", number, field, position)
                    yield path, segment.value
