"""Who fetches which topics is recorded and shown: workers, and work that nobody takes, on the real database."""

import asyncio
import re
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import StoreError, StoreUnavailableError
from kikwiflow_worker.model import nodes
from kikwiflow_worker.model.runtime import ClaimedTask, TopicNode
from kikwiflow_worker.operations import external_workers
from kikwiflow_worker.store.external_work import Fetch
from kikwiflow_worker.store.mongo import fetch_records
from kikwiflow_worker.store.mongo.codec import encode_task, encode_topic_node
from kikwiflow_worker.store.mongo.fetch_records import EVERY_S, FetchRecords
from kikwiflow_worker.store.mongo.figures import SILENT_S
from kikwiflow_worker.store.search import WorkerLook
from kikwiflow_worker.store.views import WorkerRecord
from tests.support.definitions import a_node, a_start, an_end
from tests.support.management import Managed, managed
from tests.support.profiler import profiled
from tests.support.relay import HandClock
from tests.support.stores import LONG_AGO, Json, a_task

__all__ = ["managed"]

pytestmark = pytest.mark.mongo

TOPIC, ANOTHER = "render_invoice", "pack"
RENDER, AGAIN = TopicNode("invoice", "RENDER"), TopicNode("invoice", "AGAIN")
LOCK_S = 60
RED, BLUE = {"X-Tenant-Id": "red"}, {"X-Tenant-Id": "blue"}


def put_due(
    data: Database[Json],
    *tenants: str | None,
    topic: str = TOPIC,
    node: TopicNode | None = None,
) -> None:
    """Store a due task of a topic for each of these tenants."""
    data.executable_tasks.insert_many(
        encode_task(
            a_task(
                handler_name=topic,
                tenant_id=tenant,
                claimable_at=LONG_AGO,
                priority=number,
                topic_node=node,
            )
        )
        for number, tenant in enumerate(tenants)
    )


async def fetch(
    managed: Managed, *topics: str, worker: str = "php.1", headers: dict[str, str] | None = None
) -> None:
    """Fetch nothing: what is due is someone else's a moment later, and still waits."""
    body = {"workerId": worker, "topics": topics or [TOPIC], "lockSeconds": LOCK_S}
    answer = await managed.api.post("/external-work/fetch-and-lock", json=body, headers=headers)
    assert answer.status_code == 200, answer.text


async def served(managed: Managed, headers: dict[str, str] | None = None) -> dict[str, bool]:
    answer = await managed.api.get("/waiting-handlers", headers=headers)
    return {wait["handlerName"]: wait["isServed"] for wait in answer.json()["items"]}


async def looks(managed: Managed) -> tuple[WorkerLook, ...]:
    return await managed.services.searches.list_workers()


def seen(data: Database[Json], seconds_ago: float) -> None:
    """Let every worker have been seen so long ago."""
    rewind = [{"$set": {"seenAt": {"$subtract": ["$$NOW", round(1000 * seconds_ago)]}}}]
    data.workers.update_many({}, rewind)


async def text_of(managed: Managed, page: str) -> str:
    answer = await managed.http.get(f"/dashboard/{page}")
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text))


async def test_a_fetch_shows_its_worker_and_its_topics_are_served(managed: Managed) -> None:
    await fetch(managed, TOPIC, ANOTHER)
    put_due(managed.data, None, "red")

    (worker,) = (await managed.api.get("/workers")).json()["items"]

    assert worker["id"] == f"external/{_actor(managed)}/php.1"
    assert (worker["instanceName"], worker["isExternal"], worker["tenantId"]) == (
        "php.1",
        True,
        None,
    )
    assert (worker["handlers"], worker["isSilent"]) == ([ANOTHER, TOPIC], False)
    assert (worker["slots"], worker["running"], worker["free"]) == (0, 0, 0)
    assert await served(managed) == {TOPIC: True}
    assert await served(managed, RED) == {TOPIC: True}


def _actor(managed: Managed) -> str:
    (row,) = managed.data.workers.find()
    return str(row["_id"]).split("/")[1]


async def test_the_dashboard_shows_who_fetches_and_no_alarm(managed: Managed) -> None:
    put_due(managed.data, None, None)
    assert "topics that nobody fetches: render_invoice" in await text_of(managed, "overview")

    await fetch(managed, TOPIC)

    overview = await text_of(managed, "overview")
    assert "topics that nobody fetches" not in overview
    assert "1 external" in overview
    assert "No worker is alive: nothing runs" in overview, "no timer fires without one of ours"
    handlers = await text_of(managed, "handlers")
    assert "no worker has it" not in handlers
    workers = await text_of(managed, "workers")
    assert "php.1 external · external/" in workers
    assert "pid 0" not in workers
    assert "busy" not in workers


async def test_a_topic_of_a_tenants_worker_is_served_for_that_tenant_alone(
    managed: Managed,
) -> None:
    await fetch(managed, TOPIC, headers=RED)
    put_due(managed.data, "red", "blue")

    assert await served(managed, RED) == {TOPIC: True}
    assert await served(managed, BLUE) == {TOPIC: False}
    assert await served(managed) == {TOPIC: False}, "those of blue wait for ever"

    managed.data.executable_tasks.delete_many({"tenantId": "blue"})
    assert await served(managed) == {TOPIC: True}
    put_due(managed.data, None)
    assert await served(managed) == {TOPIC: False}, "those without a tenant wait for ever"


async def test_tasks_of_others_are_looked_for_without_reading_those_of_the_tenant(
    managed: Managed,
) -> None:
    await fetch(managed, TOPIC, headers=RED)
    put_due(managed.data, *["red"] * 10)
    rows = [
        {**row, "_id": f"{row['_id']}-{number}"}
        for row in managed.data.executable_tasks.find()
        for number in range(50)
    ]
    managed.data.executable_tasks.insert_many(rows)

    with profiled(managed.data) as entries:
        assert await served(managed) == {TOPIC: True}

    (look,) = [entry for entry in entries if "$nin" in str(entry["command"])]
    assert look["docsExamined"] == 0
    assert look["keysExamined"] <= 10


async def fetch_at(
    managed: Managed, *wanted: TopicNode, headers: dict[str, str] | None = None
) -> None:
    """Fetch nothing, by node, and record that."""
    rows = list(managed.data.executable_tasks.find())
    managed.data.executable_tasks.delete_many({})
    named = [{"processDefinitionKey": n.definition_key, "nodeId": n.node_id} for n in wanted]
    body = {"workerId": "php.1", "nodes": named, "lockSeconds": LOCK_S}
    answer = await managed.api.post("/external-work/fetch-and-lock", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    if rows:
        managed.data.executable_tasks.insert_many(rows)


@pytest.fixture
async def invoices(managed: Managed) -> Managed:
    """Return the application with a definition of two nodes of one topic."""
    by_programs = {"extensionProperties": {nodes.TOPIC: TOPIC}}
    await managed.deploy(
        a_start("RENDER"),
        a_node("RENDER", "EXTERNAL_TASK", "AGAIN", **by_programs),
        a_node("AGAIN", "EXTERNAL_TASK", "END", **by_programs),
        an_end(),
        key="invoice",
    )
    return managed


async def test_a_topic_is_served_by_node_if_each_of_its_due_tasks_is(invoices: Managed) -> None:
    put_due(invoices.data, None, "red", node=RENDER)
    assert await served(invoices) == {TOPIC: False}
    await fetch_at(invoices, RENDER)

    (worker,) = (await invoices.api.get("/workers")).json()["items"]
    assert worker["nodes"] == [{"processDefinitionKey": "invoice", "nodeId": "RENDER"}]
    assert worker["handlers"] == []
    assert "RENDER of invoice" in await text_of(invoices, "workers")
    assert await served(invoices) == {TOPIC: True}
    assert await served(invoices, RED) == {TOPIC: True}

    for others in ({"node": AGAIN}, {"node": None}):
        put_due(invoices.data, "blue", **others)  # type: ignore[arg-type]
        assert await served(invoices) == {TOPIC: False}, "those of the other node wait for ever"
        assert await served(invoices, RED) == {TOPIC: True}
        invoices.data.executable_tasks.delete_many({"tenantId": "blue"})
    seen(invoices.data, SILENT_S + LOCK_S + 5)
    assert await served(invoices) == {TOPIC: False}


async def test_a_node_that_a_tenants_worker_fetches_is_served_for_that_tenant_alone(
    invoices: Managed,
) -> None:
    await fetch_at(invoices, RENDER, headers=RED)
    put_due(invoices.data, "red", "blue", node=RENDER)

    assert await served(invoices, RED) == {TOPIC: True}
    assert await served(invoices, BLUE) == {TOPIC: False}
    assert await served(invoices) == {TOPIC: False}
    await fetch(invoices, TOPIC, headers=BLUE, worker="php.2")
    put_due(invoices.data, "blue", node=AGAIN)
    put_due(invoices.data, "red", node=RENDER)
    assert await served(invoices) == {TOPIC: True}, "one by its node, one by its topic"


async def test_who_serves_by_node_is_told_by_the_oldest_tasks(invoices: Managed) -> None:
    await fetch_at(invoices, RENDER)
    put_due(invoices.data, *[None] * 10, node=RENDER)
    rows = [
        {**row, "_id": f"{row['_id']}-{number}"}
        for row in invoices.data.executable_tasks.find()
        for number in range(50)
    ]
    invoices.data.executable_tasks.insert_many(rows)

    with profiled(invoices.data) as entries:
        assert await served(invoices) == {TOPIC: True}

    (look,) = [entry for entry in entries if "$nor" in str(entry["command"])]
    assert look["docsExamined"] <= 100
    assert look["keysExamined"] <= 101


async def test_a_tenant_does_not_see_the_workers_of_others(managed: Managed) -> None:
    await fetch(managed, TOPIC, headers=BLUE)

    for path in ("/workers", "/waiting-handlers"):
        answer = await managed.api.get(path, headers=RED)
        assert "php.1" not in answer.text
        assert TOPIC not in answer.text


async def test_workers_of_one_name_in_two_tenants_are_two(managed: Managed) -> None:
    for headers in (RED, BLUE, None):
        await fetch(managed, TOPIC, headers=headers)

    found = await looks(managed)

    assert {look.worker.tenant_id for look in found} == {"red", "blue", None}
    assert len({look.worker.id for look in found}) == 1
    assert {look.worker.instance_name for look in found} == {"php.1"}


async def test_a_worker_may_be_busy_with_what_it_fetched_before_it_is_silent(
    managed: Managed,
) -> None:
    await fetch(managed, TOPIC)
    put_due(managed.data, None)

    for seconds, is_silent in ((SILENT_S + LOCK_S - 5, False), (SILENT_S + LOCK_S + 5, True)):
        seen(managed.data, seconds)
        (look,) = await looks(managed)
        assert look.is_silent is is_silent
        assert await served(managed) == {TOPIC: not is_silent}


async def test_a_worker_that_has_stopped_serves_nothing(managed: Managed) -> None:
    now = managed.services.runtime.now()
    record = WorkerRecord(
        id="w.1", instance_name="w", host="h", pid=1, version="1", started_at=now, seen_at=now,
        state="running", slots=5, running=0, handlers=(TOPIC,),
    )  # fmt: skip
    put_due(managed.data, None)
    for state, is_served in (("running", True), ("stopped", False)):
        await managed.services.reads.record_worker(replace(record, state=state))

        assert await served(managed) == {TOPIC: is_served}
        assert ("No worker is alive" in await text_of(managed, "overview")) is not is_served


@dataclass(frozen=True)
class Bench:
    """Records of fetches by a clock that the test moves."""

    records: FetchRecords
    clock: HandClock
    data: Database[Json]

    async def fetch(self, *topics: str, lock_s: float = 1, tenant: str | None = None) -> None:
        await self.records.record(
            Fetch(
                worker_id="external/ann/php.1",
                topics=frozenset(topics),
                lock=timedelta(seconds=lock_s),
                tenant_id=tenant,
            )
        )

    def row(self) -> dict[str, Any]:
        (row,) = self.data.workers.find()
        return row

    def topics(self) -> list[str]:
        return list(self.row()["handlers"])


@pytest.fixture
def bench(managed: Managed) -> Bench:
    clock = HandClock()
    records = FetchRecords(managed.store._collections, managed.store.server_time, clock)
    return Bench(records, clock, managed.data)


async def test_a_worker_is_written_at_most_every_ten_seconds_with_all_its_topics(
    bench: Bench,
) -> None:
    with profiled(bench.data) as entries:
        for topic in (TOPIC, ANOTHER) * 5:
            await bench.fetch(topic)
            bench.clock.seconds += EVERY_S / 10 - 0.01
    assert len([entry for entry in entries if entry["op"] == "update"]) == 1
    first = bench.row()
    assert first["handlers"] == [TOPIC]

    bench.clock.seconds += 1
    await bench.fetch(TOPIC)

    assert bench.topics() == [ANOTHER, TOPIC]
    assert bench.row()["seenAt"] > first["seenAt"]
    assert bench.row()["startedAt"] == first["startedAt"]
    await bench.fetch(TOPIC, tenant="red")
    assert bench.data.workers.count_documents({}) == 2, "each tenant has its own ten seconds"


async def test_fetches_at_once_are_written_once(bench: Bench) -> None:
    with profiled(bench.data) as entries:
        await asyncio.gather(*(bench.fetch(TOPIC) for _ in range(8)))

    assert len([entry for entry in entries if entry["op"] == "update"]) == 1


async def test_a_topic_that_is_fetched_no_more_is_forgotten_after_its_lock(bench: Bench) -> None:
    await bench.fetch(ANOTHER, lock_s=100)
    assert bench.row()["busySeconds"] == 100
    for seconds, topics in ((100 + SILENT_S - 1, [ANOTHER, TOPIC]), (EVERY_S, [TOPIC])):
        bench.clock.seconds += seconds
        await bench.fetch(TOPIC, lock_s=5)

        assert bench.topics() == topics
    assert bench.row()["busySeconds"] == 5


async def test_a_node_that_is_fetched_no_more_is_forgotten_as_a_topic_is(bench: Bench) -> None:
    await bench.records.record(
        Fetch(worker_id="external/ann/php.1", nodes=frozenset({RENDER}), lock=timedelta(seconds=5))
    )
    assert (bench.row()["nodes"], bench.topics()) == ([encode_topic_node(RENDER)], [])
    bench.clock.seconds += 5 + SILENT_S

    await bench.fetch(TOPIC)

    assert "nodes" not in bench.row()


async def test_a_record_is_of_the_kind_that_expires(bench: Bench, managed: Managed) -> None:
    await bench.fetch(TOPIC, tenant="red")

    (index,) = [
        index for index in bench.data.workers.list_indexes() if "expireAfterSeconds" in index
    ]
    (field,) = index["key"]
    age = managed.services.runtime.now() - bench.row()[field].replace(tzinfo=UTC)
    assert abs(age) < timedelta(seconds=10)


class _Unrecorded:
    """The port of external workers, whose records cannot be written."""

    def __init__(self, inner: Any, trouble: str) -> None:
        self._inner = inner
        self._trouble = trouble

    async def fetch(self, *asked: Any, **limit: Any) -> tuple[ClaimedTask, ...]:
        found: tuple[ClaimedTask, ...] = await self._inner.fetch(*asked, **limit)
        return found

    async def record_fetch(self, _: Fetch) -> None:
        if self._trouble == "refused":
            raise StoreUnavailableError("no primary")
        await asyncio.Event().wait()


@pytest.mark.parametrize("trouble", ["refused", "silent"])
async def test_a_fetch_whose_record_fails_has_fetched_all_the_same(
    managed: Managed, trouble: str
) -> None:
    await managed.a_parcel()
    services = managed.services
    port: Any = _Unrecorded(services.external_work, trouble)

    async with asyncio.timeout(8):
        (claimed,) = await external_workers.fetch(
            replace(services, external_work=port),
            actor="ann",
            worker_id="php.1",
            topics=["weigh_parcel"],
            lock=timedelta(seconds=LOCK_S),
            limit=1,
        )

    assert claimed.task.handler_name == "weigh_parcel"


async def test_a_record_that_the_database_refuses_costs_one_attempt_in_ten_seconds(
    bench: Bench,
) -> None:
    bench.data.command("collMod", "workers", validator={"neverThere": 1})
    try:
        with pytest.raises(StoreError, match="recording external/ann/php"):
            await bench.fetch(TOPIC)
        await bench.fetch(TOPIC)
    finally:
        bench.data.command("collMod", "workers", validator={})

    assert bench.data.workers.count_documents({}) == 0


async def test_what_is_remembered_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_records, "MAX_SOURCES", 2)
    monkeypatch.setattr(fetch_records, "MAX_WORKERS", 2)
    for topic in ("a", "b", "c"):
        await bench.fetch(topic)
    bench.clock.seconds += EVERY_S
    await bench.fetch("b")
    assert bench.topics() == ["b", "c"], "those fetched last"

    for tenant in ("red", "blue"):
        await bench.fetch("a", tenant=tenant)
    with profiled(bench.data) as entries:
        await bench.fetch("a", tenant="red")
        await bench.fetch("a")
    (entry,) = [entry for entry in entries if entry["op"] == "update"]
    assert entry["command"]["q"] == {"_id": "external/ann/php.1"}, "forgotten, and written anew"
