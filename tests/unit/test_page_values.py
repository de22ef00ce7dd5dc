"""Values as people read and type them on the dashboard."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.management.graph.layout import lay_out
from kikwiflow_worker.management.graph.svg import Tone
from kikwiflow_worker.management.web.formats import (
    count,
    cut,
    instant,
    length,
    plain,
    shortened,
    since,
    words,
)
from kikwiflow_worker.management.web.graph_marks import (
    Difference,
    NodeChange,
    changes_between,
    path_marks,
)
from kikwiflow_worker.management.web.typed_values import kind_of, read_typed, typed_text
from kikwiflow_worker.model.events import NodeStatus
from kikwiflow_worker.model.variables import Value
from kikwiflow_worker.store.search import Path, Standing, Visit
from tests.support.definitions import a_file, a_flow, a_node, a_start, a_task, an_end, read

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (timedelta(), "0 ms"),
        (timedelta(milliseconds=412), "412 ms"),
        (timedelta(seconds=1.25), "1.2 s"),
        (timedelta(seconds=59.7), "1 min"),
        (timedelta(seconds=200), "3 min 20 s"),
        (timedelta(hours=2), "2 h"),
        (timedelta(days=1, hours=5), "1 d 5 h"),
        (timedelta(days=1_200, hours=5), "1,200 d"),
        (3.0, "3 s"),
        (None, ""),
    ],
)
def test_lengths_have_one_or_two_units(span: timedelta | float | None, said: str) -> None:
    assert length(span) == said


def test_instants_are_said_from_now() -> None:
    assert since(NOON - timedelta(minutes=5), NOON) == "5 min ago"
    assert since(NOON + timedelta(hours=1), NOON) == "in 1 h"
    assert since(NOON, NOON) == "now"
    assert since(None, NOON) == ""
    assert instant(NOON) == "2026-11-30 12:00:00"


def test_texts_and_counts_are_cut_honestly() -> None:
    assert shortened("first\nsecond") == "first"
    assert shortened("x" * 200, 10) == "xxxxxxxxx…"
    assert cut("x" * 2_010) == f"{'x' * 2_000}… (10 more characters)"
    assert count(10_000, 10_000) == "10,000+"
    assert count(9_999, 10_000) == "9,999"
    assert words("AWAITING_BRANCHES") == "awaiting branches"
    assert (plain("5"), plain(5)) == ('"5"', "5")


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 7, 1.5, "text", "150", " spaces ", "two\nlines", ""),
        *([1, {"a": None}], {"k": "v"}, Decimal("1.50"), NOON, b"\x00\xff"),
        UUID("12345678-1234-5678-1234-567812345678"),
    ],
)
def test_a_value_that_is_not_changed_in_its_form_keeps_its_type(value: Value) -> None:
    again = read_typed("The value", typed_text(value), kind_of(value))

    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("many", "decimal"), ("yesterday", "instant"), ("12", "uuid"), ("?", "bytes"), ("{", "json")],
)
def test_a_value_of_another_kind_is_refused(text: str, kind: str) -> None:
    with pytest.raises(OperationError, match="The value"):
        read_typed("The value", text, kind)


def test_only_what_a_node_does_makes_a_difference() -> None:
    before = read(a_file(a_start(), a_task("TASK", "END", layout={"x": 1, "y": 1}), an_end()))
    moved = read(
        a_file(
            a_start(),
            a_task("TASK", a_flow("END", positionHandlers=[{"x": 5, "y": 5}]), layout={"x": 9, "y": 9}),  # type: ignore[arg-type]
            an_end(),
        )
    )  # fmt: skip
    other = read(a_file(a_start(), a_task("TASK", "END", executor="other", name="Other"), an_end()))

    assert changes_between(before, moved) == ()
    (change,) = changes_between(before, other)
    assert change == NodeChange("TASK", "Other", Difference.CHANGED, ("name", "executor"))


def visit(node_id: str, status: NodeStatus = NodeStatus.SUCCESS, by: str | None = None) -> Visit:
    return Visit(
        node_id=node_id, started_at=NOON, finished_at=NOON, status=status, interrupted_by=by
    )


def test_of_a_gateways_flows_only_the_chosen_one_was_taken() -> None:
    definition = read(
        a_file(
            a_start("ASK"),
            a_node(
                "ASK", "EXCLUSIVE_GATEWAY",
                a_flow("WAIT", id="yes", expectedAnswer="y"), a_flow("WAIT", id="no", isDefault=True),
                providerType="VARIABLE", providerVariable="answer",
            ),
            a_node("WAIT", "EXTERNAL_TASK", "END"),
            an_end(),
        )
    ).deployed(definition_id="d", version=1)  # fmt: skip
    path = Path(visits=(visit("START"), visit("ASK")), flows=("no",), is_complete=True)

    marks = path_marks(
        definition, lay_out(definition), path, {"WAIT": Standing(tokens=2, failed=1)}
    )

    assert marks.passed == {("START", 0), ("ASK", 1)}
    assert (marks.nodes["WAIT"].tokens, marks.nodes["WAIT"].incidents) == ("2", "1")
    assert marks.nodes["ASK"].tone is Tone.PASSED
    assert "END" not in marks.nodes


def test_an_interrupted_wait_was_left_by_its_event_only_and_a_failed_step_not_at_all() -> None:
    definition = read(
        a_file(
            a_start("WAIT"),
            a_node("WAIT", "EXTERNAL_TASK", "END", boundaryEventIds=["LATE"]),
            a_node(
                "LATE", "BOUNDARY_INTERRUPTIVE_TIMER", "TASK", attachedToRef="WAIT",
                providerType="STATIC", staticValue="PT1H",
            ),
            a_task("TASK", "END"),
            an_end(),
        )
    ).deployed(definition_id="d", version=1)  # fmt: skip
    path = Path(
        visits=(
            visit("START"), visit("WAIT", NodeStatus.INTERRUPTED, "LATE"), visit("TASK", NodeStatus.ERROR), visit("TASK"), visit("END"),
        ),
        flows=(),
        is_complete=True,
    )  # fmt: skip

    marks = path_marks(definition, lay_out(definition), path, {})
    failed = replace(path, visits=path.visits[:3])
    stuck = path_marks(definition, lay_out(definition), failed, {"TASK": Standing(tokens=1)})

    assert marks.passed == {("START", 0), ("LATE", 0), ("TASK", 0)}
    assert {id_ for id_, mark in stuck.nodes.items() if mark.tone} == {"START", "WAIT", "LATE"}
    assert stuck.passed == {("START", 0), ("LATE", 0)}
