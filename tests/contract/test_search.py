"""What searches find: the same as looking at every row, in pages of any size."""

import os
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.model.runtime import (
    Attachment,
    ExecutableTask,
    ExternalTask,
    ExternalTaskType,
    HostKind,
    Incident,
    IncidentStatus,
    IncidentType,
    InstanceStatus,
    Parent,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.store.mongo.codec import (
    encode_external_task,
    encode_incident,
    encode_instance,
    encode_task,
)
from kikwiflow_worker.store.mongo.driver import Client
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.search import (
    ENDED,
    RUNNING,
    ExternalTaskSearch,
    IncidentSearch,
    InstanceSearch,
    TaskSearch,
    TimerSearch,
)
from kikwiflow_worker.store.views import Page
from tests.support.sealed import RING, store_with
from tests.support.stores import (
    LONG_AGO,
    Json,
    a_task,
    an_external_task,
    an_incident,
    an_instance,
    put_instance,
)

pytestmark = pytest.mark.mongo

ROWS = 120
QUERIES = 150 if os.environ.get("KIKWIFLOW_TEST_DEEP") == "1" else 12
KEYS = ("parcel", "letter", "pallet")
VERSIONS = tuple(f"{key}-{version}" for key in KEYS for version in (1, 2))
NODES = ("WEIGH", "APPROVE", "LATER")
TENANTS = (None, "acme", "bolt")
PEOPLE = (None, "ann", "bob")


def at(random_: random.Random) -> datetime:
    """Return an instant that many rows share."""
    return LONG_AGO + timedelta(minutes=random_.randrange(40))


def key_of(definition_id: str) -> str:
    return definition_id.partition("-")[0]


def some_of(random_: random.Random, values: Sequence[Any], most: int = 2) -> tuple[Any, ...]:
    return tuple(random_.sample(list(values), random_.randint(1, most)))


class Rows:
    """Random rows of every kind, as they are stored and as values."""

    def __init__(self, random_: random.Random) -> None:
        self.instances = [self._instance(random_, number) for number in range(ROWS)]
        self.tasks = [self._task(random_, number) for number in range(ROWS)]
        self.external_tasks = [self._external(random_, number) for number in range(ROWS)]
        self.incidents = [self._incident(random_, number) for number in range(ROWS)]
        deadlines = [self._deadline(random_, task) for task in self.external_tasks[::3]]
        self.tasks += deadlines

    def store(self, data: Database[Json]) -> None:
        data.process_definitions.insert_many(
            {"_id": version, "key": key_of(version), "version": int(version[-1]), "source": ""}
            for version in VERSIONS
        )
        for where, statuses in ((data.process_instances, RUNNING), (data.process_history, ENDED)):
            where.insert_many(
                encode_instance(each, None) for each in self.instances if each.status in statuses
            )
        data.executable_tasks.insert_many(encode_task(task, None) for task in self.tasks)
        data.external_tasks.insert_many(map(encode_external_task, self.external_tasks))
        data.incidents.insert_many(map(encode_incident, self.incidents))

    def _instance(self, random_: random.Random, number: int) -> ProcessInstance:
        version = random_.choice(VERSIONS)
        parent = Parent(
            instance_id="parent",
            coordinator_task_id="c",
            branch_id="b",
            starter_task_id="s",
            depth=1,
        )
        return an_instance(
            id=f"{number:04d}",
            definition_id=version,
            definition_key=key_of(version),
            started_at=at(random_),
            status=random_.choice([*RUNNING, *ENDED]),
            tenant_id=random_.choice(TENANTS),
            business_key=f"order-{random_.randrange(5)}",
            parent=random_.choice((None, parent)),
            variables=random_.choice(
                (
                    {},
                    {"city": "Bremen"},
                    {"city": ["Bremen", "Kiel"]},
                    {"city": "Kiel", "a.b": None},
                    {"city": {"name": "Bremen"}},
                )
            ),
        )

    def _place(self, random_: random.Random, number: int) -> Json:
        version = random_.choice(VERSIONS)
        return {
            "id": f"{number:04d}",
            "definition_id": version,
            "node_id": random_.choice(NODES),
            "instance_id": f"{random_.randrange(ROWS):04d}",
            "created_at": at(random_),
            "tenant_id": random_.choice(TENANTS),
        }

    def _task(self, random_: random.Random, number: int) -> ExecutableTask:
        kinds = (TaskType.STANDARD, TaskType.TIMER_TASK, TaskType.JOIN_GATEWAY)
        type_ = random_.choice(kinds)
        due_at = at(random_) if type_ is TaskType.TIMER_TASK or random_.random() < 0.3 else None
        return a_task(
            **self._place(random_, number),
            type=type_,
            status=random_.choice((TaskStatus.PENDING, TaskStatus.LOCKED, TaskStatus.ERROR)),
            handler_name=random_.choice((None, "weigh", "pack")),
            attempts=random_.choice((0, 0, 2)),
            due_at=due_at,
        )

    def _deadline(self, random_: random.Random, host: ExternalTask) -> ExecutableTask:
        return a_task(
            id=f"{host.id}-deadline",
            type=TaskType.INTERRUPTIVE_TIMER,
            definition_id=host.definition_id,
            node_id="DEADLINE",
            instance_id=host.instance_id,
            tenant_id=host.tenant_id,
            due_at=at(random_),
            attached_to=Attachment(host.id, host.node_id, HostKind.EXTERNAL_TASK),
        )

    def _external(self, random_: random.Random, number: int) -> ExternalTask:
        type_ = random_.choice((ExternalTaskType.TASK, ExternalTaskType.CATCHER))
        is_task = type_ is ExternalTaskType.TASK
        return an_external_task(
            **self._place(random_, number),
            type=type_,
            assignee=random_.choice(PEOPLE) if is_task else None,
            correlation_key=None if is_task else f"key-{random_.randrange(3)}",
        )

    def _incident(self, random_: random.Random, number: int) -> Incident:
        place = self._place(random_, number)
        tenant_id = place.pop("tenant_id")
        task = a_task(**{**place, "id": f"task-{number}"})
        return an_incident(
            task,
            id=place["id"],
            created_at=place["created_at"],
            tenant_id=tenant_id,
            status=random_.choice(list(IncidentStatus)),
            type=random_.choice((IncidentType.FAILED_JOB, IncidentType.WORKER_LOST)),
        )

    def deadline_of(self, task: ExternalTask) -> datetime | None:
        found = [
            each.due_at
            for each in self.tasks
            if each.type is TaskType.INTERRUPTIVE_TIMER
            and each.attached_to is not None
            and each.attached_to.host_id == task.id
        ]
        return found[0] if found else None


def maybe(random_: random.Random, **choices: Callable[[], Any]) -> Json:
    """Return values for about a third of the fields."""
    return {name: choose() for name, choose in choices.items() if random_.random() < 0.35}


def placed(random_: random.Random) -> dict[str, Callable[[], Any]]:
    return {
        "definition_ids": lambda: some_of(random_, (*VERSIONS, "unknown")),
        "definition_keys": lambda: some_of(random_, (*KEYS, "unknown")),
        "node_id": lambda: random_.choice(NODES),
        "tenant_id": lambda: random_.choice(TENANTS[1:]),
    }


def is_placed(query: Any, row: Any) -> bool:
    return (
        (not query.definition_ids or row.definition_id in query.definition_ids)
        and (not query.definition_keys or key_of(row.definition_id) in query.definition_keys)
        and query.node_id in {None, row.node_id}
        and query.tenant_id in {None, row.tenant_id}
        and query.instance_id in {None, row.instance_id}
    )


def instance_query(random_: random.Random) -> InstanceSearch:
    places = placed(random_)
    del places["node_id"]
    return InstanceSearch(
        **maybe(
            random_,
            **places,
            parent_id=lambda: "parent",
            statuses=lambda: some_of(random_, list(InstanceStatus), 4),
            business_keys=lambda: some_of(random_, [f"order-{n}" for n in range(5)]),
            started_after=lambda: at(random_),
            started_before=lambda: at(random_),
            variables=lambda: {"city": random_.choice(("Bremen", ["Bremen", "Kiel"], "Rome"))},
            variables_exist=lambda: random_.choice((("city",), ("a.b",), ("city", "a.b"))),
        )
    )


def fits_instance(query: InstanceSearch, row: ProcessInstance) -> bool:
    return (
        (not query.definition_ids or row.definition_id in query.definition_ids)
        and (not query.definition_keys or row.definition_key in query.definition_keys)
        and query.tenant_id in {None, row.tenant_id}
        and (query.parent_id is None or row.parent is not None)
        and row.status in (query.statuses or RUNNING)
        and (not query.business_keys or row.business_key in query.business_keys)
        and (query.started_after is None or row.started_at >= query.started_after)
        and (query.started_before is None or row.started_at < query.started_before)
        and all(
            name in row.variables and row.variables[name] == value
            for name, value in query.variables.items()
        )
        and all(name in row.variables for name in query.variables_exist)
    )


def task_query(random_: random.Random) -> TaskSearch:
    return TaskSearch(
        **maybe(
            random_,
            **placed(random_),
            instance_id=lambda: f"{random_.randrange(20):04d}",
            statuses=lambda: some_of(random_, list(TaskStatus)),
            types=lambda: some_of(random_, (TaskType.STANDARD, TaskType.TIMER_TASK)),
            handler_name=lambda: random_.choice(("weigh", "pack", "nobody")),
            retrying=lambda: True,
        )
    )


def fits_task(query: TaskSearch, row: ExecutableTask) -> bool:
    is_retrying = row.status is TaskStatus.PENDING and row.attempts > 0
    return (
        is_placed(query, row)
        and (query.retrying or not query.statuses or row.status in query.statuses)
        and (not query.types or row.type in query.types)
        and query.handler_name in {None, row.handler_name}
        and (not query.retrying or is_retrying)
    )


def external_query(random_: random.Random) -> ExternalTaskSearch:
    chosen = maybe(
        random_,
        **placed(random_),
        instance_id=lambda: f"{random_.randrange(20):04d}",
        assignee=lambda: random_.choice(PEOPLE[1:]),
        unassigned=lambda: True,
        correlation_key=lambda: f"key-{random_.randrange(3)}",
        for_people=lambda: True,
    )
    if chosen.get("unassigned"):
        chosen.pop("assignee", None)
    return ExternalTaskSearch(**chosen)


def fits_external(query: ExternalTaskSearch, row: ExternalTask) -> bool:
    return (
        is_placed(query, row)
        and query.assignee in {None, row.assignee}
        and (not query.unassigned or row.assignee is None)
        and query.correlation_key in {None, row.correlation_key}
        and (not query.for_people or row.type is ExternalTaskType.TASK)
    )


def incident_query(random_: random.Random) -> IncidentSearch:
    return IncidentSearch(
        **maybe(
            random_,
            **placed(random_),
            instance_id=lambda: f"{random_.randrange(20):04d}",
            type=lambda: random_.choice((IncidentType.FAILED_JOB, IncidentType.WORKER_LOST)),
            status=lambda: random_.choice((None, *IncidentStatus)),
            created_after=lambda: at(random_),
            created_before=lambda: at(random_),
        )
    )


def fits_incident(query: IncidentSearch, row: Incident) -> bool:
    return (
        is_placed(query, row)
        and query.type in {None, row.type}
        and query.status in {None, row.status}
        and (query.created_after is None or row.created_at >= query.created_after)
        and (query.created_before is None or row.created_at < query.created_before)
    )


def timer_query(random_: random.Random) -> TimerSearch:
    return TimerSearch(**maybe(random_, **placed(random_), due_before=lambda: at(random_)))


def fits_timer(query: TimerSearch, row: ExecutableTask) -> bool:
    return (
        row.type in {TaskType.TIMER_TASK, TaskType.INTERRUPTIVE_TIMER}
        and row.status is TaskStatus.PENDING
        and is_placed(query, row)
        and (query.due_before is None or row.due_at < query.due_before)
    )


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
