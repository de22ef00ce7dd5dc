"""Which values can be stored, how they read as text, and what changes come to."""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from uuid import UUID

import pytest
from pydantic import BaseModel

from kikwiflow_worker.errors import VariableError, VariableTooLargeError
from kikwiflow_worker.model.limits import MAX_VALUE_DEPTH, MAX_VARIABLE_BYTES
from kikwiflow_worker.model.variables import (
    AppendToVariable,
    IncrementVariable,
    SetVariable,
    UnsetVariable,
    Value,
    VariableChange,
    apply_change,
    check_name,
    net_changes,
    normalize,
    normalize_all,
    size_of,
    to_text,
)

AN_ID = UUID("0d6ae1f2-0000-4000-8000-000000000001")


class Carrier(StrEnum):
    VAN = "van"


class Size(Enum):
    LARGE = (3, 4)


@dataclass
class Parcel:
    weight: float
    labels: tuple[str, ...]


class Address(BaseModel):
    town: str


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", ""),
        ("van", "van"),
        (True, "true"),
        (False, "false"),
        (7, "7"),
        (-7, "-7"),
        (2**62, "4611686018427387904"),
        (50.0, "50.0"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (87.5, "87.5"),
        (0.1, "0.1"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (0.00012345, "1.2345E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-1.5e300, "-1.5E300"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (Decimal("10.50"), "10.50"),
        (AN_ID, str(AN_ID)),
        (datetime(2026, 3, 2, 12, tzinfo=UTC), "2026-03-02T12:00:00Z"),
        (b"\x01\xff", "01ff"),
        ([], "[]"),
        (["a", 1.0, None], "[a, 1.0, null]"),
        ({}, "{}"),
        ({"k": "v", "n": [1, True]}, "{k=v, n=[1, true]}"),
    ],
)
def test_a_value_reads_as_the_java_engine_writes_it(value: Value, text: str) -> None:
    assert to_text(value) == text


def test_a_missing_value_has_no_text() -> None:
    assert to_text(None) is None


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (True, True),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (Carrier.VAN, "van"),
        (Size.LARGE, [3, 4]),
        ((1, (2,)), [1, [2]]),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        (OrderedDict(a=1), {"a": 1}),
        (Parcel(1.5, ("fragile",)), {"weight": 1.5, "labels": ["fragile"]}),
        (Address(town="Trento"), {"town": "Trento"}),
        ({"to": Address(town="Trento")}, {"to": {"town": "Trento"}}),
        (Decimal("Infinity"), Decimal("Infinity")),
        (Decimal("1E+6111"), Decimal("1E+6111")),
        (AN_ID, AN_ID),
    ],
)
def test_a_value_is_converted_when_it_is_set(value: object, stored: Value) -> None:
    normal = normalize("parcel", value)

    assert normal == stored
    assert type(normal) is type(stored)


@pytest.mark.field_case("S-79")
def test_an_instant_keeps_its_milliseconds_and_loses_its_zone() -> None:
    zone = timezone(timedelta(hours=2))
    value = datetime(2026, 3, 2, 14, 0, 0, 123_999, tzinfo=zone)

    normal = normalize("at", value)

    assert normal == datetime(2026, 3, 2, 12, 0, 0, 123_000, tzinfo=UTC)
    assert isinstance(normal, datetime)
    assert normal.tzinfo is UTC


def test_a_stored_value_does_not_change_with_the_list_it_came_from() -> None:
    mine = [1]

    normal = normalize("items", mine)
    mine.append(2)

    assert normal == [1]


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.field_case("S-80")
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**63, "outside 64 bits"),
        ({"sizes": [1, 2**70]}, r"outside 64 bits at \.sizes\[1\]"),
        (datetime(2026, 3, 2), "without a time zone"),
        (Decimal("1" * 35), "beyond 34 digits"),
        (Decimal("1E+6112"), "beyond 34 digits"),
        ({1: "x"}, "key 1 is not a text"),
        ({"\ud800": "x"}, "is not a text"),
        ("\ud800", "not valid Unicode"),
        ({"a": {"b": object()}}, r"holds a object at \.a\.b, which cannot be stored"),
        ({1, 2}, "holds a set"),
        (Parcel, "holds a type"),
        (nested(MAX_VALUE_DEPTH + 1), "nested deeper than 60 levels"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_by_name(value: object, message: str) -> None:
    with pytest.raises(VariableError, match=f"variable 'parcel' .*{message}") as raised:
        normalize("parcel", value)

    assert raised.value.variable == "parcel"


def test_a_value_that_refers_to_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)

    with pytest.raises(VariableError, match="nested deeper"):
        normalize("loop", value)


def test_nesting_up_to_the_limit_is_allowed() -> None:
    assert normalize("deep", nested(MAX_VALUE_DEPTH)) == nested(MAX_VALUE_DEPTH)


@pytest.mark.parametrize("name", ["a", "a.b", "$x", "ü", "x" * 255, " "])
def test_a_name_may_hold_any_text(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", None, 5, "x" * 256, "a\0b", "\ud800"])
def test_a_name_that_cannot_be_stored_is_refused(name: object) -> None:
    with pytest.raises(VariableError, match="needs a name"):
        check_name(name)


@pytest.mark.field_case("S-77", "S-78")
def test_a_variable_larger_than_its_limit_is_refused() -> None:
    with pytest.raises(VariableTooLargeError, match=r"1,048,582 bytes, the limit is 1,048,576"):
        normalize("page", "x" * MAX_VARIABLE_BYTES)


@pytest.mark.field_case("S-78")
def test_variables_that_are_too_large_together_name_the_largest() -> None:
    values = {f"page{number}": "x" * 1_000_000 for number in range(8)}

    with pytest.raises(VariableTooLargeError, match="'cover' is the largest"):
        normalize_all({**values, "cover": "x" * 1_000_100})


def test_variables_within_the_limits_are_normalised_together() -> None:
    assert normalize_all({"a": (1,), "b": Carrier.VAN}) == {"a": [1], "b": "van"}


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("äb", 9),
        (b"abc", 9),
        (7, 9),
        (None, 9),
        (Decimal(1), 22),
        (AN_ID, 22),
        ([1, 2], 38),
        ({"ab": 1}, 21),
    ],
)
def test_the_size_of_a_value_is_about_what_the_database_needs(value: Value, size: int) -> None:
    assert size_of(value) == size


def applied(variables: dict[str, Value], *changes: VariableChange) -> dict[str, Value]:
    for change in changes:
        apply_change(variables, change)
    return variables


def test_changes_are_applied_in_order() -> None:
    found = applied(
        {"old": 1},
        SetVariable("weight", 2),
        IncrementVariable("weight", 1.5),
        IncrementVariable("count", 1),
        AppendToVariable("labels", "a"),
        AppendToVariable("labels", "b"),
        UnsetVariable("old"),
        UnsetVariable("never"),
    )

    assert found == {"weight": 3.5, "count": 1, "labels": ["a", "b"]}


def test_appending_leaves_the_earlier_list_alone() -> None:
    labels: list[Value] = ["a"]

    found = applied({"labels": labels}, AppendToVariable("labels", "b"))

    assert labels == ["a"]
    assert found == {"labels": ["a", "b"]}


@pytest.mark.parametrize("held", ["text", True, None, [1]])
def test_only_a_number_can_be_incremented(held: Value) -> None:
    with pytest.raises(VariableError, match="'n' cannot be incremented"):
        applied({"n": held}, IncrementVariable("n", 1))


def test_a_number_cannot_be_incremented_beyond_64_bits() -> None:
    with pytest.raises(VariableError, match="outside 64 bits"):
        applied({"n": 2**63 - 1}, IncrementVariable("n", 1))


@pytest.mark.parametrize("held", ["text", 1, None])
def test_only_a_list_can_be_appended_to(held: Value) -> None:
    with pytest.raises(VariableError, match="'items' cannot be appended to"):
        applied({"items": held}, AppendToVariable("items", 1))


@pytest.mark.parametrize(
    ("changes", "net"),
    [
        ([], ()),
        ([SetVariable("a", 1), SetVariable("a", 2)], (SetVariable("a", 2),)),
        ([SetVariable("a", 1), UnsetVariable("a")], (UnsetVariable("a"),)),
        ([UnsetVariable("a"), SetVariable("a", 1)], (SetVariable("a", 1),)),
        ([SetVariable("a", 1), IncrementVariable("a", 2)], (SetVariable("a", 3),)),
        ([UnsetVariable("a"), IncrementVariable("a", 2)], (SetVariable("a", 2),)),
        ([IncrementVariable("a", 2), SetVariable("a", 1)], (SetVariable("a", 1),)),
        ([IncrementVariable("a", 2), UnsetVariable("a")], (UnsetVariable("a"),)),
        ([IncrementVariable("a", 1), IncrementVariable("a", 2)], (IncrementVariable("a", 3),)),
        ([SetVariable("a", []), AppendToVariable("a", 1)], (SetVariable("a", [1]),)),
        (
            [AppendToVariable("a", 1), AppendToVariable("a", 2)],
            (AppendToVariable("a", 1), AppendToVariable("a", 2)),
        ),
        (
            [SetVariable("b", 1), IncrementVariable("a", 1), SetVariable("b", 2)],
            (SetVariable("b", 2), IncrementVariable("a", 1)),
        ),
    ],
)
def test_changes_come_to_at_most_one_kind_of_change_for_each_variable(
    changes: list[VariableChange], net: tuple[VariableChange, ...]
) -> None:
    assert net_changes(changes) == net


def test_a_variable_is_not_incremented_and_appended_to_in_one_step() -> None:
    with pytest.raises(VariableError, match="incremented and appended to"):
        net_changes([IncrementVariable("a", 1), AppendToVariable("a", 1)])
