"""The outbox relay on a real replica set: at least once, in order, past what the sink does not take."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from bson.timestamp import Timestamp
from pymongo.database import Database

from kikwiflow_worker.errors import ConflictError
from kikwiflow_worker.relay.gauges import RelayGauges
from kikwiflow_worker.relay.message import Message
from kikwiflow_worker.relay.sinks import RefusedError
from kikwiflow_worker.store.mongo.outbox import Outbox
from kikwiflow_worker.store.relay import SLICES, EventQuery, RelayStatus, slice_of
from kikwiflow_worker.store.search import Count
from tests.support.dead_letters import a_dead_letter, store_dead_letter
from tests.support.profiler import profiled
from tests.support.relay import (
    OPTIONS,
    SINK,
    HandClock,
    ListSink,
    RelayBench,
    an_event,
    bench,
    no_definition,
)
from tests.support.stores import Json

__all__ = ["bench"]

pytestmark = pytest.mark.mongo


def refusing(*ids: str, how: type[Exception] = OSError) -> ListSink:
    async def refuse(message: Message) -> None:
        if message.id in ids:
            raise how("not this one")

    return ListSink(refuse)


def two_in_one_slice() -> tuple[str, str]:
    first = "I-0"
    return first, next(f"J-{n}" for n in range(999) if slice_of(f"J-{n}") == slice_of(first))


async def test_events_are_delivered_in_the_order_of_their_commits(bench: RelayBench) -> None:
    for number in range(5):
        await bench.put(f"{number}-b", f"{number}-a")
    sink = ListSink()

    delivered = await bench.relay(sink).run_until_idle()

    assert delivered == 10
    assert sink.of("I-1") == [f"{n}-{letter}" for n in range(5) for letter in "ba"]
    assert set((await bench.statuses()).values()) == {"RELAYED"}


async def test_a_late_commit_is_not_missed(bench: RelayBench) -> None:
    """The transaction that wrote first commits last: behind a cursor it would be lost."""
    async with bench.client.start_session() as session:
        await session.start_transaction()
        await bench.put("early", session=session)
        await bench.put("late")
        sink = ListSink()
        relay = bench.relay(sink)
        await relay.run_until_idle()
        assert sink.of("I-1") == ["late"]

        await session.commit_transaction()
        await relay.run_until_idle()

    assert sink.of("I-1") == ["late", "early"]


async def test_an_event_expires_only_after_it_was_relayed(bench: RelayBench) -> None:
    await bench.put("a")
    before = await bench.events.find_one({"_id": "a"})

    await bench.relay(ListSink()).run_until_idle()

    after = await bench.events.find_one({"_id": "a"})
    assert "expiresAt" not in before
    assert after["expiresAt"] - after["relayedAt"] == timedelta(days=7)


async def test_a_failing_event_holds_its_instance_and_no_other(bench: RelayBench) -> None:
    poisoned, healthy = two_in_one_slice()
    await bench.put("p1", "p2", "p3", instance=poisoned)
    await bench.put("h1", "h2", instance=healthy)
    sink = refusing("p2")
    relay = bench.relay(sink)

    await relay.run_until_idle()
    await bench.put("p4", instance=poisoned)
    await bench.put("h3", instance=healthy)
    await relay.run_until_idle()

    assert sink.of(healthy) == ["h1", "h2", "h3"]
    assert sink.of(poisoned) == ["p1"]
    statuses = await bench.statuses()
    assert {statuses[one] for one in ("p3", "p4")} == {"HELD"}
    assert statuses["p2"] == "RETRYING"

    sink.refuses = None
    await bench.make_due()
    await relay.run_until_idle()
    assert sink.of(poisoned) == ["p1", "p2", "p3", "p4"]
    assert set((await bench.statuses()).values()) == {"RELAYED"}


async def test_an_event_becomes_a_dead_letter_while_the_sink_takes_others(
    bench: RelayBench,
) -> None:
    poisoned, healthy = two_in_one_slice()
    await bench.put("p1", "p2", instance=poisoned)
    relay = bench.relay(refusing("p1"), most_strikes=3)
    for number in range(3):
        await bench.put(f"h{number}", instance=healthy)
        await bench.make_due()
        await relay.run_until_idle()

    (dead,) = (await bench.store.relay_care.list_events(EventQuery())).items
    assert (dead.id, dead.attempts, dead.strikes) == ("p1", 3, 3)
    assert dead.last_error == "OSError: not this one"
    measures = await bench.store.relay_care.measure()
    assert measures.counts[RelayStatus.DEAD] == 1
    assert measures.counts[RelayStatus.HELD] == 1
    assert measures.lag_s == 0


async def test_an_outage_of_the_sink_makes_no_dead_letters_however_long(
    bench: RelayBench,
) -> None:
    ids = [f"e{number}" for number in range(40)]
    for number, one in enumerate(ids):
        await bench.put(one, f"{one}-next", instance=f"I-{number}")
    sink = refusing(*ids)
    relay = bench.relay(sink, most_strikes=2)
    for _ in range(12):
        await bench.make_due()
        await relay.send_ready()
    assert "DEAD" not in (await bench.statuses()).values()
    assert any(one.failures > 1 for one in await bench.store.relay_care.list_slices())

    sink.refuses = None
    while set((await bench.statuses()).values()) != {"RELAYED"}:
        await bench.make_due()
        assert await relay.send_ready()
    assert all(sink.of(f"I-{n}") == [f"e{n}", f"e{n}-next"] for n in range(40))


async def test_one_poisoned_instance_alone_does_not_pause_its_slice(bench: RelayBench) -> None:
    poisoned, healthy = two_in_one_slice()
    sink = refusing("p1")
    relay = bench.relay(sink)
    await bench.put("p1", instance=poisoned)
    await relay.run_until_idle()
    await bench.make_due()
    await relay.run_until_idle()  # fails again, alone

    await bench.put("h1", instance=healthy)
    await relay.run_until_idle()

    assert sink.of(healthy) == ["h1"]


async def test_what_the_sink_refuses_for_good_is_dead_even_when_nothing_else_is_sent(
    bench: RelayBench,
) -> None:
    await bench.put("p1")
    relay = bench.relay(refusing("p1", how=RefusedError), most_strikes=2)
    for _ in range(2):
        await bench.make_due()
        await relay.run_until_idle()

    assert await bench.statuses() == {"p1": "DEAD"}


async def test_a_dead_letter_can_be_sent_again(bench: RelayBench) -> None:
    await bench.put("p1", "p2")
    sink = refusing("p1", how=RefusedError)
    relay = bench.relay(sink, most_strikes=1)
    await relay.run_until_idle()
    sink.refuses = None

    assert await bench.store.relay_care.resend(["p1", "p2"]) == 1
    await relay.run_until_idle()

    assert sink.of("I-1") == ["p1", "p2"]


async def test_a_dropped_dead_letter_lets_the_others_go_on(bench: RelayBench) -> None:
    await bench.put("p1", "p2")
    sink = refusing("p1", how=RefusedError)
    relay = bench.relay(sink, most_strikes=1)
    await relay.run_until_idle()

    assert await bench.store.relay_care.drop("p1", by="ana")
    assert not await bench.store.relay_care.drop("p2", by="ana")
    await relay.run_until_idle()

    assert sink.of("I-1") == ["p2"]
    dropped = await bench.events.find_one({"_id": "p1"})
    assert (dropped["relayStatus"], dropped["droppedBy"]) == ("DROPPED", "ana")
    assert dropped["expiresAt"] > dropped["droppedAt"]


async def test_a_slice_is_held_by_one_relay_and_lapses(bench: RelayBench) -> None:
    await bench.put("a")
    number = slice_of("I-1")

    async def claim(owner: str):  # type: ignore[no-untyped-def]
        return await bench.store.relay.claim(
            number, sink=SINK, owner=owner, lock=timedelta(seconds=30), limit=10
        )

    first = await claim("one")
    assert [event.id for event in first.events] == ["a"]
    assert await claim("two") is None

    await bench.make_due()
    second = await claim("two")

    assert (second.epoch, [event.id for event in second.events]) == (first.epoch + 1, ["a"])


async def test_events_of_another_sink_are_left_alone(bench: RelayBench) -> None:
    with pytest.raises(ConflictError, match="go to sink 'list'"):
        await bench.store.relay_care.register("webhook")

    await bench.put("a")
    relay = bench.relay(ListSink())
    await bench.store.relay_care.register("webhook", replace=True)

    assert await relay.send_ready() == []
    assert await bench.store.relay.find_ready("webhook") == (slice_of("I-1"),)


async def test_events_from_before_the_relay_are_adopted(bench: RelayBench) -> None:
    at = datetime(2026, 5, 1, tzinfo=UTC)
    rows = [
        {
            "_id": f"old-{n}",
            "eventType": "FLOW_NODE_FINISHED",
            "processInstanceId": "I-1",
            "processDefinitionId": "D-1",
            "timestamp": at + timedelta(milliseconds=n // 2),
            "position": n % 2,
            "relayStatus": "PENDING",
            "payload": {},
            "expiresAt": at,
        }
        for n in (3, 1, 2, 0)
    ]
    await bench.events.insert_many(rows)
    await bench.put("new")
    sink = ListSink()

    assert await bench.store.relay_care.adopt() == 8
    assert await bench.events.count_documents({"expiresAt": {"$exists": True}}) == 0
    await bench.relay(sink).run_until_idle()

    assert sink.of("I-1") == ["old-0", "old-1", "old-2", "old-3", "new"]


async def test_events_expire_again_once_they_are_not_relayed_any_more(bench: RelayBench) -> None:
    await bench.put("a")

    assert await bench.store.relay_care.retire() == 1

    assert "expiresAt" in await bench.events.find_one({"_id": "a"})
    assert await bench.store.relay_care.find_sink() is None
    assert await bench.relay(ListSink()).send_ready() == []


async def test_lists_come_in_pages_in_order(bench: RelayBench) -> None:
    for number in range(5):
        await bench.put(f"e{number}", instance=f"I-{number}")
    query = EventQuery(status=RelayStatus.PENDING)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await bench.store.relay_care.list_events(query, limit=2, cursor=cursor)
        seen += [event.id for event in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert seen == [f"e{number}" for number in range(5)]


async def test_the_lag_is_the_age_of_the_oldest_that_can_be_sent(bench: RelayBench) -> None:
    assert (await bench.store.relay_care.measure()).lag_s == 0
    await bench.put("a")

    now = bench.store.relay.now()
    lag_s = (await bench.store.relay_care.measure()).lag_s

    assert lag_s == pytest.approx((now - datetime(2026, 5, 1, tzinfo=UTC)).total_seconds(), abs=5)


async def test_dead_letters_of_an_instance_are_found_without_looking_at_those_of_others(
    bench: RelayBench, data: Database[Json]
) -> None:
    one, others = two_in_one_slice()
    data.outbox_events.insert_many(a_dead_letter(f"e{n}", others, "D-1") for n in range(300))
    data.outbox_events.insert_many(
        a_dead_letter(f"sent{n}", one, "D-1", relayStatus="RELAYED", stalled=False)
        for n in range(300)
    )
    store_dead_letter(data, "mine", one, "D-1")
    query, care = EventQuery(instance_id=one), bench.store.relay_care

    with profiled(data) as entries:
        page = await care.list_events(query)
        count = await care.count_events(query)

    assert [event.id for event in page.items] == ["mine"]
    assert count == Count(1)
    assert sum(entry["docsExamined"] for entry in entries) <= 2


async def test_a_page_of_events_reads_its_rows_and_no_more(
    bench: RelayBench, data: Database[Json]
) -> None:
    data.outbox_events.insert_many(
        # Two and two of one instant: the id decides.
        a_dead_letter(f"e{n:04}", f"I-{n}", "D-1", sequence=Timestamp(1000 + n // 2, 1))
        for n in range(600)
    )
    cursor, seen = None, []

    with profiled(data) as entries:
        for _ in range(3):
            page = await bench.store.relay_care.list_events(EventQuery(), limit=15, cursor=cursor)
            seen += [event.id for event in page.items]
            cursor = page.next_cursor

    assert seen == [f"e{n:04}" for n in range(45)]
    assert sum(entry["docsExamined"] for entry in entries) <= 3 * (15 + SLICES)
    assert not any(entry.get("hasSortStage") for entry in entries)


async def test_a_round_examines_what_it_sends_and_little_more(
    bench: RelayBench, data: Database[Json]
) -> None:
    """Beside what was sent long ago, and what is held behind a dead letter: neither is looked at again."""
    stuck, healthy = two_in_one_slice()
    await bench.put(*(f"old-{n}" for n in range(1000)), instance=healthy)
    await bench.relay(ListSink()).run_until_idle()
    await bench.put("dead", *(f"held-{n}" for n in range(300)), instance=stuck)
    relay = bench.relay(refusing("dead", how=RefusedError), most_strikes=1)
    await relay.run_until_idle()
    await bench.put(*(f"new-{n}" for n in range(10)), instance=healthy)

    with profiled(data) as entries:
        rounds = await relay.send_ready()
        assert await relay.send_ready() == []
        measures = await bench.store.relay_care.measure()

    assert sum(len(one.delivered) for one in rounds) == 10
    assert measures.counts[RelayStatus.HELD] == 300
    asked = [one for one in entries if "outbox" in one["ns"]]
    counting = [one for one in asked if one["command"].get("aggregate")]
    rest = [one for one in asked if one not in counting]
    assert not [
        one for one in asked if "COLLSCAN" in one["planSummary"] and one["docsExamined"] > 16
    ]
    assert sum(one["docsExamined"] for one in counting) == 0
    assert sum(one["docsExamined"] for one in rest) < 50
    assert sum(one["keysExamined"] for one in rest) < 200


async def test_the_order_follows_the_logical_time_even_where_it_is_ahead_of_the_clock(
    bench: RelayBench,
) -> None:
    """As after a failover from a server whose clock is fast: what comes later must not go before."""
    hello = await bench.client.admin.command("hello")
    ahead = Timestamp(hello["$clusterTime"]["clusterTime"].time + 3, 1)
    async with bench.client.start_session() as session:
        session.advance_cluster_time({**hello["$clusterTime"], "clusterTime": ahead})
        await bench.events.find_one({}, session=session)

    await bench.put("a")

    stored = await bench.events.find_one({"_id": "a"})
    assert stored["sequence"] > ahead


async def test_a_process_notices_within_a_minute_that_events_are_not_relayed_any_more(
    bench: RelayBench,
) -> None:
    clock = HandClock()
    outbox = Outbox(bench.collections, OPTIONS, no_definition, clock)
    await outbox.find_sink()

    async def stores(event_id: str) -> bool:
        await outbox.store([an_event(event_id, "I-1")])
        return "expiresAt" in await bench.events.find_one({"_id": event_id})

    assert not await stores("relayed")
    await bench.store.relay_care.retire()
    assert not await stores("not known yet")
    clock.seconds += 61
    assert await stores("known")


async def test_the_lag_is_told_also_where_no_relay_runs(bench: RelayBench) -> None:
    await bench.put("a")
    clock = HandClock()
    gauges = RelayGauges(bench.store.relay_care, clock=clock, metrics=bench.metrics)

    await asyncio.wait_for(clock.run_until_it_sleeps(gauges.run), 20)

    text = bench.metrics.render().decode()
    assert 'kikwiflow_relay_waiting_events{status="pending"} 1.0' in text
    assert "kikwiflow_relay_lag_seconds 0.0" not in text
