"""What a deploy refuses, and what it warns about."""

import pytest

from kikwiflow_worker.engine.validation import validate
from kikwiflow_worker.model.nodes import NODE_CLASSES
from tests.support.definitions import (
    Json,
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
from tests.support.findings import (
    HANDLER,
    a_gateway,
    a_host,
    a_join,
    a_timer,
    an_event,
    errors_around,
    errors_of,
    problems_of,
    warnings_around,
    warnings_of,
)

# --- what is right


@pytest.mark.parametrize("key", own_process_keys())
def test_our_own_processes_have_nothing_to_complain_about(key: str) -> None:
    assert validate(own_process(key)) == []


def test_there_are_own_processes_for_every_type() -> None:
    types = {
        node.type for key in own_process_keys() for node in own_process(key).flow_nodes.values()
    }

    assert types == set(NODE_CLASSES)


# --- start and key


def test_a_blank_key_is_an_error() -> None:
    assert errors_of(key=" ") == {"key": "is blank"}


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (None, "is missing or blank"),
        ("", "is missing or blank"),
        ("STRAT", "there is no node 'STRAT'"),
        ("TASK", "'TASK' is of type EXECUTABLE_TASK, not DEFAULT_START_EVENT"),
    ],
)
def test_a_start_point_that_is_no_start_event_is_an_error(start: str | None, message: str) -> None:
    [problem] = [found for found in problems_of(defaultStartPoint=start) if found.is_error]

    assert (problem.path, problem.message) == ("defaultStartPoint", message)
    assert problem.hint == "write 'START'"


def test_a_file_without_nodes_lacks_a_start_event() -> None:
    problems = validate(read({"key": "parcel", "defaultStartPoint": "START", "flowNodes": {}}))

    assert [problem.path for problem in problems] == ["defaultStartPoint"]
    assert "add a DEFAULT_START_EVENT" in problems[0].hint


# --- identity and flows


def test_a_map_key_that_differs_from_the_id_is_an_error() -> None:
    data = a_file()
    nodes = data["flowNodes"]
    assert isinstance(nodes, dict)
    nodes["TASK"]["id"] = "OTHER"

    [problem] = validate(read(data))

    assert problem.is_error
    assert problem.path == "flowNodes.TASK.id"
    assert problem.message == "id is 'OTHER' but the key in flowNodes is 'TASK'"


def test_an_end_event_with_another_id_is_a_warning_only() -> None:
    data = a_file()
    nodes = data["flowNodes"]
    assert isinstance(nodes, dict)
    nodes["END"]["id"] = "OTHER"

    assert [(found.path, found.is_error) for found in validate(read(data))] == [
        ("flowNodes.END.id", False)
    ]


def test_a_blank_map_key_is_an_error() -> None:
    assert "flowNodes. " in errors_of(a_start(" "), a_task(" ", "END"), an_end())


def test_a_flow_to_nowhere_is_an_error_with_the_closest_node() -> None:
    [problem] = problems_of(a_start(), a_task("TASK", "EDN"), an_end("END"))[:1]

    assert problem.path == "flowNodes.TASK.outgoing[0].targetNodeId"
    assert problem.message == "there is no node 'EDN'"
    assert problem.hint == "did you mean 'END'?"


@pytest.mark.parametrize("target", [None, " "])
def test_a_flow_without_a_target_is_an_error(target: str | None) -> None:
    task = {**a_task("TASK"), "outgoing": [{"targetNodeId": target}]}

    assert errors_around(task) == {"flowNodes.TASK.outgoing[0].targetNodeId": "is missing or blank"}


def test_a_flow_to_a_boundary_event_is_an_error() -> None:
    errors = errors_around(a_task("TASK", "EVENT"), an_event(HANDLER))

    assert "boundary event" in errors["flowNodes.TASK.outgoing[0].targetNodeId"]


def test_an_end_event_with_a_flow_is_an_error() -> None:
    end = a_node("LAST", "DEFAULT_END_EVENT", "END")

    assert errors_around(end) == {"flowNodes.LAST.outgoing": "an end event has an outgoing flow"}


@pytest.mark.parametrize(
    "node",
    [a_task("X", "END", "END"), a_node("X", "EXTERNAL_TASK", "END", "END"), {**a_join(), "id": "X", "outgoing": [a_flow("END")] * 2}],
    ids=["task", "external", "join"],
)  # fmt: skip
def test_several_flows_out_of_an_ordinary_node_are_an_error(node: Json) -> None:
    assert "has 2 outgoing flows" in errors_around(node)["flowNodes.X.outgoing"]


def test_several_flows_out_of_an_error_handler_are_an_error() -> None:
    handler = {**an_event(HANDLER), "outgoing": [a_flow("END"), a_flow("END")]}

    errors = errors_around(a_host("EXECUTABLE_TASK", "EVENT"), handler)

    assert list(errors) == ["flowNodes.EVENT.outgoing"]


def test_a_task_without_a_flow_is_a_warning() -> None:
    assert warnings_of(a_start(), a_task("TASK")) == {
        "flowNodes.TASK.outgoing": "the path ends here without an end event"
    }


def test_a_route_on_an_ordinary_flow_is_a_warning() -> None:
    task = {**a_task("TASK"), "outgoing": [a_flow("END", expectedAnswer="x")]}

    assert list(warnings_around(task)) == ["flowNodes.TASK.outgoing[0]"]


@pytest.mark.parametrize(
    ("node", "field"),
    [
        (a_gateway("X", a_flow("END", isDefault=True), commitBefore=True), "commitBefore"),
        (a_node("X", "DEFAULT_END_EVENT", commitBefore=True), "commitBefore"),
        (a_node("X", "DEFAULT_END_EVENT", commitAfter=True), "commitAfter"),
    ],
)
def test_a_commit_without_effect_is_a_warning(node: Json, field: str) -> None:
    problems = [found for found in problems_of(a_start("X"), node, an_end()) if field in found.path]

    assert [(found.path, found.is_error) for found in problems] == [(f"flowNodes.X.{field}", False)]


def test_commit_before_on_a_wait_is_fine() -> None:
    assert warnings_around(a_node("X", "EXTERNAL_TASK", "END", commitBefore=True)) == {}


# --- executable tasks


def test_a_handlers_name_with_a_colon_is_an_error() -> None:
    errors = errors_around(a_task("TASK", "END", executor="answer_provider:weigh"))

    assert "contains a colon" in errors["flowNodes.TASK.executor"]


def test_a_providers_name_with_a_colon_is_an_error() -> None:
    errors = errors_around(a_timer(providerType="BEAN", providerBean="dates:cooling"))

    assert "contains a colon" in errors["flowNodes.TIMER.providerBean"]


@pytest.mark.parametrize("executor", [None, "", "  "])
def test_a_task_without_a_handler_is_an_error(executor: str | None) -> None:
    assert errors_around(a_task("TASK", "END", executor=executor)) == {
        "flowNodes.TASK.executor": "no handler is named"
    }


@pytest.mark.parametrize(
    ("policy", "field", "message"),
    [
        ({"maxRetries": -1, "strategy": "LINEAR"}, "maxRetries", "is negative"),
        ({"maxRetries": 2, "strategy": "LINEAR", "intervals": ["PT1S", "1s"]}, "intervals[1]", "'1s' cannot be used: not a duration"),
        ({"maxRetries": 2, "strategy": "LINEAR", "intervals": ["-PT1S"]}, "intervals[0]", "'-PT1S' is negative"),
        ({"maxRetries": 2, "strategy": "LINEAR", "intervals": ["R3/1S"]}, "intervals[0]", "not a"),
        ({"maxRetries": 2, "strategy": "EXPONENTIAL_BACKOFF"}, "initialInterval", "no initialInterval"),
        ({"maxRetries": 2, "strategy": "EXPONENTIAL_BACKOFF", "initialInterval": "5"}, "initialInterval", "not a"),
        ({"maxRetries": 2, "strategy": "LINEAR", "maxInterval": "x"}, "maxInterval", "not a"),
        ({"maxRetries": 2, "strategy": "LINEAR", "multiplier": 0}, "multiplier", "is not greater than 0"),
    ],
)  # fmt: skip
def test_a_malformed_retry_policy_is_an_error(policy: Json, field: str, message: str) -> None:
    [(path, found)] = errors_around(a_task("TASK", "END", retryPolicy=policy)).items()

    assert path == f"flowNodes.TASK.retryPolicy.{field}"
    assert message in found


def test_an_incomplete_retry_policy_is_a_warning() -> None:
    warnings = warnings_around(a_task("TASK", "END", retryPolicy={}))

    assert list(warnings) == [
        "flowNodes.TASK.retryPolicy.maxRetries",
        "flowNodes.TASK.retryPolicy.strategy",
    ]


# --- exclusive gateways


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"providerType": None}, "providerType"),
        ({"providerVariable": " "}, "providerVariable"),
        ({"providerType": "BEAN"}, "providerBean"),
    ],
)
def test_a_gateway_without_a_provider_is_an_error(fields: Json, path: str) -> None:
    gateway = a_gateway("X", a_flow("END", isDefault=True), **fields)

    assert list(errors_around(gateway)) == [f"flowNodes.X.{path}"]


def test_a_gateway_without_a_flow_is_an_error() -> None:
    assert errors_around(a_gateway("X")) == {
        "flowNodes.X.outgoing": "a gateway has no outgoing flow"
    }


def test_two_defaults_are_an_error() -> None:
    gateway = a_gateway("X", a_flow("END", isDefault=True), a_flow("END", isDefault=True))

    assert errors_around(gateway) == {"flowNodes.X.outgoing": "2 flows are the default"}


def test_two_flows_for_null_are_an_error() -> None:
    null = a_flow("END", handlesNull=True)
    gateway = a_gateway("X", null, null, a_flow("END", isDefault=True))

    assert errors_around(gateway) == {"flowNodes.X.outgoing": "several flows handle null"}


def test_an_answer_on_two_flows_is_an_error_on_both() -> None:
    yes = a_flow("END", expectedAnswer="yes")
    gateway = a_gateway("X", yes, a_flow("END", isDefault=True), yes)

    assert list(errors_around(gateway)) == [
        "flowNodes.X.outgoing[0].expectedAnswer",
        "flowNodes.X.outgoing[2].expectedAnswer",
    ]


def test_a_gateway_without_a_default_is_a_warning() -> None:
    gateway = a_gateway("X", a_flow("END", expectedAnswer="yes"))

    assert "no flow is the default" in warnings_around(gateway)["flowNodes.X.outgoing"]


def test_a_flow_that_no_answer_takes_is_a_warning() -> None:
    gateway = a_gateway("X", a_flow("END", isDefault=True), a_flow("END"))

    assert warnings_around(gateway) == {"flowNodes.X.outgoing[1]": "this flow is never taken"}


# --- timers


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"providerType": None}, "providerType", "nothing says when the timer is due"),
        ({"staticValue": None}, "staticValue", "is missing or blank"),
        ({"staticValue": "10 minutes"}, "staticValue", "'10 minutes' cannot be used: not a time value"),
        ({"staticValue": "2026-12-31"}, "staticValue", "'2026-12-31' cannot be used: a date without a time"),
        ({"staticValue": "60"}, "staticValue", "'60' cannot be used: not a time value"),
        ({"staticValue": "P9000Y"}, "staticValue", "'P9000Y' cannot be used: leads outside the years 1 to 9999"),
        ({"providerType": "VARIABLE"}, "providerVariable", "is missing or blank"),
        ({"providerType": "BEAN", "providerBean": ""}, "providerBean", "is missing or blank"),
    ],
)  # fmt: skip
def test_a_timer_without_a_usable_due_date_is_an_error(
    fields: Json, path: str, message: str
) -> None:
    assert errors_around(a_timer(**fields)) == {f"flowNodes.TIMER.{path}": message}


@pytest.mark.parametrize(
    "value", ["PT1H", "pt5m", "-PT1H", "P1W", "P1M", "2026-12-31T23:59:59+02:00"]
)
def test_a_timer_with_an_iso_value_is_fine(value: str) -> None:
    assert warnings_around(a_timer(staticValue=value)) == {}


def test_all_mistakes_are_found_at_once() -> None:
    errors = errors_of(
        a_start("X"),
        a_gateway("X", a_flow("TASK", isDefault=True), a_flow("NOWHERE", isDefault=True)),
        a_task("TASK", "END", executor=""),
        an_end(),
        key="",
    )

    assert set(errors) == {
        "key",
        "flowNodes.X.outgoing",
        "flowNodes.X.outgoing[1].targetNodeId",
        "flowNodes.TASK.executor",
    }
