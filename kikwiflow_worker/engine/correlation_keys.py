"""The correlation keys of a node: what a catcher or a boundary catch event waits for, and what a thrower delivers.

The rules are those of core reference 3.15, with one addition: a blank key is refused wherever it comes from. Two
instances whose variable happens to be empty would otherwise receive each other's messages.

Keys and labels are made of the text that the Java engine writes for a value (``model.variables.to_text``). Messages of
errors name variables and never repeat their values.
"""

from collections.abc import Sequence
from typing import TypeAlias

from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.handler import CorrelationItem
from kikwiflow_worker.model.limits import MAX_GROUP_KEYS
from kikwiflow_worker.model.nodes import (
    BoundaryInterruptiveCatchEvent,
    CatchType,
    CorrelationProvider,
    EventCatcher,
    EventThrower,
    SegmentType,
    TemplateSegment,
)
from kikwiflow_worker.model.variables import Value, Variables, to_text

CorrelatingNode: TypeAlias = EventCatcher | EventThrower | BoundaryInterruptiveCatchEvent


def resolve_keys(
    node: CorrelatingNode,
    variables: Variables,
    *,
    provided: Sequence[CorrelationItem] | None = None,
) -> tuple[CorrelationItem, ...]:
    """Return the keys of a node: one, or for a GROUP one or more, each once and in the order of their source.

    Args:
        variables: What the instance holds at this moment; keys do not follow later changes.
        provided: What the node's provider gave; only for a node whose provider type is BEAN, which must be asked first.

    Raises:
        ExecutionError: There is no key, a blank one, or more than one outside a GROUP; a variable is missing, null or
            not the list that a GROUP needs; or nobody provided the keys.
    """
    items: Sequence[CorrelationItem]
    match node.provider_type:
        case CorrelationProvider.STATIC:
            items = [_static_item(node)]
        case CorrelationProvider.VARIABLE:
            items = _variable_items(node, variables)
        case CorrelationProvider.TEMPLATE:
            items = _template_items(node, variables)
        case CorrelationProvider.BEAN:
            items = _provided_items(node, provided)
        case None:
            raise _error(
                node,
                "does not say where its key comes from",
                "deploy a version with a providerType",
            )
    return _checked(node, items)


def _checked(
    node: CorrelatingNode, items: Sequence[CorrelationItem]
) -> tuple[CorrelationItem, ...]:
    first_of_key: dict[str, CorrelationItem] = {}
    for item in items:
        if not item.key.strip():
            raise _error(node, "has a blank correlation key", "correct its source and retry")
        first_of_key.setdefault(item.key, item)
    if not first_of_key:
        raise _error(node, "has no correlation keys", "make its source give at least one and retry")
    if len(first_of_key) > 1 and not _is_group(node):
        raise _error(
            node,
            f"has {len(first_of_key)} correlation keys where one is allowed",
            "make its source give one, or use an EVENT_CATCHER with the catchType GROUP",
        )
    if len(first_of_key) > MAX_GROUP_KEYS:
        raise _error(
            node,
            f"has {len(first_of_key):,} correlation keys, the limit is {MAX_GROUP_KEYS:,} (MAX_GROUP_KEYS)",
            "make its source give fewer and retry, or wait for them in a call activity",
        )
    return tuple(first_of_key.values())


def _static_item(node: CorrelatingNode) -> CorrelationItem:
    key = node.static_key or ""
    return CorrelationItem(key, _label(node, raw=key, key=key))


def _variable_items(node: CorrelatingNode, variables: Variables) -> list[CorrelationItem]:
    name = node.provider_variable or ""
    value = variables.get(name)
    if value is None:
        raise _missing(node, name)
    if not _is_group(node):
        return [_variable_item(node, value)]
    if not isinstance(value, list):
        raise _error(
            node,
            f"is a GROUP and takes its correlation keys from variable {name!r}, which is not a list",
            "set it to a list and retry",
        )
    return [_variable_item(node, element) for element in value]


def _variable_item(node: CorrelatingNode, value: Value) -> CorrelationItem:
    raw = to_text(value)
    raw = "null" if raw is None else raw
    key = f"{node.key_prefix or ''}{raw}{node.key_suffix or ''}"
    return CorrelationItem(key, _label(node, raw=raw, key=key))


def _label(node: CorrelatingNode, *, raw: str, key: str) -> str:
    prefix, suffix = node.display_name_prefix, node.display_name_suffix
    if prefix is None and suffix is None:
        return key
    return f"{prefix or ''}{raw}{suffix or ''}"


def _template_items(node: CorrelatingNode, variables: Variables) -> list[CorrelationItem]:
    items = []
    for template in node.correlation_templates:
        key = _joined(node, template.key_segments, variables)
        label = _joined(node, template.display_name_segments, variables)
        items.append(CorrelationItem(key, label if template.display_name_segments else key))
    return items


def _joined(
    node: CorrelatingNode, segments: Sequence[TemplateSegment], variables: Variables
) -> str:
    return "".join(_segment_text(node, segment, variables) for segment in segments)


def _segment_text(node: CorrelatingNode, segment: TemplateSegment, variables: Variables) -> str:
    if segment.type is SegmentType.LITERAL:
        return segment.value or ""
    name = segment.value or ""
    text = to_text(variables.get(name))
    if text is None:
        raise _missing(node, name)
    return text


def _provided_items(
    node: CorrelatingNode, provided: Sequence[CorrelationItem] | None
) -> Sequence[CorrelationItem]:
    if provided is None:
        raise _error(
            node,
            f"takes its correlation keys from provider {node.provider_bean!r}, which gave none (None)",
            "make it return a list and retry",
        )
    return provided


def _is_group(node: CorrelatingNode) -> bool:
    return isinstance(node, EventCatcher) and node.catch_type is CatchType.GROUP


def _missing(node: CorrelatingNode, name: str) -> ExecutionError:
    return _error(
        node,
        f"takes a correlation key from variable {name!r}, which is missing or null",
        "set it and retry",
    )


def _error(node: CorrelatingNode, what: str, remedy: str) -> ExecutionError:
    return ExecutionError(f"node {node.id} {what}; {remedy}")
