"""Read queries and document mapping on an emulator; it is no evidence for claims or commits."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mongomock_motor import AsyncMongoMockClient

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.model.runtime import (
    Branch,
    ExecutableTask,
    ExternalTask,
    Incident,
    IncidentType,
    InstanceStatus,
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
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.queries import Queries
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.views import (
    ExternalTaskQuery,
    IncidentQuery,
    InstanceQuery,
    TaskQuery,
    WorkerRecord,
)

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def collections() -> Collections:
    # The emulator refuses our codec options and takes zones from its client.
    return Collections.of(AsyncMongoMockClient(tz_aware=True).get_database("test"))


@pytest.fixture
def queries(collections: Collections) -> Queries:
    return Queries(collections, ServerTime(SystemClock()))


def a_task(task_id: str, **fields: Any) -> ExecutableTask:
    chosen: dict[str, Any] = {
        "type": TaskType.STANDARD,
        "node_id": "TASK",
        "instance_id": "instance-1",
        "definition_id": "definition-1",
        "created_at": NOON,
        "claimable_at": NOON,
    }
    return ExecutableTask(id=task_id, **{**chosen, **fields})


def an_instance(instance_id: str, **fields: Any) -> ProcessInstance:
    chosen: dict[str, Any] = {
        "business_key": "order-1",
        "definition_id": "definition-1",
        "definition_key": "parcel",
        "definition_version": 1,
        "started_at": NOON,
        "variables": {"parcel.weight": {"$gross": 7}},
    }
    return ProcessInstance(id=instance_id, **{**chosen, **fields})


async def test_an_instance_is_listed_as_it_was_stored(
    collections: Collections, queries: Queries
) -> None:
    instance = an_instance("instance-1")
    await collections.instances.insert_one(encode_instance(instance))

    page = await queries.list_instances(InstanceQuery(definition_key="parcel"))

    assert page.items == (instance,)
    assert page.next_cursor is None


async def test_ended_instances_come_from_the_history(
    collections: Collections, queries: Queries
) -> None:
    ended = replace(an_instance("instance-1"), status=InstanceStatus.COMPLETED)
    await collections.history.insert_one(encode_instance(ended))

    assert len((await queries.list_instances(InstanceQuery(ended=True))).items) == 1
    assert (await queries.list_instances(InstanceQuery())).items == ()


async def test_pages_together_are_the_list(collections: Collections, queries: Queries) -> None:
    for number in range(7):
        at = NOON + timedelta(minutes=number // 3)
        await collections.tasks.insert_one(encode_task(a_task(f"task-{number}", created_at=at)))
    found: list[str] = []
    cursor: str | None = None

    while True:
        page = await queries.list_tasks(TaskQuery(), limit=2, cursor=cursor)
        found += [task.id for task in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert found == [f"task-{number}" for number in range(7)]


async def test_a_strange_cursor_is_refused(queries: Queries) -> None:
    with pytest.raises(OperationError, match="cursor"):
        await queries.list_tasks(TaskQuery(), cursor="nonsense")


async def test_a_task_is_found_with_all_its_fields(
    collections: Collections, queries: Queries
) -> None:
    task = a_task(
        "task-1", branch=Branch("b1", "join-1"), pending_branch_ids=("b2",), handler_name="weigh"
    )
    await collections.tasks.insert_one(encode_task(task))

    assert await queries.find_task("task-1") == task
    assert await queries.find_task("task-2") is None


@pytest.mark.field_case("S-84")
async def test_retrying_tasks_are_those_that_failed_and_wait(
    collections: Collections, queries: Queries
) -> None:
    for task in (
        a_task("retrying", attempts=1),
        a_task("fresh"),
        a_task("failed", attempts=3, status=TaskStatus.ERROR, claimable_at=None),
    ):
        await collections.tasks.insert_one(encode_task(task))

    page = await queries.list_tasks(TaskQuery(retrying=True))

    assert [task.id for task in page.items] == ["retrying"]


async def test_external_tasks_of_nobody_are_those_without_assignee(
    collections: Collections, queries: Queries
) -> None:
    for task_id, assignee in (("taken", "ann"), ("free", None)):
        task = ExternalTask(
            id=task_id,
            node_id="APPROVE",
            instance_id="instance-1",
            definition_id="definition-1",
            created_at=NOON,
            assignee=assignee,
        )
        await collections.external_tasks.insert_one(encode_external_task(task))

    free = await queries.list_external_tasks(ExternalTaskQuery(unassigned=True))
    of_ann = await queries.list_external_tasks(ExternalTaskQuery(assignee="ann"))

    assert [task.id for task in free.items] == ["free"]
    assert [task.id for task in of_ann.items] == ["taken"]


async def test_open_incidents_are_listed_newest_first(
    collections: Collections, queries: Queries
) -> None:
    for number in range(3):
        incident = Incident(
            id=f"incident-{number}",
            type=IncidentType.FAILED_JOB,
            message="no scales",
            stack_trace="",
            instance_id="instance-1",
            definition_id="definition-1",
            task_id="task-1",
            node_id="TASK",
            created_at=NOON + timedelta(minutes=number),
        )
        await collections.incidents.insert_one(encode_incident(incident))

    page = await queries.list_incidents(IncidentQuery())

    assert [incident.id for incident in page.items] == ["incident-2", "incident-1", "incident-0"]


async def test_counts_have_every_status(collections: Collections, queries: Queries) -> None:
    await collections.instances.insert_one(encode_instance(an_instance("instance-1")))

    counts = await queries.count_by_status()

    assert counts == {
        "ACTIVE": 1,
        "SUSPENDED": 0,
        "CANCELLING": 0,
        "COMPLETED": 0,
        "CANCELLED": 0,
    }


async def test_due_tasks_are_counted(collections: Collections, queries: Queries) -> None:
    for task in (
        a_task("task-1", handler_name="weigh"),
        a_task("task-2", handler_name="weigh"),
        a_task("task-3", handler_name="weigh", claimable_at=None),
        a_task("task-4"),
    ):
        await collections.tasks.insert_one(encode_task(task))

    measures = await queries.measure_queue()

    assert measures.due == 3
    assert measures.oldest_due_s > 0


async def test_a_worker_is_listed_as_it_was_recorded(queries: Queries) -> None:
    record = WorkerRecord(
        id="host-1-abc",
        instance_name="default",
        host="host",
        pid=1,
        version="0.1.0",
        started_at=NOON,
        seen_at=NOON,
        state="running",
        slots=4,
        running=1,
        handlers=("weigh",),
    )

    await queries.record_worker(record)

    (found,) = await queries.list_workers()
    assert (found.id, found.started_at, found.handlers) == (record.id, NOON, ("weigh",))


async def test_definitions_are_listed_by_key_with_the_latest_version(
    collections: Collections, queries: Queries
) -> None:
    for key, version in (("parcel", 1), ("parcel", 2), ("letter", 1)):
        document = {"_id": f"{key}:{version}", "key": key, "version": version, "deployedAt": NOON}
        await collections.definitions.insert_one({**document, "source": "{}"})

    latest = await queries.list_definitions()

    assert [(one.key, one.version) for one in latest] == [("letter", 1), ("parcel", 2)]
