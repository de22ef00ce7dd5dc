"""What the server examines for what the store asks, as its own profiler counts it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.capability import Capabilities, Capability, HandlerKind
from kikwiflow_worker.model.runtime import IncidentStatus, TaskStatus
from kikwiflow_worker.model.unit_of_work import EndPath, RemoveArrivals, RemoveTask
from kikwiflow_worker.store.mongo.codec import (
    encode_external_task,
    encode_incident,
    encode_instance,
    encode_task,
)
from kikwiflow_worker.store.mongo.locks import MongoLockKeeper
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.views import ExternalTaskQuery, IncidentQuery, InstanceQuery, TaskQuery
from tests.support.groups import commit_group, committed, put_claimed, unit_of
from tests.support.mongo import MongoServer
from tests.support.profiler import profiled
from tests.support.stores import (
    FAR_AWAY,
    LOCK,
    LONG_AGO,
    WORKER,
    Json,
    a_task,
    an_external_task,
    an_incident,
    an_instance,
    claim_next,
    commit,
)

pytestmark = pytest.mark.mongo

MANY = 20_000
HANDLERS = ("load", "pack", "weigh")
CAPABILITIES = Capabilities(Capability(HandlerKind.TASK_HANDLER, name) for name in HANDLERS)
MOST_KEYS = 2 * (len(HANDLERS) + 1) + 1
"""One range for each handler and one for none, each opened once, and what ends the search."""


@pytest.fixture
async def store(mongo_server: MongoServer, data: Database[Json]) -> AsyncIterator[MongoStore]:
    opened = MongoStore.open(mongo_server.uri, data.name, clock=SystemClock())
    await opened.ping()
    yield opened
    await opened.close()


def put_rows(
    data: Database[Json], count: int, *, since: datetime = LONG_AGO, step_ms: int = 1, **fields: Any
) -> None:
    row = encode_task(a_task(**fields))
    has_instant = "claimableAt" in row
    rows = []
    for number in range(count):
        at = since + timedelta(milliseconds=number * step_ms)
        timed = {"claimableAt": at} if has_instant else {}
        rows.append({**row, **timed, "_id": f"{fields}-{number}", "createdAt": at})
    data.executable_tasks.insert_many(rows, ordered=False)


async def claim(store: MongoStore) -> object:
    return await claim_next(store, CAPABILITIES)


async def profile_of_claim(store: MongoStore, data: Database[Json]) -> tuple[object, Json]:
    with profiled(data) as entries:
        claimed = await claim(store)
    (entry,) = [entry for entry in entries if "findAndModify" in entry["command"]]
    return claimed, entry


@pytest.mark.field_case("S-31", "S-32", "S-35", "S-61")
async def test_a_claim_among_many_due_tasks_examines_one(
    store: MongoStore, data: Database[Json]
) -> None:
    for number, handler in enumerate((None, *HANDLERS)):
        put_rows(
            data, MANY // 4, handler_name=handler, since=LONG_AGO + timedelta(milliseconds=number)
        )

    claimed, entry = await profile_of_claim(store, data)

    assert claimed is not None
    assert entry["docsExamined"] == 1
    assert entry["keysExamined"] <= MOST_KEYS


async def test_a_claim_never_looks_at_tasks_of_a_handler_that_nobody_here_has(
    store: MongoStore, data: Database[Json]
) -> None:
    # First the plan becomes known with our own tasks in front, which any index finds at once.
    put_rows(data, 30, handler_name="pack")
    for _ in range(10):
        await claim(store)
    put_rows(data, MANY, handler_name="somebody_else_s", since=LONG_AGO - timedelta(days=1))

    for _ in range(3):
        claimed, entry = await profile_of_claim(store, data)

        assert claimed is not None
        assert entry["docsExamined"] == 1
        assert entry["keysExamined"] <= MOST_KEYS


async def profile_of_batch(
    store: MongoStore, data: Database[Json], limit: int
) -> tuple[int, list[Json]]:
    with profiled(data) as entries:
        claimed = await store.queue.claim_due(
            worker_id=WORKER, lock=LOCK, capabilities=CAPABILITIES, limit=limit
        )
    return len(claimed), entries


@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_a_batch_examines_its_candidates_and_nothing_else(
    store: MongoStore, data: Database[Json], tenant: str | None
) -> None:
    limit = 20
    for number, handler in enumerate((None, *HANDLERS)):
        since = LONG_AGO + timedelta(milliseconds=number)
        put_rows(data, MANY // 8, handler_name=handler, since=since, tenant_id=tenant)
        later = {"since": FAR_AWAY, "due_at": FAR_AWAY}
        put_rows(data, MANY // 8, handler_name=handler, tenant_id=tenant, **later)
    put_rows(data, MANY // 4, handler_name="somebody_else_s", since=LONG_AGO - timedelta(days=1))
    put_rows(data, MANY // 4, status=TaskStatus.ERROR, claimable_at=None)

    for _ in range(4):
        claimed, entries = await profile_of_batch(store, data, limit)

        assert claimed == limit
        for entry in entries:
            # Four candidates for each task wanted; one more key and document for each range that is opened.
            most = 4 * limit
            assert entry["docsExamined"] <= most + len(HANDLERS) + 1, entry["command"]
            assert entry["keysExamined"] <= most + 2 * MOST_KEYS, entry["command"]
        (update,) = [entry for entry in entries if entry["op"] == "update"]
        assert update["docsExamined"] == limit


async def test_a_batch_with_nothing_due_examines_no_document(
    store: MongoStore, data: Database[Json]
) -> None:
    put_rows(data, MANY, handler_name="pack", since=FAR_AWAY, due_at=FAR_AWAY)

    claimed, entries = await profile_of_batch(store, data, 100)

    assert claimed == 0
    assert [entry["docsExamined"] for entry in entries] == [0]
    assert entries[0]["keysExamined"] <= MOST_KEYS


@pytest.mark.field_case("S-34")
async def test_a_claim_with_nothing_due_examines_no_document(
    store: MongoStore, data: Database[Json]
) -> None:
    put_rows(data, MANY, handler_name="pack", since=FAR_AWAY, due_at=FAR_AWAY)

    claimed, entry = await profile_of_claim(store, data)

    assert claimed is None
    assert entry["docsExamined"] == 0
    assert entry["keysExamined"] <= MOST_KEYS


async def test_a_claim_never_looks_at_tasks_that_wait_for_no_worker(
    store: MongoStore, data: Database[Json]
) -> None:
    put_rows(data, MANY, status=TaskStatus.ERROR, claimable_at=None)
    put_rows(data, 1, handler_name="pack")

    claimed, entry = await profile_of_claim(store, data)

    assert claimed is not None
    assert entry["docsExamined"] == 1
    assert entry["keysExamined"] <= MOST_KEYS


async def test_looking_for_undelivered_branches_does_not_look_at_due_tasks(
    store: MongoStore, data: Database[Json]
) -> None:
    put_rows(data, MANY, handler_name="pack")

    for _ in range(3):
        with profiled(data) as entries:
            await store.queue.deliver_arrivals(limit=100)

        assert max(entry["docsExamined"] for entry in entries) == 0


@pytest.mark.field_case("S-34", "S-38")
async def test_due_tasks_are_measured_without_looking_at_timers(
    store: MongoStore, data: Database[Json]
) -> None:
    put_rows(data, MANY, handler_name="pack", since=FAR_AWAY, due_at=FAR_AWAY)
    put_rows(data, 3, handler_name="load")

    with profiled(data) as entries:
        measures = await store.reads.measure_queue()
        waiting = await store.searches.list_handler_waits()

    assert measures.due == 3
    assert [one.waiting.value for one in waiting] == [3]
    assert max(entry["docsExamined"] for entry in entries) <= 3


async def test_unknown_locks_are_found_by_worker(
    store: MongoStore, data: Database[Json], keeper: MongoLockKeeper
) -> None:
    put_rows(data, MANY, handler_name="pack", status=TaskStatus.LOCKED, worker_id="somebody-else")
    put_rows(data, 2, status=TaskStatus.LOCKED, worker_id=WORKER)

    with profiled(data) as entries:
        keeper.release_unknown(WORKER, known=frozenset({"one"}))

    assert max(entry["docsExamined"] for entry in entries) <= 2


async def test_the_end_of_an_instance_touches_its_own_tasks_only(
    store: MongoStore, data: Database[Json]
) -> None:
    instance = an_instance()
    data.process_instances.insert_one(encode_instance(instance))
    put_rows(data, MANY, status=TaskStatus.AWAITING_BRANCHES, claimable_at=None)
    put_rows(data, 2, instance_id=instance.id)

    with profiled(data) as entries:
        await commit(store, RemoveArrivals("join-1"), EndPath(instance.id, LONG_AGO))

    assert len(entries) >= 5
    assert max(entry.get("docsExamined", 0) for entry in entries) <= 2


async def test_the_end_of_many_instances_touches_their_own_tasks_only(
    store: MongoStore, data: Database[Json]
) -> None:
    made = await put_claimed(store, 8)
    put_rows(data, MANY, status=TaskStatus.AWAITING_BRANCHES, claimable_at=None)
    units = [
        unit_of(RemoveTask(held), RemoveArrivals(task.id), EndPath(instance.id, LONG_AGO))
        for instance, task, held in made
    ]

    with profiled(data) as entries:
        committed(await commit_group(store, *units))

    assert len(entries) >= 5
    assert max(entry.get("docsExamined", 0) for entry in entries) <= 8


async def test_removing_arrivals_looks_at_the_join_s_own_only(
    store: MongoStore, data: Database[Json]
) -> None:
    put_rows(data, MANY, status=TaskStatus.ARRIVED, claimable_at=None)

    with profiled(data) as entries:
        await commit(store, RemoveArrivals("join-1"))

    assert max(entry.get("docsExamined", 0) for entry in entries) == 0


PAGES: dict[str, Callable[[MongoStore], Awaitable[object]]] = {
    "instances": lambda s: s.reads.list_instances(InstanceQuery()),
    "instances_of_a_key": lambda s: s.reads.list_instances(InstanceQuery(definition_key="parcel")),
    "instances_of_an_order": lambda s: s.reads.list_instances(InstanceQuery(business_key="x")),
    "history": lambda s: s.reads.list_instances(InstanceQuery(ended=True)),
    "history_of_a_key": lambda s: s.reads.list_instances(
        InstanceQuery(ended=True, definition_key="parcel")
    ),
    "tasks": lambda s: s.reads.list_tasks(TaskQuery()),
    "tasks_of_an_instance": lambda s: s.reads.list_tasks(TaskQuery(instance_id="x")),
    "failed_tasks": lambda s: s.reads.list_tasks(TaskQuery(status=TaskStatus.ERROR)),
    "external_tasks": lambda s: s.reads.list_external_tasks(ExternalTaskQuery()),
    "external_tasks_of_somebody": lambda s: s.reads.list_external_tasks(
        ExternalTaskQuery(assignee="ann")
    ),
    "external_tasks_of_nobody": lambda s: s.reads.list_external_tasks(
        ExternalTaskQuery(unassigned=True)
    ),
    "external_tasks_of_an_instance": lambda s: s.reads.list_external_tasks(
        ExternalTaskQuery(instance_id="x")
    ),
    "open_incidents": lambda s: s.reads.list_incidents(IncidentQuery()),
    "incidents_of_an_instance": lambda s: s.reads.list_incidents(IncidentQuery(instance_id="x")),
    "resolved_incidents": lambda s: s.reads.list_incidents(
        IncidentQuery(status=IncidentStatus.RESOLVED)
    ),
}


@pytest.fixture
def many_records(data: Database[Json]) -> None:
    """Store 3,000 records of each kind."""
    for name, record in (
        ("process_instances", encode_instance(an_instance())),
        ("process_history", encode_instance(an_instance())),
        ("executable_tasks", encode_task(a_task())),
        ("external_tasks", encode_external_task(an_external_task())),
        ("incidents", encode_incident(an_incident(a_task()))),
    ):
        rows = []
        for number in range(3000):
            at = LONG_AGO + timedelta(seconds=number)
            times = {field: at for field in ("startedAt", "createdAt") if field in record}
            rows.append({**record, **times, "_id": f"{number}"})
        data[name].insert_many(rows, ordered=False)


@pytest.mark.field_case("S-38")
async def test_no_page_is_found_by_reading_the_whole_collection(
    store: MongoStore, data: Database[Json], many_records: None
) -> None:
    examined: dict[str, int] = {}
    for name, list_page in PAGES.items():
        with profiled(data) as entries:
            await list_page(store)
        assert "COLLSCAN" not in {entry["planSummary"] for entry in entries}, name
        # The few records of one instance may be sorted after they are found.
        if not name.endswith("_of_an_instance"):
            assert not any(entry.get("hasSortStage") for entry in entries), name
        examined[name] = max(entry["docsExamined"] for entry in entries)

    assert {name: count for name, count in examined.items() if count > 51} == {}


async def test_a_later_page_costs_no_more_than_the_first(
    store: MongoStore, data: Database[Json], many_records: None
) -> None:
    page = await store.reads.list_tasks(TaskQuery(), limit=50)
    for _ in range(5):
        assert page.next_cursor is not None
        with profiled(data) as entries:
            page = await store.reads.list_tasks(TaskQuery(), limit=50, cursor=page.next_cursor)

    assert max(entry["docsExamined"] for entry in entries) <= 60
