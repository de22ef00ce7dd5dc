"""Layered layout, second half: from columns and order to coordinates."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from kikwiflow_worker.management.graph.drawing import (
    CHARACTER,
    COLUMN_GAP,
    ROW_GAP,
    TASK_HEIGHT,
    TASK_WIDTH,
    Point,
)
from kikwiflow_worker.management.graph.layers import Edge, Item, Layers, links_of, neighbours

PITCH = TASK_HEIGHT + ROW_GAP
"""Between the middles of two rows."""
_THIN = 30.0
"""The height of a flow that passes a column."""
_SWEEPS = 8
_SIDE = 0.001
"""How much less a flow of a boundary event insists."""
_LEAST = 1e-6


def middles(
    layers: Layers,
    edges: Sequence[Edge],
    *,
    widths: Mapping[str, float],
    labels: Sequence[str],
    side: frozenset[int],
) -> dict[Item, Point]:
    """Return the middle of every node and way point; no two nodes come nearer than a row and a column.

    Args:
        side: Numbers of the edges that give way, so that the others are straight: those of boundary events.
    """
    xs = _column_middles(layers, edges, widths, labels)
    ys = _rows(layers, edges, side)
    return {
        item: (xs[number], ys[item])
        for number, column in enumerate(layers.columns)
        for item in column
    }


def _column_middles(
    layers: Layers, edges: Sequence[Edge], widths: Mapping[str, float], labels: Sequence[str]
) -> list[float]:
    gaps = [COLUMN_GAP] * len(layers.columns)
    for number, (source, target) in enumerate(edges):
        if number not in layers.around and labels[number]:
            before_target = layers.column_of[target] - 1
            if before_target == layers.column_of[source]:
                room = len(labels[number]) * CHARACTER + 44
                gaps[before_target] = max(gaps[before_target], room)
    found: list[float] = []
    left = 0.0
    for number, column in enumerate(layers.columns):
        width = max([TASK_WIDTH / 2, *(widths[item] for item in column if isinstance(item, str))])
        found.append(left + width / 2)
        left += width + gaps[number]
    return found


def _rows(layers: Layers, edges: Sequence[Edge], side: frozenset[int]) -> dict[Item, float]:
    left, right = neighbours(links_of(layers, edges))
    weights = _weights(layers, edges, side, left)
    ys: dict[Item, float] = {}
    for column in layers.columns:
        ys.update(_spread(column, [0.0] * len(column), weights))
    for sweep in range(_SWEEPS):
        onwards = sweep % 2 == 0
        near = left if onwards else right
        for column in layers.columns if onwards else reversed(layers.columns):
            wanted = [_mean(near.get(item, ()), ys, weights, ys[item]) for item in column]
            ys.update(_spread(column, wanted, weights))
    return {item: round(y) for item, y in ys.items()}


def _weights(
    layers: Layers,
    edges: Sequence[Edge],
    side: frozenset[int],
    left: Mapping[Item, Sequence[Item]],
) -> dict[Item, float]:
    """Return how much each item insists on its place: what only boundary events lead to insists little."""
    main = {edges[number] for number in range(len(edges)) if number not in side}
    weights: dict[Item, float] = {}
    for column in layers.columns:
        for item in column:
            weights[item] = max(
                (
                    weights[each] * _link_weight(each, item, main, side)
                    for each in left.get(item, ())
                ),
                default=1.0,
            )
            weights[item] = max(weights[item], _LEAST)
    return weights


def _link_weight(one: Item, other: Item, main: AbstractSet[Edge], side: frozenset[int]) -> float:
    if isinstance(other, tuple):
        return _SIDE if other[0] in side and isinstance(one, str) else 1.0
    return 1.0 if isinstance(one, tuple) or (one, other) in main else _SIDE


def _mean(
    items: Sequence[Item], ys: Mapping[Item, float], weights: Mapping[Item, float], otherwise: float
) -> float:
    total = sum(weights[item] for item in items)
    return sum(ys[item] * weights[item] for item in items) / total if items else otherwise


def _spread(
    column: Sequence[Item], wanted: Sequence[float], weights: Mapping[Item, float]
) -> dict[Item, float]:
    """Return rows as near to ``wanted`` as the order and the distances allow (least squares, by pooling neighbours)."""
    offsets, offset = [], 0.0
    for index, item in enumerate(column):
        if index:
            offset += (_height(column[index - 1]) + _height(item)) / 2
        offsets.append(offset)
    pools: list[tuple[float, float, int]] = []
    for index, want in enumerate(wanted):
        mean, weight, size = want - offsets[index], weights[column[index]], 1
        while pools and pools[-1][0] > mean:
            other, more, count = pools.pop()
            mean = (mean * weight + other * more) / (weight + more)
            weight, size = weight + more, size + count
        pools.append((mean, weight, size))
    bases = [mean for mean, _, size in pools for _ in range(size)]
    return {item: bases[index] + offsets[index] for index, item in enumerate(column)}


def _height(item: Item) -> float:
    return PITCH if isinstance(item, str) else _THIN
