"""What can be wrong with the graph as a whole: references, reachability, splits and joins, idle cycles."""

from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from kikwiflow_worker.engine.boundary_rules import boundary_event_ids
from kikwiflow_worker.engine.findings import Suggestions, at, error, is_blank, warning
from kikwiflow_worker.errors import Problem
from kikwiflow_worker.model.definition import DefinitionFile
from kikwiflow_worker.model.limits import MAX_NESTED_SPLITS
from kikwiflow_worker.model.nodes import (
    BoundaryEvent,
    EventThrower,
    ExclusiveGateway,
    FlowNode,
    JoinGateway,
    ParallelGateway,
    StartEvent,
)

_CYCLES_NAMED = 20

_PASSED_AT_ONCE = (StartEvent, ExclusiveGateway, ParallelGateway)
"""Nodes that never rest, so that a step runs from one to the next."""

_CONTROL = (StartEvent, ExclusiveGateway, ParallelGateway, JoinGateway, EventThrower)

_Edges = Mapping[str, tuple[str, ...]]


def graph_problems(definition: DefinitionFile) -> Iterator[Problem]:
    """Yield everything that is wrong with references and paths."""
    nodes = definition.flow_nodes
    edges = {node.id: tuple(_next_nodes(node, nodes)) for node in nodes.values()}
    ends = {node.id for node in nodes.values() if _ends_path(node, nodes)}
    suggestions = Suggestions(nodes)
    yield from _start_problems(definition)
    for node in nodes.values():
        yield from _target_problems(node, nodes, suggestions)
    for node in nodes.values():
        if isinstance(node, ParallelGateway):
            yield from _split_problems(node, nodes, edges, ends)
    yield from _join_problems(nodes)
    yield from _idle_cycle_problems(nodes)
    yield from _nesting_problems(nodes)
    yield from _unreachable_problems(definition, edges)


def _next_nodes(node: FlowNode, nodes: Mapping[str, FlowNode]) -> Iterator[str]:
    """Yield where a path that is at a node can be next, boundary events and the split's join included."""
    candidates: list[str | None] = [flow.target_node_id for flow in node.outgoing]
    candidates += boundary_event_ids(node)
    if isinstance(node, ParallelGateway):
        candidates.append(node.target_join_id)
    for candidate in candidates:
        if candidate is not None and candidate in nodes:
            yield candidate


def _reachable(start: str | None, edges: _Edges) -> set[str]:
    """Return all nodes on the paths from one node, itself included; empty if there is no such node."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        node_id = waiting.pop()
        if node_id is not None and node_id in edges and node_id not in found:
            found.add(node_id)
            waiting += edges[node_id]
    return found


def _start_problems(definition: DefinitionFile) -> Iterator[Problem]:
    start = definition.default_start_point
    nodes = definition.flow_nodes
    starts = [node.id for node in nodes.values() if isinstance(node, StartEvent)]
    hint = f"write {starts[0]!r}" if starts else "add a DEFAULT_START_EVENT and write its key"
    if start is None or is_blank(start):
        yield error("defaultStartPoint", "is missing or blank", hint)
    elif start not in nodes:
        yield error("defaultStartPoint", f"there is no node {start!r}", hint)
    elif not isinstance(nodes[start], StartEvent):
        yield error(
            "defaultStartPoint",
            f"{start!r} is of type {nodes[start].type}, not DEFAULT_START_EVENT",
            hint,
        )


def _target_problems(
    node: FlowNode, nodes: Mapping[str, FlowNode], suggestions: Suggestions
) -> Iterator[Problem]:
    for index, flow in enumerate(node.outgoing):
        path = at(node.id, "outgoing", index, "targetNodeId")
        target_id = flow.target_node_id
        if target_id is None or is_blank(target_id):
            yield error(path, "is missing or blank", "write the key of the next node")
        elif target_id not in nodes:
            yield error(path, f"there is no node {target_id!r}", suggestions.of(target_id))
        elif isinstance(nodes[target_id], BoundaryEvent):
            yield error(
                path,
                f"{target_id!r} is a boundary event, which only its host can reach",
                "lead the flow to the node after it",
            )


def _split_problems(
    split: ParallelGateway, nodes: Mapping[str, FlowNode], edges: _Edges, ends: Collection[str]
) -> Iterator[Problem]:
    path = at(split.id, "targetJoinId")
    join_id = split.target_join_id
    if join_id is None or is_blank(join_id):
        yield error(path, "the split names no join", "write the key of its JOIN_GATEWAY")
        return
    join = nodes.get(join_id)
    if not isinstance(join, JoinGateway):
        found = "does not exist" if join is None else f"is of type {join.type}"
        yield error(path, f"the join {join_id!r} {found}", "write the key of a JOIN_GATEWAY")
        return
    paths = _Search(split, edges)
    targets = {
        index: flow.target_node_id
        for index, flow in enumerate(split.outgoing)
        if flow.target_node_id is not None and flow.target_node_id in nodes
    }
    if targets and not any(paths.leads(target, {join_id}) for target in targets.values()):
        yield error(
            path,
            f"no branch of the split leads to its join {join_id!r}",
            "lead each branch to the join, or name the join that they lead to",
        )
    paths = _Search(split, edges)
    goals = {join_id, *ends}
    for index, target in targets.items():
        if not paths.leads(target, goals):
            yield error(
                at(split.id, "outgoing", index),
                f"this branch leads neither to {join_id!r} nor to an end, so the join waits for ever",
                f"lead it to {join_id!r}",
            )


class _Search:
    """Looks where the branches of one split lead without passing it again; stops at the first goal.

    What one branch has shown is not looked at again for the next: a split of thousands of branches is one pass.
    """

    def __init__(self, split: ParallelGateway, edges: _Edges) -> None:
        self._split_id = split.id
        self._edges = edges
        self._leading: set[str] = set()
        self._lost: set[str] = set()

    def leads(self, start: str, goals: Collection[str]) -> bool:
        """Return whether a path from ``start`` reaches one of ``goals``, which are the same in all calls."""
        came_from: dict[str, str | None] = {}
        waiting: list[tuple[str, str | None]] = [(start, None)]
        while waiting:
            node_id, before = waiting.pop()
            if node_id in came_from or node_id in self._lost:
                continue
            came_from[node_id] = before
            if node_id in goals or node_id in self._leading:
                self._remember(node_id, came_from)
                return True
            if node_id != self._split_id:
                waiting += [(following, node_id) for following in self._edges[node_id]]
        self._lost |= came_from.keys()
        return False

    def _remember(self, reached: str, came_from: Mapping[str, str | None]) -> None:
        node_id: str | None = reached
        while node_id is not None:
            self._leading.add(node_id)
            node_id = came_from[node_id]


def _ends_path(node: FlowNode, nodes: Mapping[str, FlowNode]) -> bool:
    return not any(flow.target_node_id in nodes for flow in node.outgoing)


def _join_problems(nodes: Mapping[str, FlowNode]) -> Iterator[Problem]:
    named = {node.target_join_id for node in nodes.values() if isinstance(node, ParallelGateway)}
    targets = {flow.target_node_id for node in nodes.values() for flow in node.outgoing}
    for node in nodes.values():
        if not isinstance(node, JoinGateway):
            continue
        if node.id not in targets:
            yield error(at(node.id), "no flow leads to this join", "lead the branches to it")
        elif node.id not in named:
            yield warning(
                at(node.id),
                "no split names this join, so a path just passes it",
                "name it in targetJoinId of its PARALLEL_GATEWAY, or remove it",
            )


def _idle_cycle_problems(nodes: Mapping[str, FlowNode]) -> Iterator[Problem]:
    control = [node for node in nodes.values() if isinstance(node, _CONTROL)]
    ids = {node.id for node in control}
    edges = {
        node.id: [flow.target_node_id for flow in node.outgoing if flow.target_node_id in ids]
        for node in control
    }
    # Each takes a pass over the graph; whoever has corrected these sees the next.
    for _ in range(_CYCLES_NAMED):
        cycle = _find_cycle(edges)
        if not cycle:
            return
        yield error(
            at(cycle[0]),
            f"the cycle {' -> '.join([*cycle, cycle[0]])} neither waits nor runs a handler, so it would never stop",
            "put a task or a timer into it",
        )
        gone = set(cycle)
        edges = {
            node_id: [target for target in targets if target not in gone]
            for node_id, targets in edges.items()
            if node_id not in gone
        }


def _nesting_problems(nodes: Mapping[str, FlowNode]) -> Iterator[Problem]:
    """Yield the splits that begin inside too many others: a step starts all of them at once, each inside the other."""
    inner = {
        node.id: {
            flow.target_node_id
            for flow in node.outgoing
            if isinstance(nodes.get(flow.target_node_id or ""), _PASSED_AT_ONCE)
        }
        for node in nodes.values()
        if isinstance(node, _PASSED_AT_ONCE)
    }
    depths: dict[str | None, int] = {}
    try:
        # Sorted so that what a node leads to comes before it.
        order = tuple(TopologicalSorter(inner).static_order())
    except CycleError:
        return
    for node_id in order:
        own = int(isinstance(nodes[node_id or ""], ParallelGateway))
        depths[node_id] = own + max((depths[each] for each in inner[node_id or ""]), default=0)
    outermost = set(depths) - {each for targets in inner.values() for each in targets}
    for node_id in sorted(each for each in outermost if each and depths[each] > MAX_NESTED_SPLITS):
        yield error(
            at(node_id),
            f"{depths[node_id]} splits begin inside one another here, the limit is {MAX_NESTED_SPLITS} "
            "(MAX_NESTED_SPLITS)",
            "put a task between them",
        )


def _find_cycle(edges: Mapping[str, Collection[str | None]]) -> list[str]:
    """Return the nodes of one cycle in the order of its flows, the first by name first; empty if there is none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as found:
        # Each node of the reported list comes before the one it leads to when read backwards; both ends are equal.
        cycle: list[str] = found.args[1][:0:-1]
        first = cycle.index(min(cycle))
        return cycle[first:] + cycle[:first]
    return []


def _unreachable_problems(definition: DefinitionFile, edges: _Edges) -> Iterator[Problem]:
    reached = _reachable(definition.default_start_point, edges)
    for node in definition.flow_nodes.values():
        # A boundary event that nobody lists has a warning of its own.
        if reached and node.id not in reached and not isinstance(node, BoundaryEvent):
            yield warning(
                at(node.id), "no path leads to this node", "lead a flow to it, or remove it"
            )
