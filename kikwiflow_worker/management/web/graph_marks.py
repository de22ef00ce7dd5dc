"""What the pages show on a graph: figures of all instances, the path of one, and what differs between two versions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from kikwiflow_worker.management.graph.drawing import Drawing
from kikwiflow_worker.management.graph.svg import Mark, Marks, Tone
from kikwiflow_worker.management.web.formats import length
from kikwiflow_worker.model.definition import DefinitionFile, ProcessDefinition
from kikwiflow_worker.model.events import NodeStatus
from kikwiflow_worker.model.nodes import BoundaryEvent, ExclusiveGateway, FlowNode
from kikwiflow_worker.store.search import Count, NodeFigures, Path, Standing

_SHOWN = timedelta(milliseconds=1)
"""An average below it says nothing."""


class Difference(StrEnum):
    """How a node differs from the other version."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One node that differs; ``fields`` are those that changed, as the file calls them."""

    node_id: str
    name: str
    difference: Difference
    fields: tuple[str, ...] = ()


def figures_marks(
    definition: ProcessDefinition, figures: Mapping[str, NodeFigures], links: Mapping[str, str]
) -> Marks:
    """Return the marks of a definition's page; ``links`` lead to the instances that stand at a node.

    Nothing stands at a boundary event: its host has the number.
    """
    return Marks(
        nodes={
            node_id: Mark(
                tokens=""
                if isinstance(definition.flow_nodes[node_id], BoundaryEvent)
                else _shown(each.tokens),
                incidents=_shown(each.incidents),
                note=f"⌀ {length(each.average)}" if each.average and each.average >= _SHOWN else "",
                href=links.get(node_id) if each.tokens.value or each.incidents.value else None,
            )
            for node_id, each in figures.items()
        }
    )


def path_marks(
    definition: ProcessDefinition,
    drawing: Drawing,
    path: Path,
    standing: Mapping[str, Standing],
) -> Marks:
    """Return the marks of an instance's page: where it stands, and what it passed as far as that is known."""
    passed = _passed_nodes(definition, path)
    reached = passed | standing.keys()
    left = passed - _interrupted_only(path)
    nodes = {
        node_id: Mark(
            tokens=_number(standing, node_id),
            incidents=_failed(standing, node_id),
            tone=Tone.PASSED if node_id in passed else None,
            note=_times(path, node_id),
        )
        for node_id in reached
    }
    flows = frozenset(
        (edge.source, edge.index)
        for edge in drawing.edges
        if edge.source in left
        and edge.target in reached
        and _was_taken(definition.flow_nodes[edge.source], edge.index, path)
    )
    return Marks(nodes=nodes, passed=flows)


def changes_between(before: DefinitionFile, after: DefinitionFile) -> tuple[NodeChange, ...]:
    """Return what differs between two versions, in the order of the newer one, removed nodes last."""
    found = []
    for node_id, node in after.flow_nodes.items():
        old = before.flow_nodes.get(node_id)
        if old is None:
            found.append(NodeChange(node_id, node.name or node_id, Difference.ADDED))
        elif fields := _changed_fields(old, node):
            found.append(
                NodeChange(node_id, node.name or node_id, Difference.CHANGED, tuple(fields))
            )
    removed = [node for key, node in before.flow_nodes.items() if key not in after.flow_nodes]
    found += [NodeChange(node.id, node.name or node.id, Difference.REMOVED) for node in removed]
    return tuple(found)


def file_changes_between(before: DefinitionFile, after: DefinitionFile) -> tuple[str, ...]:
    """Return which fields of the definition itself differ, as the file calls them."""
    fields = {
        "name": (before.name, after.name),
        "description": (before.description, after.description),
        "defaultStartPoint": (before.default_start_point, after.default_start_point),
        "extensionProperties": (before.extension_properties, after.extension_properties),
    }
    return tuple(name for name, (old, new) in fields.items() if old != new)


def change_marks(changes: Iterable[NodeChange]) -> Marks:
    """Return the marks of one of two versions side by side."""
    return Marks(
        nodes={change.node_id: Mark(tone=Tone(change.difference.value)) for change in changes}
    )


def _changed_fields(old: FlowNode, new: FlowNode) -> list[str]:
    """Return the names of fields that differ; where the editor draws something is no difference."""
    if old.type != new.type:
        return ["type"]
    one, other = (_content(node) for node in (old, new))
    return [name for name in other if one.get(name) != other[name]]


def _content(node: FlowNode) -> dict[str, object]:
    return node.model_dump(
        by_alias=True, exclude={"layout": True, "outgoing": {"__all__": {"position_handlers"}}}
    )


def _passed_nodes(definition: ProcessDefinition, path: Path) -> set[str]:
    known = {visit.node_id for visit in path.visits if visit.status is not NodeStatus.ERROR}
    known |= {visit.interrupted_by for visit in path.visits if visit.interrupted_by}
    if path.visits and definition.default_start_point:
        known.add(definition.default_start_point)
    return known & definition.flow_nodes.keys()


def _interrupted_only(path: Path) -> set[str]:
    """Return the nodes that never came to their end: their boundary event took over each time."""
    ended = {visit.node_id for visit in path.visits if visit.status is NodeStatus.SUCCESS}
    interrupted = {visit.node_id for visit in path.visits if visit.status is NodeStatus.INTERRUPTED}
    return interrupted - ended


def _was_taken(node: FlowNode, index: int, path: Path) -> bool:
    flow = node.outgoing[index]
    return not isinstance(node, ExclusiveGateway) or flow.id is None or flow.id in path.flows


def _times(path: Path, node_id: str) -> str:
    times = sum(visit.node_id == node_id for visit in path.visits)
    return f"{times} times" if times > 1 else ""


def _number(standing: Mapping[str, Standing], node_id: str) -> str:
    here = standing.get(node_id)
    return str(here.tokens) if here is not None and here.tokens else ""


def _failed(standing: Mapping[str, Standing], node_id: str) -> str:
    here = standing.get(node_id)
    return str(here.failed) if here is not None and here.failed else ""


def _shown(count: Count) -> str:
    return str(count) if count.value else ""
