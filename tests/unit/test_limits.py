"""Both sides of each limit on definitions and steps, and that the work grows with the size and no faster."""

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kikwiflow_worker.engine.correlation_keys import resolve_keys
from kikwiflow_worker.engine.working_variables import WorkingVariables
from kikwiflow_worker.errors import (
    ExecutionError,
    InvalidDefinitionError,
    VariableError,
    VariableTooLargeError,
)
from kikwiflow_worker.handler import CorrelationItem, ExecutionContext, StepView
from kikwiflow_worker.model import limits
from kikwiflow_worker.model.definition import parse_definition
from kikwiflow_worker.model.limits import (
    LIMITS,
    MAX_BRANCHES,
    MAX_DEFINITION_BYTES,
    MAX_GROUP_KEYS,
    MAX_INLINE_NODES,
    MAX_INSTANCE_BYTES,
    MAX_NESTED_SPLITS,
    MAX_NODES,
    MAX_VARIABLE_BYTES,
)
from kikwiflow_worker.model.nodes import EventCatcher
from kikwiflow_worker.model.unit_of_work import InsertTask
from kikwiflow_worker.model.variables import AppendToVariable, UnsetVariable, check_total
from kikwiflow_worker.store.mongo import variable_writes
from kikwiflow_worker.testing import Harness
from tests.support.definitions import Json, a_file, a_flow, a_node, a_start, a_task, an_end, read
from tests.support.engine import a_definition, started
from tests.support.findings import HANDLER, a_gateway, a_join, a_split, errors_of, problems_of


def chain(count: int) -> list[Json]:
    """Return ``count`` nodes in all, one after the other."""
    steps = [a_task(f"T{n}", f"T{n + 1}" if n < count - 3 else "END") for n in range(count - 2)]
    return [a_start("T0"), *steps, an_end()]


def wide(branches: int) -> list[Json]:
    names = [f"T{n}" for n in range(branches)]
    return [
        a_start("SPLIT"),
        a_split(*names),
        *(a_task(name, "JOIN") for name in names),
        a_join(),
        an_end(),
    ]


def nested(depth: int, *, target: str = "P0", first: int = 0) -> list[Json]:
    """Return splits of two branches, each the first branch of the one before."""
    nodes: list[Json] = []
    last = first + depth - 1
    for n in range(first, first + depth):
        inner = f"P{n + 1}" if n < last else f"A{n}"
        outer = f"J{n - 1}" if n > first else "END"
        nodes += [
            a_split(inner, f"B{n}", join=f"J{n}", node_id=f"P{n}"),
            a_task(f"B{n}", f"J{n}"),
            a_join(outer, node_id=f"J{n}"),
        ]
    return [a_start(target), *nodes, a_task(f"A{last}", f"J{last}"), an_end()]


def splits_in_a_row(count: int) -> list[Json]:
    nodes: list[Json] = []
    for n in range(count):
        after = f"P{n + 1}" if n < count - 1 else "END"
        nodes += [
            a_split(f"A{n}", f"B{n}", join=f"J{n}", node_id=f"P{n}"),
            a_task(f"A{n}", f"J{n}"),
            a_task(f"B{n}", f"J{n}"),
            a_join(after, node_id=f"J{n}"),
        ]
    return [a_start("P0"), *nodes, an_end()]


def branches_of_one_path(count: int) -> list[Json]:
    """Return a split whose branches begin along one long path."""
    nodes = [a_task(f"T{n}", f"T{n + 1}" if n < count - 1 else "JOIN") for n in range(count)]
    return [a_start("SPLIT"), a_split(*(f"T{n}" for n in range(count))), *nodes, a_join(), an_end()]


def unknown_targets(count: int) -> list[Json]:
    return [a_start("T0"), *(a_task(f"T{n}", f"X{n}") for n in range(count)), an_end()]


def error_handlers(count: int) -> list[Json]:
    ids = [f"E{n}" for n in range(count)]
    events = [a_node(name, HANDLER, "END", attachedToRef="T", errorCode=name) for name in ids]
    return [a_start("T"), a_task("T", "END", boundaryEventIds=ids), *events, an_end()]


def cycles_of_gateways(count: int) -> list[Json]:
    nodes = []
    for n in range(count):
        after = f"G{n + 1}" if n < count - 1 else "END"
        nodes += [a_gateway(f"G{n}", a_flow(f"H{n}"), a_flow(after)), a_gateway(f"H{n}", f"G{n}")]
    return [a_start("G0"), *nodes, an_end()]


def lines_run(work: Callable[[], object]) -> int:
    """Return how many lines of Python ``work`` runs: a measure of its work that is the same on every machine."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize(
    "shape",
    [
        chain,
        wide,
        splits_in_a_row,
        branches_of_one_path,
        unknown_targets,
        error_handlers,
        cycles_of_gateways,
    ],
)
def test_checking_twice_the_nodes_is_about_twice_the_work(
    shape: Callable[[int], list[Json]],
) -> None:
    few, many = shape(100), shape(400)
    problems_of(*few)

    ratio = lines_run(lambda: problems_of(*many)) / lines_run(lambda: problems_of(*few))

    assert ratio < 6, f"four times the nodes took {ratio:.1f} times the lines"


def test_repeated_keys_are_found_in_one_pass() -> None:
    def repeating(count: int) -> str:
        return "{" + ",".join(f'"k{n}":1,"k{n}":2' for n in range(count)) + "}"

    def refused(text: str) -> None:
        with pytest.raises(InvalidDefinitionError, match="more than once"):
            parse_definition(text)

    few, many = repeating(200), repeating(800)

    assert lines_run(lambda: refused(many)) < 6 * lines_run(lambda: refused(few))


def test_as_many_nodes_as_allowed_can_be_deployed_and_one_more_is_refused_by_name() -> None:
    assert problems_of(*chain(MAX_NODES)) == []

    assert errors_of(*chain(MAX_NODES + 1)) == {
        "flowNodes": "has 10,001 nodes, the limit is 10,000 (MAX_NODES)"
    }


def test_a_text_that_is_too_long_is_refused_before_it_is_read() -> None:
    fits = '{"key": "' + "x" * (MAX_DEFINITION_BYTES - 11) + '"}'

    with pytest.raises(InvalidDefinitionError, match="flowNodes: is missing"):
        parse_definition(fits)
    with pytest.raises(InvalidDefinitionError, match="MAX_DEFINITION_BYTES"):
        parse_definition(fits + " ")


def test_as_many_branches_as_allowed_start_and_one_more_is_refused_by_name() -> None:
    definition = read(a_file(*wide(MAX_BRANCHES))).deployed(definition_id="d", version=1)

    run = started(definition)

    rows = [change for change in run.unit.changes if isinstance(change, InsertTask)]
    assert len(rows) == MAX_BRANCHES + 1
    assert problems_of(*wide(MAX_BRANCHES)) == []
    assert errors_of(*wide(MAX_BRANCHES + 1)) == {
        "flowNodes.SPLIT.outgoing": "5,001 branches, the limit is 5,000 (MAX_BRANCHES)"
    }


def test_branches_that_pass_gateways_are_not_taken_for_a_loop() -> None:
    names = [f"G{n}" for n in range(MAX_INLINE_NODES)]
    gateways = [a_gateway(name, a_flow("T", handlesNull=True)) for name in names]
    definition = a_definition(a_split(*names), *gateways, a_task("T", "JOIN"), a_join())

    rows = [c for c in started(definition).unit.changes if isinstance(c, InsertTask)]

    assert len(rows) == MAX_INLINE_NODES + 1


def test_splits_inside_one_another_start_up_to_a_depth_and_are_refused_by_name_beyond() -> None:
    fits, too_deep = nested(MAX_NESTED_SPLITS), nested(MAX_NESTED_SPLITS + 1)
    assert problems_of(*fits) == []
    assert errors_of(*too_deep) == {
        "flowNodes.START": "51 splits begin inside one another here, the limit is 50 (MAX_NESTED_SPLITS)"
    }

    run = started(read(a_file(*fits)).deployed(definition_id="d", version=1))

    assert len(run.unit.changes) == 2 * MAX_NESTED_SPLITS + 2
    with pytest.raises(ExecutionError, match="MAX_NESTED_SPLITS"):
        started(read(a_file(*too_deep)).deployed(definition_id="d", version=1))


def test_paths_that_multiply_end_as_a_clear_failure() -> None:
    nodes: list[Json] = []
    for n in range(20):
        inner = f"P{n + 1}" if n < 19 else "T"
        nodes += [
            a_split(inner, inner, join=f"J{n}", node_id=f"P{n}"),
            a_join("END", node_id=f"J{n}"),
        ]
    definition = read(a_file(a_start("P0"), *nodes, a_task("T", "J19"), an_end()))

    with pytest.raises(ExecutionError, match="MAX_STEP_NODES"):
        started(definition.deployed(definition_id="d", version=1))


def test_a_group_waits_for_as_many_keys_as_allowed() -> None:
    catcher = a_node(
        "C", "EVENT_CATCHER", "END", catchType="GROUP", providerType="BEAN", providerBean="k"
    )
    node = a_definition(catcher).node("C")
    assert isinstance(node, EventCatcher)
    keys = [CorrelationItem(f"k{n}", "") for n in range(MAX_GROUP_KEYS)]

    assert len(resolve_keys(node, {}, provided=keys)) == MAX_GROUP_KEYS
    with pytest.raises(ExecutionError, match=r"1,001 correlation keys.*MAX_GROUP_KEYS"):
        resolve_keys(node, {}, provided=[*keys, CorrelationItem("one more", "")])


# --- variables


def a_context(**variables: Any) -> ExecutionContext:
    view = StepView(
        instance_id="i",
        business_key="b",
        business_value=None,
        tenant_id=None,
        definition_key="k",
        definition_version=1,
        node_id="N",
        node_name=None,
        attempt=1,
        idempotency_key="key",
    )
    return ExecutionContext(view, variables)


def test_appending_costs_the_same_for_each_element() -> None:
    def append(count: int) -> None:
        context = a_context()
        for number in range(count):
            context.append("all", {"number": number})

    assert lines_run(lambda: append(800)) < 6 * lines_run(lambda: append(200))


def test_a_list_is_appended_to_up_to_the_limit() -> None:
    context = a_context()
    element = "x" * 1000

    def append_for_ever() -> None:
        while True:
            context.append("all", element)

    with pytest.raises(VariableTooLargeError, match="MAX_VARIABLE_BYTES"):
        append_for_ever()

    added = len(context.changes)
    assert 0.98 * MAX_VARIABLE_BYTES < added * len(element) <= MAX_VARIABLE_BYTES
    context.set("all", [])
    context.append("all", element)
    assert context["all"] == [element]


def test_a_list_that_a_step_makes_too_large_fails_the_step() -> None:
    working = WorkingVariables({"all": ["x" * (MAX_VARIABLE_BYTES - 100)]})

    with pytest.raises(VariableTooLargeError, match="MAX_VARIABLE_BYTES"):
        working.apply((AppendToVariable("all", "x" * 100),), {})


def test_variables_that_branches_made_too_large_together_can_be_made_smaller() -> None:
    megabyte = "x" * (MAX_VARIABLE_BYTES - 100)
    count = MAX_INSTANCE_BYTES // MAX_VARIABLE_BYTES + 2
    working = WorkingVariables({f"v{n}": megabyte for n in range(count)})

    working.apply((UnsetVariable("v0"),), {})

    with pytest.raises(VariableError, match="MAX_INSTANCE_BYTES"):
        check_total({**working.stored, "more": 1}, before=working.stored)


# --- the page


def test_every_limit_is_on_the_page_with_its_value() -> None:
    constants = {name for name in vars(limits) if name.startswith("MAX_")}

    assert [limit.name for limit in LIMITS] == [name for name in vars(limits) if name in constants]
    for limit in LIMITS:
        assert limit.value.split()[0] == f"{getattr(limits, limit.name):,}"


async def test_without_transactions_what_is_too_large_is_refused_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(variable_writes, "MAX_DOCUMENT_BYTES", 3_000)
    wait = a_node("WAIT", "EXTERNAL_TASK", "END")
    async with Harness() as harness:
        await harness.deploy(json.dumps(a_file(a_start("WAIT"), wait, an_end())))
        instance = await harness.start("parcel", "P-1", variables={"a": "x" * 1_000})

        await harness.client.set_variables(instance.id, {"b": "x" * 1_000})
        with pytest.raises(VariableTooLargeError, match="MAX_DOCUMENT_BYTES"):
            await harness.client.set_variables(instance.id, {"c": "x" * 1_000})

        assert set((await harness.instance(instance.id)).variables) == {"a", "b"}
        await harness.client.unset_variables(instance.id, "a")
        await harness.client.set_variables(instance.id, {"c": "x" * 1_000})
