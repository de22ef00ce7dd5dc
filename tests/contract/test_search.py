"""What searches find: the same as looking at every row, in pages of any size."""

import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.model.runtime import (
    InstanceStatus,
    TaskType,
)
from kikwiflow_worker.store.mongo.driver import Client
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.search import (
    RUNNING,
    ExternalTaskSearch,
    IncidentSearch,
    InstanceSearch,
    TaskSearch,
    TimerSearch,
)
from kikwiflow_worker.store.views import Page
from tests.support.random_rows import (
    NODES,
    Rows,
    at,
    external_query,
    fits_external,
    fits_incident,
    fits_instance,
    fits_task,
    fits_timer,
    incident_query,
    instance_query,
    task_query,
    timer_query,
)
from tests.support.sealed import RING, store_with
from tests.support.stores import (
    Json,
    put_instance,
)

pytestmark = pytest.mark.mongo

QUERIES = 150 if os.environ.get("KIKWIFLOW_TEST_DEEP") == "1" else 12


async def all_pages(
    search: Callable[..., Awaitable[Page[Any]]], query: Any, limit: int
) -> list[Any]:
    found: list[Any] = []
    cursor = None
    while True:
        page = await search(query, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.fixture
def rows(data: Database[Json]) -> Rows:
    made = Rows(random.Random(7))
    made.store(data)
    return made


KINDS: dict[str, tuple[str, Callable[..., Any], Callable[..., bool], str, bool]] = {
    "instances": ("instances", instance_query, fits_instance, "started_at", True),
    "tasks": ("tasks", task_query, fits_task, "created_at", False),
    "external_tasks": ("external_tasks", external_query, fits_external, "created_at", False),
    "incidents": ("incidents", incident_query, fits_incident, "created_at", True),
    "timers": ("tasks", timer_query, fits_timer, "due_at", False),
}


@pytest.mark.parametrize("examined_per_row", [1, 50])
async def test_pages_hold_what_fits_all_of_it_and_in_order(
    store: MongoStore, rows: Rows, monkeypatch: pytest.MonkeyPatch, examined_per_row: int
) -> None:
    # With little that may be examined, nearly every page ends at a boundary.
    name = "kikwiflow_worker.store.mongo.search_base.EXAMINED_PER_ROW"
    monkeypatch.setattr(name, 2 * examined_per_row)
    random_ = random.Random(examined_per_row)
    for kind, (attribute, make_query, fits, order, newest_first) in KINDS.items():
        for _ in range(QUERIES):
            query = make_query(random_)
            expected = [row for row in getattr(rows, attribute) if fits(query, row)]
            expected.sort(key=lambda row: row.id)
            expected.sort(key=lambda row: getattr(row, order), reverse=newest_first)

            found = await all_pages(
                getattr(store.searches, f"search_{kind}"), query, random_.choice((3, 20, 100))
            )

            assert [row.id for row in found] == [row.id for row in expected], (kind, query)


@pytest.mark.parametrize("limit", [1, 3, 10])
async def test_pages_over_two_collections_miss_nothing_where_one_of_them_ends_early(
    store: MongoStore, rows: Rows, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr("kikwiflow_worker.store.mongo.search_base.EXAMINED_PER_ROW", 1)
    query = InstanceSearch(statuses=tuple(InstanceStatus), variables={"city": "Bremen"})
    expected = {row.id for row in rows.instances if fits_instance(query, row)}

    found = await all_pages(store.searches.search_instances, query, limit)

    assert len(found) == len(expected) > 10
    assert {row.id for row in found} == expected


async def test_counts_are_of_what_fits(store: MongoStore, rows: Rows) -> None:
    random_ = random.Random(3)
    for kind, (attribute, make_query, fits, _, _) in KINDS.items():
        for _ in range(QUERIES if kind != "timers" else 0):
            query = make_query(random_)
            expected = sum(fits(query, row) for row in getattr(rows, attribute))

            count = await getattr(store.searches, f"count_{kind}")(query)

            assert (count.value, count.is_capped) == (expected, False), (kind, query)


async def test_a_count_says_where_it_stopped(
    store: MongoStore, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kikwiflow_worker.store.mongo.windows.COUNT_CAP", 10)
    monkeypatch.setattr("kikwiflow_worker.store.mongo.windows.EXAMINED_PER_COUNT", 10)

    all_tasks = await store.searches.count_tasks(TaskSearch())
    some = await store.searches.count_instances(
        InstanceSearch(statuses=tuple(InstanceStatus), variables={"city": "Bremen"})
    )

    assert str(all_tasks) == "10+"
    assert some.is_capped
    assert some.value <= 10


async def test_instances_are_found_by_where_they_stand(store: MongoStore, rows: Rows) -> None:
    random_ = random.Random(11)
    for _ in range(QUERIES):
        query = replace(instance_query(random_), node_id=random_.choice(NODES), parent_id=None)
        # A token is of the version and tenant of its instance; here they are drawn apart, so the tokens decide.
        query = replace(query, definition_ids=(), definition_keys=(), tenant_id=None)
        tokens = [
            *(t for t in rows.tasks if t.type is not TaskType.JOIN_GATEWAY),
            *rows.external_tasks,
        ]
        standing = {token.instance_id for token in tokens if token.node_id == query.node_id}
        expected = {
            row.id
            for row in rows.instances
            if row.id in standing and row.status in RUNNING and fits_instance(query, row)
        }

        found = await all_pages(store.searches.search_instances, query, random_.choice((3, 20)))

        assert {row.id for row in found} == expected, query


async def test_external_tasks_are_found_by_when_a_timer_ends_them(
    store: MongoStore, rows: Rows
) -> None:
    random_ = random.Random(13)
    for _ in range(QUERIES):
        before = at(random_)
        query = replace(external_query(random_), due_before=before)
        due = {task.id: rows.deadline_of(task) for task in rows.external_tasks}
        expected = [
            task
            for task in rows.external_tasks
            if (when := due[task.id]) is not None and when < before and fits_external(query, task)
        ]
        expected.sort(key=lambda task: (due[task.id], task.id))

        found = await all_pages(store.searches.search_external_tasks, query, 3)

        assert [task.id for task in found] == [task.id for task in expected], query

    ids = [task.id for task in rows.external_tasks]
    deadlines = await store.searches.find_deadlines(ids)
    assert deadlines == {name: when for name, when in due.items() if when is not None}


async def test_a_cursor_of_somebody_else_is_refused(store: MongoStore) -> None:

    for cursor in ("nonsense", "W10", "WyJhIiwgImIiXQ"):
        with pytest.raises(OperationError, match="start again without it"):
            await store.searches.search_instances(InstanceSearch(), cursor=cursor)
        with pytest.raises(OperationError, match="start again without it"):
            await store.searches.list_events("x", cursor=cursor)


def test_every_query_can_be_narrowed_to_a_tenant() -> None:
    for query in (InstanceSearch, TaskSearch, ExternalTaskSearch, IncidentSearch, TimerSearch):
        assert "tenant_id" in {field.name for field in fields(query)}


async def test_encrypted_values_are_neither_searched_nor_counted(
    client: Client, data: Database[Json]
) -> None:
    sealed = store_with(client, data, RING)
    await sealed.ping()
    instance = await put_instance(sealed, variables={"city": "Bremen"})

    for look in (sealed.searches.search_instances, sealed.searches.count_instances):
        with pytest.raises(OperationError, match="encrypted"):
            await look(InstanceSearch(variables={"city": "Bremen"}))
    by_name = await sealed.searches.search_instances(InstanceSearch(variables_exist=("city",)))

    assert [each.id for each in by_name.items] == [instance.id]
    assert by_name.items[0].variables == {"city": "Bremen"}
