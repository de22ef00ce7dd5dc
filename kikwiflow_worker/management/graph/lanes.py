"""The heights at which flows pass that go round: above all nodes they pass, and apart from one another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from kikwiflow_worker.management.graph.drawing import PlacedNode
from kikwiflow_worker.management.graph.layers import Edge, Layers

_ABOVE = 22.0
_APART = 13.0
_LOOKED_AT = 64
"""Columns; a flow that passes more goes above the whole graph, so that the search is short."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A height, and its place among the flows that pass the same columns."""

    y: float
    place: int


def lanes_of(
    layers: Layers, edges: Sequence[Edge], placed: Mapping[str, PlacedNode]
) -> dict[int, Lane]:
    """Return the lane of each flow that goes round."""
    tops = [
        min(placed[item].box.y for item in column if isinstance(item, str))
        for column in layers.columns
    ]
    spans = sorted((*_span(layers, edges[number]), number) for number in layers.around)
    found: dict[int, Lane] = {}
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    used = 0
    for first, last, number in spans:
        while busy and busy[0][0] < first:
            heappush(free, heappop(busy)[1])
        if free:
            place = heappop(free)
        else:
            place, used = used, used + 1
        heappush(busy, (last, place))
        passed = tops if last - first > _LOOKED_AT else tops[first : last + 1]
        found[number] = Lane(min(passed) - _ABOVE - _APART * place, place)
    return found


def _span(layers: Layers, edge: Edge) -> tuple[int, int]:
    first, last = sorted(layers.column_of[node] for node in edge)
    return first, last
