"""Reading definition files."""

import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest
from pydantic import ValidationError

from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.definition import canonical_source, checksum, parse_definition
from kikwiflow_worker.model.nodes import (
    NODE_CLASSES,
    BoundaryErrorHandler,
    BoundaryNonInterruptiveTimer,
    CallActivity,
    CatchType,
    EventCatcher,
    ExclusiveGateway,
    ExecutableTaskNode,
    GatewayProvider,
    IterationMode,
    JoinGateway,
    MatchPolicy,
    ParallelGateway,
    RetryStrategy,
    ScheduleType,
    SegmentType,
    TimerProvider,
    TimerTaskNode,
)
from tests.support.definitions import (
    Json,
    a_file,
    a_flow,
    a_node,
    a_start,
    a_task,
    an_end,
    own_process,
    read,
)


def file_with(node: Json) -> Json:
    return a_file(a_start("X"), {**node, "id": "X"}, an_end())


# --- what is read


@pytest.mark.parametrize(("node_type", "node_class"), NODE_CLASSES.items())
def test_each_node_type_has_its_class(node_type: str, node_class: type) -> None:
    file = read(file_with(a_node("X", node_type)))

    node = file.flow_nodes["X"]

    assert type(node) is node_class
    assert node.type == node_type


def test_the_fifteen_node_types_are_known() -> None:
    assert len(NODE_CLASSES) == 15


def test_a_missing_field_and_null_are_the_same() -> None:
    fields = dict.fromkeys(
        ["name", "commitBefore", "commitAfter", "outgoing", "extensionProperties", "executor", "retryPolicy",
         "boundaryEventIds", "layout"]
    )  # fmt: skip
    bare = read(file_with({"type": "EXECUTABLE_TASK"})).flow_nodes["X"]
    nulls = read(file_with({"type": "EXECUTABLE_TASK", **fields})).flow_nodes["X"]

    assert nulls == bare
    assert bare.outgoing == ()
    assert (bare.commit_before, bare.commit_after) == (False, False)
    assert bare.extension_properties == {}


def test_an_executable_task_is_read_with_its_retry_policy() -> None:
    policy = {
        "strategy": "EXPONENTIAL_BACKOFF",
        "maxRetries": 3,
        "intervals": ["PT5S"],
        "initialInterval": "PT5S",
        "multiplier": 1.5,
        "maxInterval": "PT1M",
    }
    node = read(
        a_file(a_task("TASK", retryPolicy=policy, boundaryEventIds=["A", "B"], commitBefore=True))
    ).flow_nodes["TASK"]

    assert isinstance(node, ExecutableTaskNode)
    assert node.handler_name == "weigh_parcel"
    assert node.boundary_event_ids == ("A", "B")
    assert node.commit_before
    assert node.retry_policy is not None
    assert node.retry_policy.strategy is RetryStrategy.EXPONENTIAL_BACKOFF
    assert node.retry_policy.max_retries == 3
    assert node.retry_policy.intervals == ("PT5S",)
    assert node.retry_policy.initial_interval == "PT5S"
    assert node.retry_policy.multiplier == 1.5
    assert node.retry_policy.max_interval == "PT1M"


def test_an_empty_retry_policy_has_the_defaults_of_the_format() -> None:
    node = read(a_file(a_task("TASK", retryPolicy={}))).flow_nodes["TASK"]

    assert isinstance(node, ExecutableTaskNode)
    assert node.retry_policy is not None
    assert node.retry_policy.strategy is None
    assert node.retry_policy.max_retries == 0
    assert node.retry_policy.multiplier == 2.0


def test_a_gateway_is_read_with_its_flows() -> None:
    gateway = own_process("own-gateway-variable").node("CHOOSE")

    assert isinstance(gateway, ExclusiveGateway)
    assert gateway.provider_type is GatewayProvider.VARIABLE
    assert gateway.provider_variable == "carrier"
    assert [flow.expected_answer for flow in gateway.outgoing] == ["AIR", None, None]
    assert [flow.handles_null for flow in gateway.outgoing] == [False, True, False]
    assert [flow.is_default for flow in gateway.outgoing] == [False, False, True]
    assert [flow.target_node_id for flow in gateway.outgoing] == ["BOOK_AIR", "ASK", "BOOK_ROAD"]


def test_a_split_and_its_join_name_each_other() -> None:
    definition = own_process("own-parallel-join")

    split, join = definition.node("SPLIT"), definition.node("JOIN")

    assert isinstance(split, ParallelGateway)
    assert split.target_join_id == "JOIN"
    assert isinstance(join, JoinGateway)
    assert join.source_split_id == "SPLIT"


def test_a_timer_is_read_with_its_value() -> None:
    timer = own_process("own-timer-static").node("WAIT")

    assert isinstance(timer, TimerTaskNode)
    assert timer.provider_type is TimerProvider.STATIC
    assert timer.static_value == "PT1H"


def test_an_event_catcher_is_read_with_its_templates() -> None:
    segments = [{"type": "LITERAL", "value": "P_"}, {"type": "VARIABLE", "value": "id"}]
    node = read(
        file_with(
            a_node(
                "X",
                "EVENT_CATCHER",
                catchType="GROUP",
                matchPolicy="ANY",
                providerType="TEMPLATE",
                correlationTemplates=[{"keySegments": segments, "displayNameSegments": None}],
            )
        )
    ).flow_nodes["X"]

    assert isinstance(node, EventCatcher)
    assert (node.catch_type, node.match_policy) == (CatchType.GROUP, MatchPolicy.ANY)
    [template] = node.correlation_templates
    assert [(segment.type, segment.value) for segment in template.key_segments] == [
        (SegmentType.LITERAL, "P_"),
        (SegmentType.VARIABLE, "id"),
    ]
    assert template.display_name_segments == ()


def test_a_recurring_timer_is_read_with_its_schedule() -> None:
    policy = {"type": "RATE_DURATION", "expression": "PT1H", "maxOccurrences": 2}
    node = read(
        file_with(a_node("X", "BOUNDARY_NON_INTERRUPTIVE_TIMER", schedulePolicy=policy))
    ).flow_nodes["X"]

    assert isinstance(node, BoundaryNonInterruptiveTimer)
    assert node.schedule_policy is not None
    assert node.schedule_policy.type is ScheduleType.RATE_DURATION
    assert node.schedule_policy.max_occurrences == 2


def test_a_call_activity_is_read_with_its_iteration() -> None:
    node = read(
        file_with(
            a_node(
                "X", "CALL_ACTIVITY_COORDINATOR", calledElement="child", iterationMode="SEQUENTIAL"
            )
        )
    ).flow_nodes["X"]

    assert isinstance(node, CallActivity)
    assert node.called_element == "child"
    assert node.iteration_mode is IterationMode.SEQUENTIAL
    assert node.collection_variable is None


def test_an_empty_error_code_is_not_the_same_as_none() -> None:
    node = read(file_with(a_node("X", "BOUNDARY_ERROR_HANDLER", errorCode=""))).flow_nodes["X"]

    assert isinstance(node, BoundaryErrorHandler)
    assert node.error_code == ""


@pytest.mark.parametrize(
    ("written", "expected"),
    [(True, True), ("true", True), ("TRUE", True), (1, True), (False, False), ("false", False), ("", False), (0, False)],
)  # fmt: skip
def test_a_flag_is_also_read_from_text_and_number(*, written: object, expected: bool) -> None:
    node = read(a_file(a_task("TASK", commitAfter=written))).flow_nodes["TASK"]

    assert node.commit_after is expected


@pytest.mark.parametrize(
    ("written", "expected"), [("7", "7"), (7, "7"), (7.5, "7.5"), (True, "true"), (False, "false")]
)
def test_an_answer_is_always_text(written: object, expected: str) -> None:
    gateway = a_node("X", "EXCLUSIVE_GATEWAY", a_flow("END", expectedAnswer=written))

    [flow] = read(file_with(gateway)).flow_nodes["X"].outgoing

    assert flow.expected_answer == expected


def test_a_number_may_be_written_as_text() -> None:
    node = read(a_file(a_task("TASK", retryPolicy={"maxRetries": "3", "multiplier": "2"})))

    task = node.flow_nodes["TASK"]

    assert isinstance(task, ExecutableTaskNode)
    assert task.retry_policy is not None
    assert (task.retry_policy.max_retries, task.retry_policy.multiplier) == (3, 2.0)


def test_a_blank_word_of_a_choice_is_missing() -> None:
    node = read(file_with(a_node("X", "EXCLUSIVE_GATEWAY", providerType=""))).flow_nodes["X"]

    assert isinstance(node, ExclusiveGateway)
    assert node.provider_type is None


def test_the_map_key_is_the_id_of_a_node_and_its_own_id_is_kept() -> None:
    data = a_file()
    data["flowNodes"] = {
        "KEY": a_node("OTHER", "DEFAULT_END_EVENT"),
        "BARE": {"type": "DEFAULT_END_EVENT"},
    }

    nodes = read(data).flow_nodes

    assert (nodes["KEY"].id, nodes["KEY"].declared_id) == ("KEY", "OTHER")
    assert (nodes["BARE"].id, nodes["BARE"].declared_id) == ("BARE", None)


def test_a_byte_order_mark_is_skipped() -> None:
    text = json.dumps(a_file())

    assert parse_definition(b"\xef\xbb\xbf" + text.encode()).file.key == "parcel"
    assert parse_definition("\ufeff" + text).file.key == "parcel"


def test_a_definition_cannot_be_changed() -> None:
    definition = own_process("own-executable-task")
    node = definition.node("WEIGH")

    with pytest.raises(FrozenInstanceError):
        definition.key = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        node.name = "other"  # type: ignore[misc]


# --- a deployed version


def test_a_deployed_version_is_the_file_with_id_and_number() -> None:
    file = read(
        a_file(name="Parcel", extensionProperties={"threshold.sla.warning": 5, "none": None})
    )

    definition = file.deployed(definition_id="d-1", version=4)

    assert (definition.id, definition.version, definition.key) == ("d-1", 4, "parcel")
    assert definition.name == "Parcel"
    assert definition.start_node_id == "START"
    assert definition.node("TASK") is file.flow_nodes["TASK"]
    assert definition.extension_properties == {"threshold.sla.warning": "5"}
    assert (definition.source, definition.checksum) == (file.source, file.checksum)


def test_an_unknown_node_is_named_with_the_definition() -> None:
    definition = own_process("own-loop", version=3)

    with pytest.raises(ExecutionError, match="'own-loop' version 3 has no node 'NOWHERE'"):
        definition.node("NOWHERE")


def test_a_definition_without_a_start_says_so() -> None:
    definition = read(a_file(defaultStartPoint=None)).deployed(definition_id="d", version=1)

    with pytest.raises(ExecutionError, match="has no defaultStartPoint"):
        _ = definition.start_node_id


# --- source and checksum


def test_layout_key_order_and_assigned_fields_do_not_change_the_checksum() -> None:
    data = a_file()
    reordered = {
        "version": 7,
        "id": "x",
        "checksum": "y",
        **dict(reversed(list(data.items()))),
    }

    one = parse_definition(json.dumps(data)).file
    other = parse_definition(json.dumps(reordered, indent=4)).file

    assert one.checksum == other.checksum
    assert one.source == other.source


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(name="Other"),
        lambda data: data.update(unknown=1),
        lambda data: data["flowNodes"]["TASK"].update(executor="other"),
        lambda data: data["flowNodes"]["TASK"].update(version=2),
        lambda data: data["flowNodes"]["TASK"]["outgoing"].append(a_flow("END")),
    ],
)
def test_content_changes_the_checksum(change: Callable[[Json], None]) -> None:
    data = a_file()
    before = read(data).checksum
    change(data)

    assert read(data).checksum != before


def test_the_source_can_be_read_again_without_a_loss() -> None:
    data = a_file(name="Übergabe \U0001f600", unknown={"b": [1, 2.5, None, True], "a": "x"})
    file = read(data)

    again = parse_definition(file.source).file

    assert json.loads(file.source) == data
    assert again == file
    assert "Übergabe \U0001f600" in file.source


def test_the_checksum_is_the_hex_sha_256_of_the_canonical_text() -> None:
    assert canonical_source({"b": 1, "a": [True, None], "version": 3}) == '{"a":[true,null],"b":1}'
    assert checksum("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
