"""Server-sent events of the running server over the real database."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.management import feeds as feeds_module
from kikwiflow_worker.management.api.streams import LATE, _Told
from kikwiflow_worker.management.feeds import Feeds
from kikwiflow_worker.model.events import EventLevel, EventType, OutboxEvent
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import StoreOptions
from kikwiflow_worker.store.search import TimelineEvent
from kikwiflow_worker.store.views import Page
from tests.support.mongo import MongoServer
from tests.support.streams import Served, serve

pytestmark = pytest.mark.mongo

STOP_S = 5
"""Less than what open requests are given to end by themselves."""


@pytest.fixture
async def served(
    mongo_server: MongoServer, data: Database[dict[str, Any]]
) -> AsyncIterator[Served]:
    """Serve the prepared database with all events stored."""
    async with serve(
        mongo_server, data, StoreOptions(outbox=OutboxOptions(EventLevel.FULL))
    ) as opened:
        yield opened


async def complete(served: Served, instance: Any) -> None:
    task = await served.managed.task_of(instance)
    await served.managed.kikwiflow.complete(task.id)


async def test_a_reader_sees_an_instance_move_on(served: Served) -> None:
    parcel = await served.managed.a_waiting_parcel()

    async with served.follow(f"/process-instances/{parcel.id}/stream?interval=1") as reader:
        first = await reader.until("state")
        await complete(served, parcel)
        moved = await reader.until("state", lambda data: "LATER" in data["activeNodes"])

    assert first.data["activeNodes"] == {"APPROVE": {"tokens": 1, "failed": 0}}
    assert moved.data["activeNodes"] == {"LATER": {"tokens": 1, "failed": 0}}
    assert moved.data["status"] == "ACTIVE"


async def test_events_are_told_once_each_and_in_their_order(served: Served) -> None:
    parcel = await served.managed.a_waiting_parcel()
    url = f"/process-instances/{parcel.id}/stream?interval=1"

    async with served.follow(url) as reader:
        told = [await reader.until("event") for _ in range(3)]
        await complete(served, parcel)
        told += [await reader.until("event")]

    listed = await served.managed.kikwiflow.services.searches.list_events(parcel.id)
    assert [message.data["id"] for message in told] == [each.event.id for each in listed.items]
    assert listed.items[-1].event.type == "EXTERNAL_TASK_COMPLETED"


async def test_who_comes_back_gets_only_what_is_new(served: Served) -> None:
    parcel = await served.managed.a_waiting_parcel()
    url = f"/process-instances/{parcel.id}/stream?interval=1&events=false"
    async with served.follow(url) as reader:
        known = await reader.until("state")

    async with served.follow(url, **{"Last-Event-ID": known.id}) as reader:
        await complete(served, parcel)
        message = await reader.until("state")

    assert message.data != known.data


async def test_the_stream_of_an_instance_ends_with_it_and_is_not_asked_for_again(
    served: Served,
) -> None:
    parcel = await served.managed.a_waiting_parcel()
    url = f"/process-instances/{parcel.id}/stream?interval=1&events=false"

    async with served.follow(url) as reader:
        await served.managed.kikwiflow.cancel(parcel.id)
        messages = await reader.rest()
    again = await served.http.get(url, headers={"Last-Event-ID": messages[-1].id})

    assert [message.event for message in messages][-2:] == ["state", "end"]
    assert messages[-2].data["status"] == "CANCELLED"
    assert again.status_code == 204


async def test_a_definition_s_counts_are_told_when_they_change(served: Served) -> None:
    definition_id = await served.managed.deploy()

    async with served.follow(f"/process-definitions/{definition_id}/stream?interval=1") as reader:
        nothing = await reader.until("state")
        await served.managed.a_waiting_parcel()
        await reader.until("state", lambda data: data["running"]["total"] == 1)

    assert nothing.data["running"] == {"total": 0, "isCapped": False}
    assert nothing.data["flowNodes"]["APPROVE"]["running"] == 0


async def test_incidents_are_told_as_they_open_and_are_put_right(served: Served) -> None:
    async with served.follow("/incidents/stream?interval=1") as reader:
        none = await reader.until("state")
        incident = await served.managed.a_failed_parcel()
        opened = await reader.until("state", lambda data: data["newest"])
        await served.managed.kikwiflow.retry_incident(incident.id)
        await reader.until("state", lambda data: data["open"]["total"] == 0)

    assert none.data == {"open": {"total": 0, "isCapped": False}, "newest": []}
    assert [each["id"] for each in opened.data["newest"]] == [incident.id]


async def test_a_stream_of_what_is_not_there_is_a_problem(served: Served) -> None:
    answers = [
        await served.http.get(path)
        for path in (
            "/process-instances/nothing/stream",
            "/process-definitions/nothing/stream",
            "/incidents/stream?interval=0.1",
            "/incidents/stream?intervall=2",
        )
    ]

    assert [answer.status_code for answer in answers] == [404, 404, 400, 400]
    assert {answer.headers["content-type"] for answer in answers} == {"application/problem+json"}


async def test_nobody_follows_what_is_another_tenant_s(served: Served) -> None:
    parcel = await served.managed.a_waiting_parcel(tenant_id="acme")
    await served.managed.a_failed_parcel("PARCEL-2", tenant_id="acme")
    url = f"/process-instances/{parcel.id}/stream"

    other = {"X-Tenant-Id": "bolt"}
    answer = await served.http.get(url, headers=other)
    async with (
        served.follow("/incidents/stream", **other) as strange,
        served.follow("/incidents/stream", **{"X-Tenant-Id": "acme"}) as own,
        served.follow(url, **{"X-Tenant-Id": "acme"}) as mine,
    ):
        seen = await strange.until("state"), await own.until("state")
        state = await mine.until("state")

    assert answer.status_code == 404
    assert [message.data["open"]["total"] for message in seen] == [0, 1]
    assert state.data["id"] == parcel.id


async def test_streams_end_when_the_server_stops(served: Served) -> None:
    served.managed.app.state.feeds = Feeds(SystemClock())
    async with served.follow("/incidents/stream?interval=60") as reader:
        await reader.until("state")
        begun = asyncio.get_running_loop().time()

        served.server.stop()
        rest = await reader.rest()

    assert rest == []
    assert asyncio.get_running_loop().time() - begun < STOP_S


async def test_nothing_is_looked_at_for_a_reader_who_has_gone(served: Served) -> None:
    async with served.follow("/incidents/stream?interval=1") as reader:
        await reader.until("state")
        assert served.feeds.readers == 1

    await served.until(lambda: not served.feeds.readers)


async def test_more_streams_than_a_server_can_bear_are_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "MOST_READERS", 1)
    async with served.follow("/incidents/stream") as reader:
        await reader.until("state")
        answer = await served.http.get("/incidents/stream")

    assert answer.status_code == 503
    assert answer.json()["code"] == "TOO_MANY_STREAMS"
    assert answer.headers["retry-after"]


def test_a_fresh_event_is_waited_for_though_a_host_with_a_slow_clock_stored_a_later_one() -> None:
    now = datetime.now(UTC)
    told, page = _Told(), Page((an_entry("fresh", now), an_entry("slow", now - LATE * 2)), None)

    at_first = [entry.event.id for entry in told.news(page, now)]
    between = (told.cursor, set(told.events))
    later = list(told.news(page, now + LATE * 2))

    assert at_first == ["fresh", "slow"]
    assert between == (None, {"fresh", "slow"})
    assert (later, told.cursor, told.events) == ([], "after slow", {})


def an_entry(event_id: str, at: datetime) -> TimelineEvent:
    event = OutboxEvent(
        id=event_id,
        type=EventType.FLOW_NODE_FINISHED,
        timestamp=at,
        instance_id="instance-1",
        definition_id="definition-1",
        payload={},
    )
    return TimelineEvent(event, f"after {event_id}")


async def test_an_event_that_was_committed_late_is_told_as_well(served: Served) -> None:
    parcel = await served.managed.a_waiting_parcel()
    events = served.managed.data.outbox_events
    (earliest, *_) = events.find({"processInstanceId": parcel.id}).sort("timestamp", 1)
    late = {**earliest, "_id": "late", "timestamp": earliest["timestamp"] - timedelta(seconds=1)}

    async with served.follow(f"/process-instances/{parcel.id}/stream?interval=1") as reader:
        known = [(await reader.until("event")).data["id"] for _ in range(3)]
        events.insert_one(late)
        told = await reader.until("event")

    assert earliest["_id"] in known
    assert told.data["id"] == "late"
