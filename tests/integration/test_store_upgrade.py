"""Inspecting a database, and bringing one to another schema version."""

from collections.abc import AsyncIterator, Iterator
from copy import deepcopy

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import SchemaMismatchError
from kikwiflow_worker.model.runtime import Attachment, Branch, HostKind, TaskType
from kikwiflow_worker.store.mongo.codec import (
    encode_external_task,
    encode_incident,
    encode_instance,
    encode_task,
)
from kikwiflow_worker.store.mongo.collections import SCHEMA_VERSION, Collections, ensure_schema
from kikwiflow_worker.store.mongo.driver import CODEC_OPTIONS, open_database
from kikwiflow_worker.store.mongo.inspection import LISTED, Inspection
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.mongo.upgrades import STEPS, Step, upgrade_schema
from kikwiflow_worker.store.mongo.writes import children_canceller
from tests.support.mongo import MongoServer
from tests.support.stores import LONG_AGO, Json, a_task, an_external_task, an_incident, an_instance

pytestmark = pytest.mark.mongo

SAMPLE = 2_500


@pytest.fixture
def database(mongo_server: MongoServer, database_name: str) -> Iterator[Database[Json]]:
    """Return a database of this test alone, to look and write behind the store's back."""
    with MongoClient[Json](mongo_server.uri) as client:
        yield client.get_database(database_name, codec_options=CODEC_OPTIONS)


@pytest.fixture
async def store(mongo_server: MongoServer, database_name: str) -> AsyncIterator[MongoStore]:
    opened = MongoStore.open(mongo_server.uri, database_name, clock=SystemClock())
    await opened.prepare()
    yield opened
    await opened.close()


@pytest.fixture
async def collections(mongo_server: MongoServer, database_name: str) -> AsyncIterator[Collections]:
    client = AsyncMongoClient[Json](mongo_server.uri)
    yield Collections.of(open_database(client, database_name))
    await client.close()


async def inspected(store: MongoStore) -> Inspection:
    return await store.inspect(sample=SAMPLE)


# --- inspecting


async def test_a_prepared_database_is_in_order(store: MongoStore, database: Database[Json]) -> None:
    instance = an_instance()
    database.process_instances.insert_one(encode_instance(instance))
    database.executable_tasks.insert_one(encode_task(a_task(instance_id=instance.id)))

    found = await inspected(store)

    assert (found.version, found.missing_indexes, found.changed_indexes) == (SCHEMA_VERSION, (), ())
    assert (found.unreadable.count, found.orphans.count, found.stranded.count) == (0, 0, 0)
    assert found.examined["executable_tasks"] == 1


async def test_missing_and_changed_indexes_are_found_and_made_anew(
    store: MongoStore, database: Database[Json]
) -> None:
    database.executable_tasks.drop_index("join")
    database.executable_tasks.drop_index("worker")
    database.executable_tasks.create_index("workerId", name="worker")

    found = await inspected(store)
    upgraded = await store.upgrade()

    assert found.missing_indexes == ("executable_tasks.join",)
    assert found.changed_indexes == ("executable_tasks.worker",)
    assert set(upgraded.indexes) == {"executable_tasks.join", "executable_tasks.worker"}
    assert (await inspected(store)).changed_indexes == ()


async def test_documents_that_cannot_be_read_are_counted_and_the_first_are_named(
    store: MongoStore, database: Database[Json]
) -> None:
    row = encode_external_task(an_external_task())
    database.external_tasks.insert_many(
        [{**row, "_id": f"{number:02}", "type": "FROM_THE_FUTURE"} for number in range(LISTED + 5)]
    )

    found = (await inspected(store)).unreadable

    assert found.count == LISTED + 5
    assert len(found.named) == LISTED
    assert found.named[0].startswith("external_tasks 00: ValueError: 'FROM_THE_FUTURE'")


async def test_the_task_that_cancels_children_outlives_their_call_activity(
    store: MongoStore, database: Database[Json]
) -> None:
    canceller = children_canceller(Branch("children", "gone"), "definition-1", LONG_AGO)
    database.executable_tasks.insert_one(encode_task(canceller))

    assert (await inspected(store)).orphans.count == 0


async def test_rows_that_name_what_is_not_there_are_found(
    store: MongoStore, database: Database[Json]
) -> None:
    instance = an_instance()
    database.process_instances.insert_one(encode_instance(instance))
    alone = a_task(id="alone")
    branch = a_task(id="branch", instance_id=instance.id, branch=Branch("b", "no-join"))
    event = an_external_task(
        id="event",
        instance_id=instance.id,
        attached_to=Attachment("no-host", "HOST", HostKind.EXTERNAL_TASK),
    )
    canceller = a_task(id="canceller", type=TaskType.CANCEL_CHILDREN)
    keeper = a_task(id="keeper", type=TaskType.KEPT_MESSAGE)
    for task in (alone, branch, canceller, keeper):
        database.executable_tasks.insert_one(encode_task(task))
    database.external_tasks.insert_one(encode_external_task(event))
    database.incidents.insert_one(encode_incident(an_incident(a_task(id="gone"), id="incident")))

    found = (await inspected(store)).orphans

    assert {words.split(":")[0] for words in found.named} == {
        "executable_tasks alone",
        "executable_tasks branch",
        "external_tasks event",
        "incidents incident",
    }


async def test_an_instance_that_nothing_carries_on_is_found(
    store: MongoStore, database: Database[Json]
) -> None:
    carried, waiting, lost = an_instance(), an_instance(), an_instance()
    database.process_instances.insert_many(
        [encode_instance(each) for each in (carried, waiting, lost)]
    )
    database.executable_tasks.insert_one(encode_task(a_task(instance_id=carried.id)))
    database.external_tasks.insert_one(
        encode_external_task(an_external_task(instance_id=waiting.id))
    )

    found = (await inspected(store)).stranded

    assert found.named == [f"process_instances {lost.id}: no row carries it on"]


async def test_no_more_than_the_sample_is_read(store: MongoStore, database: Database[Json]) -> None:
    row = encode_instance(an_instance())
    database.process_history.insert_many(
        [{**row, "_id": f"{number:05}"} for number in range(SAMPLE + 1)]
    )

    assert (await inspected(store)).examined["process_history"] == SAMPLE


# --- upgrading


def with_colour(document: Json) -> Json:
    """Return the document as an imagined version 2 stores it: with a colour, and without its error."""
    upgraded = deepcopy(document)
    upgraded.setdefault("colour", "red")
    upgraded.pop("error", None)
    return upgraded


TO_2 = Step(2, {"tasks": with_colour})
TO_3 = Step(3, {"tasks": lambda document: {**document, "shape": "round"}})


def put_tasks(database: Database[Json], count: int) -> None:
    row = encode_task(a_task(error="the scales are busy"))
    database.executable_tasks.insert_many(
        [{**row, "_id": f"{number:05}"} for number in range(count)]
    )


async def test_an_older_database_is_brought_up_version_by_version(
    store: MongoStore, collections: Collections, database: Database[Json]
) -> None:
    put_tasks(database, 1_100)

    done = await upgrade_schema(collections, steps=(TO_2, TO_3), newest=3)

    assert (done.before, done.after, done.documents) == (1, 3, {"executable_tasks": 2_200})
    assert database.meta.find_one() == {"_id": "schema", "version": 3}
    upgraded = {"colour": "red", "shape": "round", "error": {"$exists": False}}
    assert database.executable_tasks.count_documents(upgraded) == 1_100


async def test_an_upgrade_that_was_interrupted_goes_on(
    store: MongoStore, collections: Collections, database: Database[Json]
) -> None:
    put_tasks(database, 3)
    database.executable_tasks.update_one(
        {"_id": "00000"}, {"$set": {"colour": "blue"}, "$unset": {"error": ""}}
    )

    done = await upgrade_schema(collections, steps=(TO_2,), newest=2)
    again = await upgrade_schema(collections, steps=(TO_2,), newest=2)

    assert done.documents == {"executable_tasks": 2}
    assert (again.before, again.documents) == (2, {})
    kept = database.executable_tasks.find_one({"_id": "00000"})
    assert kept is not None
    assert kept["colour"] == "blue"


async def test_a_document_that_changes_meanwhile_is_read_again(
    store: MongoStore, collections: Collections, database: Database[Json]
) -> None:
    put_tasks(database, 1)
    reads: list[Json] = []

    def slowly(document: Json) -> Json:
        if not reads:
            database.executable_tasks.update_one({}, {"$set": {"error": "another one"}})
        reads.append(document)
        return {**document, "error": document["error"].upper()}

    await upgrade_schema(collections, steps=(Step(2, {"tasks": slowly}),), newest=2)

    (stored,) = database.executable_tasks.find()
    assert stored["error"] == "ANOTHER ONE"
    assert len(reads) == 2


async def test_a_release_refuses_an_older_and_a_newer_database(
    store: MongoStore, collections: Collections
) -> None:
    with pytest.raises(SchemaMismatchError, match="store upgrade"):
        await ensure_schema(collections, newest=2)

    await upgrade_schema(collections, steps=(TO_2,), newest=2)
    with pytest.raises(SchemaMismatchError, match="run a newer kikwiflow-worker"):
        await ensure_schema(collections)
    with pytest.raises(SchemaMismatchError, match="run a newer kikwiflow-worker"):
        await upgrade_schema(collections)


def test_there_is_a_step_to_every_version_after_the_first() -> None:
    assert [step.version for step in STEPS] == list(range(2, SCHEMA_VERSION + 1))
