"""Servers that are away, silent, closed to us, or not what we need."""

import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.embedded import find_mongod
from kikwiflow_worker.errors import (
    ClaimLostError,
    ConfigurationError,
    DuplicateStartError,
    SchemaMismatchError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kikwiflow_worker.model.runtime import Branch, InstanceStatus, TaskStatus
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    CompleteExternalTask,
    EndPath,
    FailTask,
    InsertExternalTask,
    InsertInstance,
    InsertTask,
    OpenIncident,
    RemoveTask,
    ReserveStartKey,
)
from kikwiflow_worker.store.mongo.codec import encode_external_task, encode_incident, encode_task
from kikwiflow_worker.store.mongo.locks import MongoLockKeeper
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from tests.support.groups import HAND_ON, commit_group, committed, put_claimed, step
from tests.support.mongo import MongoServer
from tests.support.stores import (
    LOCK,
    LONG_AGO,
    RIVAL,
    WORKER,
    Json,
    a_branch_task,
    a_join,
    a_task,
    an_external_task,
    an_incident,
    an_instance,
    claim,
    claim_any,
    claim_many,
    commit,
    lapse,
    put_instance,
)

pytestmark = [pytest.mark.mongo, pytest.mark.usefixtures("leaking_driver")]


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Return a port where connections are taken and nobody ever answers."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def prepare(
    uri: str, database: str = "test", *, allow_standalone: bool = False
) -> MongoStore:
    options = StoreOptions(allow_standalone=allow_standalone)
    store = MongoStore.open(uri, database, clock=SystemClock(), options=options)
    try:
        await store.prepare()
    except BaseException:
        await store.close()
        raise
    return store


async def test_a_server_that_is_away_is_reported_within_the_time_the_uri_gives() -> None:
    uri = f"mongodb://127.0.0.1:{free_port()}/?timeoutMS=300"
    started = time.monotonic()

    with pytest.raises(StoreUnavailableError, match=r"reaching the database.*127\.0\.0\.1"):
        await prepare(uri)

    assert time.monotonic() - started < 3


async def test_a_server_that_never_answers_is_reported_within_the_time_the_uri_gives(
    silent_port: int,
) -> None:
    uri = f"mongodb://127.0.0.1:{silent_port}/?timeoutMS=300&directConnection=true&connectTimeoutMS=300"
    started = time.monotonic()

    with pytest.raises(StoreUnavailableError):
        await prepare(uri)

    assert time.monotonic() - started < 3


def test_the_lock_keeper_reports_a_server_that_is_away_in_time() -> None:
    uri = f"mongodb://127.0.0.1:{free_port()}/?timeoutMS=300"
    keeper = MongoLockKeeper(uri, "test")
    started = time.monotonic()

    with closing(keeper), pytest.raises(StoreUnavailableError, match="unknown locks"):
        keeper.release_unknown(WORKER, known=frozenset())

    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://",
        "mongodb://127.0.0.1:99999999/",
        "mongodb://ann:s3cr3t@pass@127.0.0.1/",
        "mongodb://ann:s3/cr3t@127.0.0.1/",
        "mongodb://ann:s3cr3t@127.0.0.1:99999999/",
    ],
)
async def test_a_uri_that_cannot_be_used_is_refused_without_its_password(uri: str) -> None:
    for opening in (
        lambda: MongoStore.open(uri, "test", clock=SystemClock()),
        lambda: MongoLockKeeper(uri, "test"),
    ):
        with pytest.raises(ConfigurationError, match="MongoDB URI cannot be used") as caught:
            opening()

        assert "s3" not in str(caught.value)
        assert "cr3t" not in str(caught.value)


async def test_refused_credentials_are_a_mistake_in_the_configuration_and_stay_secret(
    mongo_server: MongoServer,
) -> None:
    parts = urlsplit(mongo_server.uri)
    uri = parts._replace(netloc=f"ann:s3cr3t@{parts.hostname}:{parts.port}").geturl()

    with pytest.raises(StoreRefusedError, match="check the user") as caught:
        await prepare(uri)

    error: BaseException | None = caught.value
    while error is not None:
        assert "s3cr3t" not in f"{error}{error!r}"
        error = error.__cause__ or error.__context__


async def test_preparing_again_changes_nothing(mongo_uri: str, database_name: str) -> None:
    for _ in range(2):
        store = await prepare(mongo_uri, database_name)
        await store.close()

    with MongoClient[Json](mongo_uri) as client:
        assert client[database_name].meta.find_one() == {"_id": "schema", "version": 1}


async def test_a_database_of_a_newer_release_is_refused(mongo_uri: str, database_name: str) -> None:
    with MongoClient[Json](mongo_uri) as client:
        client[database_name].meta.insert_one({"_id": "schema", "version": 2})

    with pytest.raises(SchemaMismatchError, match="schema version 2"):
        await prepare(mongo_uri, database_name)


async def test_an_index_that_is_in_the_way_is_named(mongo_uri: str, database_name: str) -> None:
    with MongoClient[Json](mongo_uri) as client:
        client[database_name].executable_tasks.create_index("something", name="claim")

    with pytest.raises(SchemaMismatchError, match="'claim' of executable_tasks"):
        await prepare(mongo_uri, database_name)


@pytest.fixture(scope="module")
def standalone_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server that is no replica set."""
    try:
        mongod = find_mongod()
    except ConfigurationError as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("standalone")
    port = free_port()
    command = [
        str(mongod), "--dbpath", str(directory), "--port", str(port), "--bind_ip", "127.0.0.1",
        "--nounixsocket", "--wiredTigerCacheSizeGB", "0.25", "--quiet",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            uri = f"mongodb://127.0.0.1:{port}"
            with MongoClient[Json](uri, serverSelectionTimeoutMS=20_000) as client:
                client.admin.command("ping")
            yield uri
        finally:
            server.terminate()
            server.wait(30)
    shutil.rmtree(directory)


@pytest.fixture
def standalone_data(standalone_uri: str, tmp_path: Path) -> Iterator[Database[Json]]:
    with MongoClient[Json](standalone_uri) as client:
        yield client["standalone"]
        client.drop_database("standalone")


@pytest.fixture
async def standalone(
    standalone_uri: str, standalone_data: Database[Json]
) -> AsyncIterator[MongoStore]:
    store = await prepare(standalone_uri, "standalone", allow_standalone=True)
    yield store
    await store.close()


async def test_a_server_without_transactions_is_refused(standalone_uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"standalone.*--replSet.*--allow-standalone"):
        await prepare(standalone_uri)


async def test_a_standalone_server_runs_an_instance_from_start_to_end(
    standalone: MongoStore, standalone_data: Database[Json]
) -> None:
    instance = an_instance(variables={"weight": 7})
    first, second = a_task(instance_id=instance.id), a_task(instance_id=instance.id)
    reserve = ReserveStartKey("key-1", instance.id, None, LONG_AGO)
    await commit(standalone, reserve, InsertInstance(instance), InsertTask(first))

    claimed = await claim_any(standalone)
    assert claimed is not None
    assert claimed.instance == instance
    await commit(standalone, InsertTask(second), guards=(RemoveTask(claimed.claim),))
    following = await claim_any(standalone)
    assert following is not None
    assert following.claim.task_id == second.id
    committed = await commit(
        standalone, EndPath(instance.id, LONG_AGO), guards=(RemoveTask(following.claim),)
    )

    (ended,) = committed.ended
    assert await standalone.runtime.find_ended_instance(instance.id) == ended
    assert standalone_data.executable_tasks.count_documents({}) == 0
    with pytest.raises(DuplicateStartError):
        await commit(standalone, ReserveStartKey("key-1", "other", None, LONG_AGO))


async def test_a_standalone_server_fences_a_stolen_claim(
    standalone: MongoStore, standalone_data: Database[Json]
) -> None:
    task = a_task()
    await commit(standalone, InsertTask(task))
    stolen = await claim(standalone, task)
    lapse(standalone_data, task.id)
    await claim_any(standalone, RIVAL)

    with pytest.raises(ClaimLostError):
        await commit(standalone, InsertTask(a_task()), guards=(RemoveTask(stolen),))

    assert standalone_data.executable_tasks.count_documents({}) == 1


async def test_a_standalone_server_writes_groups_one_by_one_and_hands_nothing_on(
    standalone: MongoStore, standalone_data: Database[Json]
) -> None:
    held = [one for _, _, one in await put_claimed(standalone, 3)]
    await standalone.queue.release(held[1])
    units = [step(standalone, one, id=f"next-{number}") for number, one in enumerate(held)]

    results = await commit_group(standalone, *units, hand_on=HAND_ON)

    assert isinstance(results[1], ClaimLostError)
    assert [one.handed_on for one in committed((results[0], results[2]))] == [None, None]
    rows = {row["_id"]: row["status"] for row in standalone_data.executable_tasks.find()}
    assert rows == {"next-0": "PENDING", held[1].task_id: "PENDING", "next-2": "PENDING"}


async def test_a_standalone_server_claims_in_batches(standalone: MongoStore) -> None:
    tasks = [a_task() for _ in range(8)]
    await commit(standalone, *(InsertTask(task) for task in tasks))

    claimed = await claim_many(standalone, 20)

    assert {one.claim.task_id for one in claimed} == {task.id for task in tasks}


async def test_a_standalone_server_has_no_hints_and_says_so_at_once(
    standalone: MongoStore,
) -> None:
    assert [hint async for hint in standalone.wake_ups.watch()] == []


async def test_a_standalone_server_joins_branches_and_cancels(
    standalone: MongoStore, standalone_data: Database[Json]
) -> None:
    instance = an_instance()
    join = a_join("b1", instance_id=instance.id)
    task = a_branch_task(join, "b1")
    await put_instance(standalone, join, task, id=instance.id)
    held = await claim(standalone, task)

    committed = await commit(standalone, guards=(ArriveTask(held, Branch("b1", join.id)),))

    assert committed.claimable == 1
    assert await standalone.runtime.cancel_instance(instance.id, cancelled_by="ann")
    assert standalone_data.executable_tasks.count_documents({}) == 0
    ended = await standalone.runtime.find_ended_instance(instance.id)
    assert ended is not None
    assert ended.status is InstanceStatus.CANCELLED


async def test_a_standalone_server_repeats_a_step_that_a_crash_left_half_written(
    standalone: MongoStore, standalone_data: Database[Json]
) -> None:
    task, following = a_task(), a_task()
    external, incident = an_external_task(), an_incident(task)
    await commit(standalone, InsertTask(task))
    standalone_data.executable_tasks.insert_one(encode_task(following))
    standalone_data.external_tasks.insert_one(encode_external_task(external))
    standalone_data.incidents.insert_one(encode_incident(incident))

    await commit(
        standalone,
        InsertTask(following),
        InsertExternalTask(external),
        OpenIncident(incident),
        guards=(FailTask(claim=await claim(standalone, task), attempts=1, error="no scales"),),
    )

    row = await standalone.reads.find_task(task.id)
    assert row is not None
    assert row.status is TaskStatus.ERROR
    assert await standalone.runtime.find_external_task(external.id) == external
    assert await standalone.runtime.retry_incident(incident.id, retries=2, resolved_by=None)


async def test_a_standalone_server_records_a_completion_that_ends_the_instance(
    standalone: MongoStore,
) -> None:
    instance = await put_instance(standalone)
    external = an_external_task(instance_id=instance.id)
    await commit(standalone, InsertExternalTask(external))
    completion = CompleteExternalTask(
        task_id=external.id,
        instance_id=instance.id,
        definition_id=external.definition_id,
        node_id=external.node_id,
        completed_at=LONG_AGO + timedelta(days=30_000),
        completed_by="ann",
    )

    await commit(standalone, EndPath(instance.id, LONG_AGO), guards=(completion,))

    record = await standalone.reads.find_completed_external_task(external.id)
    assert record is not None
    assert record.completed_by == "ann"


async def test_a_standalone_server_keeps_locks(
    standalone: MongoStore, standalone_uri: str, standalone_data: Database[Json]
) -> None:
    task = a_task()
    await commit(standalone, InsertTask(task))
    held = await claim(standalone, task)

    with closing(MongoLockKeeper(standalone_uri, "standalone")) as keeper:
        assert keeper.renew([held], lock=LOCK) == frozenset()
