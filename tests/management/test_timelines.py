"""Timelines, paths and figures of real processes, with and without stored events."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson.timestamp import Timestamp

from kikwiflow_worker.management.web.navigation import DASHBOARD_PATH
from kikwiflow_worker.model.events import EventType, NodeStatus
from kikwiflow_worker.model.runtime import TaskStatus
from kikwiflow_worker.store.mongo.codec import encode_task
from kikwiflow_worker.store.search import Count, SearchStore, Standing
from kikwiflow_worker.store.views import WorkerRecord
from tests.support.definitions import Json, a_node, a_start, an_end
from tests.support.management import PARCEL, Managed, recorded
from tests.support.profiler import profiled
from tests.support.stores import a_task

pytestmark = pytest.mark.mongo
__all__ = ["recorded"]


def searches_of(managed: Managed) -> SearchStore:
    return managed.services.searches


async def test_the_timeline_of_an_ended_instance_is_listed_page_by_page(recorded: Managed) -> None:
    parcel = await recorded.an_ended_parcel()
    searches = searches_of(recorded)

    whole = await searches.list_events(parcel.id)
    found = await listed(recorded, parcel.id, limit=1)
    after = await searches.list_events(parcel.id, cursor=whole.items[2].cursor)

    assert found == [entry.event.id for entry in whole.items]
    assert [entry.event.id for entry in after.items] == found[3:]
    assert {entry.event.type for entry in whole.items} >= {
        EventType.PROCESS_INSTANCE_STARTED,
        EventType.PROCESS_INSTANCE_FINISHED,
    }


async def test_events_of_one_type_are_found_among_others(recorded: Managed) -> None:
    parcel = await recorded.an_ended_parcel()

    page = await searches_of(recorded).list_events(
        parcel.id, types=(EventType.PROCESS_INSTANCE_FINISHED,), limit=1
    )

    assert [entry.event.type for entry in page.items] == [EventType.PROCESS_INSTANCE_FINISHED]


async def listed(
    managed: Managed, instance_id: str, *, limit: int, newest_first: bool = False
) -> list[str]:
    """Return the ids of all events, asked for page by page."""
    found, cursor = [], None
    while True:
        page = await searches_of(managed).list_events(
            instance_id, newest_first=newest_first, limit=limit, cursor=cursor
        )
        found += [entry.event.id for entry in page.items]
        assert len(found) == len(set(found))
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_a_cursor_goes_on_in_both_directions(recorded: Managed) -> None:
    parcel = await recorded.an_ended_parcel()
    path = f"/process-instances/{parcel.id}/events"

    async def page(**query: object) -> Json:
        response = await recorded.api.get(path, params=query)
        assert response.status_code == 200, response.text
        found: Json = response.json()
        return found

    def ids(found: Json) -> list[str]:
        return [event["id"] for event in found["items"]]

    whole = await page()
    in_order = ids(whole)
    middle = whole["items"][3]["cursor"]

    assert ids(await page(order="newest")) == in_order[::-1]
    assert ids(await page(order="newest", cursor=middle)) == in_order[2::-1]
    assert ids(await page(order="oldest", cursor=middle)) == in_order[4:]
    newest = await page(order="newest", limit=2)
    assert ids(newest) == in_order[:-3:-1]
    assert ids(await page(order="newest", cursor=newest["nextCursor"])) == in_order[-3::-1]
    assert ids(await page(cursor=newest["nextCursor"])) == in_order[-1:]


async def test_events_are_in_the_database_s_order_whatever_the_clocks_of_hosts_say(
    recorded: Managed,
) -> None:
    parcel = await recorded.an_ended_parcel()
    events = recorded.data.outbox_events
    stored = [row["_id"] for row in events.find({"processInstanceId": parcel.id}).sort("sequence")]
    path = await searches_of(recorded).find_path(parcel.id)
    first = events.find_one({"_id": stored[0]}) or {}
    of_first_commit = {"timestamp": first["timestamp"], "processInstanceId": parcel.id}
    late = timedelta(hours=1)
    events.update_many(of_first_commit, {"$set": {"timestamp": first["timestamp"] + late}})

    skewed = await searches_of(recorded).find_path(parcel.id)

    assert await listed(recorded, parcel.id, limit=1) == stored
    assert await listed(recorded, parcel.id, limit=3) == stored
    assert [visit.node_id for visit in skewed.visits] == [visit.node_id for visit in path.visits]
    assert skewed.is_complete


async def test_a_page_of_a_timeline_reads_what_it_shows(recorded: Managed) -> None:
    parcel = await recorded.an_ended_parcel()
    searches = searches_of(recorded)
    *_, before_last, _, _ = (await searches.list_events(parcel.id)).items

    with profiled(recorded.data) as entries:
        page = await searches.list_events(parcel.id, limit=1, cursor=before_last.cursor)

    (look,) = (entry for entry in entries if entry["ns"].endswith("outbox_events"))
    assert len(page.items) == 1
    assert max(look["docsExamined"], look["keysExamined"]) <= 4
    assert not look.get("hasSortStage")


async def test_events_of_a_release_without_sequences_come_first_as_their_timestamps_say(
    recorded: Managed,
) -> None:
    parcel = await recorded.an_ended_parcel()
    events = recorded.data.outbox_events
    stored = [row["_id"] for row in events.find({"processInstanceId": parcel.id}).sort("sequence")]
    old, moment = stored[1::2], datetime(2024, 5, 1, tzinfo=UTC)
    assert len(old) > 2
    for number, event_id in enumerate(old):
        at = {"timestamp": moment - timedelta(seconds=number // 2), "position": number}
        events.update_one({"_id": event_id}, {"$set": at, "$unset": {"sequence": ""}})
    rows = sorted(
        events.find({"_id": {"$in": old}}), key=lambda row: (row["timestamp"], row["position"])
    )
    expected = [row["_id"] for row in rows] + stored[0::2]

    assert await listed(recorded, parcel.id, limit=1) == expected
    assert await listed(recorded, parcel.id, limit=50) == expected
    assert await listed(recorded, parcel.id, limit=1, newest_first=True) == expected[::-1]


async def test_events_of_one_instant_are_neither_missed_nor_told_twice(recorded: Managed) -> None:
    parcel = await recorded.a_waiting_parcel()
    same = {"timestamp": datetime(2030, 1, 1, tzinfo=UTC), "position": 0}
    same |= {"sequence": Timestamp(2**31, 1)}
    (row,) = recorded.data.outbox_events.find({"processInstanceId": parcel.id}).limit(1)
    rows = [{**row, **same, "_id": f"late-{number}"} for number in range(5)]
    recorded.data.outbox_events.insert_many(rows)

    found = await listed(recorded, parcel.id, limit=2)

    assert await listed(recorded, parcel.id, limit=2, newest_first=True) == found[::-1]
    assert found[-5:] == [f"late-{number}" for number in range(5)]
    assert len(found) == len(set(found))


async def test_the_path_is_what_the_instance_went_through(recorded: Managed) -> None:
    parcel = await recorded.a_waiting_parcel()
    task = await recorded.task_of(parcel)
    await recorded.kikwiflow.complete(task.id)

    path = await searches_of(recorded).find_path(parcel.id)

    assert [visit.node_id for visit in path.visits] == ["START", "WEIGH", "APPROVE"]
    assert {visit.status for visit in path.visits} == {NodeStatus.SUCCESS}
    assert path.visits[-1].started_at == task.created_at
    assert path.is_complete


async def test_a_path_tells_what_was_interrupted_by_what(recorded: Managed) -> None:
    parcel = await recorded.an_ended_parcel()

    path = await searches_of(recorded).find_path(parcel.id)

    interrupted = {visit.node_id: visit.interrupted_by for visit in path.visits}
    assert interrupted["APPROVE"] == "RECALL"
    assert path.visits[-1].node_id == "END"


async def test_a_path_without_its_beginning_is_not_called_complete(recorded: Managed) -> None:
    parcel = await recorded.a_waiting_parcel()
    gone = {"processInstanceId": parcel.id, "eventType": "PROCESS_INSTANCE_STARTED"}
    recorded.data.outbox_events.delete_one(gone)

    path = await searches_of(recorded).find_path(parcel.id)

    assert path.visits
    assert not path.is_complete


async def test_without_events_the_completed_waits_are_known(managed: Managed) -> None:
    parcel = await managed.a_waiting_parcel()
    await managed.kikwiflow.complete((await managed.task_of(parcel)).id)

    path = await searches_of(managed).find_path(parcel.id)

    assert [visit.node_id for visit in path.visits] == ["APPROVE"]
    assert not path.is_complete


async def test_gateways_tell_the_flow_they_chose(recorded: Managed) -> None:
    flows = [
        {"id": "yes", "targetNodeId": "WAIT", "expectedAnswer": "yes"},
        {"id": "no", "targetNodeId": "END", "isDefault": True},
    ]
    await recorded.deploy(
        a_start("WHICH"),
        {**a_node("WHICH", "EXCLUSIVE_GATEWAY"), "outgoing": flows}
        | {"providerType": "VARIABLE", "providerVariable": "answer"},
        a_node("WAIT", "EXTERNAL_TASK", "END"),
        an_end(),
        key="choice",
    )
    instance = await recorded.kikwiflow.start("choice", "C-1", variables={"answer": "yes"})

    path = await searches_of(recorded).find_path(instance.id)

    assert path.flows == ("yes",)


async def test_where_an_instance_stands_and_what_failed(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel()
    failed = await managed.a_failed_parcel("PARCEL-2")
    ended = await managed.an_ended_parcel("PARCEL-3")
    searches = searches_of(managed)

    assert await searches.find_standing(waiting.id) == {"APPROVE": Standing(1)}
    assert await searches.find_standing(failed.instance_id) == {"WEIGH": Standing(1, failed=1)}
    assert await searches.find_standing(ended.id) == {}


async def test_a_join_is_stood_at_when_its_branches_are_there(managed: Managed) -> None:
    await managed.deploy(
        a_start("SPLIT"),
        {**a_node("SPLIT", "PARALLEL_GATEWAY", "LEFT", "RIGHT"), "targetJoinId": "JOIN"},
        a_node("LEFT", "EXTERNAL_TASK", "JOIN"),
        a_node("RIGHT", "EXTERNAL_TASK", "JOIN"),
        a_node("JOIN", "JOIN_GATEWAY", "LATER"),
        a_node("LATER", "TIMER_TASK", "END", providerType="STATIC", staticValue="PT1H"),
        an_end(),
        key="split",
    )
    instance = await managed.kikwiflow.start("split", "S-1")
    searches = searches_of(managed)

    before = await searches.find_standing(instance.id)
    await managed.kikwiflow.complete((await managed.task_of(instance, "LEFT")).id)
    between = await searches.find_standing(instance.id)
    await managed.kikwiflow.complete((await managed.task_of(instance, "RIGHT")).id)
    at_join = await searches.find_standing(instance.id)
    await managed.work()
    behind = await searches.find_standing(instance.id)

    assert before.keys() == {"LEFT", "RIGHT"}
    assert between.keys() == {"RIGHT"}
    assert at_join.keys() == {"JOIN"}
    assert behind.keys() == {"LATER"}


async def test_figures_of_nodes(recorded: Managed) -> None:
    for number in range(2):
        await recorded.a_waiting_parcel(f"PARCEL-{number}")
    done = await recorded.a_waiting_parcel("PARCEL-8")
    task = await recorded.task_of(done)
    created = task.created_at - timedelta(hours=1)
    recorded.data.external_tasks.update_one({"_id": task.id}, {"$set": {"createdAt": created}})
    await recorded.kikwiflow.complete(task.id)
    await recorded.a_failed_parcel("PARCEL-9", tenant_id="acme")
    definition_id = done.definition_id
    nodes = ["WEIGH", "APPROVE", "LATER", "END"]
    events = recorded.data.outbox_events
    untold = events.find_one({"payload.flowNodeDefinitionId": "WEIGH"}, {"payload.startedAt": 0})
    assert untold is not None
    events.insert_one({**untold, "_id": "without-a-beginning"})

    figures = await searches_of(recorded).measure_nodes(definition_id, nodes)
    of_tenant = await searches_of(recorded).measure_nodes(definition_id, nodes, tenant_id="acme")

    assert {name: each.tokens.value for name, each in figures.items()} == {
        **dict.fromkeys(nodes, 0),
        "WEIGH": 1,
        "APPROVE": 2,
        "LATER": 1,
    }
    assert {name: each.incidents.value for name, each in figures.items() if each.incidents.value} == {"WEIGH": 1}  # fmt: skip
    assert figures["APPROVE"].sampled == 1
    assert timedelta(hours=1) <= (figures["APPROVE"].average or timedelta()) < timedelta(hours=2)
    assert figures["WEIGH"].sampled == 3
    assert {name: each.tokens.value for name, each in of_tenant.items() if each.tokens.value} == {"WEIGH": 1}  # fmt: skip
    assert of_tenant["WEIGH"].incidents == Count(1)
    assert of_tenant["APPROVE"].average is None


async def test_figures_of_definitions(managed: Managed) -> None:
    await managed.a_waiting_parcel("PARCEL-1", tenant_id="acme")
    await managed.an_ended_parcel("PARCEL-2")
    cancelled = await managed.a_waiting_parcel("PARCEL-3")
    await managed.kikwiflow.cancel(cancelled.id)
    await managed.a_failed_parcel("PARCEL-4")
    old = await managed.an_ended_parcel("PARCEL-5")
    two_days_ago = datetime.now(UTC) - timedelta(days=2)
    managed.data.process_history.update_one({"_id": old.id}, {"$set": {"endedAt": two_days_ago}})

    figures = await searches_of(managed).measure_definitions([PARCEL, "unknown"])
    of_tenant = await searches_of(managed).measure_definitions([PARCEL], tenant_id="acme")

    parcel = figures[PARCEL]
    assert (parcel.running, parcel.incidents) == (Count(2), Count(1))
    assert (parcel.completed, parcel.cancelled) == (Count(1), Count(1))
    assert figures["unknown"].running == Count(0)
    assert (of_tenant[PARCEL].running, of_tenant[PARCEL].incidents) == (Count(1), Count(0))


def a_worker(**fields: Any) -> WorkerRecord:
    now = datetime.now(UTC)
    chosen: dict[str, Any] = {
        "id": "packer.1",
        "instance_name": "packer",
        "host": "host",
        "pid": 1,
        "version": "0",
        "started_at": now,
        "seen_at": now,
        "state": "running",
        "slots": 10,
        "running": 4,
        "handlers": ("task_handler:pack",),
    }
    return WorkerRecord(**{**chosen, **fields})


async def test_workers_are_silent_when_they_have_not_reported_for_long(managed: Managed) -> None:
    await managed.store.reads.record_worker(a_worker())
    await managed.store.reads.record_worker(a_worker(id="packer.2"))
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    managed.data.workers.update_one({"_id": "packer.2"}, {"$set": {"seenAt": long_ago}})

    lively, silent = await searches_of(managed).list_workers()

    assert (lively.worker.id, lively.is_silent, lively.free) == ("packer.1", False, 6)
    assert silent.is_silent
    assert 290 < silent.silent_s < 400


async def test_slots_lag_and_silence_of_workers_are_shown(managed: Managed) -> None:
    await managed.store.reads.record_worker(a_worker(event_loop_lag_s=1.25))
    await managed.store.reads.record_worker(a_worker(id="packer.2", instance_name="old"))

    items = (await managed.api.get("/workers")).json()["items"]
    page = (await managed.http.get(f"{DASHBOARD_PATH}/workers")).text

    seen = {item["id"]: (item["free"], item["eventLoopLagSeconds"]) for item in items}
    assert seen == {"packer.1": (6, 1.25), "packer.2": (6, None)}
    assert all(item["silentSeconds"] < 60 for item in items)
    assert "1.250 s" in page


@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_what_no_worker_can_run_is_listed_first(managed: Managed, tenant: str | None) -> None:
    now = datetime.now(UTC)
    rows = [
        a_task(
            handler_name=name,
            tenant_id="acme" if number % 2 else None,
            priority=number,
            claimable_at=now - timedelta(minutes=number),
        )
        for name in ("task_handler:pack", "task_handler:weigh")
        for number in range(4)
    ]
    later = a_task(handler_name="task_handler:later", claimable_at=now + timedelta(hours=1))
    failed = a_task(handler_name="task_handler:pack", status=TaskStatus.ERROR, claimable_at=None)
    managed.data.executable_tasks.insert_many(
        encode_task(task, None) for task in (*rows, later, failed)
    )
    await managed.store.reads.record_worker(a_worker())

    waits = await searches_of(managed).list_handler_waits(tenant_id=tenant)

    assert [(wait.handler_name, wait.is_served) for wait in waits] == [
        ("task_handler:weigh", False),
        ("task_handler:pack", True),
    ]
    assert {wait.waiting for wait in waits} == {Count(2 if tenant else 4)}
    assert {round((now - wait.oldest).total_seconds() / 60) for wait in waits} == {3}


async def test_an_instance_of_another_tenant_has_no_past(recorded: Managed) -> None:
    waiting = await recorded.a_waiting_parcel(tenant_id="acme")
    ended = await recorded.an_ended_parcel("PARCEL-2", tenant_id="acme")
    forgotten = await recorded.an_ended_parcel("PARCEL-3", tenant_id="acme")
    recorded.data.process_history.delete_one({"_id": forgotten.id})
    searches = searches_of(recorded)

    for instance in (waiting, ended, forgotten):
        for tenant, is_theirs in (("acme", True), ("bolt", False)):
            events = await searches.list_events(instance.id, tenant_id=tenant)
            path = await searches.find_path(instance.id, tenant_id=tenant)
            assert bool(events.items) is bool(path.visits) is is_theirs
    assert await searches.find_standing(waiting.id, tenant_id="bolt") == {}
    assert (await searches.find_standing(waiting.id, tenant_id="acme")).keys() == {"APPROVE"}
    keys = await searches.find_business_keys([waiting.id], tenant_id="acme")
    assert keys == {waiting.id: "PARCEL-1"}
    assert await searches.find_business_keys([waiting.id], tenant_id="bolt") == {}
