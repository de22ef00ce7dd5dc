"""Where nodes and flows are drawn: never on one another, always all of them, the same every time."""

import itertools
import json
import random
import re
from pathlib import Path

import pytest

from kikwiflow_worker.management.graph.drawing import Box, Drawing, PlacedNode
from kikwiflow_worker.management.graph.layout import lay_out
from kikwiflow_worker.model.definition import DefinitionFile, parse_definition
from kikwiflow_worker.model.nodes import NODE_CLASSES
from tests.support.definitions import (
    PROCESS_FOLDER,
    Json,
    a_file,
    a_flow,
    a_node,
    a_start,
    a_task,
    an_end,
    own_process_keys,
    read,
)

DEMO = Path(__file__).parents[2] / "demo/processes/expense-approval.kikwi"
FILES = [*(PROCESS_FOLDER / f"{key}.kikwi" for key in own_process_keys()), DEMO]


def overlapping(drawing: Drawing) -> list[tuple[str, str]]:
    """Return the pairs of nodes that are drawn on one another; a boundary event and its host are meant to be."""
    near: dict[tuple[int, int], list[PlacedNode]] = {}
    found: set[tuple[str, str]] = set()
    for node in drawing.nodes:
        box = node.box
        cells = list(
            itertools.product(
                range(int(box.x // 200), int(box.right // 200) + 1),
                range(int(box.y // 60), int(box.bottom // 60) + 1),
            )
        )
        for other in itertools.chain.from_iterable(near.get(cell, ()) for cell in cells):
            is_host = node.host_id == other.id or other.host_id == node.id
            if not is_host and box.overlaps(other.box):
                found.add((other.id, node.id))
        for cell in cells:
            near.setdefault(cell, []).append(node)
    return sorted(found)


def flows_of(file: DefinitionFile) -> set[tuple[str, int, str]]:
    return {
        (node.id, index, flow.target_node_id or "")
        for node in file.flow_nodes.values()
        for index, flow in enumerate(node.outgoing)
    }


def ends_of(path: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the first and the last point of a path."""
    numbers = [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?", path)]
    return (numbers[0], numbers[1]), (numbers[-2], numbers[-1])


def touches(box: Box, point: tuple[float, float]) -> bool:
    x, y = point
    return box.x - 1 <= x <= box.right + 1 and box.y - 1 <= y <= box.bottom + 1


def boxes_of(drawing: Drawing) -> dict[str, Box]:
    return {node.id: node.box for node in drawing.nodes}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_process_of_ours_is_drawn_whole(path: Path) -> None:
    file = parse_definition(path.read_bytes()).file

    drawing = lay_out(file)

    assert overlapping(drawing) == []
    assert {node.id for node in drawing.nodes} == set(file.flow_nodes)
    assert {(edge.source, edge.index, edge.target) for edge in drawing.edges} == flows_of(file)
    boxes = boxes_of(drawing)
    for edge in drawing.edges:
        start, end = ends_of(edge.path)
        assert touches(boxes[edge.source], start), edge
        assert touches(boxes[edge.target], end), edge
    for box in boxes.values():
        frame = drawing.frame
        assert frame.x <= box.x
        assert box.right <= frame.right
        assert frame.y <= box.y
        assert box.bottom <= frame.bottom


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_order_of_a_files_keys_does_not_decide_the_drawing(path: Path) -> None:
    data = json.loads(path.read_bytes())
    data["flowNodes"] = dict(reversed(data["flowNodes"].items()))

    again = lay_out(parse_definition(json.dumps(data)).file)

    assert lay_out(parse_definition(path.read_bytes()).file) == again


def test_a_straight_process_goes_from_left_to_right_in_one_row() -> None:
    boxes = boxes_of(lay_out(read(a_file())))

    assert boxes["START"].right < boxes["TASK"].x
    assert boxes["TASK"].right < boxes["END"].x
    assert boxes["START"].middle[1] == boxes["TASK"].middle[1] == boxes["END"].middle[1]


def test_branches_are_symmetrical_to_their_split() -> None:
    boxes = boxes_of(
        lay_out(
            read(
                a_file(
                    a_start("SPLIT"),
                    a_node("SPLIT", "PARALLEL_GATEWAY", "A", "B", targetJoinId="JOIN"),
                    a_task("A", "JOIN"),
                    a_task("B", "JOIN"),
                    a_node("JOIN", "JOIN_GATEWAY", "END"),
                    an_end(),
                )
            )
        )
    )

    row = boxes["SPLIT"].middle[1]
    assert boxes["A"].middle[1] + boxes["B"].middle[1] == 2 * row
    assert boxes["A"].bottom < boxes["B"].y
    assert boxes["JOIN"].middle[1] == row


def test_a_flow_back_goes_above_what_it_passes() -> None:
    file = read(
        a_file(
            a_start("A"),
            a_task("A", "B"),
            a_node(
                "B", "EXCLUSIVE_GATEWAY", a_flow("A", expectedAnswer="again"), a_flow("END", isDefault=True),
                providerType="VARIABLE", providerVariable="answer",
            ),
            an_end(),
        )
    )  # fmt: skip

    drawing = lay_out(file)

    (back,) = [edge for edge in drawing.edges if (edge.source, edge.target) == ("B", "A")]
    assert back.label == "again"
    assert back.label_at[1] < min(node.box.y for node in drawing.nodes)
    assert overlapping(drawing) == []


def test_a_boundary_event_sits_on_the_lower_edge_of_its_host_and_its_path_gives_way() -> None:
    drawing = lay_out(
        read(
            a_file(
                a_start("WAIT"),
                a_node("WAIT", "EXTERNAL_TASK", "NEXT", boundaryEventIds=["LATE"]),
                a_node(
                    "LATE", "BOUNDARY_INTERRUPTIVE_TIMER", "GIVE_UP", attachedToRef="WAIT",
                    providerType="STATIC", staticValue="PT1H", layout={"x": 900, "y": 900},
                ),
                a_task("NEXT", "END"),
                a_task("GIVE_UP", "END"),
                an_end(),
            )
        )
    )  # fmt: skip

    boxes = boxes_of(drawing)
    (event,) = [node for node in drawing.nodes if node.id == "LATE"]
    assert event.host_id == "WAIT"
    assert event.box.middle[1] == boxes["WAIT"].bottom
    assert boxes["WAIT"].x < event.box.x
    assert event.box.right < boxes["WAIT"].right
    assert abs(boxes["NEXT"].middle[1] - boxes["WAIT"].middle[1]) <= 1
    assert boxes["GIVE_UP"].y > boxes["NEXT"].bottom


def test_many_boundary_events_have_room_on_their_host() -> None:
    names = [f"EVENT_{number}" for number in range(12)]
    events = [
        a_node(name, "BOUNDARY_ERROR_HANDLER", "END", attachedToRef="TASK", errorCode=name)
        for name in names
    ]

    drawing = lay_out(
        read(a_file(a_start(), a_task("TASK", "END", boundaryEventIds=names), *events, an_end()))
    )

    host = boxes_of(drawing)["TASK"]
    assert overlapping(drawing) == []
    assert all(host.x <= boxes_of(drawing)[name].x for name in names)
    assert all(boxes_of(drawing)[name].right <= host.right for name in names)


def test_the_files_coordinates_count() -> None:
    file = parse_definition(DEMO.read_bytes()).file
    boxes = boxes_of(lay_out(file))

    for one, other in itertools.combinations(file.flow_nodes.values(), 2):
        assert one.layout is not None
        assert other.layout is not None
        assert boxes[one.id].middle[0] - boxes[other.id].middle[0] == one.layout.x - other.layout.x
        assert boxes[one.id].middle[1] - boxes[other.id].middle[1] == one.layout.y - other.layout.y


def with_layout(*places: tuple[float, float], **fields: object) -> DefinitionFile:
    layouts = [{"x": x, "y": y} for x, y in places]
    return read(
        a_file(
            {**a_start(), "layout": layouts[0]},
            a_task("TASK", "END", layout=layouts[1], **fields),
            {**an_end(), "layout": layouts[2]},
        )
    )


def test_coordinates_that_are_too_near_are_drawn_larger() -> None:
    boxes = boxes_of(lay_out(with_layout((0, 0), (90, 0), (180, 45))))

    assert boxes["START"].right < boxes["TASK"].x
    gaps = [boxes["TASK"].middle[0] - boxes["START"].middle[0]]
    gaps.append(boxes["END"].middle[0] - boxes["TASK"].middle[0])
    assert gaps[0] == gaps[1] == 180
    assert boxes["END"].middle[1] - boxes["TASK"].middle[1] == 45


@pytest.mark.parametrize(
    "places",
    [
        [(0, 0), (0, 0), (0, 0)],
        [(0, 0), (10, 4), (20, 8)],
        [(0, 0), (1e12, 0), (500, 0)],
    ],
    ids=["all in one place", "hardly apart", "far out"],
)
def test_coordinates_that_cannot_be_used_are_laid_out_anew(
    places: list[tuple[float, float]],
) -> None:
    without = boxes_of(lay_out(read(a_file())))

    assert boxes_of(lay_out(with_layout(*places))) == without


def test_bends_of_the_file_are_kept() -> None:
    file = with_layout(
        (0, 0),
        (300, 0),
        (600, 300),
        outgoing=[a_flow("END", positionHandlers=[{"x": 500, "y": 27}, {"x": 500, "y": 327}])],
    )

    (edge,) = [edge for edge in lay_out(file).edges if edge.source == "TASK"]

    assert "Q500 27" in edge.path
    assert "Q500 327" in edge.path


def test_two_flows_between_the_same_nodes_take_two_ways() -> None:
    gateway = a_node(
        "ASK", "EXCLUSIVE_GATEWAY", a_flow("END", expectedAnswer="yes"), a_flow("END", expectedAnswer="no"),
        providerType="VARIABLE", providerVariable="answer",
    )  # fmt: skip

    edges = [e for e in lay_out(read(a_file(a_start("ASK"), gateway, an_end()))).edges if e.label]

    assert {edge.label for edge in edges} == {"yes", "no"}
    assert edges[0].path != edges[1].path
    assert abs(edges[0].label_at[1] - edges[1].label_at[1]) >= 10


def test_a_file_that_leads_nowhere_is_drawn_as_far_as_it_goes() -> None:
    file = read(a_file(a_start("NOBODY"), a_task("TASK", "TASK"), a_node("ALONE", "EXTERNAL_TASK")))

    drawing = lay_out(file)

    assert {node.id for node in drawing.nodes} == {"START", "TASK", "ALONE"}
    assert [(edge.source, edge.target) for edge in drawing.edges] == [("TASK", "TASK")]
    assert overlapping(drawing) == []


def test_a_definition_without_nodes_has_a_frame() -> None:
    drawing = lay_out(parse_definition(json.dumps({"key": "empty", "flowNodes": {}})).file)

    assert drawing.nodes == ()
    assert drawing.frame.width > 0


def test_every_node_type_has_a_shape_of_its_own() -> None:
    nodes = [a_node(name, name) for name in NODE_CLASSES]

    drawing = lay_out(read(a_file(*nodes, defaultStartPoint=nodes[0]["id"])))

    assert len({node.shape for node in drawing.nodes}) == len(NODE_CLASSES)


def large(kind: str, count: int) -> DefinitionFile:
    chance = random.Random(7)
    names = [f"N{number}" for number in range(count)]
    targets: list[list[str]] = []
    for number in range(count):
        onwards = names[number + 1 : number + 2]
        match kind:
            case "chain":
                targets.append(onwards)
            case "fan":
                targets.append(names[1:-1] if not number else names[-1:] * (number < count - 1))
            case "tangle":
                targets.append([chance.choice(names) for _ in range(2)])
            case _:
                targets.append([*onwards, names[max(0, number - chance.randrange(40))], names[-1]])
    nodes: list[Json] = [a_task(name, *to) for name, to in zip(names, targets, strict=True)]
    return read(a_file(*nodes, defaultStartPoint="N0"))


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("chain", 1_000),
        ("fan", 1_000),
        ("tangle", 1_000),
        ("loops", 5_000),
        *[
            pytest.param(kind, 5_000, marks=pytest.mark.deep)
            for kind in ("chain", "fan", "tangle", "loops")
        ],
    ],
)
def test_thousands_of_nodes_are_drawn_in_bounded_time(kind: str, count: int) -> None:
    file = large(kind, count)

    drawing = lay_out(file)

    assert len(drawing.nodes) == count
    assert len(drawing.edges) == len(flows_of(file))
    assert overlapping(drawing) == []


@pytest.mark.parametrize("seed", range(40))
def test_no_random_graph_has_nodes_on_one_another(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"N{number}" for number in range(chance.randrange(1, 40))]
    nodes = [
        a_node(
            name,
            chance.choice([each for each in NODE_CLASSES if not each.startswith("BOUNDARY")]),
            *chance.choices(names, k=chance.randrange(4)),
            name="word " * chance.randrange(12),
        )
        for name in names
    ]

    drawing = lay_out(read(a_file(*nodes, defaultStartPoint=names[0])))

    assert overlapping(drawing) == []
    assert {node.id for node in drawing.nodes} == set(names)
