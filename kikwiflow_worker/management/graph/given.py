"""The coordinates of the file: whether they can be used, and at which scale."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from kikwiflow_worker.management.graph.drawing import TASK_HEIGHT, TASK_WIDTH, Point
from kikwiflow_worker.management.graph.graph import Graph
from kikwiflow_worker.management.graph.layers import Item
from kikwiflow_worker.model.definition import DefinitionFile

_MOST = 4.0
"""How many times the file's distances may be enlarged; nodes nearer than that count as not placed."""
_GAP_X, _GAP_Y = 24.0, 34.0
_FARTHEST = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Given:
    """Usable coordinates.

    Attributes:
        middles: Of each node, as it is drawn.
        scale: By which the file's x and y are multiplied.
    """

    middles: Mapping[Item, Point]
    scale: Point

    def moved(self, bends: tuple[Point, ...]) -> tuple[Point, ...]:
        """Return points of the file where they are drawn."""
        return tuple((x * self.scale[0], y * self.scale[1]) for x, y in bends)


def given_middles(file: DefinitionFile, graph: Graph) -> Given | None:
    """Return where the file puts each node, or None if it does not say for all, or puts them on one another.

    The file gives the upper left corner of a card, and all cards are of one size: small shapes are drawn in its middle.
    """
    corners: dict[str, Point] = {}
    for node_id in graph.vertices:
        layout = file.flow_nodes[node_id].layout
        if layout is None or max(abs(layout.x), abs(layout.y)) > _FARTHEST:
            return None
        corners[node_id] = (layout.x, layout.y)
    if not corners:
        return None
    width = max(TASK_WIDTH, *(vertex.width for vertex in graph.vertices.values()))
    scale = _scale_that_separates(corners, width + _GAP_X, TASK_HEIGHT + _GAP_Y)
    if scale is None:
        return None
    slot = (width / 2, TASK_HEIGHT / 2)
    return Given(
        {
            node_id: (x * scale[0] + slot[0], y * scale[1] + slot[1])
            for node_id, (x, y) in corners.items()
        },
        scale,
    )


def _scale_that_separates(
    corners: Mapping[str, Point], width: float, height: float
) -> Point | None:
    """Return the least scales in x and y at which all corners are a card apart, side by side or one above the other."""
    along_x, along_y = 1.0, 1.0
    either: list[Point] = []
    for dx, dy in _near_pairs(corners, width, height):
        by_x = width / dx if dx else inf
        by_y = height / dy if dy else inf
        if min(by_x, by_y) > _MOST:
            return None
        if by_y > _MOST:
            along_x = max(along_x, by_x)
        elif by_x > _MOST:
            along_y = max(along_y, by_y)
        else:
            either.append((by_x, by_y))
    for by_x, by_y in sorted(either):
        if along_x < by_x and along_y < by_y:
            along_x, along_y = (by_x, along_y) if by_x <= by_y else (along_x, by_y)
    return along_x, along_y


def _near_pairs(corners: Mapping[str, Point], width: float, height: float) -> Iterator[Point]:
    """Yield how far apart two corners are, for all that are less than a card apart."""
    cells: dict[tuple[int, int], list[Point]] = {}
    for x, y in corners.values():
        column, row = int(x // width), int(y // height)
        for near in ((column + dx, row + dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)):
            for other in cells.get(near, ()):
                dx, dy = abs(x - other[0]), abs(y - other[1])
                if dx < width and dy < height:
                    yield dx, dy
        cells.setdefault((column, row), []).append((x, y))
