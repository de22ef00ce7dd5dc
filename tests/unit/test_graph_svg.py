"""The picture of a definition: well-formed, escaped, and marked as it was told to."""

from xml.etree import ElementTree as ET

import pytest

from kikwiflow_worker.management.graph.drawing import SHAPES
from kikwiflow_worker.management.graph.graph import lines_of
from kikwiflow_worker.management.graph.layout import lay_out
from kikwiflow_worker.management.graph.svg import Mark, Marks, Tone, draw
from kikwiflow_worker.model.nodes import NODE_CLASSES
from tests.support.definitions import (
    a_file,
    a_flow,
    a_node,
    a_start,
    a_task,
    an_end,
    own_process,
    own_process_keys,
    read,
)
from tests.support.xss import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"


def picture(*nodes: dict[str, object], marks: Marks | None = None, title: str = "t") -> ET.Element:
    return ET.fromstring(draw(lay_out(read(a_file(*nodes))), marks or Marks(), title=title))


def node_of(root: ET.Element, node_id: str) -> ET.Element:
    (found,) = [each for each in root.iter(f"{SVG}g") if each.get("data-node") == node_id]
    return found


def texts(element: ET.Element) -> list[str]:
    return ["".join(each.itertext()) for each in element.iter(f"{SVG}text")]


@pytest.mark.parametrize("key", own_process_keys())
def test_every_process_of_ours_gives_a_well_formed_picture(key: str) -> None:
    process = own_process(key)

    root = ET.fromstring(draw(lay_out(process), Marks(), title=key))

    shown = [each.get("data-node") for each in root.iter(f"{SVG}g") if each.get("data-node")]
    assert sorted(map(str, shown)) == sorted(process.flow_nodes)
    edges = [each for each in root.iter(f"{SVG}path") if each.get("class") == "edge"]
    assert len(edges) == sum(len(node.outgoing) for node in process.flow_nodes.values())


def test_nothing_in_it_needs_a_style_or_a_script_of_its_own() -> None:
    nodes = [a_node(name, name) for name in NODE_CLASSES]

    root = picture(*nodes)

    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        *("svg", "g", "path", "rect", "circle", "text", "title", "defs", "marker", "a"),
    }
    names = {name for each in root.iter() for name in each.attrib}
    assert names.isdisjoint({"style", "onclick", "onload"})


def test_every_node_type_looks_different() -> None:
    def look(name: str) -> str:
        node = node_of(picture({**a_node(name, name), "id": "N"}), "N")
        return ET.tostring(node, encoding="unicode")

    looks = {look(name) for name in SHAPES}

    assert len(looks) == len(SHAPES)


def test_marks_are_drawn_and_said() -> None:
    marks = Marks(
        nodes={"TASK": Mark(tokens="12", incidents="2", note="⌀ 3 s", tone=Tone.PASSED, href="/x?a=1&b=2")},
        passed={("START", 0)},
    )  # fmt: skip

    root = picture(marks=marks)

    task = node_of(root, "TASK")
    assert set(task.get("class", "").split()) == {"node", "task", "passed", "stands", "failed"}
    assert {"12", "2", "⌀ 3 s"} <= set(texts(task))
    title = task.find(f"{SVG}title")
    assert title is not None
    assert title.text == "TASK, 12 here, 2 failed, ⌀ 3 s, passed"
    (link,) = root.iter(f"{SVG}a")
    assert link.get("href") == "/x?a=1&b=2"
    edges = [each.get("class") for each in root.iter(f"{SVG}path") if "d" in each.attrib]
    assert edges.count("edge passed") == 1
    assert edges.count("edge") == 1
    assert node_of(root, "END").get("class") == "node end"


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_definition_is_taken_for_markup(text: str) -> None:
    root = picture(
        a_start("TASK"),
        {**a_task("TASK", a_flow(text, name=text)), "name": text},  # type: ignore[arg-type]
        {**an_end(text), "name": text},
        marks=Marks(nodes={text: Mark(tokens=text, note=text, href=f"/{text}")}),
        title=text,
    )

    assert root.get("aria-label") == text
    assert node_of(root, text).get("data-node") == text
    assert not any("data-planted" in each.attrib for each in root.iter())
    assert text in texts(node_of(root, text))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Approve", ("Approve",)),
        ("Approve the large parcel", ("Approve the large", "parcel")),
        ("VALIDATE_THE_ORDER_AGAIN", ("VALIDATE_THE_", "ORDER_AGAIN")),
        ("Donaudampfschifffahrtsgesellschaft", ("Donaudampfschifffa", "hrtsgesellschaft")),
        ("one two three four five six seven eight nine", ("one two three four", "five six seven ei…")),
        ("", ("",)),
    ],
)  # fmt: skip
def test_labels_take_two_lines_at_most(text: str, lines: tuple[str, ...]) -> None:
    assert lines_of(text) == lines
