"""The values of a drawing: boxes, paths, and the sizes they are made with. Lengths are in pixels; y grows downwards."""

from dataclasses import dataclass
from enum import StrEnum

TASK_WIDTH = 156.0
TASK_HEIGHT = 54.0
EVENT_SIZE = 36.0
GATEWAY_SIZE = 44.0
BOUNDARY_SIZE = 26.0
BOUNDARY_PITCH = 32.0
ROW_GAP = 44.0
"""Between two rows: room for a boundary event on an edge, and for the label under a small shape."""
COLUMN_GAP = 56.0
CHARACTER = 6.4
"""The width of one character of a label, on average."""
LABEL_MOST = 26
"""Characters of the label of a flow."""
LINE_MOST = 18
"""Characters of a line of the label of a node."""
MARGIN = 28.0

Point = tuple[float, float]


class Shape(StrEnum):
    """What a node looks like; one for each node type."""

    START = "start"
    END = "end"
    TASK = "task"
    EXTERNAL = "external"
    CALL = "call"
    DECISION = "decision"
    SPLIT = "split"
    JOIN = "join"
    TIMER = "timer"
    CATCH = "catch"
    THROW = "throw"
    DEADLINE = "deadline"
    REMINDER = "reminder"
    ERROR = "error"
    RECALL = "recall"


SHAPES: dict[str, Shape] = {
    "DEFAULT_START_EVENT": Shape.START,
    "DEFAULT_END_EVENT": Shape.END,
    "EXECUTABLE_TASK": Shape.TASK,
    "EXTERNAL_TASK": Shape.EXTERNAL,
    "EXCLUSIVE_GATEWAY": Shape.DECISION,
    "PARALLEL_GATEWAY": Shape.SPLIT,
    "JOIN_GATEWAY": Shape.JOIN,
    "TIMER_TASK": Shape.TIMER,
    "EVENT_CATCHER": Shape.CATCH,
    "EVENT_THROWER": Shape.THROW,
    "CALL_ACTIVITY_COORDINATOR": Shape.CALL,
    "BOUNDARY_INTERRUPTIVE_TIMER": Shape.DEADLINE,
    "BOUNDARY_NON_INTERRUPTIVE_TIMER": Shape.REMINDER,
    "BOUNDARY_ERROR_HANDLER": Shape.ERROR,
    "BOUNDARY_INTERRUPTIVE_CATCH_EVENT": Shape.RECALL,
}
"""The shape of each node type as written in a file."""

BOXES = frozenset({Shape.TASK, Shape.EXTERNAL, Shape.CALL})
DIAMONDS = frozenset({Shape.DECISION, Shape.SPLIT, Shape.JOIN})
BOUNDARY = frozenset({Shape.DEADLINE, Shape.REMINDER, Shape.ERROR, Shape.RECALL})


@dataclass(frozen=True, slots=True)
class Box:
    """An upright rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The x of its right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The y of its lower edge."""
        return self.y + self.height

    @property
    def middle(self) -> Point:
        """Its centre."""
        return (self.x + self.width / 2, self.y + self.height / 2)

    def overlaps(self, other: "Box") -> bool:
        """Return whether the two share more than an edge."""
        return (
            self.x < other.right
            and other.x < self.right
            and self.y < other.bottom
            and other.y < self.bottom
        )

    def moved(self, dx: float, dy: float) -> "Box":
        """Return it at another place."""
        return Box(self.x + dx, self.y + dy, self.width, self.height)


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node and where it is.

    Attributes:
        host_id: The node on whose edge it sits, if it is a boundary event.
        is_labelled: Whether there is room for its label beside it.
        is_label_above: Whether its lower edge is taken by boundary events.
    """

    id: str
    shape: Shape
    label: str
    box: Box
    host_id: str | None = None
    is_labelled: bool = True
    is_label_above: bool = False


@dataclass(frozen=True, slots=True)
class PlacedEdge:
    """A flow and its way.

    Attributes:
        index: Of the flow in its node's ``outgoing``.
        path: As SVG path data.
        label_at: The middle of the label.
    """

    source: str
    target: str
    index: int
    path: str
    label: str
    label_at: Point
    is_default: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """All that is drawn, and the part of the plane that it takes, margins included."""

    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    frame: Box


def size_of(shape: Shape, boundary_events: int = 0) -> tuple[float, float]:
    """Return width and height of a shape; a host is wide enough for the boundary events on its lower edge."""
    if shape in BOXES:
        return max(TASK_WIDTH, boundary_events * BOUNDARY_PITCH + 24), TASK_HEIGHT
    if shape in DIAMONDS:
        return GATEWAY_SIZE, GATEWAY_SIZE
    if shape in BOUNDARY:
        return BOUNDARY_SIZE, BOUNDARY_SIZE
    return max(EVENT_SIZE, boundary_events * BOUNDARY_PITCH + 4), EVENT_SIZE
