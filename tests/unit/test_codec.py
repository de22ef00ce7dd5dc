"""The mapping between our values and documents: nothing is lost, and no name becomes an operator."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from bson import CodecOptions, decode, encode
from bson.decimal128 import Decimal128
from hypothesis import given
from hypothesis import strategies as st

from kikwiflow_worker.model.runtime import Branch, ExecutableTask, TaskStatus, TaskType
from kikwiflow_worker.model.variables import Value, check_name, normalize, normalize_all
from kikwiflow_worker.store.mongo.codec import (
    decode_task,
    encode_task,
)
from kikwiflow_worker.store.mongo.driver import CODEC_OPTIONS
from kikwiflow_worker.store.mongo.value_codec import (
    decode_value,
    decode_variables,
    encode_value,
    encode_variables,
    escape_key,
    unescape_key,
)

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
"""All of Unicode, the NUL character included."""

tricky_keys = st.text(st.sampled_from(".$%\0%2E%25%00 a．＄"), max_size=12)  # noqa: RUF001
keys = texts | tricky_keys
names = keys.filter(lambda name: bool(name) and "\0" not in name)

decimals = st.builds(
    Decimal,
    st.tuples(
        st.sampled_from([0, 1]),
        st.lists(st.integers(0, 9), min_size=1, max_size=34).map(tuple),
        st.integers(-6176, 6111) | st.integers(-5, 5),
    ),
) | st.sampled_from([Decimal("Infinity"), Decimal("-Infinity")])
"""All that the database's type holds."""

instants = st.datetimes(
    min_value=datetime(1, 1, 2),
    max_value=datetime(9999, 12, 30),
    timezones=st.just(UTC),
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | texts
    | st.binary(max_size=20)
    | instants
    | decimals
    | st.uuids()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def through_bson(document: dict[str, Any]) -> dict[str, Any]:
    """Send a document through the bytes that the server gets."""
    options: CodecOptions[dict[str, Any]] = CODEC_OPTIONS
    return decode(encode(document, codec_options=options), codec_options=options)


def types_of(value: Value) -> object:
    if isinstance(value, list):
        return [types_of(item) for item in value]
    if isinstance(value, dict):
        return {key: types_of(item) for key, item in value.items()}
    return type(value)


@given(keys)
def test_an_escaped_key_gives_the_key_back(key: str) -> None:
    assert unescape_key(escape_key(key)) == key


@given(keys)
def test_an_escaped_key_is_a_plain_field_name(key: str) -> None:
    escaped = escape_key(key)

    assert escaped
    assert not set(escaped) & set(".$\0")


@given(keys, keys)
def test_different_keys_stay_different(one: str, other: str) -> None:
    assert (escape_key(one) == escape_key(other)) == (one == other)


@pytest.mark.parametrize(
    ("key", "escaped"),
    [
        ("weight", "weight"),
        ("a.b", "a%2Eb"),
        ("$ref", "%24ref"),
        ("100%", "100%25"),
        ("%2E", "%252E"),
        ("", "%"),
        ("größe", "größe"),
    ],
)
def test_keys_are_stored_as_documented(key: str, escaped: str) -> None:
    assert escape_key(key) == escaped


@given(values)
def test_any_value_comes_back_from_the_bytes_of_the_database(value: Value) -> None:
    normal = normalize("value", value)

    found = decode_value(through_bson({"v": encode_value(normal)})["v"])

    assert found == normal
    assert types_of(found) == types_of(normal)


@given(st.dictionaries(names, values, max_size=4))
def test_any_variables_come_back_from_the_bytes_of_the_database(
    variables: dict[str, Value],
) -> None:
    normal = normalize_all(variables)

    found = decode_variables(through_bson(encode_variables(normal)))

    assert found == normal


@given(names)
def test_a_variable_is_stored_with_its_plain_name(name: str) -> None:
    check_name(name)

    (entry,) = encode_variables({name: 1}).values()

    assert entry == {"name": name, "value": 1}


@pytest.mark.parametrize("text", ["12.50", "1E+6000", "-0", "0.00", "NaN", "Infinity", "9" * 34])
def test_a_decimal_keeps_its_digits(text: str) -> None:
    stored = encode_value(Decimal(text))

    assert isinstance(stored, Decimal128)
    assert str(decode_value(stored)) == text


def test_a_dict_that_looks_like_a_reference_stays_a_dict() -> None:
    value: Value = {"$ref": "orders", "$id": 1}

    assert decode_value(through_bson({"v": encode_value(value)})["v"]) == value


def test_what_another_program_stored_is_read_as_text_at_worst() -> None:
    assert decode_value(object) == str(object)


def test_fields_without_a_value_are_left_out() -> None:
    task = ExecutableTask(
        id="task-1",
        type=TaskType.STANDARD,
        node_id="TASK",
        instance_id="instance-1",
        definition_id="definition-1",
        created_at=NOON,
    )

    document = encode_task(task)

    assert None not in document.values()
    assert not {"claimableAt", "workerId", "branchId", "pendingBranchIds"} & document.keys()
    assert decode_task(document) == task


def test_a_task_of_the_java_engine_without_our_fields_can_be_read() -> None:
    document = {
        "_id": "task-1",
        "type": "STANDARD",
        "status": "PENDING",
        "taskDefinitionId": "TASK",
        "processInstanceId": "instance-1",
        "processDefinitionId": "definition-1",
        "createdAt": NOON,
        "branchId": "branch-1",
        "joinTaskId": "join-1",
    }

    task = decode_task(document)

    assert (task.status, task.epoch, task.priority) == (TaskStatus.PENDING, 0, 5)
    assert task.branch == Branch("branch-1", "join-1")
