"""Dead letters of the relay, over the API and on the dashboard: read, sent again, given up, by whom and recorded."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.operations import dead_letters
from kikwiflow_worker.relay.delivery import DeliveryOptions
from kikwiflow_worker.relay.message import Message
from kikwiflow_worker.relay.relay import Relay, RelayOptions
from kikwiflow_worker.relay.sinks import RefusedError
from kikwiflow_worker.store.access import AuditQuery
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import StoreOptions
from kikwiflow_worker.telemetry import Metrics
from tests.support.dead_letters import REFUSAL, a_dead_letter, store_dead_letter
from tests.support.management import Managed, manage
from tests.support.mongo import MongoServer
from tests.support.relay import ListSink

pytestmark = pytest.mark.mongo

SINK = "list"
EVENTS = "/outbox-events"


@pytest.fixture
async def relayed(
    mongo_server: MongoServer, data: Database[dict[str, Any]]
) -> AsyncIterator[Managed]:
    """Return the application over a database whose events are stored and relayed."""
    options = StoreOptions(outbox=OutboxOptions(EventLevel.LIFECYCLE))
    async with manage(mongo_server.uri, data, options=options) as managed:
        await managed.store.relay_care.register(SINK)
        yield managed
        await managed.store.relay_care.retire()


async def relay(managed: Managed, *refused_instances: str) -> ListSink:
    """Relay what can be sent; return the sink, which takes nothing of some instances."""

    async def refuse(message: Message) -> None:
        if message.instance_id in refused_instances:
            raise RefusedError("the receiver answered 422")

    sink = ListSink(refuse)
    care = managed.store.relay_care
    options = RelayOptions(owner="r", sink_name=SINK, delivery=DeliveryOptions(most_strikes=1))
    metrics = Metrics(CollectorRegistry(), version="1", instance="relay")
    await Relay(managed.store.relay, care, sink, options, clock=SystemClock(), metrics=metrics).run_until_idle()  # fmt: skip
    return sink


async def listed(managed: Managed, **query: str) -> list[dict[str, Any]]:
    answer = await managed.api.get(EVENTS, params=query)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


async def post(managed: Managed, path: str, **headers: str) -> httpx.Response:
    return await managed.api.post(f"{EVENTS}/{path}", headers=headers)


async def test_a_dead_letter_is_found_and_sent_again_with_what_it_held_back(
    relayed: Managed,
) -> None:
    parcel = await relayed.a_waiting_parcel()
    other = await relayed.a_waiting_parcel("PARCEL-2")
    await relay(relayed, parcel.id)
    await relayed.kikwiflow.complete((await relayed.task_of(parcel)).id)
    await relay(relayed, parcel.id)
    (letter,) = await listed(relayed)
    status = (await relayed.api.get("/relay")).json()

    again = await post(relayed, f"{letter['id']}/resend")
    sink = await relay(relayed)

    assert letter["processInstanceId"] == parcel.id
    assert letter["eventType"] == "PROCESS_INSTANCE_STARTED"
    assert (letter["attempts"], letter["status"]) == (1, "DEAD")
    assert letter["lastError"] == "RefusedError: the receiver answered 422"
    assert letter["payload"]["businessKey"] == "PARCEL-1"
    assert status["sink"] == SINK
    assert status["waiting"]["DEAD"] == {"total": 1, "isCapped": False}
    assert status["waiting"]["HELD"]["total"] >= 1
    assert len(sink.of(parcel.id)) >= 2
    assert (again.status_code, again.json()["status"]) == (200, "RETRYING")
    assert sink.of(parcel.id)[0] == letter["id"]
    assert sink.of(other.id) == []
    assert await listed(relayed) == []


async def test_how_far_the_relay_is_behind_is_said_of_each_slice(relayed: Managed) -> None:
    late = a_dead_letter("late", "I-1", "D-1", relayStatus="PENDING")
    relayed.data.outbox_events.insert_one(late)

    status = (await relayed.api.get("/relay")).json()

    behind = {one["slice"]: one["lagSeconds"] for one in status["slices"]}
    assert len(behind) == 16
    assert behind.pop(late["slice"]) == pytest.approx(status["lagSeconds"], abs=5)
    assert status["lagSeconds"] > 3600
    assert set(behind.values()) == {0.0}


async def test_pages_of_dead_letters_have_each_of_them_once_in_their_order(
    relayed: Managed,
) -> None:
    ids = [store_dead_letter(relayed.data, f"e{n}", f"I-{n}", "D-1") for n in range(5)]

    seen: list[str] = []
    query: dict[str, str] = {"limit": "2"}
    while True:
        page = (await relayed.api.get(EVENTS, params=query)).json()
        seen += [one["id"] for one in page["items"]]
        if page["nextCursor"] is None:
            break
        query["cursor"] = page["nextCursor"]
    of_one = await listed(relayed, processInstanceId="I-3")
    wrong = await relayed.api.get(EVENTS, params={"cursor": "x"})

    assert seen == ids
    assert [one["id"] for one in of_one] == ["e3"]
    assert await listed(relayed, status="RELAYED") == []
    assert wrong.status_code == 422


async def test_only_a_dead_letter_can_be_decided_on(relayed: Managed) -> None:
    store_dead_letter(relayed.data, "held", "I-1", "D-1", relayStatus="HELD")

    answers = [
        await post(relayed, f"{event_id}/{action}")
        for event_id in ("held", "nothing")
        for action in ("resend", "drop")
    ]

    assert [(one.status_code, one.json()["code"]) for one in answers] == [
        (409, "CONFLICT"),
        (409, "CONFLICT"),
        (404, "NOT_FOUND"),
        (404, "NOT_FOUND"),
    ]
    assert "HELD" in answers[0].json()["detail"]
    assert (await relayed.api.get(f"{EVENTS}/nothing")).status_code == 404


async def test_a_dead_letter_is_given_up_by_who_is_recorded(relayed: Managed) -> None:
    store_dead_letter(relayed.data, "dead", "I-1", "D-1")
    store_dead_letter(relayed.data, "behind", "I-1", "D-1", relayStatus="HELD")

    answer = await post(relayed, "dead/drop", **{"Idempotency-Key": "k"})
    repeated = await post(relayed, "dead/drop", **{"Idempotency-Key": "k"})

    assert answer.json()["status"] == "DROPPED"
    assert (repeated.status_code, repeated.content) == (200, answer.content)
    rows = {row["_id"]: row for row in relayed.data.outbox_events.find()}
    assert rows["dead"]["droppedBy"] == "anonymous"
    assert rows["behind"]["relayStatus"] == "PENDING"
    (entry,) = (await relayed.store.access.audit.list(AuditQuery(subject="dead"))).items
    assert (entry.operation, entry.result) == ("dropDeadLetter", "DONE")


async def test_all_dead_letters_are_sent_again_or_those_of_an_instance(
    relayed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_PAGE", 2)
    monkeypatch.setattr(dead_letters, "MOST_AT_ONCE", 4)
    for number in range(7):
        store_dead_letter(relayed.data, f"e{number}", f"I-{number}", "D-1")
    resend = f"{EVENTS}/resend"

    of_one = await relayed.api.post(resend, json={"processInstanceId": "I-3"})
    some = await relayed.api.post(resend, json={})
    rest = await relayed.api.post(resend, json={})

    assert of_one.json() == {"resent": 1, "isAll": True}
    assert some.json() == {"resent": 4, "isAll": False}
    assert rest.json() == {"resent": 2, "isAll": True}
    entries = (
        await relayed.store.access.audit.list(AuditQuery(operation="resendDeadLetters"))
    ).items
    assert [dict(entry.subjects) for entry in entries] == [{}, {}, {"instance_id": "I-3"}]


async def test_who_is_bound_to_a_tenant_sees_and_changes_nothing_of_the_relay(
    relayed: Managed,
) -> None:
    store_dead_letter(relayed.data, "dead", "I-1", "D-1", payload={"tenantId": "red"})
    red = {"X-Tenant-Id": "red"}

    answers = [
        await relayed.http.get("/dashboard/relay", headers=red),
        await relayed.http.get("/dashboard/relay/dead", headers=red),
        await relayed.api.get(EVENTS, headers=red),
        await post(relayed, "dead/resend", **red),
    ]
    overview = await relayed.http.get("/dashboard/overview", headers=red)

    assert {one.status_code for one in answers} == {403}
    assert not any("PROCESS_INSTANCE" in one.text or "I-1" in one.text for one in answers)
    assert "Dead letters" not in overview.text
    assert "/dashboard/relay" not in overview.text


async def test_the_overview_says_that_there_are_dead_letters(relayed: Managed) -> None:
    calm = (await relayed.http.get("/dashboard/overview")).text
    store_dead_letter(relayed.data, "dead", "I-1", "D-1")
    relayed.data.outbox_events.insert_one(
        a_dead_letter("late", "I-2", "D-1", relayStatus="PENDING")
    )
    alarmed = (await relayed.http.get("/dashboard/overview")).text

    assert "Dead letters" not in calm
    assert "Dead letters" in alarmed
    assert "behind" in alarmed


async def test_the_page_shows_what_failed_and_why_and_asks_before_it_sends_again(
    relayed: Managed,
) -> None:
    definition_id = await relayed.deploy()
    store_dead_letter(relayed.data, "dead", "I-1", definition_id)
    store_dead_letter(relayed.data, "dead-2", "I-2", definition_id)
    http = relayed.http

    listed = (await http.get("/dashboard/relay")).text
    one = (await http.get("/dashboard/relay/dead")).text
    asked = [
        await http.get(f"/dashboard/relay/{path}")
        for path in ("dead/resend", "dead/drop", "resend?instance=I-2")
    ]
    unchanged = relayed.data.outbox_events.count_documents({"relayStatus": "DEAD"})
    sent = await http.post("/dashboard/relay/dead/resend", data={})
    late = await http.post("/dashboard/relay/dead/resend", data={})
    rest = await http.post("/dashboard/relay/resend", data={"instance": "I-2"})

    for text in (listed, one):
        assert "10 times" in text
        assert "422 Unprocessable" in text
    assert REFUSAL in one
    assert [answer.status_code for answer in asked] == [200, 200, 200]
    assert "Send 1 dead letter again?" in asked[2].text
    assert unchanged == 2
    assert (sent.status_code, late.status_code, rest.status_code) == (303, 409, 303)
    assert "is no dead letter" in late.text
    assert relayed.data.outbox_events.count_documents({"relayStatus": "RETRYING"}) == 2
