"""Variables that are encrypted at rest: what is stored, who can read it, and how keys are changed under running workers."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import ConfigurationError, EncryptionError
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.model.runtime import ExternalTask, ProcessInstance
from kikwiflow_worker.model.unit_of_work import ChangeVariables
from kikwiflow_worker.model.variables import AppendToVariable, IncrementVariable, SetVariable
from kikwiflow_worker.store.keys import KeyRing
from kikwiflow_worker.store.mongo import key_checks
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Client
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.reencrypting import Reencrypted
from kikwiflow_worker.store.mongo.sealing import SUBTYPE
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from kikwiflow_worker.store.views import ExternalTaskQuery, IncidentQuery
from tests.support.commands import CommandCounter
from tests.support.mongo import MongoServer
from tests.support.sealed import (
    KEY,
    MARKER,
    OLD_RING,
    RING,
    client,
    no_noted_keys,
    running,
    store_with,
    stored_bytes,
    work,
)
from tests.support.stores import Json, commit, put_instance

__all__ = ["client", "no_noted_keys"]

PROCESS = """{"key": "parcels", "defaultStartPoint": "START", "flowNodes": {
  "START": {"type": "DEFAULT_START_EVENT", "outgoing": [{"targetNodeId": "EACH"}]},
  "EACH": {"type": "CALL_ACTIVITY_COORDINATOR", "calledElement": "parcel", "collectionVariable": "parcels",
    "elementVariable": "parcel", "iterationMode": "SEQUENTIAL", "outgoing": [{"targetNodeId": "END"}],
    "extensionProperties": {"kikwiflow.outputs": "label"}},
  "END": {"type": "DEFAULT_END_EVENT"}}}"""
CHILD = """{"key": "parcel", "defaultStartPoint": "START", "flowNodes": {
  "START": {"type": "DEFAULT_START_EVENT", "outgoing": [{"targetNodeId": "PACK"}]},
  "PACK": {"type": "EXTERNAL_TASK", "outgoing": [{"targetNodeId": "END"}]},
  "END": {"type": "DEFAULT_END_EVENT"}}}"""


def entry(data: Database[Json], instance: ProcessInstance, name: str) -> Any:
    """Return what is stored of one variable."""
    row = data.process_instances.find_one({"_id": instance.id})
    assert row is not None
    return row["variables"][name]["value"]


async def variables_of(store: MongoStore, instance_id: str) -> dict[str, Any]:
    """Return the variables of a running instance."""
    instance = await store.runtime.find_instance(instance_id)
    assert instance is not None
    return dict(instance.variables)


async def the_open_task(kikwiflow: Kikwiflow) -> ExternalTask:
    """Return the only external task that is open."""
    (task,) = (await kikwiflow.reads.list_external_tasks(ExternalTaskQuery())).items
    return task


# --- what is stored


async def test_no_value_of_a_variable_is_stored_plain_anywhere(
    client: Client, data: Database[Json]
) -> None:
    options = StoreOptions(keys=RING, outbox=OutboxOptions(EventLevel.FULL))
    store = MongoStore.over(client, data.name, clock=SystemClock(), options=options)
    await store.ping()
    async with running(store) as kikwiflow:
        await kikwiflow.deploy(CHILD)
        await kikwiflow.deploy(PROCESS)
        started = await kikwiflow.start(
            "parcels", "B-1", variables={"parcels": [f"{MARKER}-1", f"{MARKER}-2"], "who": MARKER}
        )
        await kikwiflow.correlate(
            "nobody", variables={"kept": MARKER}, keep_for=timedelta(hours=1), message_id="m-1"
        )
        for _ in range(2):
            await work(store, kikwiflow)
            task = await the_open_task(kikwiflow)
            await kikwiflow.complete(task.id, {"label": f"{MARKER}-label"})
        await work(store, kikwiflow)
        ended = await kikwiflow.get_instance(started.id)

    assert ended.status.value == "COMPLETED"
    assert ended.variables["label"] == f"{MARKER}-label"
    assert data.process_history.count_documents({}) == 3
    assert data.outbox_events.count_documents({}) > 0
    assert data.messages.count_documents({}) == 1
    assert MARKER not in stored_bytes(data)


async def test_without_keys_nothing_is_sealed_and_no_command_is_added(
    mongo_server: MongoServer, data: Database[Json]
) -> None:
    sent: dict[bool, list[str]] = {}
    for sealed in (False, True):
        counter = CommandCounter()
        opened: Client = AsyncMongoClient(mongo_server.uri, event_listeners=[counter])
        store = store_with(opened, data, RING if sealed else None)
        await store.ping()
        with counter.counting() as sent[sealed]:
            instance = await put_instance(store, variables={"v": 1})
            await commit(store, ChangeVariables(instance.id, (SetVariable("v", 2),)))
        assert (getattr(entry(data, instance, "v"), "subtype", None) == SUBTYPE) is sealed
        await opened.close()

    assert sent[False] == sent[True]


async def test_a_value_is_worth_nothing_in_another_place(
    client: Client, data: Database[Json]
) -> None:
    store = store_with(client, data, RING)
    rich = await put_instance(store, variables={"limit": 1_000_000, "note": "n"})
    poor = await put_instance(store, variables={"limit": 10})
    taken = entry(data, rich, "limit")

    data.process_instances.update_one({"_id": poor.id}, {"$set": {"variables.limit.value": taken}})
    data.process_instances.update_one({"_id": rich.id}, {"$set": {"variables.note.value": taken}})

    for instance in (poor, rich):
        with pytest.raises(EncryptionError, match="was altered or moved"):
            await variables_of(store, instance.id)


@pytest.mark.parametrize("has_transactions", [True, False])
async def test_increments_and_appends_at_once_are_never_lost(
    client: Client, data: Database[Json], has_transactions: bool
) -> None:
    store = store_with(client, data, RING)
    await store.ping()
    store._transactions.enabled = has_transactions
    instance = await put_instance(store, variables={"n": 0})
    turns = 12

    await asyncio.gather(
        *(
            commit(
                store,
                ChangeVariables(
                    instance.id, (IncrementVariable("n", 1), AppendToVariable("all", turn))
                ),
            )
            for turn in range(turns)
        )
    )

    found = await variables_of(store, instance.id)
    assert found["n"] == turns
    assert sorted(found["all"]) == list(range(turns))


# --- keys


async def test_plain_values_stay_readable_after_switching_on(
    client: Client, data: Database[Json]
) -> None:
    instance = await put_instance(store_with(client, data, None), variables={"a": 1, "all": [1]})
    store = store_with(client, data, RING)

    await commit(
        store,
        ChangeVariables(
            instance.id,
            (SetVariable("b", 2), IncrementVariable("a", 4), AppendToVariable("all", 2)),
        ),
    )

    assert await variables_of(store, instance.id) == {"a": 5, "all": [1, 2], "b": 2}
    assert entry(data, instance, "all").subtype == SUBTYPE


async def test_old_keys_decrypt_and_the_first_encrypts(
    client: Client, data: Database[Json]
) -> None:
    instance = await put_instance(store_with(client, data, OLD_RING), variables={"old": 1})
    store = store_with(client, data, RING)

    await commit(store, ChangeVariables(instance.id, (SetVariable("new", 2),)))

    assert await variables_of(store, instance.id) == {"old": 1, "new": 2}
    assert b"2026-05" in entry(data, instance, "old")
    assert b"2026-11" in entry(data, instance, "new")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (None, "which is not given here"),
        (KeyRing({"other": KEY}, current="other"), "which is not given here"),
        (
            KeyRing({"2026-11": bytes(32)}, current="2026-11"),
            "the file has another key by that name",
        ),
    ],
)
async def test_a_process_without_a_key_of_the_database_does_not_start(
    client: Client, data: Database[Json], keys: KeyRing | None, why: str
) -> None:
    await store_with(client, data, RING).prepare()

    with pytest.raises(ConfigurationError, match=why):
        await store_with(client, data, keys).prepare()


async def test_a_key_that_came_first_is_kept_when_others_begin_at_once(
    client: Client, data: Database[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    rivals = [KeyRing({"k": bytes([n]) * 32}, current="k") for n in range(4)]
    together, find = asyncio.Barrier(len(rivals)), key_checks._find

    async def find_before_any_has_noted(collections: Collections) -> Any:
        noted = await find(collections)
        await together.wait()
        return noted

    monkeypatch.setattr(key_checks, "_find", find_before_any_has_noted)
    results = await asyncio.gather(
        *(store_with(client, data, keys).prepare() for keys in rivals), return_exceptions=True
    )

    assert [type(one) for one in results].count(type(None)) == 1
    assert [type(one) for one in results].count(ConfigurationError) == 3


async def test_a_step_that_cannot_read_its_variables_becomes_an_incident_and_goes_on_later(
    client: Client, data: Database[Json]
) -> None:
    with_key, without = store_with(client, data, RING), store_with(client, data, None)
    async with running(with_key) as kikwiflow:
        await kikwiflow.deploy(CHILD)
        await kikwiflow.deploy(PROCESS)
        started = await kikwiflow.start("parcels", "B-1", variables={"parcels": [MARKER]})
    async with running(without) as keyless:
        await work(without, keyless)
        (incident,) = (await keyless.reads.list_incidents(IncidentQuery())).items
        assert "is encrypted with key '2026-11', which is not here" in incident.message
        assert MARKER not in incident.message + incident.stack_trace
    async with running(with_key) as kikwiflow:
        await kikwiflow.retry_incident(incident.id)
        await work(with_key, kikwiflow)
        task = await the_open_task(kikwiflow)
        await kikwiflow.complete(task.id, {"label": "L"})
        await work(with_key, kikwiflow)
        assert (await kikwiflow.get_instance(started.id)).variables["label"] == "L"


async def test_an_instance_that_cannot_be_read_can_be_cancelled_and_keeps_its_values(
    client: Client, data: Database[Json]
) -> None:
    with_key, without = store_with(client, data, RING), store_with(client, data, None)
    async with running(with_key) as kikwiflow:
        await kikwiflow.deploy(CHILD)
        started = await kikwiflow.start("parcel", "B-1", variables={"v": MARKER})
    async with running(without) as keyless:
        await keyless.cancel(started.id)
        await work(without, keyless)

    ended = await with_key.runtime.find_ended_instance(started.id)
    assert ended is not None
    assert ended.variables == {"v": MARKER}


async def test_store_check_names_what_cannot_be_decrypted(
    client: Client, data: Database[Json]
) -> None:
    instance = await put_instance(store_with(client, data, RING), variables={"v": MARKER})

    found = await store_with(client, data, OLD_RING).inspect(sample=100)

    (named,) = found.unreadable.named
    assert instance.id in named
    assert "2026-11" in named
    assert (await store_with(client, data, RING).inspect(sample=100)).unreadable.count == 0


# --- reencrypt


async def reencrypt(
    client: Client, data: Database[Json], keys: KeyRing, *, batch: int = 10
) -> Reencrypted:
    return await store_with(client, data, keys).reencrypt(batch=batch, progressed=lambda _: None)


async def test_reencrypt_brings_every_value_to_the_first_key_and_forgets_the_others(
    client: Client, data: Database[Json]
) -> None:
    old = store_with(client, data, OLD_RING)
    await old.prepare()
    plain = await put_instance(store_with(client, data, None), variables={"v": MARKER, "n": None})
    sealed = await put_instance(old, variables={"v": [MARKER]})

    done = await reencrypt(client, data, RING)

    assert done.changed == 3
    assert done.unreadable == 0
    only_new = KeyRing({"2026-11": KEY}, current="2026-11")
    store = store_with(client, data, only_new)
    await store.prepare()
    assert await variables_of(store, plain.id) == {"v": MARKER, "n": None}
    assert await variables_of(store, sealed.id) == {"v": [MARKER]}
    assert MARKER not in stored_bytes(data)
    assert (await reencrypt(client, data, only_new)).changed == 0


async def test_reencrypt_with_plain_first_stores_values_as_they_are(
    client: Client, data: Database[Json]
) -> None:
    instance = await put_instance(store_with(client, data, RING), variables={"v": MARKER})

    await reencrypt(client, data, KeyRing(RING.keys, current=None))

    store = store_with(client, data, None)
    await store.prepare()
    assert await variables_of(store, instance.id) == {"v": MARKER}


async def test_reencrypt_leaves_what_it_cannot_read_and_says_so(
    client: Client, data: Database[Json]
) -> None:
    instance = await put_instance(store_with(client, data, OLD_RING), variables={"v": MARKER})

    done = await reencrypt(client, data, KeyRing({"new": KEY}, current="new"))

    assert (done.changed, done.unreadable, done.unreadable_keys) == (0, 1, {"2026-05"})
    assert await variables_of(store_with(client, data, OLD_RING), instance.id) == {"v": MARKER}


class KilledError(Exception):
    """Stands for the end of the process."""


async def test_an_interrupted_reencrypt_goes_on_where_it_was(
    client: Client, data: Database[Json]
) -> None:
    plain = store_with(client, data, None)
    for _ in range(6):
        await put_instance(plain, variables={"v": 1})

    def die(_: Reencrypted) -> None:
        raise KilledError

    with pytest.raises(KilledError):
        await store_with(client, data, RING).reencrypt(batch=4, progressed=die)
    done = await reencrypt(client, data, RING, batch=4)

    assert (done.examined, done.changed) == (2, 2)
    assert data.meta.find_one({"_id": "reencryption"}) is None
    sealed = {"variables.v.value": {"$type": "binData"}}
    assert data.process_instances.count_documents(sealed) == 6


async def test_reencrypt_beside_writers_loses_nothing(client: Client, data: Database[Json]) -> None:
    old, new = store_with(client, data, OLD_RING), store_with(client, data, RING)
    instances = [await put_instance(old, variables={"n": 0, "all": []}) for _ in range(5)]
    turns = 20

    async def write(store: MongoStore, instance: ProcessInstance) -> None:
        for turn in range(turns):
            changes = (IncrementVariable("n", 1), AppendToVariable("all", turn))
            await commit(store, ChangeVariables(instance.id, changes))

    async def rotate() -> None:
        for _ in range(5):
            await reencrypt(client, data, RING, batch=2)

    await asyncio.gather(rotate(), *(write(new, instance) for instance in instances))

    for instance in instances:
        assert await variables_of(new, instance.id) == {"n": turns, "all": list(range(turns))}


async def test_a_variable_that_is_removed_meanwhile_does_not_come_back(
    client: Client, data: Database[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = await put_instance(store_with(client, data, None), variables={"gone": 1, "v": 2})
    store = store_with(client, data, RING)
    sealing = store._collections.sealing
    assert sealing is not None
    seal = sealing.seal

    def remove_first(owner: str, name: str, stored: Any) -> Any:
        if name == "gone":
            data.process_instances.update_one({"_id": owner}, {"$unset": {"variables.gone": ""}})
        return seal(owner, name, stored)

    monkeypatch.setattr(sealing, "seal", remove_first)
    await store.reencrypt(batch=10, progressed=lambda _: None)

    assert await variables_of(store, instance.id) == {"v": 2}
