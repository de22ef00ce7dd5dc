"""Lists for people: pages that together are the whole, and filters."""

import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.model.runtime import InstanceStatus, TaskStatus
from kikwiflow_worker.model.unit_of_work import (
    EndPath,
    InsertExternalTask,
    InsertInstance,
    InsertTask,
    OpenIncident,
)
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.views import (
    ExternalTaskQuery,
    IncidentQuery,
    InstanceQuery,
    Page,
    TaskQuery,
    WorkerRecord,
)
from tests.support.stores import (
    HANDLER,
    LONG_AGO,
    Json,
    a_task,
    an_external_task,
    an_incident,
    an_instance,
    commit,
    put_instance,
    put_task,
)

pytestmark = pytest.mark.mongo

Listing = Callable[[MongoStore, int, str | None], Awaitable[Page[Any]]]

LISTS: dict[str, Listing] = {
    "instances": lambda store, limit, cursor: store.reads.list_instances(
        InstanceQuery(), limit=limit, cursor=cursor
    ),
    "tasks": lambda store, limit, cursor: store.reads.list_tasks(
        TaskQuery(), limit=limit, cursor=cursor
    ),
    "external_tasks": lambda store, limit, cursor: store.reads.list_external_tasks(
        ExternalTaskQuery(), limit=limit, cursor=cursor
    ),
    "incidents": lambda store, limit, cursor: store.reads.list_incidents(
        IncidentQuery(), limit=limit, cursor=cursor
    ),
}
every_list = pytest.mark.parametrize("listing", LISTS.values(), ids=LISTS.keys())


async def put_of_every_kind(store: MongoStore, count: int) -> None:
    """Store ``count`` records of each kind; three at a time have the same instant."""
    for number in range(count):
        at = LONG_AGO + timedelta(minutes=number // 3)
        task = a_task(created_at=at)
        await commit(
            store,
            InsertInstance(an_instance(started_at=at)),
            InsertTask(task),
            InsertExternalTask(an_external_task(created_at=at)),
            OpenIncident(an_incident(task, created_at=at)),
        )


async def ids_of_all_pages(store: MongoStore, listing: Listing, limit: int) -> list[str]:
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = await listing(store, limit, cursor)
        assert len(page.items) <= limit
        ids += [item.id for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return ids


@every_list
async def test_all_pages_together_are_the_list(store: MongoStore, listing: Listing) -> None:
    await put_of_every_kind(store, 10)
    whole = await ids_of_all_pages(store, listing, 500)

    for limit in (1, 2, 3, 5, 10):
        assert await ids_of_all_pages(store, listing, limit) == whole
    assert len(set(whole)) == 10


@every_list
async def test_a_cursor_survives_records_that_come_and_go(
    store: MongoStore, data: Database[Json], listing: Listing
) -> None:
    await put_of_every_kind(store, 9)
    whole = await ids_of_all_pages(store, listing, 500)
    first = await listing(store, 4, None)
    for name in ("process_instances", "executable_tasks", "external_tasks", "incidents"):
        data[name].delete_many({"_id": {"$in": whole[:4]}})
    await put_of_every_kind(store, 1)

    rest = await listing(store, 500, first.next_cursor)

    seen = [item.id for item in rest.items]
    assert [one for one in seen if one in whole] == whole[4:]


async def test_instances_and_incidents_come_newest_first_and_tasks_oldest_first(
    store: MongoStore,
) -> None:
    await put_of_every_kind(store, 6)

    instances = (await store.reads.list_instances(InstanceQuery())).items
    incidents = (await store.reads.list_incidents(IncidentQuery())).items
    tasks = (await store.reads.list_tasks(TaskQuery())).items

    started = [one.started_at for one in instances]
    assert started == sorted(started, reverse=True)
    opened = [one.created_at for one in incidents]
    assert opened == sorted(opened, reverse=True)
    created = [one.created_at for one in tasks]
    assert created == sorted(created)


@every_list
async def test_an_empty_list_is_one_empty_page(store: MongoStore, listing: Listing) -> None:
    assert await listing(store, 10, None) == Page((), None)


@every_list
async def test_a_page_that_is_just_full_is_the_last(store: MongoStore, listing: Listing) -> None:
    await put_of_every_kind(store, 3)

    assert (await listing(store, 3, None)).next_cursor is None


@every_list
@pytest.mark.parametrize(
    "cursor",
    [
        "nonsense",
        "e30",
        "größe",
        "a",
        base64.urlsafe_b64encode(b'["yesterday", "x"]').decode(),
        base64.urlsafe_b64encode(b'["0001-01-01T00:00:00+23:00", "x"]').decode(),
        base64.urlsafe_b64encode(b"[" * 5000).decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
async def test_a_cursor_that_no_page_gave_is_refused(
    store: MongoStore, listing: Listing, cursor: str
) -> None:
    with pytest.raises(OperationError, match="cursor"):
        await listing(store, 10, cursor)


async def test_a_cursor_cannot_carry_an_operator(store: MongoStore) -> None:
    await put_of_every_kind(store, 3)
    forged = json.dumps([LONG_AGO.isoformat(), {"$ne": None}])
    cursor = base64.urlsafe_b64encode(forged.encode()).decode()

    with pytest.raises(OperationError, match="the cursor is not one that a page gave"):
        await store.reads.list_tasks(TaskQuery(), cursor=cursor)


async def test_instances_are_found_by_what_they_are(store: MongoStore) -> None:
    wanted = await put_instance(store, business_key="order-7", tenant_id="acme")
    await put_instance(store, business_key="order-8", definition_key="letter")
    await put_instance(store, status=InstanceStatus.SUSPENDED)

    for query in (
        InstanceQuery(business_key="order-7"),
        InstanceQuery(tenant_id="acme"),
        InstanceQuery(definition_key="parcel", status="ACTIVE"),
    ):
        assert [one.id for one in (await store.reads.list_instances(query)).items] == [wanted.id]


async def test_ended_instances_have_a_list_of_their_own(store: MongoStore) -> None:
    ended, running = await put_instance(store), await put_instance(store)
    await commit(store, EndPath(ended.id, LONG_AGO))

    history = await store.reads.list_instances(InstanceQuery(ended=True))
    present = await store.reads.list_instances(InstanceQuery())

    assert [one.id for one in history.items] == [ended.id]
    assert [one.id for one in present.items] == [running.id]


async def test_tasks_are_found_by_what_they_are(store: MongoStore) -> None:
    wanted = await put_task(
        store, instance_id="instance-7", node_id="WEIGH", handler_name=HANDLER, attempts=1
    )
    await put_task(store, status=TaskStatus.ERROR, claimable_at=None, attempts=3)
    await put_task(store)

    for query in (
        TaskQuery(instance_id="instance-7"),
        TaskQuery(node_id="WEIGH"),
        TaskQuery(handler_name=HANDLER, status=TaskStatus.PENDING),
        TaskQuery(retrying=True),
    ):
        assert [one.id for one in (await store.reads.list_tasks(query)).items] == [wanted.id]


async def test_external_tasks_are_found_by_whose_they_are(store: MongoStore) -> None:
    taken, free = an_external_task(assignee="ann", tenant_id="acme"), an_external_task()
    await commit(store, InsertExternalTask(taken), InsertExternalTask(free))

    of_ann = await store.reads.list_external_tasks(ExternalTaskQuery(assignee="ann"))
    of_acme = await store.reads.list_external_tasks(ExternalTaskQuery(tenant_id="acme"))
    of_nobody = await store.reads.list_external_tasks(ExternalTaskQuery(unassigned=True))

    assert [one.id for one in of_ann.items] == [taken.id]
    assert [one.id for one in of_acme.items] == [taken.id]
    assert [one.id for one in of_nobody.items] == [free.id]


async def test_instances_are_counted_by_status_ended_ones_included(store: MongoStore) -> None:
    await put_instance(store)
    await put_instance(store, status=InstanceStatus.SUSPENDED)
    await put_instance(store, definition_key="letter")
    ended, cancelled = await put_instance(store), await put_instance(store)
    await commit(store, EndPath(ended.id, LONG_AGO))
    await store.runtime.cancel_instance(cancelled.id, cancelled_by=None)

    counts = await store.reads.count_by_status()
    of_parcel = await store.reads.count_by_status(definition_key="parcel")

    assert counts == {
        "ACTIVE": 2,
        "SUSPENDED": 1,
        "CANCELLING": 0,
        "COMPLETED": 1,
        "CANCELLED": 1,
    }
    assert of_parcel["ACTIVE"] == 1


async def test_due_tasks_are_counted_by_the_handler_they_need(store: MongoStore) -> None:
    later = LONG_AGO + timedelta(minutes=1)
    await put_task(store, handler_name="a", claimable_at=later)
    await put_task(store, handler_name="a")
    await put_task(store, handler_name="b")
    await put_task(store, handler_name="c", status=TaskStatus.LOCKED)
    await put_task(store, handler_name="d", claimable_at=None)
    await put_task(store, handler_name=None)

    waiting = await store.searches.list_handler_waits()

    assert [(one.handler_name, one.waiting.value, one.oldest) for one in waiting] == [
        ("a", 2, LONG_AGO),
        ("b", 1, LONG_AGO),
        ("c", 1, LONG_AGO),  # a lock that has lapsed
    ]


async def test_the_queue_is_measured(store: MongoStore) -> None:
    now = store.runtime.now()
    await put_task(store, claimable_at=now - timedelta(seconds=90))
    await put_task(store, claimable_at=now - timedelta(seconds=30))
    await put_task(store, claimable_at=now + timedelta(hours=1))
    await put_task(store, status=TaskStatus.ERROR, claimable_at=None)
    await commit(store, OpenIncident(an_incident(a_task())))

    measures = await store.reads.measure_queue()

    assert (measures.due, measures.open_incidents) == (2, 1)
    assert 90 <= measures.oldest_due_s < 120


async def test_an_idle_queue_waits_for_nothing(store: MongoStore) -> None:
    measures = await store.reads.measure_queue()

    assert (measures.due, measures.oldest_due_s, measures.open_incidents) == (0, 0.0, 0)


async def test_a_worker_is_recorded_once_and_seen_by_the_database_s_clock(
    store: MongoStore,
) -> None:
    record = WorkerRecord(
        id="host-1-abc",
        instance_name="default",
        host="host",
        pid=1,
        version="0.1.0",
        started_at=LONG_AGO,
        seen_at=LONG_AGO,
        state="running",
        slots=4,
        running=1,
        handlers=(HANDLER,),
        event_loop_lag_s=0.25,
    )
    await store.reads.record_worker(replace(record, event_loop_lag_s=2.0))
    await store.reads.record_worker(record)

    (found,) = await store.reads.list_workers()

    assert found == replace(record, seen_at=found.seen_at)
    assert found.seen_at > LONG_AGO
