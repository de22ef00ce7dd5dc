"""Where the nodes and flows of a definition go."""

from collections import Counter
from collections.abc import Iterable, Mapping

from kikwiflow_worker.management.graph.drawing import (
    BOUNDARY,
    BOUNDARY_PITCH,
    BOUNDARY_SIZE,
    BOXES,
    CHARACTER,
    LABEL_MOST,
    MARGIN,
    TASK_WIDTH,
    Box,
    Drawing,
    PlacedEdge,
    PlacedNode,
    Point,
)
from kikwiflow_worker.management.graph.given import given_middles
from kikwiflow_worker.management.graph.graph import Flow, Graph, cut, graph_of, lines_of
from kikwiflow_worker.management.graph.lanes import lanes_of
from kikwiflow_worker.management.graph.layers import Item, layers_of
from kikwiflow_worker.management.graph.placement import middles
from kikwiflow_worker.management.graph.routes import Route, around, by_bends, curve_through, direct
from kikwiflow_worker.model.definition import DefinitionFile

LABEL = 46.0
"""What the label of a small shape takes, above or below it, at most: two lines and a note."""


def lay_out(file: DefinitionFile) -> Drawing:
    """Return the drawing of a definition.

    The coordinates of the file count if all nodes but boundary events have some and they keep the nodes apart, if need be
    drawn larger; else the nodes are laid out in columns from left to right. Boundary events sit on the lower edge of their host.
    """
    graph = graph_of(file)
    given = given_middles(file, graph)
    if given is None:
        return _layered(graph)
    placed = _placed(graph, given.middles)
    routes = [
        _given_route(flow, placed, given.moved(flow.bends), bow) for flow, bow in _bows(graph)
    ]
    return _drawing(graph, placed, routes)


def _layered(graph: Graph) -> Drawing:
    hosts = graph.host_of()
    ends = [
        (hosts.get(flow.source, flow.source), hosts.get(flow.target, flow.target))
        for flow in graph.flows
    ]
    layers = layers_of(list(graph.vertices), ends)
    rooms = {vertex.id: vertex.room for vertex in graph.vertices.values()}
    labels = [flow.label for flow in graph.flows]
    side = frozenset(number for number, flow in enumerate(graph.flows) if flow.source in hosts)
    found = middles(layers, ends, widths=rooms, labels=labels, side=side)
    placed = _placed(graph, found)
    edges_of_columns = _column_edges(layers.columns, found, rooms)
    lanes = lanes_of(layers, ends, placed)
    routes = []
    for number, (flow, bow) in enumerate(_bows(graph)):
        source, target = placed[flow.source], placed[flow.target].box
        first, last = (layers.column_of[node] for node in ends[number])
        if number in layers.around:
            lane = lanes[number]
            aside = 12.0 + 4 * (lane.place % 6)
            route = around(
                source,
                target,
                leave_x=edges_of_columns[first][1] + aside,
                enter_x=edges_of_columns[last][0] - aside,
                y=lane.y,
            )
        else:
            way = [found[(number, column)] for column in range(first + 1, last)]
            route = curve_through(source, _past_host(placed, source, target) + way, target, bow=bow)
        routes.append(route)
    return _drawing(graph, placed, routes)


def _past_host(placed: Mapping[str, PlacedNode], source: PlacedNode, target: Box) -> list[Point]:
    """Return a point that leads a boundary event's flow round its host, if it would pass behind it."""
    if source.host_id is None or target.middle[1] > source.box.bottom + 12:
        return []
    return [(placed[source.host_id].box.right + 8, source.box.bottom + 16)]


def _bows(graph: Graph) -> Iterable[tuple[Flow, int]]:
    """Return each flow with how many before it lead between the same two nodes."""
    seen: Counter[tuple[str, str]] = Counter()
    for flow in graph.flows:
        yield flow, seen[flow.source, flow.target]
        seen[flow.source, flow.target] += 1


def _placed(graph: Graph, at: Mapping[Item, Point]) -> dict[str, PlacedNode]:
    placed: dict[str, PlacedNode] = {}
    for vertex in graph.vertices.values():
        x, y = at[vertex.id]
        box = Box(x - vertex.width / 2, y - vertex.height / 2, vertex.width, vertex.height)
        events = graph.attached.get(vertex.id, ())
        placed[vertex.id] = PlacedNode(
            vertex.id,
            vertex.shape,
            vertex.label,
            box,
            is_label_above=bool(events) and vertex.shape not in BOXES,
        )
        first = (
            box.x + 12
            if vertex.shape in BOXES
            else box.middle[0] - (BOUNDARY_PITCH * (len(events) - 1) + BOUNDARY_SIZE) / 2
        )
        for index, event in enumerate(reversed(events)):
            place = Box(
                first + index * BOUNDARY_PITCH,
                box.bottom - BOUNDARY_SIZE / 2,
                BOUNDARY_SIZE,
                BOUNDARY_SIZE,
            )
            placed[event.id] = PlacedNode(
                event.id,
                event.shape,
                event.label,
                place,
                host_id=vertex.id,
                is_labelled=event is events[0],
            )
    return placed


def _column_edges(
    columns: Iterable[Iterable[Item]], found: Mapping[Item, Point], rooms: Mapping[str, float]
) -> list[tuple[float, float]]:
    edges = []
    for column in columns:
        nodes = [item for item in column if isinstance(item, str)]
        width = max([TASK_WIDTH / 2, *(rooms[node] for node in nodes)])
        middle = found[nodes[0]][0]
        edges.append((middle - width / 2, middle + width / 2))
    return edges


def _given_route(
    flow: Flow, placed: Mapping[str, PlacedNode], bends: tuple[Point, ...], bow: int
) -> Route:
    source, target = placed[flow.source], placed[flow.target].box
    return by_bends(source, bends, target) if bends else direct(source, target, bow=bow)


def _drawing(graph: Graph, placed: Mapping[str, PlacedNode], routes: list[Route]) -> Drawing:
    edges = tuple(
        PlacedEdge(
            flow.source,
            flow.target,
            flow.index,
            route.path,
            cut(flow.label),
            route.label_at,
            flow.is_default,
        )
        for flow, route in zip(graph.flows, routes, strict=True)
    )
    nodes = tuple(placed.values())
    return Drawing(nodes, edges, _frame(nodes, edges, routes))


def _frame(
    nodes: Iterable[PlacedNode], edges: Iterable[PlacedEdge], routes: Iterable[Route]
) -> Box:
    points = [point for route in routes for point in route.reach]
    for node in nodes:
        (x, _), box = node.box.middle, node.box
        half = max(box.width, max(len(line) for line in lines_of(node.label)) * CHARACTER) / 2
        if node.shape in BOUNDARY and node.is_labelled:
            half += len(cut(node.label)) * CHARACTER
        above = LABEL if node.is_label_above else 10.0
        below = 20.0 if node.shape in BOXES else LABEL
        points += [(x - half, box.y - above), (x + half, box.bottom + below)]
    for edge in edges:
        half = min(len(edge.label), LABEL_MOST) * CHARACTER / 2
        points += [
            (edge.label_at[0] - half, edge.label_at[1] - 8),
            (edge.label_at[0] + half, edge.label_at[1]),
        ]
    if not points:
        return Box(0, 0, 2 * MARGIN, 2 * MARGIN)
    left, top = min(x for x, _ in points) - MARGIN, min(y for _, y in points) - MARGIN
    right, bottom = max(x for x, _ in points), max(y for _, y in points)
    return Box(left, top, right + MARGIN - left, bottom + MARGIN / 2 - top)
