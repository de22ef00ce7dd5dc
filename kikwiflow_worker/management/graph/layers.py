"""Layered layout, first half: which column each node is in, and the order in a column.

The usual four steps: turn back flows round, put each node as far right as its longest way from a start, add way points
where a flow passes columns, and order each column by where its neighbours are.
"""

import itertools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LONGEST_WITH_WAY_POINTS = 8
"""Columns; a longer flow goes round the graph, so that way points never outnumber flows by much."""
_SWEEPS = 6

Edge = tuple[str, str]
WayPoint = tuple[int, int]
"""The number of the flow, and its column."""
Item = str | WayPoint


@dataclass(frozen=True, slots=True)
class Layers:
    """The columns from left to right.

    Attributes:
        columns: The nodes and way points of each column, from top to bottom.
        column_of: Of each node.
        around: Numbers of the flows that go round: those that lead back, and those that are very long.
    """

    columns: tuple[tuple[Item, ...], ...]
    column_of: Mapping[str, int]
    around: frozenset[int]


def layers_of(nodes: Sequence[str], edges: Sequence[Edge]) -> Layers:
    """Return the columns of a graph; ``edges`` are between ``nodes``, several between the same two are allowed."""
    back = _back_edges(nodes, edges)
    column_of = _columns(nodes, edges, back)
    around = frozenset(
        number
        for number, (source, target) in enumerate(edges)
        if number in back or column_of[target] - column_of[source] > LONGEST_WITH_WAY_POINTS
    )
    columns: list[list[Item]] = [[] for _ in range(max(column_of.values(), default=-1) + 1)]
    for node in nodes:
        columns[column_of[node]].append(node)
    links = _links(edges, column_of, around)
    for one, other in links:
        for item in (one, other):
            if isinstance(item, tuple):
                columns[item[1]].append(item)
    unique = [list(dict.fromkeys(column)) for column in columns]
    return Layers(tuple(tuple(column) for column in _ordered(unique, links)), column_of, around)


def neighbours(links: Iterable[tuple[Item, Item]]) -> tuple[dict[Item, list[Item]], ...]:
    """Return what is linked to each item from the left, and what to the right."""
    left: dict[Item, list[Item]] = {}
    right: dict[Item, list[Item]] = {}
    for one, other in links:
        left.setdefault(other, []).append(one)
        right.setdefault(one, []).append(other)
    return left, right


def links_of(layers: Layers, edges: Sequence[Edge]) -> list[tuple[Item, Item]]:
    """Return the pieces of all flows that do not go round, each from one column to the next."""
    return _links(edges, layers.column_of, layers.around)


def _links(
    edges: Sequence[Edge], column_of: Mapping[str, int], around: frozenset[int]
) -> list[tuple[Item, Item]]:
    links: list[tuple[Item, Item]] = []
    for number, (source, target) in enumerate(edges):
        if number in around:
            continue
        between = range(column_of[source] + 1, column_of[target])
        way: list[Item] = [source, *((number, column) for column in between), target]
        links.extend(itertools.pairwise(way))
    return links


def _back_edges(nodes: Sequence[str], edges: Sequence[Edge]) -> frozenset[int]:
    """Return the edges that close a loop in a depth-first walk; loops at one node are among them."""
    outgoing: dict[str, list[int]] = {node: [] for node in nodes}
    for number, (source, _) in enumerate(edges):
        outgoing[source].append(number)
    back: set[int] = set()
    done: set[str] = set()
    open_nodes: set[str] = set()
    for root in nodes:
        if root in done:
            continue
        stack = [(root, iter(outgoing[root]))]
        open_nodes.add(root)
        while stack:
            node, rest = stack[-1]
            step = next(rest, None)
            if step is None:
                stack.pop()
                open_nodes.discard(node)
                done.add(node)
                continue
            target = edges[step][1]
            if target in open_nodes:
                back.add(step)
            elif target not in done:
                open_nodes.add(target)
                stack.append((target, iter(outgoing[target])))
    return frozenset(back)


def _columns(nodes: Sequence[str], edges: Sequence[Edge], back: frozenset[int]) -> dict[str, int]:
    outgoing: dict[str, list[str]] = {node: [] for node in nodes}
    missing = dict.fromkeys(nodes, 0)
    for number, (source, target) in enumerate(edges):
        if number not in back:
            outgoing[source].append(target)
            missing[target] += 1
    column = dict.fromkeys(nodes, 0)
    ready = deque(node for node in nodes if not missing[node])
    while ready:
        node = ready.popleft()
        for target in outgoing[node]:
            column[target] = max(column[target], column[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    return column


def _ordered(columns: list[list[Item]], links: list[tuple[Item, Item]]) -> list[list[Item]]:
    left, right = neighbours(links)
    best, fewest = columns, _crossings(columns, right)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        onwards = sweep % 2 == 0
        columns = _swept(columns, left if onwards else right, onwards=onwards)
        crossings = _crossings(columns, right)
        if crossings < fewest:
            best, fewest = columns, crossings
    return best


def _swept(
    columns: list[list[Item]], near: Mapping[Item, list[Item]], *, onwards: bool
) -> list[list[Item]]:
    """Order each column by the middle of where its neighbours are, from the left or from the right."""
    swept = list(columns)
    places = range(1, len(columns)) if onwards else range(len(columns) - 2, -1, -1)
    for place in places:
        beside = swept[place - 1 if onwards else place + 1]
        position = {item: index for index, item in enumerate(beside)}
        swept[place] = _by_middle(swept[place], near, position)
    return swept


def _by_middle(
    column: list[Item], near: Mapping[Item, list[Item]], position: Mapping[Item, int]
) -> list[Item]:
    def middle(index: int) -> float:
        at = [position[each] for each in near.get(column[index], ())]
        return sum(at) / len(at) if at else float(index)

    return [column[index] for index in sorted(range(len(column)), key=lambda i: (middle(i), i))]


def _crossings(columns: list[list[Item]], right: Mapping[Item, list[Item]]) -> int:
    """Count how often links cross, with a tree of counts: n log n for n links."""
    total = 0
    for column, beside in itertools.pairwise(columns):
        position = {item: index for index, item in enumerate(beside)}
        ends = [
            at for item in column for at in sorted(position[each] for each in right.get(item, ()))
        ]
        counts = [0] * (len(beside) + 1)
        for seen, end in enumerate(ends):
            at, lower_or_equal = end + 1, 0
            while at:
                lower_or_equal += counts[at]
                at &= at - 1
            total += seen - lower_or_equal
            at = end + 1
            while at <= len(beside):
                counts[at] += 1
                at += at & -at
    return total
