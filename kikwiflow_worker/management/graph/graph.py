"""A definition as a plain graph: nodes with shapes, boundary events with their hosts, flows with labels."""

from collections.abc import Mapping
from dataclasses import dataclass

from kikwiflow_worker.engine.boundary_rules import boundary_event_ids
from kikwiflow_worker.management.graph.drawing import (
    BOUNDARY,
    CHARACTER,
    LABEL_MOST,
    LINE_MOST,
    SHAPES,
    Shape,
    size_of,
)
from kikwiflow_worker.model.definition import DefinitionFile
from kikwiflow_worker.model.nodes import BoundaryEvent, FlowNode, SequenceFlow


@dataclass(frozen=True, slots=True)
class Vertex:
    """A node before it has a place."""

    id: str
    shape: Shape
    label: str
    width: float
    height: float

    @property
    def room(self) -> float:
        """The width that it takes with the label under it."""
        longest = max(len(line) for line in lines_of(self.label))
        return max(self.width, longest * CHARACTER + 8)


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow before it has a way; ``bends`` are the file's, in its coordinates."""

    source: str
    target: str
    index: int
    label: str
    is_default: bool
    bends: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """What is to be placed.

    Attributes:
        vertices: All nodes but the boundary events that have a host, in the order of the walk from the start.
        attached: The boundary events of each host, in its order.
        flows: Those that lead to a node that exists.
    """

    vertices: Mapping[str, Vertex]
    attached: Mapping[str, tuple[Vertex, ...]]
    flows: tuple[Flow, ...]

    def host_of(self) -> dict[str, str]:
        """Return the host of each attached boundary event."""
        return {event.id: host for host, events in self.attached.items() for event in events}


def graph_of(file: DefinitionFile) -> Graph:
    """Return the graph of a definition; flows to nodes that do not exist are left out."""
    events = _events_of_hosts(file)
    hosted = {event_id for attached in events.values() for event_id in attached}
    walked = _walked(file, events)
    vertices = {
        node.id: _vertex(node, len(events.get(node.id, ())))
        for node in walked
        if node.id not in hosted
    }
    attached = {
        host: tuple(_vertex(file.flow_nodes[each], 0) for each in ids)
        for host, ids in events.items()
    }
    flows = tuple(
        Flow(
            node.id,
            flow.target_node_id,
            index,
            _flow_label(flow),
            flow.is_default,
            tuple((bend.x, bend.y) for bend in flow.position_handlers),
        )
        for node in walked
        for index, flow in enumerate(node.outgoing)
        if flow.target_node_id is not None and flow.target_node_id in file.flow_nodes
    )
    return Graph(vertices, attached, flows)


def lines_of(text: str, most: int = LINE_MOST) -> tuple[str, ...]:
    """Return a label in one or two lines, broken between words if there are some."""
    text = " ".join(text.replace("_", "_\u200b").split())
    if len(text) <= most:
        return (text.replace("\u200b", ""),)
    breaks = [index for index, letter in enumerate(text[: most + 1]) if letter in " \u200b"]
    at = breaks[-1] if breaks and breaks[-1] else most
    parts = (text[:at], text[at:])
    first, second = (part.replace("\u200b", "").strip() for part in parts)
    return (first, cut(second, most)) if second else (first,)


def cut(text: str, most: int = LABEL_MOST) -> str:
    """Return a text of at most ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _vertex(node: FlowNode, boundary_events: int) -> Vertex:
    shape = SHAPES[node.type]
    width, height = size_of(shape, boundary_events)
    return Vertex(node.id, shape, node.name or node.id, width, height)


def _events_of_hosts(file: DefinitionFile) -> dict[str, list[str]]:
    """Return the boundary events of each host: as it lists them, then those that only name it themselves."""
    events: dict[str, list[str]] = {}
    for node_id in sorted(file.flow_nodes):
        node = file.flow_nodes[node_id]
        if isinstance(node, BoundaryEvent):
            host = file.flow_nodes.get(node.attached_to_ref or "")
            if host is not None and SHAPES[host.type] not in BOUNDARY:
                events.setdefault(host.id, []).append(node_id)
    for host_id, attached in events.items():
        listed = {
            event_id: place
            for place, event_id in enumerate(boundary_event_ids(file.flow_nodes[host_id]))
        }
        attached.sort(key=lambda event_id: listed.get(event_id, len(listed)))
    return events


def _flow_label(flow: SequenceFlow) -> str:
    if flow.name or flow.expected_answer:
        return flow.name or flow.expected_answer or ""
    return "no answer" if flow.handles_null else ("else" if flow.is_default else "")


def _walked(file: DefinitionFile, events: Mapping[str, list[str]]) -> list[FlowNode]:
    """Return all nodes, breadth first from the start; what is not reached comes last, by name."""
    seen: dict[str, FlowNode] = {}
    for root in (file.default_start_point or "", *sorted(file.flow_nodes)):
        waiting = [] if root in seen else [root]
        for node_id in waiting:
            node = file.flow_nodes.get(node_id)
            if node is None or node.id in seen:
                continue
            seen[node.id] = node
            waiting.extend(flow.target_node_id or "" for flow in node.outgoing)
            waiting.extend(events.get(node.id, ()))
    return list(seen.values())
