"""The ways of flows, as SVG path data."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

from kikwiflow_worker.management.graph.drawing import BOUNDARY, Box, PlacedNode, Point

_CORNER = 9.0
_BOW = 26.0
_NEAR = 40.0

Curve = tuple[Point, Point, Point, Point]


@dataclass(frozen=True, slots=True)
class Route:
    """A way: its path, the middle of its label, and points that enclose it."""

    path: str
    label_at: Point
    reach: tuple[Point, ...]


def curve_through(source: PlacedNode, points: Sequence[Point], target: Box, *, bow: int) -> Route:
    """Return a way from left to right by way points, level at each of them.

    Args:
        bow: How many flows between the same two nodes come before; each is bent further down.
    """
    start, is_below = _exit(source)
    ends = [start, *points, (target.x, target.middle[1])]
    path = [f"M{_at(start)}"]
    curves: list[Curve] = []
    for number, (one, other) in enumerate(itertools.pairwise(ends)):
        half = max(24.0, (other[0] - one[0]) / 2)
        leave = (
            (one[0], one[1] + _NEAR)
            if is_below and not number
            else (one[0] + half, one[1] + bow * _BOW)
        )
        arrive = (other[0] - half, other[1] + bow * _BOW)
        curves.append((one, leave, arrive, other))
        path.append(f"C{_at(leave)} {_at(arrive)} {_at(other)}")
    reach = tuple(point for curve in curves for point in _samples(curve))
    return Route("".join(path), _label_on(curves[0]), reach)


def around(source: PlacedNode, target: Box, *, leave_x: float, enter_x: float, y: float) -> Route:
    """Return a way that leaves its column at ``leave_x``, passes at the height ``y`` and enters at ``enter_x``."""
    start, is_below = _exit(source)
    dip = (
        [(start[0], start[1] + 14), (leave_x, start[1] + 14)] if is_below else [(leave_x, start[1])]
    )
    end = (target.x, target.middle[1])
    points = [start, *dip, (leave_x, y), (enter_x, y), (enter_x, end[1]), end]
    return Route(_rounded(points), ((leave_x + enter_x) / 2, y - 7), tuple(points))


def by_bends(source: PlacedNode, bends: Sequence[Point], target: Box) -> Route:
    """Return a way by the bends that the file gives."""
    points = [_side(source.box, bends[0]), *bends, _side(target, bends[-1])]
    half = len(points) // 2
    one, other = points[half - 1], points[half]
    label_at = ((one[0] + other[0]) / 2, (one[1] + other[1]) / 2 - 7)
    return Route(_rounded(points), label_at, tuple(points))


def direct(source: PlacedNode, target: Box, *, bow: int) -> Route:
    """Return a way between two boxes anywhere on the plane."""
    box = source.box
    if target.x >= box.right:
        return curve_through(source, (), target, bow=bow)
    (sx, sy), (tx, ty) = box.middle, target.middle
    if target.y >= box.bottom:
        return _upright((sx, box.bottom), (tx, target.y), (target.y - box.bottom) / 2)
    if source.shape in BOUNDARY:
        return _upright((sx, box.bottom), (tx, target.bottom), 70.0 + 20 * bow, back=True)
    if target.bottom <= box.y:
        return _upright((sx, box.y), (tx, target.bottom), -(box.y - target.bottom) / 2)
    apart = 20.0 if sx == tx else 0.0
    rise = -(58.0 + 20 * bow + abs(sy - ty))
    return _upright((sx + apart, box.y), (tx - apart, target.y), rise, back=True)


def _upright(start: Point, end: Point, reach: float, *, back: bool = False) -> Route:
    leave = (start[0], start[1] + reach)
    arrive = (end[0], end[1] + (reach if back else -reach))
    curve = (start, leave, arrive, end)
    path = f"M{_at(start)}C{_at(leave)} {_at(arrive)} {_at(end)}"
    return Route(path, _label_on(curve), _samples(curve))


def _exit(source: PlacedNode) -> tuple[Point, bool]:
    """Return where flows leave a node, and whether that is its lower side."""
    box = source.box
    if source.host_id is not None:
        return (box.middle[0], box.bottom), True
    return (box.right, box.middle[1]), False


def _side(box: Box, towards: Point) -> Point:
    """Return the middle of the side of ``box`` that looks towards a point."""
    (x, y), (to_x, to_y) = box.middle, towards
    if abs(to_x - x) * box.height >= abs(to_y - y) * box.width:
        return (box.right if to_x > x else box.x, y)
    return (x, box.bottom if to_y > y else box.y)


def _rounded(points: Sequence[Point]) -> str:
    path = [f"M{_at(points[0])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        path.append(
            f"L{_at(_towards(corner, before))}Q{_at(corner)} {_at(_towards(corner, after))}"
        )
    path.append(f"L{_at(points[-1])}")
    return "".join(path)


def _towards(corner: Point, other: Point) -> Point:
    length = hypot(other[0] - corner[0], other[1] - corner[1])
    share = min(_CORNER, length / 2) / length if length else 0.0
    return (
        corner[0] + (other[0] - corner[0]) * share,
        corner[1] + (other[1] - corner[1]) * share,
    )


def _samples(curve: Curve) -> tuple[Point, ...]:
    return tuple(_on_curve(curve, t / 4) for t in range(5))


def _label_on(curve: Curve) -> Point:
    x, y = _on_curve(curve, 0.5)
    return (x, y - 6)


def _on_curve(curve: Curve, t: float) -> Point:
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    x = sum(weight * point[0] for weight, point in zip(weights, curve, strict=True))
    y = sum(weight * point[1] for weight, point in zip(weights, curve, strict=True))
    return (x, y)


def _at(point: Point) -> str:
    return f"{number(point[0])} {number(point[1])}"


def number(value: float) -> str:
    """Return a coordinate with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")
