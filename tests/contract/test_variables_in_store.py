"""Variables in the database: each on its own, under any name, of any type."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from bson.datetime_ms import DatetimeMS
from pymongo.database import Database

from kikwiflow_worker.errors import StoreError
from kikwiflow_worker.model.limits import MAX_VALUE_DEPTH
from kikwiflow_worker.model.unit_of_work import ChangeVariables, InsertTask
from kikwiflow_worker.model.variables import (
    AppendToVariable,
    IncrementVariable,
    SetVariable,
    UnsetVariable,
    Value,
    VariableChange,
    normalize,
)
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.stores import Json, a_task, commit, put_instance, snapshot, together

pytestmark = pytest.mark.mongo

NAMES = [
    "weight",
    "parcel.weight",
    ".",
    "..a..",
    "$weight",
    "$set",
    "$",
    "%",
    "%2E",
    "%25",
    "100%",
    "a\uff0eb",
    "\uff04set",
    "0",
    "_id",
    "name",
    "value",
    " ",
    "\t",
    "größe",
    "📦",
    "a" * 255,
]

VALUES: list[Value] = [
    None,
    True,
    False,
    0,
    -1,
    2**31,
    2**63 - 1,
    -(2**63),
    0.1,
    float("inf"),
    "",
    "parcel",
    "$weight",
    "a\0b",
    b"",
    b"\x00\xff",
    Decimal("12.50"),
    Decimal("1E+6000"),
    Decimal("-0"),
    Decimal("9" * 34),
    UUID("12345678-1234-5678-1234-567812345678"),
    datetime(2024, 5, 1, 12, 30, 15, 123000, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
    [],
    {},
    [1, "two", [3.0, None], {"four": b"4"}],
    {"": 1, "a.b": {"$c": Decimal("1.0")}, "%": [UUID(int=0)], "\uff0e": True},
    {"$ref": "orders", "$id": 1},
    {"$ref": "orders", "$id": 1, "$db": "shop"},
    {"$date": 0},
    {"name": "x", "value": {"name": "y", "value": 1}},
]


async def change(store: MongoStore, instance_id: str, *changes: VariableChange) -> None:
    await commit(store, ChangeVariables(instance_id, changes))


async def variables_of(store: MongoStore, instance_id: str) -> dict[str, Value]:
    instance = await store.runtime.find_instance(instance_id)
    assert instance is not None
    return dict(instance.variables)


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_can_be_set_changed_and_unset(store: MongoStore, name: str) -> None:
    instance = await put_instance(store, variables={name: 1, "other": 2})
    assert await variables_of(store, instance.id) == {name: 1, "other": 2}

    await change(store, instance.id, IncrementVariable(name, 5))
    assert await variables_of(store, instance.id) == {name: 6, "other": 2}

    await change(store, instance.id, SetVariable(name, ["a"]))
    await change(store, instance.id, AppendToVariable(name, "b"))
    assert await variables_of(store, instance.id) == {name: ["a", "b"], "other": 2}

    await change(store, instance.id, UnsetVariable(name))
    assert await variables_of(store, instance.id) == {"other": 2}


async def test_names_that_look_alike_are_different_variables(store: MongoStore) -> None:
    instance = await put_instance(store)

    await change(store, instance.id, *(SetVariable(name, name) for name in NAMES))

    assert await variables_of(store, instance.id) == {name: name for name in NAMES}


async def test_every_type_comes_back_as_it_was_set(store: MongoStore) -> None:
    instance = await put_instance(store)
    expected = {f"v{index}": value for index, value in enumerate(VALUES)}

    await change(
        store, instance.id, *(SetVariable(name, value) for name, value in expected.items())
    )

    found = await variables_of(store, instance.id)
    assert found == expected
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in expected.items()
    }
    assert [str(value) for value in found.values() if isinstance(value, Decimal)] == [
        str(value) for value in expected.values() if isinstance(value, Decimal)
    ]


async def test_every_type_can_be_appended(store: MongoStore) -> None:
    instance = await put_instance(store)

    await change(store, instance.id, *(AppendToVariable("all", value) for value in VALUES))

    assert await variables_of(store, instance.id) == {"all": VALUES}


async def test_not_a_number_comes_back(store: MongoStore) -> None:
    instance = await put_instance(store, variables={"f": float("nan"), "d": Decimal("NaN")})

    found = await variables_of(store, instance.id)

    assert found["f"] != found["f"]
    assert isinstance(found["d"], Decimal)
    assert found["d"].is_nan()


@pytest.mark.field_case("S-79")
async def test_an_instant_of_any_zone_comes_back_to_the_millisecond(store: MongoStore) -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    given = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=zone)
    instance = await put_instance(store, variables={"at": normalize("at", given)})

    (found,) = (await variables_of(store, instance.id)).values()

    assert found == given.replace(microsecond=123000)
    assert isinstance(found, datetime)
    assert found.utcoffset() == timedelta(0)


@pytest.mark.field_case("S-79")
async def test_a_date_that_no_datetime_can_hold_is_read_as_text(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = await put_instance(store, variables={"at": normalize("at", "soon"), "n": 1})
    far = {"$set": {"variables.at.value": DatetimeMS(2**60)}}
    data.process_instances.update_one({"_id": instance.id}, far)

    found = await variables_of(store, instance.id)

    assert isinstance(found["at"], str)
    assert str(2**60) in found["at"]
    assert found["n"] == 1


async def test_the_deepest_value_allowed_can_be_stored(store: MongoStore) -> None:
    deep: Value = "bottom"
    for level in range(MAX_VALUE_DEPTH):
        deep = [deep] if level % 2 else {"in": deep}
    instance = await put_instance(store)

    await change(store, instance.id, SetVariable("deep", normalize("deep", deep)))

    assert await variables_of(store, instance.id) == {"deep": deep}


async def test_a_variable_that_does_not_exist_is_counted_from_zero(store: MongoStore) -> None:
    instance = await put_instance(store)

    await change(store, instance.id, IncrementVariable("count", 3))

    assert await variables_of(store, instance.id) == {"count": 3}


async def test_a_variable_that_does_not_exist_is_appended_to_as_an_empty_list(
    store: MongoStore,
) -> None:
    instance = await put_instance(store)

    await change(store, instance.id, AppendToVariable("all", [1]), AppendToVariable("all", 2))

    assert await variables_of(store, instance.id) == {"all": [[1], 2]}


async def test_an_increment_past_32_bits_stays_whole(store: MongoStore) -> None:
    instance = await put_instance(store, variables={"count": 2**31 - 1})

    await change(store, instance.id, IncrementVariable("count", 1))

    assert await variables_of(store, instance.id) == {"count": 2**31}


async def test_changes_of_one_variable_in_one_unit_are_applied_in_order(
    store: MongoStore,
) -> None:
    instance = await put_instance(store, variables={"a": 1, "b": 1, "c": 1})

    await change(
        store,
        instance.id,
        SetVariable("a", 10),
        IncrementVariable("a", 5),
        UnsetVariable("b"),
        AppendToVariable("b", "x"),
        IncrementVariable("c", 1),
        UnsetVariable("c"),
    )

    assert await variables_of(store, instance.id) == {"a": 15, "b": ["x"]}


async def test_changes_of_different_variables_at_once_never_disturb_each_other(
    store: MongoStore,
) -> None:
    instance = await put_instance(store)

    await together(
        *(
            lambda name=f"v{n}": change(store, instance.id, SetVariable(name, name))
            for n in range(8)
        )
    )

    assert await variables_of(store, instance.id) == {f"v{n}": f"v{n}" for n in range(8)}


async def test_increments_and_appends_at_once_are_never_lost(store: MongoStore) -> None:
    instance = await put_instance(store)

    await together(
        *(
            lambda n=n: change(
                store, instance.id, IncrementVariable("count", 1), AppendToVariable("all", n)
            )
            for n in range(8)
        )
    )

    found = await variables_of(store, instance.id)
    assert found["count"] == 8
    assert isinstance(found["all"], list)
    assert sorted(found["all"], key=str) == list(range(8))


@pytest.mark.parametrize("change_made", [IncrementVariable("v", 1), AppendToVariable("v", 1)])
async def test_what_became_of_another_type_meanwhile_stops_the_unit(
    store: MongoStore, data: Database[Json], change_made: VariableChange
) -> None:
    instance = await put_instance(store, variables={"v": "text"})
    before = snapshot(data)

    with pytest.raises(StoreError):
        await commit(store, InsertTask(a_task()), ChangeVariables(instance.id, (change_made,)))

    assert snapshot(data) == before
