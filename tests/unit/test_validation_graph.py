"""Splits, joins, cycles and reachability."""

from collections.abc import Sequence

import pytest

from tests.support.definitions import Json, a_flow, a_node, a_start, a_task, an_end
from tests.support.findings import (
    DEADLINE,
    a_gateway,
    a_host,
    a_join,
    a_split,
    an_event,
    errors_of,
    warnings_around,
    warnings_of,
)

# --- splits and joins


def a_process_with(split: Json, *nodes: Json) -> Sequence[Json]:
    return (a_start("SPLIT"), split, *nodes, an_end())


@pytest.mark.field_case("S-68")
def test_a_split_without_a_flow_is_an_error() -> None:
    errors = errors_of(*a_process_with(a_split(), a_join()))

    assert errors["flowNodes.SPLIT.outgoing"] == "a split has no outgoing flow"


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (None, "the split names no join"),
        ("", "the split names no join"),
        ("NOWHERE", "the join 'NOWHERE' does not exist"),
        ("A", "the join 'A' is of type EXECUTABLE_TASK"),
    ],
)
def test_a_split_without_a_join_is_an_error(join: str | None, message: str) -> None:
    nodes = a_process_with(a_split("A", "B", join=join), a_task("A", "END"), a_task("B", "END"))

    assert errors_of(*nodes) == {"flowNodes.SPLIT.targetJoinId": message}


def test_a_join_that_no_branch_reaches_is_an_error() -> None:
    nodes = a_process_with(a_split("A", "B"), a_task("A", "END"), a_task("B", "END"), a_join())

    errors = errors_of(*nodes)

    assert (
        errors["flowNodes.SPLIT.targetJoinId"] == "no branch of the split leads to its join 'JOIN'"
    )
    assert errors["flowNodes.JOIN"] == "no flow leads to this join"


def test_a_join_that_is_reached_only_around_its_split_is_an_error() -> None:
    back = a_gateway("G", a_flow("SPLIT", isDefault=True), a_flow("JOIN", expectedAnswer="x"))
    nodes = (a_start("G"), back, a_split("A"), a_task("A", "SPLIT"), a_join(), an_end())

    assert set(errors_of(*nodes)) == {"flowNodes.SPLIT.targetJoinId", "flowNodes.SPLIT.outgoing[0]"}


@pytest.mark.field_case("S-69")
def test_a_branch_that_never_arrives_is_an_error() -> None:
    nodes = a_process_with(
        a_split("A", "B"), a_task("A", "JOIN"), a_task("B", "C"), a_task("C", "B"), a_join()
    )

    [(path, message)] = errors_of(*nodes).items()

    assert path == "flowNodes.SPLIT.outgoing[1]"
    assert "waits for ever" in message


def test_a_branch_that_loops_before_it_arrives_is_fine() -> None:
    again = a_gateway("G", a_flow("B", isDefault=True), a_flow("JOIN", expectedAnswer="done"))
    nodes = a_process_with(
        a_split("A", "B"), a_task("A", "JOIN"), a_task("B", "G"), again, a_join()
    )

    assert warnings_of(*nodes) == {}


def test_a_branch_that_arrives_by_a_boundary_event_is_fine() -> None:
    timer = {**an_event(DEADLINE), "outgoing": [a_flow("JOIN")]}
    nodes = a_process_with(
        a_split("HOST", "B"), a_host("EXTERNAL_TASK", "EVENT"), timer, a_task("B", "JOIN"), a_join()
    )

    assert warnings_of(*nodes) == {}


def test_a_join_that_no_split_names_is_a_warning() -> None:
    assert "no split names this join" in warnings_around(a_join())["flowNodes.JOIN"]


# --- cycles and reachability


def test_a_cycle_of_gateways_only_is_an_error_that_names_it() -> None:
    one = a_gateway("B", a_flow("A", isDefault=True), a_flow("END", expectedAnswer="x"))
    other = a_gateway("A", a_flow("B", isDefault=True))

    [(path, message)] = errors_of(a_start("B"), one, other, an_end()).items()

    assert path == "flowNodes.A"
    assert "A -> B -> A" in message


def test_each_cycle_is_named() -> None:
    one = a_gateway("A", a_flow("A", isDefault=True), a_flow("B", expectedAnswer="x"))
    other = a_gateway("B", a_flow("B", isDefault=True), a_flow("END", expectedAnswer="x"))

    assert list(errors_of(a_start("A"), one, other, an_end())) == ["flowNodes.A", "flowNodes.B"]


def test_a_cycle_through_a_split_and_its_join_is_an_error() -> None:
    gateway = a_gateway("G", a_flow("SPLIT", isDefault=True), a_flow("END", expectedAnswer="x"))
    nodes = a_process_with(a_split("JOIN", "A"), a_task("A", "JOIN"), a_join("G"), gateway)

    assert "G -> SPLIT -> JOIN -> G" in errors_of(*nodes)["flowNodes.G"]


@pytest.mark.parametrize(
    "between",
    [
        a_task("X", "G"),
        a_node("X", "EXTERNAL_TASK", "G"),
        a_node("X", "TIMER_TASK", "G", providerType="STATIC", staticValue="PT1H"),
    ],
    ids=["task", "external", "timer"],
)
def test_a_cycle_with_work_or_a_wait_is_fine(between: Json) -> None:
    gateway = a_gateway("G", a_flow("X", isDefault=True), a_flow("END", expectedAnswer="x"))

    assert warnings_of(a_start("G"), gateway, between, an_end()) == {}


def test_an_unreachable_node_is_a_warning() -> None:
    nodes = (a_start(), a_task("TASK", "END"), a_task("LOST", "END"), an_end())

    assert warnings_of(*nodes) == {"flowNodes.LOST": "no path leads to this node"}
