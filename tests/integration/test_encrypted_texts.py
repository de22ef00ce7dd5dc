"""Texts that may quote values of variables are encrypted as the values are: those of handlers, external workers and sinks."""

import json
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.handler import ExecutionContext, Fatal, task_handler
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.model.nodes import TOPIC
from kikwiflow_worker.relay.delivery import DeliveryOptions
from kikwiflow_worker.relay.message import Message
from kikwiflow_worker.relay.relay import Relay, RelayOptions
from kikwiflow_worker.store.keys import KeyRing
from kikwiflow_worker.store.mongo.driver import Client
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.sealing import SUBTYPE
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from kikwiflow_worker.store.relay import EventQuery, RelayStatus
from kikwiflow_worker.store.search import IncidentSearch, TaskSearch
from kikwiflow_worker.store.views import IncidentQuery, TaskQuery
from kikwiflow_worker.telemetry import Metrics
from tests.support.definitions import a_file, a_node, a_start, a_task, an_end
from tests.support.management import Managed, manage
from tests.support.mongo import MongoServer
from tests.support.relay import SINK, ListSink
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
from tests.support.stores import Json

__all__ = ["client", "no_noted_keys"]

pytestmark = pytest.mark.mongo

ALL_EVENTS = OutboxOptions(EventLevel.FULL)
WORKER = {"workerId": "python.1"}


@task_handler("charge")
def charge(context: ExecutionContext) -> None:
    """Fail with a text that quotes a value: for good if the variable ``isFatal`` says so."""
    error: type[Exception] = Fatal if context.get("isFatal") else ValueError
    raise error(f"the card {context['card']} was refused")


@pytest.fixture
async def sealed(mongo_server: MongoServer, data: Database[Json]) -> AsyncIterator[Managed]:
    """Return the application over a database whose values are encrypted."""
    options = StoreOptions(keys=RING, outbox=ALL_EVENTS)
    async with manage(mongo_server.uri, data, options=options) as opened:
        yield opened


async def fail(store: MongoStore, *, is_fatal: bool) -> str:
    """Start an instance whose step fails with the marker; return its id."""
    nodes = (a_start("PAY"), a_task("PAY", "END", executor="charge"), an_end())
    async with running(store) as kikwiflow:
        await kikwiflow.deploy(json.dumps(a_file(*nodes, key="pay")))
        variables = {"card": MARKER, "isFatal": is_fatal}
        started = await kikwiflow.start("pay", "P-1", variables=variables)
    async with running(store, handlers=[charge]) as worker:
        await work(store, worker)
    return started.id


async def the_incident(store: MongoStore) -> Any:
    """Return the only incident."""
    (found,) = (await store.reads.list_incidents(IncidentQuery())).items
    return found


# --- what is stored, and shown


async def test_what_a_handler_said_is_stored_nowhere_and_shown_to_who_may_read_it(
    sealed: Managed, data: Database[Json]
) -> None:
    failed = await fail(sealed.store, is_fatal=True)
    retried = await fail(sealed.store, is_fatal=False)

    assert MARKER not in stored_bytes(data)
    said = f"the card {MARKER} was refused"
    incident = await the_incident(sealed.store)
    assert said in incident.message
    assert said in incident.stack_trace
    assert said in (await sealed.kikwiflow.get_incident(incident.id)).message
    searches = sealed.store.searches
    assert said in (await searches.search_incidents(IncidentSearch())).items[0].message
    waiting = (await searches.search_tasks(TaskSearch(instance_id=retried))).items[0]
    (listed,) = (await sealed.kikwiflow.list_tasks(TaskQuery(instance_id=retried))).items
    assert said in (waiting.error or "")
    assert listed == waiting
    path = await searches.find_path(failed)
    assert said in (path.visits[-1].error or "")
    for instance_id in (failed, retried):
        shown = await sealed.api.get(f"/process-instances/{instance_id}/events")
        assert said in shown.text


async def test_what_is_searched_and_grouped_by_stays_in_the_clear(
    sealed: Managed, data: Database[Json]
) -> None:
    await fail(sealed.store, is_fatal=True)

    found = data.incidents.find_one({"type": "FAILED_JOB", "status": "OPEN"})
    assert found is not None
    assert found["taskDefinitionId"] == "PAY"
    assert found["message"].subtype == SUBTYPE
    told = {"eventType": "FLOW_NODE_FINISHED", "payload.errorType": "Fatal"}
    assert data.outbox_events.count_documents(told) == 1


async def test_what_an_external_worker_said_is_stored_nowhere(
    sealed: Managed, data: Database[Json]
) -> None:
    render = a_node("RENDER", "EXTERNAL_TASK", "END", extensionProperties={TOPIC: "render"})
    await sealed.deploy(a_start("RENDER"), render, an_end(), key="invoice")
    started = await sealed.kikwiflow.start("invoice", "I-1")
    fetched = await sealed.api.post(
        "/external-work/fetch-and-lock", json={**WORKER, "topics": ["render"]}
    )
    (task,) = fetched.json()["tasks"]
    said = {"message": f"no font for {MARKER}", "details": f"at {MARKER}", "retries": 0}

    await sealed.api.post(
        f"/external-work/{task['id']}/failure",
        json={**WORKER, "epoch": task["epoch"], **said},
        headers={"Idempotency-Key": "once"},
    )

    assert MARKER not in stored_bytes(data)
    incident = await sealed.incident_of(started)
    assert said["message"] in incident.message
    assert incident.stack_trace == said["details"]


async def test_what_a_sink_said_is_stored_nowhere(sealed: Managed, data: Database[Json]) -> None:
    await sealed.store.relay_care.register(SINK)
    await sealed.store.relay_care.find_sink()
    await fail(sealed.store, is_fatal=True)

    async def refuse(message: Message) -> None:
        raise OSError(f"{MARKER}: cannot send {message.id}")

    relay = Relay(
        sealed.store.relay,
        sealed.store.relay_care,
        ListSink(refuse),
        RelayOptions(owner="relay-1", sink_name=SINK, delivery=DeliveryOptions()),
        clock=SystemClock(),
        metrics=Metrics(CollectorRegistry(), version="1", instance="relay"),
        jitter=random.Random(7),
    )
    try:
        await relay.run_until_idle()

        assert data.outbox_events.count_documents({"lastError": {"$exists": True}}) == 1
        assert MARKER not in stored_bytes(data)
        retrying = await sealed.store.relay_care.list_events(
            EventQuery(status=RelayStatus.RETRYING)
        )
        assert "cannot send" in (retrying.items[0].last_error or "")
        slices = await sealed.store.relay_care.list_slices()
        assert any("cannot send" in (each.last_error or "") for each in slices)
    finally:
        await sealed.store.relay_care.retire()


# --- what was written before, and keys


async def everything_said(store: MongoStore) -> list[str | None]:
    """Return the texts of the incidents and tasks."""
    incidents = (await store.reads.list_incidents(IncidentQuery())).items
    tasks = (await store.reads.list_tasks(TaskQuery())).items
    return [
        *(text for one in incidents for text in (one.message, one.stack_trace)),
        *(task.error for task in tasks),
    ]


async def test_texts_follow_the_keys_as_values_do(client: Client, data: Database[Json]) -> None:
    options = StoreOptions(outbox=ALL_EVENTS)
    plain = MongoStore.over(client, data.name, clock=SystemClock(), options=options)
    await plain.ping()
    for is_fatal in (True, False):
        await fail(plain, is_fatal=is_fatal)
    said = await everything_said(plain)
    assert MARKER in stored_bytes(data)

    for ring in (OLD_RING, RING):
        store = store_with(client, data, ring)
        assert await everything_said(store) == said
        done = await store.reencrypt(batch=10, progressed=lambda _: None)
        assert done.unreadable == 0
        assert MARKER not in stored_bytes(data)
    only_new = store_with(client, data, KeyRing({"2026-11": KEY}, current="2026-11"))
    assert await everything_said(only_new) == said

    off = KeyRing(RING.keys, current=None)
    await store_with(client, data, off).reencrypt(batch=10, progressed=lambda _: None)
    assert await everything_said(plain) == said


async def test_texts_of_slices_follow_the_keys(client: Client, data: Database[Json]) -> None:
    said = f"OSError: {MARKER}"
    free = {"failures": 1, "claimableAt": datetime(2026, 5, 1, tzinfo=UTC)}
    data.outbox_slices.insert_one({"_id": 3, "lastError": said, **free})
    store = store_with(client, data, RING)

    done = await store.reencrypt(batch=10, progressed=lambda _: None)

    assert done.changed == 1
    assert MARKER not in stored_bytes(data)
    assert [each.last_error for each in await store.relay_care.list_slices()] == [said]


async def test_a_text_that_cannot_be_read_says_so_and_hides_no_incident(
    client: Client, data: Database[Json]
) -> None:
    await fail(store_with(client, data, RING), is_fatal=True)
    keyless = store_with(client, data, OLD_RING)

    incident = await the_incident(keyless)

    assert "'message' of " in incident.message
    assert "is encrypted with key '2026-11', which is not here" in incident.message
    found = await keyless.inspect(sample=100)
    named = " ".join(found.unreadable.named)
    assert f"incidents {incident.id}" in named
    assert f"executable_tasks {incident.task_id}" in named
