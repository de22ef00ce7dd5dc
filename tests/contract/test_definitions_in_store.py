"""Deployed definitions: versions are counted without gaps or doubles, and never change."""

import pytest
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.definition import DefinitionFile
from kikwiflow_worker.store.mongo.driver import Client
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.definitions import a_file, read
from tests.support.stores import Json, new_id, together

pytestmark = pytest.mark.mongo


def a_definition(name: str = "first", *, key: str = "parcel") -> DefinitionFile:
    return read(a_file(key=key, name=name))


async def test_the_first_deploy_is_version_one(store: MongoStore) -> None:
    deployment = await store.definitions.put(a_definition(), activate=False)

    assert (deployment.created, deployment.is_latest) == (True, True)
    assert deployment.definition.version == 1


async def test_a_definition_reads_as_it_was_deployed(
    store: MongoStore, client: Client, data: Database[Json]
) -> None:
    file = a_definition()
    deployment = await store.definitions.put(file, activate=False)
    others = MongoStore.over(client, data.name, clock=SystemClock())

    found = await others.definitions.find(deployment.definition.id)

    assert found == deployment.definition
    assert (found.source, found.checksum) == (file.source, file.checksum)


async def test_the_same_content_again_stores_nothing(store: MongoStore) -> None:
    first = await store.definitions.put(a_definition(), activate=False)

    again = await store.definitions.put(a_definition(), activate=False)

    assert (again.created, again.is_latest) == (False, True)
    assert again.definition == first.definition


async def test_other_content_is_the_next_version(store: MongoStore) -> None:
    await store.definitions.put(a_definition("first"), activate=False)

    second = await store.definitions.put(a_definition("second"), activate=False)

    assert (second.created, second.definition.version) == (True, 2)


async def test_keys_are_counted_apart(store: MongoStore) -> None:
    await store.definitions.put(a_definition(key="parcel"), activate=False)

    other = await store.definitions.put(a_definition(key="letter"), activate=False)

    assert other.definition.version == 1


async def test_older_content_does_not_become_the_latest(store: MongoStore) -> None:
    first = await store.definitions.put(a_definition("first"), activate=False)
    second = await store.definitions.put(a_definition("second"), activate=False)

    again = await store.definitions.put(a_definition("first"), activate=False)

    assert (again.created, again.is_latest) == (False, False)
    assert again.definition == first.definition
    assert await store.definitions.find_by_key("parcel") == second.definition


async def test_older_content_becomes_the_latest_when_activated(store: MongoStore) -> None:
    await store.definitions.put(a_definition("first"), activate=False)
    await store.definitions.put(a_definition("second"), activate=False)

    again = await store.definitions.put(a_definition("first"), activate=True)

    assert again.is_latest
    latest = await store.definitions.find_by_key("parcel")
    assert latest == again.definition
    assert latest.name == "first"


async def test_activating_the_latest_stores_nothing(store: MongoStore) -> None:
    await store.definitions.put(a_definition(), activate=False)

    again = await store.definitions.put(a_definition(), activate=True)

    assert (again.created, again.is_latest, again.definition.version) == (False, True, 1)


async def test_deploys_of_different_content_at_once_never_share_a_version(
    store: MongoStore,
) -> None:
    results = await together(
        *(
            lambda n=n: store.definitions.put(a_definition(f"name {n}"), activate=False)
            for n in range(6)
        )
    )

    assert sorted(result.definition.version for result in results) == [1, 2, 3, 4, 5, 6]
    assert all(result.created for result in results)


async def test_deploys_of_the_same_content_at_once_are_one_version(store: MongoStore) -> None:
    results = await together(
        *(lambda: store.definitions.put(a_definition(), activate=False) for _ in range(6))
    )

    assert sum(result.created for result in results) == 1
    assert {result.definition.id for result in results} == {results[0].definition.id}
    assert len(await store.reads.list_definitions(key="parcel")) == 1


async def test_a_version_is_found_by_its_number(store: MongoStore) -> None:
    first = await store.definitions.put(a_definition("first"), activate=False)
    await store.definitions.put(a_definition("second"), activate=False)

    assert await store.definitions.find_by_key("parcel", version=1) == first.definition
    assert await store.definitions.find_by_key("parcel", version=3) is None


async def test_what_was_never_deployed_is_not_found(store: MongoStore) -> None:
    assert await store.definitions.find(new_id()) is None
    assert await store.definitions.find_by_key("parcel") is None


async def test_the_latest_is_looked_up_each_time(
    store: MongoStore, client: Client, data: Database[Json]
) -> None:
    await store.definitions.put(a_definition("first"), activate=False)
    await store.definitions.find_by_key("parcel")
    others = MongoStore.over(client, data.name, clock=SystemClock())
    second = await others.definitions.put(a_definition("second"), activate=False)

    assert await store.definitions.find_by_key("parcel") == second.definition


async def test_the_list_has_the_latest_of_every_key(store: MongoStore) -> None:
    for key, name in (("parcel", "a"), ("parcel", "b"), ("letter", "c")):
        await store.definitions.put(a_definition(name, key=key), activate=False)

    latest = await store.reads.list_definitions()
    versions = await store.reads.list_definitions(key="parcel")

    assert [(one.key, one.version, one.name) for one in latest] == [
        ("letter", 1, "c"),
        ("parcel", 2, "b"),
    ]
    assert [one.version for one in versions] == [2, 1]
