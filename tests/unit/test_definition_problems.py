"""Definition files that cannot be read, and what of a file is ignored."""

import json

import pytest

from kikwiflow_worker.errors import InvalidDefinitionError, Problem
from kikwiflow_worker.model.definition import parse_definition
from tests.support.definitions import (
    Json,
    a_file,
    a_flow,
    a_node,
    a_start,
    a_task,
    an_end,
    read,
)


def refusals(source: str | bytes) -> list[Problem]:
    with pytest.raises(InvalidDefinitionError) as caught:
        parse_definition(source, name="parcel.kikwi")
    return list(caught.value.problems)


def refusal(source: str | bytes) -> Problem:
    [problem] = refusals(source)
    return problem


def warnings_of(data: Json) -> list[Problem]:
    return list(parse_definition(json.dumps(data)).warnings)


def file_with(node: Json) -> Json:
    return a_file(a_start("X"), {**node, "id": "X"}, an_end())


# --- what cannot be read


def test_malformed_json_is_refused_with_line_and_column() -> None:
    problem = refusal('{\n  "key": "parcel",\n  "name" "x"\n}')

    assert "is not JSON" in problem.message
    assert "line 3, column 10" in problem.message
    assert '"name" "x"' in problem.hint


@pytest.mark.parametrize("source", ["", "  \n", b""])
def test_an_empty_file_is_refused_as_empty(source: str | bytes) -> None:
    assert "empty" in refusal(source).hint


def test_a_truncated_file_is_refused() -> None:
    assert "is not JSON" in refusal('{"key": "parcel",').message


def test_a_file_that_is_not_utf8_is_refused_with_its_line() -> None:
    problem = refusal('{\n"key": "Übergabe"}'.encode("latin-1"))

    assert "is not UTF-8" in problem.message
    assert "line 2" in problem.message


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("[]", "a list"),
        ("null", "null"),
        ('"x"', "a text"),
        ("5", "a number"),
        ("true", "a boolean"),
    ],
)
def test_a_top_level_that_is_no_object_is_refused(source: str, kind: str) -> None:
    assert f"is {kind} at the top level" in refusal(source).message


def test_each_repeated_key_is_named_with_its_place() -> None:
    source = """{"key": "a", "key": "b", "flowNodes": {
        "A": {"type": "DEFAULT_END_EVENT"}, "A": {"type": "DEFAULT_END_EVENT"},
        "B": {"type": "DEFAULT_END_EVENT", "outgoing": [{"targetNodeId": "A", "targetNodeId": "B"}]}}}"""

    assert [problem.path for problem in refusals(source)] == [
        "key",
        "flowNodes.A",
        "flowNodes.B.outgoing[0].targetNodeId",
    ]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_a_number_outside_of_json_is_refused(number: str) -> None:
    assert "a value that JSON does not allow" in refusal(f'{{"key": {number}}}').message


def test_half_a_surrogate_pair_is_refused() -> None:
    assert "surrogate" in refusal(r'{"key": "\ud83d"}').message


def test_endless_nesting_is_refused() -> None:
    depth = 100_000

    assert "nested too deeply" in refusal('{"a":' + "[" * depth + "]" * depth + "}").message


def test_missing_key_and_nodes_are_both_named() -> None:
    assert [(problem.path, problem.message) for problem in refusals("{}")] == [
        ("key", "is missing"),
        ("flowNodes", "is missing"),
    ]


def test_an_unknown_node_type_is_refused_with_the_closest_one() -> None:
    problem = refusal(json.dumps(file_with(a_node("X", "executable_tsk"))))

    assert problem.path == "flowNodes.X.type"
    assert "'executable_tsk' is not a node type" in problem.message
    assert "did you mean EXECUTABLE_TASK?" in problem.hint
    assert "BOUNDARY_ERROR_HANDLER" in problem.hint


def test_a_node_without_a_type_is_refused_with_the_allowed_ones() -> None:
    problem = refusal(json.dumps(file_with({"name": "x"})))

    assert (problem.path, problem.message) == ("flowNodes.X.type", "is missing")
    assert "EXECUTABLE_TASK" in problem.hint


@pytest.mark.parametrize(
    ("node", "path", "message", "hint"),
    [
        (a_task("X", executor=["a"]), "flowNodes.X.executor", "is a list", "write a text"),
        (a_task("X", commitBefore="yes"), "flowNodes.X.commitBefore", "is a text", "true or false"),
        (a_task("X", outgoing={}), "flowNodes.X.outgoing", "is an object", "write a list"),
        (a_task("X", outgoing=["END"]), "flowNodes.X.outgoing[0]", "is a text", "write an object"),
        (a_task("X", outgoing=[None]), "flowNodes.X.outgoing[0]", "is null", "write an object"),
        (a_task("X", retryPolicy="LINEAR"), "flowNodes.X.retryPolicy", "is a text", "an object"),
        (a_task("X", retryPolicy={"maxRetries": "many"}), "flowNodes.X.retryPolicy.maxRetries", "is a text", "a whole number"),
        (a_task("X", retryPolicy={"maxRetries": 2.5}), "flowNodes.X.retryPolicy.maxRetries", "is a number", "a whole number"),
        (a_task("X", retryPolicy={"multiplier": "inf"}), "flowNodes.X.retryPolicy.multiplier", "is a text", "a finite number"),
        (a_task("X", retryPolicy={"strategy": "LINEER"}), "flowNodes.X.retryPolicy.strategy", "'LINEER' is not known", "LINEAR or EXPONENTIAL_BACKOFF"),
        (a_task("X", boundaryEventIds="A"), "flowNodes.X.boundaryEventIds", "is a text", "a list"),
        (a_task("X", extensionProperties=[]), "flowNodes.X.extensionProperties", "is a list", "an object"),
        (a_task("X", extensionProperties={"a": {}}), "flowNodes.X.extensionProperties.a", "is an object", "a text"),
        (a_node("X", "EXCLUSIVE_GATEWAY", providerType="bean"), "flowNodes.X.providerType", "'bean' is not known", "BEAN or VARIABLE"),
        (a_task("X", layout={"x": "left"}), "flowNodes.X.layout.x", "is a text", "a number"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_refused(
    node: Json, path: str, message: str, hint: str
) -> None:
    problem = refusal(json.dumps(file_with(node)))

    assert problem.path == path
    assert message in problem.message
    assert hint in problem.hint


def test_an_own_id_of_the_wrong_type_is_refused_at_its_place() -> None:
    data = a_file()
    data["flowNodes"] = {"X": {"id": [], "type": "DEFAULT_END_EVENT"}}

    assert refusal(json.dumps(data)).path == "flowNodes.X.id"


def test_a_node_that_is_no_object_is_refused() -> None:
    problem = refusal(json.dumps(a_file(flowNodes={"X": None})))

    assert (problem.path, problem.message, problem.hint) == (
        "flowNodes.X",
        "is null",
        "write an object",
    )


def test_everything_that_is_wrong_is_said_at_once() -> None:
    data = a_file(
        a_node("A", "TYPO"), a_task("B", commitBefore=[]), a_task("C", retryPolicy=1, exectuor="x")
    )
    del data["key"]

    paths = [problem.path for problem in refusals(json.dumps(data))]

    assert paths == [
        "key",
        "flowNodes.A.type",
        "flowNodes.B.commitBefore",
        "flowNodes.C.retryPolicy",
        "flowNodes.C.exectuor",
    ]


def test_the_error_names_the_file_and_lists_the_problems() -> None:
    with pytest.raises(
        InvalidDefinitionError, match=r"parcel\.kikwi cannot be deployed, 2 error"
    ) as caught:
        parse_definition("{}", name="parcel.kikwi")

    assert "error: key: is missing" in str(caught.value)


# --- what is ignored


def test_what_editors_and_the_engine_write_gives_no_warning() -> None:
    flow = a_flow(
        "END", transitionType="x", labelPosition=1, sourceHandle="s", extensionProperties={}
    )
    data = a_file(
        a_start(),
        {**a_task("TASK"), "outgoing": [flow], "layout": {"x": 1, "y": 2}},
        an_end(),
        version=3,
        id="x",
        checksum="y",
        sla="",
    )

    assert warnings_of(data) == []


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("boundaryEvents", "boundaryEventIds"),
        ("backoffStrategy", "retryPolicy"),
        ("sla", "BOUNDARY_INTERRUPTIVE_TIMER"),
    ],
)
def test_a_field_that_authors_believe_in_gives_a_warning_of_its_own(field: str, hint: str) -> None:
    [warning] = warnings_of(a_file(a_start(), a_task("TASK", "END", **{field: "x"}), an_end()))

    assert not warning.is_error
    assert warning.path == f"flowNodes.TASK.{field}"
    assert hint in warning.hint


def test_an_unknown_field_gives_a_warning_with_the_closest_one() -> None:
    data = a_file(
        a_start(),
        a_task("TASK", "END", commit_before=True, retryPolicy={"maxRetrys": 1}),
        an_end(),
        descripton="x",
        qqq=1,
    )

    warnings = {warning.path: warning.hint for warning in warnings_of(data)}

    assert warnings == {
        "descripton": "did you mean 'description'?",
        "qqq": "remove it, or keep it in extensionProperties",
        "flowNodes.TASK.commit_before": "did you mean 'commitBefore'?",
        "flowNodes.TASK.retryPolicy.maxRetrys": "did you mean 'maxRetries'?",
    }


def test_an_unknown_field_has_no_effect() -> None:
    node = read(a_file(a_task("TASK", commit_before=True, declaredId="x"))).flow_nodes["TASK"]

    assert not node.commit_before
    assert node.declared_id == "TASK"
