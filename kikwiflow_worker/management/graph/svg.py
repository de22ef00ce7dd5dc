"""The picture of a drawing: SVG without any style of its own, coloured by the page's style sheet."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum

from markupsafe import Markup, escape

from kikwiflow_worker.management.graph.drawing import (
    BOUNDARY,
    BOXES,
    DIAMONDS,
    Box,
    Drawing,
    PlacedEdge,
    PlacedNode,
    Shape,
)
from kikwiflow_worker.management.graph.graph import cut, lines_of
from kikwiflow_worker.management.graph.icons import ICONS
from kikwiflow_worker.management.graph.routes import number

FITS = 1_700.0
"""The width of a drawing that can still be read when it is made as narrow as a laptop's window."""
_LINE = 13.0
_ROUND = 8
_BOUNDARY_LABEL = 14


class Tone(StrEnum):
    """Why a node stands out."""

    PASSED = "passed"
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What is shown on a node.

    Attributes:
        tokens: How many paths stand there, as text; empty if none does.
        incidents: How many of them failed; empty if none did.
        note: A small line in it, such as its average time.
        href: Where a click leads.
    """

    tokens: str = ""
    incidents: str = ""
    note: str = ""
    tone: Tone | None = None
    href: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What is shown on the nodes and flows of one drawing.

    Attributes:
        passed: Flows that were taken, each as its source and its index there.
    """

    nodes: Mapping[str, Mark] = field(default_factory=dict)
    passed: AbstractSet[tuple[str, int]] = frozenset()


def draw(drawing: Drawing, marks: Marks, *, title: str) -> Markup:
    """Return the picture; all texts of the definition are escaped.

    ``title`` is what a screen reader says of it.
    """
    frame = drawing.frame
    view = " ".join(number(value) for value in (frame.x, frame.y, frame.width, frame.height))
    edges = Markup().join(_edge(edge, marks) for edge in drawing.edges)
    hosts_first = sorted(drawing.nodes, key=lambda node: node.host_id is not None)
    nodes = Markup().join(_node(node, marks.nodes.get(node.id, _PLAIN)) for node in hosts_first)
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" class="graph-svg{}" role="group" aria-label="{}" '
        'viewBox="{}" width="{}" height="{}">{}<g class="edges">{}</g><g class="nodes">{}</g></svg>'
    ).format(
        " fits" if frame.width <= FITS else "",
        title,
        view,
        number(frame.width),
        number(frame.height),
        _ARROWS,
        edges,
        nodes,
    )


_PLAIN = Mark()
_ARROWS = Markup(
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="arrow" d="M0 0L8 4L0 8Z"/></marker>'
    '<marker id="arrow-passed" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto" '
    'markerUnits="userSpaceOnUse"><path class="arrow passed" d="M0 0L8 4L0 8Z"/></marker></defs>'
)


def _edge(edge: PlacedEdge, marks: Marks) -> Markup:
    is_passed = (edge.source, edge.index) in marks.passed
    line = Markup('<path class="edge{}" d="{}" marker-end="url(#{})"/>').format(
        " passed" if is_passed else "", edge.path, "arrow-passed" if is_passed else "arrow"
    )
    if not edge.label:
        return line
    x, y = edge.label_at
    return line + Markup('<text class="flow-label" x="{}" y="{}">{}</text>').format(
        number(x), number(y), edge.label
    )


def _node(node: PlacedNode, mark: Mark) -> Markup:
    tone = f" {mark.tone}" if mark.tone else ""
    stands = " stands" if mark.tokens else ""
    failed = " failed" if mark.incidents else ""
    content = (
        Markup("<title>{}</title>").format(_said(node, mark))
        + _outline(node)
        + _label(node, mark)
        + _counts(node.box, mark)
    )
    group = Markup('<g class="node {}{}{}{}" data-node="{}">{}</g>').format(
        node.shape, tone, stands, failed, node.id, content
    )
    return Markup('<a href="{}">{}</a>').format(mark.href, group) if mark.href else group


def _said(node: PlacedNode, mark: Mark) -> str:
    parts = [f"{node.label} ({node.id})" if node.label != node.id else node.id]
    parts += [f"{mark.tokens} here"] if mark.tokens else []
    parts += [f"{mark.incidents} failed"] if mark.incidents else []
    parts += [mark.note] if mark.note else []
    parts += [mark.tone.value] if mark.tone else []
    return ", ".join(parts)


def _outline(node: PlacedNode) -> Markup:
    box, shape = node.box, node.shape
    x, y = box.middle
    if shape in DIAMONDS:
        outline = _diamond(box, 0) + (_diamond(box, 5) if shape is Shape.JOIN else Markup())
    elif shape in BOXES:
        outline = _rectangle(box, 0, _ROUND)
        if shape is Shape.CALL:
            outline += _rectangle(box, 3, _ROUND - 3)
    else:
        outline = _rectangle(box, 0, box.height / 2)
        if shape not in {Shape.START, Shape.END, Shape.ERROR}:
            outline += _rectangle(box, 3, box.height / 2 - 3)
    icon = ICONS.get(shape)
    if icon is None:
        return outline
    at, size = ((box.x + 8, box.y + 8), 14.0) if shape in BOXES else ((x, y), 0.0)
    if not size:
        size = 14.0 if shape in BOUNDARY else 20.0
        at = (x - size / 2, y - size / 2)
    return outline + Markup('<g class="icon" transform="translate({} {}) scale({})">{}</g>').format(
        number(at[0]), number(at[1]), f"{size / 20:.2f}", icon
    )


def _rectangle(box: Box, inside: float, radius: float) -> Markup:
    return Markup('<rect class="outline" x="{}" y="{}" width="{}" height="{}" rx="{}"/>').format(
        number(box.x + inside),
        number(box.y + inside),
        number(box.width - 2 * inside),
        number(box.height - 2 * inside),
        number(radius),
    )


def _diamond(box: Box, inside: float) -> Markup:
    x, y = box.middle
    half = box.width / 2 - inside
    return Markup('<path class="outline" d="M{} {}L{} {}L{} {}L{} {}Z"/>').format(
        *(number(value) for value in (x - half, y, x, y - half, x + half, y, x, y + half))
    )


def _label(node: PlacedNode, mark: Mark) -> Markup:
    box = node.box
    if node.shape in BOXES:
        lines = [*lines_of(node.label)]
        height = _LINE * (len(lines) - 1 + bool(mark.note))
        text = _lines(lines, box.middle[0] + 8, box.middle[1] + 4 - height / 2)
        return text + _note(mark.note, box.middle[0] + 8, box.middle[1] + 4 + height / 2)
    if node.shape in BOUNDARY:
        if not node.is_labelled:
            return Markup()
        short = cut(node.label, _BOUNDARY_LABEL)
        return Markup('<text class="boundary-label" x="{}" y="{}">{}</text>').format(
            number(box.right + 3), number(box.bottom + 1), short
        )
    lines = [*lines_of(node.label)]
    height = _LINE * (len(lines) - 1 + bool(mark.note))
    first = box.y - 8 - height if node.is_label_above else box.bottom + 14
    text = _lines(lines, box.middle[0], first)
    return text + _note(mark.note, box.middle[0], first + height)


def _lines(lines: list[str], x: float, y: float) -> Markup:
    return Markup().join(
        Markup('<text class="label" x="{}" y="{}">{}</text>').format(
            number(x), number(y + _LINE * index), line
        )
        for index, line in enumerate(lines)
    )


def _note(note: str, x: float, y: float) -> Markup:
    if not note:
        return Markup()
    return Markup('<text class="note" x="{}" y="{}">{}</text>').format(number(x), number(y), note)


def _counts(box: Box, mark: Mark) -> Markup:
    found = Markup()
    if mark.incidents:
        found += _count(box.x + 2, box.y, mark.incidents, "failed")
    if mark.tokens:
        found += _count(box.right - 2, box.y, mark.tokens, "tokens")
    return found


def _count(x: float, y: float, text: str, kind: str) -> Markup:
    width = max(18.0, 8.0 + 7.0 * len(text))
    return Markup(
        '<g class="count {}"><rect x="{}" y="{}" width="{}" height="18" rx="9"/>'
        '<text x="{}" y="{}">{}</text></g>'
    ).format(
        kind,
        number(x - width / 2),
        number(y - 9),
        number(width),
        number(x),
        number(y + 4),
        escape(text),
    )
