"""External workers over HTTP: fetching, keeping, and every report, on the real database."""

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import httpx
import pytest

from kikwiflow_worker.model.nodes import TOPIC
from kikwiflow_worker.model.runtime import IncidentStatus, IncidentType, TaskStatus
from tests.support.definitions import Json, a_node, a_start, a_task, an_end
from tests.support.management import Managed
from tests.support.stores import lapse

pytestmark = pytest.mark.mongo

NAME = "render_invoice"
WORKER = "python.1"
POLICY = {"strategy": "LINEAR", "maxRetries": 2, "intervals": ["PT1H"]}
INVOICE: tuple[Json, ...] = (
    a_start("RENDER"),
    a_node(
        "RENDER",
        "EXTERNAL_TASK",
        "APPROVE",
        extensionProperties={TOPIC: NAME},
        retryPolicy=POLICY,
        boundaryEventIds=["UNKNOWN", "TOO_LATE"],
    ),
    a_node("UNKNOWN", "BOUNDARY_ERROR_HANDLER", "CLARIFY", attachedToRef="RENDER", errorCode="E7"),
    a_node(
        "TOO_LATE",
        "BOUNDARY_INTERRUPTIVE_TIMER",
        "CLARIFY",
        attachedToRef="RENDER",
        providerType="STATIC",
        staticValue="P1D",
    ),
    a_node("APPROVE", "EXTERNAL_TASK", "END"),
    a_node("CLARIFY", "EXTERNAL_TASK", "END"),
    an_end(),
)


@pytest.fixture
async def invoices(managed: Managed) -> Managed:
    """Return the application with the process of invoices deployed."""
    await managed.deploy(*INVOICE, key="invoice")
    return managed


async def start(managed: Managed, **variables: object) -> str:
    instance = await managed.kikwiflow.start("invoice", "INVOICE-1", variables=variables)
    return instance.id


async def fetch(managed: Managed, worker: str = WORKER, **more: object) -> list[Json]:
    body = {"workerId": worker, "topics": [NAME], **more}
    response = await managed.api.post("/external-work/fetch-and-lock", json=body)
    assert response.status_code == 200, response.text
    tasks: list[Json] = response.json()["tasks"]
    return tasks


async def fetch_one(managed: Managed, worker: str = WORKER, **more: object) -> Json:
    (task,) = await fetch(managed, worker, **more)
    return task


async def say(
    managed: Managed, task: Mapping[str, Any], what: str, **more: object
) -> httpx.Response:
    body = {"workerId": task["workerId"], "epoch": task["epoch"], **more}
    return await managed.api.post(f"/external-work/{task['id']}/{what}", json=body)


def stands_at(managed: Managed, instance_id: str) -> set[str]:
    """Return the nodes where an instance waits for somebody outside."""
    rows = managed.data.external_tasks.find({"processInstanceId": instance_id})
    return {row["taskDefinitionId"] for row in rows}


def task_row(managed: Managed, task: Mapping[str, Any]) -> Json:
    row: Json | None = managed.data.executable_tasks.find_one({"_id": task["id"]})
    assert row is not None
    return row


async def test_a_worker_fetches_what_a_step_needs(invoices: Managed) -> None:
    instance_id = await start(invoices, amount=120, customer="Ana")

    task = await fetch_one(invoices, variables=["amount"], lockSeconds=30)

    assert task["processInstanceId"] == instance_id
    assert (task["topic"], task["taskDefinitionId"], task["attempt"]) == (NAME, "RENDER", 1)
    assert (task["businessKey"], task["processDefinitionKey"]) == ("INVOICE-1", "invoice")
    assert task["variables"] == {"amount": {"name": "amount", "value": 120, "isMasked": False}}
    assert await fetch(invoices, "another") == []


async def test_a_completion_sets_variables_and_lets_the_path_go_on(invoices: Managed) -> None:
    instance_id = await start(invoices)
    task = await fetch_one(invoices)

    response = await say(invoices, task, "complete", variables={"pages": {"value": 3}})

    assert response.status_code == 200
    assert response.json()["outcome"] == "COMPLETED"
    assert stands_at(invoices, instance_id) == {"APPROVE"}
    assert (await invoices.kikwiflow.get_instance(instance_id)).variables == {"pages": 3}
    left = invoices.data.executable_tasks.count_documents({"processInstanceId": instance_id})
    assert left == 0, "the deadline of the host goes with it"


async def test_a_repeated_completion_changes_nothing_and_is_answered_as_the_first(
    invoices: Managed,
) -> None:
    instance_id = await start(invoices)
    task = await fetch_one(invoices)
    first = await say(invoices, task, "complete", variables={"pages": {"value": 3}})

    again = await say(invoices, task, "complete", variables={"pages": {"value": 4}})

    assert (again.status_code, again.json()) == (200, first.json())
    assert (await invoices.kikwiflow.get_instance(instance_id)).variables == {"pages": 3}
    other = await say(invoices, task, "failure", message="no")
    assert (other.status_code, other.json()["code"]) == (409, "CONFLICT")


async def test_completions_at_once_count_once(invoices: Managed) -> None:
    instance_id = await start(invoices)
    task = await fetch_one(invoices)

    answers = await asyncio.gather(*(say(invoices, task, "complete") for _ in range(5)))

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    waits = invoices.data.external_tasks.count_documents({"processInstanceId": instance_id})
    assert waits == 1


async def test_a_lost_lock_is_refused_and_whoever_has_it_completes(invoices: Managed) -> None:
    instance_id = await start(invoices)
    task = await fetch_one(invoices)
    lapse(invoices.data, str(task["id"]))
    heir = await fetch_one(invoices, "heir")

    for what, more in (
        ("complete", {}),
        ("failure", {"message": "no"}),
        ("error", {"message": "no"}),
        ("extend-lock", {}),
        ("unlock", {}),
    ):
        refused = await say(invoices, task, what, **more)
        assert (refused.status_code, refused.json()["code"]) == (409, "LOCK_LOST"), what

    assert heir["epoch"] == task["epoch"] + 1  # type: ignore[operator]
    assert heir["idempotencyKey"] == task["idempotencyKey"]
    assert (await say(invoices, heir, "complete")).status_code == 200
    assert stands_at(invoices, instance_id) == {"APPROVE"}


async def test_a_lapsed_lock_that_nobody_took_still_completes(invoices: Managed) -> None:
    instance_id = await start(invoices)
    task = await fetch_one(invoices)
    lapse(invoices.data, str(task["id"]))

    assert (await say(invoices, task, "complete")).status_code == 200
    assert stands_at(invoices, instance_id) == {"APPROVE"}


async def test_a_lock_is_extended_and_given_back(invoices: Managed) -> None:
    await start(invoices)
    task = await fetch_one(invoices, lockSeconds=5)

    extended = await say(invoices, task, "extend-lock", lockSeconds=600)
    assert extended.json()["lockExpiresAt"] > task["lockExpiresAt"]
    assert (await say(invoices, task, "unlock")).status_code == 204

    again = await fetch_one(invoices, "another")
    assert (again["id"], again["attempt"]) == (task["id"], 1)


async def test_a_failure_follows_the_policy_and_ends_in_an_incident(invoices: Managed) -> None:
    await start(invoices)
    task = await fetch_one(invoices)

    first = await say(invoices, task, "failure", message="the printer is on fire")
    assert first.json()["outcome"] == "RETRY_SCHEDULED"
    row = task_row(invoices, task)
    assert (row["status"], row["retries"], row["error"]) == (
        TaskStatus.PENDING.value,
        1,
        "the printer is on fire",
    )
    assert row["dueDate"] - invoices.store.runtime.now() > timedelta(minutes=59)
    again = await say(invoices, task, "failure", message="the printer is on fire")
    assert again.json() == first.json()
    assert task_row(invoices, task)["attempts"] == 1

    now = {"claimableAt": invoices.store.runtime.now(), "dueDate": invoices.store.runtime.now()}
    invoices.data.executable_tasks.update_one({"_id": task["id"]}, {"$set": now})
    retried = await fetch_one(invoices)
    assert (retried["attempt"], retried["retries"]) == (2, 1)
    last = await say(invoices, retried, "failure", message="still", details="line 7")

    assert last.json()["outcome"] == "INCIDENT_OPENED"
    (incident,) = invoices.data.incidents.find()
    assert incident["type"] == IncidentType.FAILED_JOB.value
    assert "still" in incident["message"]
    assert incident["stackTrace"] == "line 7"


async def test_a_worker_may_say_how_often_and_when_it_is_tried_again(invoices: Managed) -> None:
    await start(invoices)
    task = await fetch_one(invoices)

    said = await say(invoices, task, "failure", message="no", retries=7, retryAfterSeconds=0)

    assert said.json()["outcome"] == "RETRY_SCHEDULED"
    again = await fetch_one(invoices)
    assert (again["id"], again["retries"]) == (task["id"], 7)
    given_up = await say(invoices, again, "failure", message="no", retries=0)
    assert given_up.json()["outcome"] == "INCIDENT_OPENED"


async def test_an_incident_that_is_retried_is_fetched_again_and_one_that_is_skipped_is_not(
    invoices: Managed,
) -> None:
    ids = [await start(invoices) for _ in range(2)]
    for task in await fetch(invoices, maxTasks=2):
        await say(invoices, task, "failure", message="no", retries=0)
    incidents = {row["processInstanceId"]: row["_id"] for row in invoices.data.incidents.find()}
    await invoices.kikwiflow.retry_incident(incidents[ids[0]])
    await invoices.kikwiflow.retry_incident(incidents[ids[1]], skip=True)

    fetched = await fetch(invoices, maxTasks=2)

    assert [task["processInstanceId"] for task in fetched] == [ids[0]]
    assert stands_at(invoices, ids[1]) == {"APPROVE"}
    statuses = {row["status"] for row in invoices.data.incidents.find()}
    assert statuses == {IncidentStatus.RESOLVED.value}


async def test_an_error_goes_to_the_handler_for_its_code(invoices: Managed) -> None:
    instance_id = await start(invoices)
    task = await fetch_one(invoices)

    said = await say(
        invoices, task, "error", code="E7", message="unknown", variables={"why": {"value": "x"}}
    )

    assert said.json()["outcome"] == "COMPLETED"
    assert stands_at(invoices, instance_id) == {"CLARIFY"}
    assert (await invoices.kikwiflow.get_instance(instance_id)).variables == {"why": "x"}
    assert (await say(invoices, task, "error", code="E7", message="unknown")).json() == said.json()


async def test_an_error_that_nobody_handles_is_an_incident(invoices: Managed) -> None:
    await start(invoices)
    task = await fetch_one(invoices)

    said = await say(invoices, task, "error", code="E8", message="unknown")

    assert said.json()["outcome"] == "INCIDENT_OPENED"
    (incident,) = invoices.data.incidents.find()
    assert incident["type"] == IncidentType.UNHANDLED_BUSINESS_ERROR.value


async def test_what_was_cancelled_is_gone(invoices: Managed) -> None:
    instance_id = await start(invoices)
    task = await fetch_one(invoices)
    await invoices.kikwiflow.cancel(instance_id)

    gone = await say(invoices, task, "complete")

    assert (gone.status_code, gone.json()["code"]) == (404, "NOT_FOUND")


async def test_a_suspended_instance_begins_nothing_and_finishes_what_was_begun(
    invoices: Managed,
) -> None:
    begun, waiting = await start(invoices), await start(invoices)
    task = await fetch_one(invoices)
    if task["processInstanceId"] != begun:
        begun, waiting = waiting, begun
    for instance_id in (begun, waiting):
        await invoices.kikwiflow.suspend(instance_id)

    assert await fetch(invoices) == []
    assert (await say(invoices, task, "complete")).status_code == 200
    assert stands_at(invoices, begun) == {"APPROVE"}
    await invoices.kikwiflow.resume(waiting)
    assert (await fetch_one(invoices))["processInstanceId"] == waiting


async def test_three_lapsed_locks_leave_the_task_to_a_person(invoices: Managed) -> None:
    await start(invoices)
    for _ in range(3):
        lapse(invoices.data, str((await fetch_one(invoices))["id"]))

    assert await fetch(invoices) == []
    (incident,) = invoices.data.incidents.find()
    assert incident["type"] == IncidentType.WORKER_LOST.value


async def test_variables_that_cannot_be_stored_change_nothing(invoices: Managed) -> None:
    instance_id = await start(invoices)
    task = await fetch_one(invoices)

    refused = await say(invoices, task, "complete", variables={"": {"value": 1}})

    assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_VARIABLE")
    assert (await say(invoices, task, "complete")).status_code == 200
    assert stands_at(invoices, instance_id) == {"APPROVE"}


async def test_a_handler_that_no_worker_has_can_be_fetched_and_the_next_one_too(
    managed: Managed,
) -> None:
    await managed.deploy(
        a_start("A"), a_task("A", "B", executor=NAME), a_task("B", "END", executor=NAME), an_end(),
        key="invoice",
    )  # fmt: skip
    instance_id = await start(managed)

    for node in ("A", "B"):
        task = await fetch_one(managed)
        assert task["taskDefinitionId"] == node
        assert (await say(managed, task, "complete")).status_code == 200

    assert (await managed.kikwiflow.get_instance(instance_id)).ended_at is not None


AT_RENDER: Json = {"processDefinitionKey": "invoice", "nodeId": "RENDER"}


async def fetch_at(managed: Managed, *nodes: Json, **more: object) -> httpx.Response:
    body = {"workerId": WORKER, "nodes": nodes, **more}
    return await managed.api.post("/external-work/fetch-and-lock", json=body)


async def test_a_node_is_fetched_alone_where_others_share_its_topic(managed: Managed) -> None:
    by_programs: Json = {"extensionProperties": {TOPIC: NAME}}
    for key in ("invoice", "order"):
        await managed.deploy(
            a_start("RENDER"),
            a_node("RENDER", "EXTERNAL_TASK", "AGAIN", **by_programs),
            a_node("AGAIN", "EXTERNAL_TASK", "END", **by_programs),
            an_end(),
            key=key,
        )
    instance_id = await start(managed)
    await managed.kikwiflow.start("order", "ORDER-1")

    (task,) = (await fetch_at(managed, AT_RENDER, maxTasks=10)).json()["tasks"]

    assert (task["processInstanceId"], task["topic"]) == (instance_id, NAME)
    assert (await say(managed, task, "complete")).status_code == 200
    assert (await fetch_at(managed, AT_RENDER)).json()["tasks"] == [], "it stands at AGAIN now"
    others = await fetch(managed, maxTasks=10)
    assert {(one["processDefinitionKey"], one["taskDefinitionId"]) for one in others} == {
        ("invoice", "AGAIN"),
        ("order", "RENDER"),
    }


async def test_a_failed_task_is_fetched_by_its_node_again(invoices: Managed) -> None:
    await start(invoices)
    (task,) = (await fetch_at(invoices, AT_RENDER)).json()["tasks"]
    await say(invoices, task, "failure", message="no", retryAfterSeconds=0)

    (again,) = (await fetch_at(invoices, AT_RENDER, topics=["pack"])).json()["tasks"]

    assert (again["id"], again["attempt"]) == (task["id"], 2)


async def test_a_fetch_by_node_waits_until_a_task_is_due(invoices: Managed) -> None:
    waiting = asyncio.create_task(fetch_at(invoices, AT_RENDER, waitSeconds=20))
    assert (await fetch_at(invoices, AT_RENDER)).json()["tasks"] == []
    instance_id = await start(invoices)

    async with asyncio.timeout(10):
        (task,) = (await waiting).json()["tasks"]

    assert task["processInstanceId"] == instance_id


@pytest.mark.parametrize(
    ("node", "status", "code", "detail"),
    [
        ({"processDefinitionKey": "nope"}, 404, "DEFINITION_NOT_FOUND", "nope"),
        ({"nodeId": "NOPE"}, 404, "NOT_FOUND", "has no node 'NOPE'"),
        ({"nodeId": "APPROVE"}, 422, "UNPROCESSABLE", "is for people; set kikwiflow.topic on it"),
        ({"nodeId": "PACK"}, 422, "UNPROCESSABLE", "fetch the topic 'pack'"),
        ({"nodeId": "END"}, 422, "UNPROCESSABLE", "DEFAULT_END_EVENT; only tasks are fetched"),
    ],
    ids=["definition", "node", "people", "executable task", "event"],
)
async def test_a_node_of_which_nothing_can_be_fetched_is_refused_at_once(
    managed: Managed, node: Json, status: int, code: str, detail: str
) -> None:
    people = a_node("APPROVE", "EXTERNAL_TASK", "PACK")
    await managed.deploy(
        a_start("APPROVE"), people, a_task("PACK", "END", executor="pack"), an_end(), key="invoice"
    )

    async with asyncio.timeout(10):
        refused = await fetch_at(managed, {**AT_RENDER, **node}, waitSeconds=60)

    assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert detail in refused.json()["detail"]
    assert managed.data.workers.count_documents({}) == 0


async def test_a_node_that_only_an_older_version_has_is_fetched(invoices: Managed) -> None:
    instance_id = await start(invoices)
    await invoices.deploy(a_start("END"), an_end(), key="invoice")

    (task,) = (await fetch_at(invoices, AT_RENDER)).json()["tasks"]

    assert task["processInstanceId"] == instance_id


async def test_an_executable_task_that_names_its_handler_as_topic_is_fetched_by_node(
    managed: Managed,
) -> None:
    topic: Json = {"extensionProperties": {TOPIC: NAME}}
    await managed.deploy(
        a_start("RENDER"), a_task("RENDER", "END", executor=NAME, **topic), an_end(), key="invoice"
    )
    instance_id = await start(managed)

    (task,) = (await fetch_at(managed, AT_RENDER)).json()["tasks"]

    assert task["processInstanceId"] == instance_id


async def test_a_fetch_waits_until_a_task_is_due(invoices: Managed) -> None:
    waiting = asyncio.create_task(fetch(invoices, waitSeconds=20))
    assert await fetch(invoices) == []
    instance_id = await start(invoices)

    async with asyncio.timeout(10):
        (task,) = await waiting

    assert task["processInstanceId"] == instance_id


async def test_a_fetch_that_waits_in_vain_ends(invoices: Managed) -> None:
    async with asyncio.timeout(5):
        assert await fetch(invoices, waitSeconds=0.1) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": []},
        {"topics": [], "nodes": [AT_RENDER]},
        {"nodes": []},
        {"nodes": [{"nodeId": "RENDER"}]},
        {"nodes": [{**AT_RENDER, "version": 1}]},
        {"nodes": [AT_RENDER] * 21},
        {"topics": ["answer_provider:size"]},
        {"topics": [" "]},
        {"topics": [f"topic-{number}" for number in range(21)]},
        {"workerId": "a/b"},
        {"workerId": " "},
        {"lockSeconds": 0},
        {"lockSeconds": 86_401},
        {"waitSeconds": 61},
        {"maxTasks": 101},
        {"unknown": 1},
    ],
    ids=json.dumps,
)
async def test_a_fetch_that_makes_no_sense_is_refused(managed: Managed, wrong: Json) -> None:
    body = {"workerId": WORKER, "topics": [NAME], **wrong}

    response = await managed.api.post("/external-work/fetch-and-lock", json=body)

    assert (response.status_code, response.json()["code"]) == (400, "BAD_REQUEST")


async def test_a_fetch_that_names_nothing_is_refused(managed: Managed) -> None:
    body = {"workerId": WORKER}

    response = await managed.api.post("/external-work/fetch-and-lock", json=body)

    assert (response.status_code, response.json()["code"]) == (400, "BAD_REQUEST")


async def test_a_report_about_nothing_is_not_found(managed: Managed) -> None:
    nothing = {"id": "no-such-task", "workerId": WORKER, "epoch": 1}

    response = await say(managed, nothing, "complete")

    assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND")
