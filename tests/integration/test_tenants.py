"""Every endpoint and every page with the wrong tenant: it sees and changes nothing, and learns nothing.

The measure is that nothing tells the two worlds apart: a caller of the tenant ``red`` gets the same answers whether ``blue``
has instances, tasks, incidents, messages and jobs, and their ids are asked for, or there is nothing and the ids are made up.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from kikwiflow_worker.management.app import BASE_PATH, description
from kikwiflow_worker.management.web.navigation import DASHBOARD_PATH
from kikwiflow_worker.management.web.router import _PAGES
from tests.support.dead_letters import store_dead_letter
from tests.support.definitions import a_file
from tests.support.management import PARCEL, PARCEL_NODES, Managed, a_token, managed

__all__ = ["managed"]

RED, BLUE = {"X-Tenant-Id": "red"}, {"X-Tenant-Id": "blue"}
SECRET = "BLUE-IBAN-DE89370400440532013000"
WORKER = "their-worker"
PROBES = {"getLiveness", "getReadiness", "getMetrics"}
REFUSED = {
    *("deployDefinition", "suspendDefinition", "resumeDefinition", "listWorkers"),
    *("getRelay", "listOutboxEvents", "getOutboxEvent", "resendDeadLetter", "resendDeadLetters"),
    *("dropDeadLetter", "listTokens", "getToken", "revokeToken"),
}
"""What concerns all tenants: refused to one, whatever there is."""

SHARED = {
    "listDefinitions",
    "getDefinition",
    "getDefinitionByKey",
    "getDefinitionStats",
    "streamDefinition",
    "streamDefinitionStats",
    "clearDefinitionCache",
}
"""Definitions belong to all; the figures beside them are the tenant's."""


@dataclass(frozen=True)
class Operation:
    """One operation of the API's description."""

    id: str
    method: str
    path: str

    @property
    def names(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)

    @property
    def is_stream(self) -> bool:
        return self.id.startswith("stream")


OPERATIONS = [
    Operation(operation["operationId"], method, path.removeprefix(BASE_PATH))
    for path, methods in description()["paths"].items()
    for method, operation in methods.items()
    if operation["operationId"] not in PROBES
]
BY_ID = {operation.id: operation for operation in OPERATIONS}

HELD = {"workerId": WORKER, "epoch": 1}
BODIES: Mapping[str, object] = {
    "deployDefinition": a_file(*PARCEL_NODES, key="new"),
    "migrateInstancesOfDefinition": {"dryRun": True},
    "startInstance": {"processDefinitionKey": PARCEL, "businessKey": "RED-1"},
    "searchInstances": {"tenantId": "blue"},
    "setVariables": {"variables": {"grams": {"value": 1}}},
    "unsetVariables": {"variableNames": ["recallKey"]},
    "migrateInstance": {"dryRun": True},
    "completeExternalTask": {"variables": {}},
    "fetchAndLock": {"workerId": WORKER, "topics": ["weigh_parcel"], "maxTasks": 10},
    "extendLock": HELD,
    "completeWork": HELD,
    "reportFailure": {**HELD, "message": "it broke"},
    "reportBusinessError": {**HELD, "message": "it broke"},
    "unlockWork": HELD,
    "correlateMessage": {"correlationKey": "recall-BLUE-WAITING"},
    "correlateByKey": {"variables": {}},
    "resolveIncident": {},
    "overrideExecutableTask": {"retries": 5},
    "createBulkJob": {"action": "CANCEL"},
    "resendDeadLetters": {},
}
"""By operation; one with a body that is not here fails the test that tries it."""

QUERIES: Mapping[str, Mapping[str, str]] = {
    "listInstances": {"tenantId": "blue"},
    "listInstanceSummaries": {"tenantId": "blue"},
    "listExternalTasks": {"correlationKey": "recall-BLUE-WAITING"},
    "countInstances": {"processDefinitionKey": PARCEL},
}


@dataclass
class World:
    """What there is of ``blue``: ids by the names that paths give them."""

    ids: dict[str, str] = field(default_factory=dict)

    def id_for(self, operation: Operation, name: str) -> str:
        if name == "task_id":
            kind = operation.path.split("/")[1]
            return self.ids[{"external-tasks": "external_task_id", "external-work": "held_task_id"}.get(kind, name)]  # fmt: skip
        return self.ids[name]


def nobody(definition_id: str) -> World:
    made_up = {
        name: str(uuid4())
        for name in (
            "instance_id",
            "ended_instance_id",
            "incident_id",
            "task_id",
            "external_task_id",
            "held_task_id",
            "job_id",
            "event_id",
            "token_id",
        )
    }
    shared = {"definition_id": definition_id, "key": PARCEL, "assignee": "eve"}
    return World({**made_up, **shared, "correlation_key": "recall-BLUE-WAITING"})


ALL = frozenset({"failed", "ended", "held", "pending", "job"})


async def blue(managed: Managed, definition_id: str, parts: frozenset[str] = ALL) -> World:
    """Let ``blue`` have a parcel that waits, and those ``parts`` besides."""
    variables = {"iban": SECRET, "recallKey": "recall-BLUE-WAITING"}
    waiting = await managed.a_waiting_parcel("BLUE-WAITING", tenant_id="blue", variables=variables)
    ids = {
        "instance_id": waiting.id,
        "external_task_id": (await managed.task_of(waiting)).id,
        "definition_id": definition_id,
        "key": PARCEL,
        "assignee": "eve",
        "correlation_key": "recall-BLUE-WAITING",
        "event_id": store_dead_letter(
            managed.data, str(uuid4()), waiting.id, definition_id, tenantId="blue"
        ),
        "token_id": await a_token(managed, f"BLUE-TOKEN-{uuid4()}"),
    }
    if "failed" in parts:
        failed = await managed.a_failed_parcel("BLUE-FAILED", tenant_id="blue")
        ids |= {"incident_id": failed.id, "task_id": failed.task_id}
    if "ended" in parts:
        ended = await managed.an_ended_parcel("BLUE-ENDED", tenant_id="blue")
        ids["ended_instance_id"] = ended.id
    if "held" in parts:
        ids["held_task_id"] = await a_held_task(managed)
    if "pending" in parts:
        ids["pending_instance_id"] = (await managed.a_parcel("BLUE-PENDING", tenant_id="blue")).id
    if "job" in parts:
        job = await managed.api.post("/bulk-jobs", json=BODIES["createBulkJob"], headers=BLUE)
        ids["job_id"] = job.json()["id"]
    return World(ids)


def parts_for(operation: Operation) -> frozenset[str]:
    """Return what of ``blue`` an operation is about, beside the parcel that waits."""
    parts = {"incidents": "failed", "executable-tasks": "failed", "external-work": "held", "bulk-jobs": "job"}  # fmt: skip
    kind = operation.path.split("/")[1]
    return frozenset({parts[kind]} if kind in parts else ())


async def a_held_task(managed: Managed) -> str:
    await managed.a_parcel(f"BLUE-HELD-{uuid4()}", tenant_id="blue")
    answer = await managed.api.post(
        "/external-work/fetch-and-lock", json=BODIES["fetchAndLock"], headers=BLUE
    )
    (task,) = answer.json()["tasks"]
    return str(task["id"])


async def call(
    managed: Managed, operation: Operation, world: World, tenant: Mapping[str, str]
) -> tuple[int, str]:
    """Return how an operation answers: its status, and its body with the ids that were asked for by their names."""
    path = operation.path
    for name in operation.names:
        path = path.replace(f"{{{name}}}", world.id_for(operation, name))
    headers = {**tenant, "X-Request-Id": "same"}
    if operation.is_stream:
        status, text = await first_of(managed, path, headers)
    else:
        answer = await managed.api.request(
            operation.method.upper(),
            path,
            json=BODIES.get(operation.id),
            params=QUERIES.get(operation.id),
            headers=headers,
        )
        status, text = answer.status_code, answer.text
    for name, found in world.ids.items():
        if len(found) > 30:
            text = text.replace(found, f"<{name}>")
    return status, text


async def first_of(managed: Managed, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
    """Return the status and the first message of a stream, and leave it."""
    left = asyncio.Event()
    status, parts = 0, []

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)
        if body := message.get("body"):
            parts.append(body.decode())
            left.set()

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": f"{BASE_PATH}{path}",
        "raw_path": f"{BASE_PATH}{path}".encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "server": ("kikwiflow.test", 80),
        "client": ("127.0.0.1", 1),
    }
    async with asyncio.timeout(10):
        await managed.app(scope, receive, send)
    return status, "".join(parts)


VOLATILE = re.compile(
    r'"(id|processInstanceId|idempotencyKey|nextCursor|job_id|instance_id|task_1)":"[^"]*"|\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)|^id: \S+', re.MULTILINE
)  # fmt: skip


def comparable(answer: tuple[int, str]) -> tuple[int, str]:
    """Return an answer without what differs between any two calls: ids that were made, and instants."""
    status, text = answer
    return status, VOLATILE.sub("*", text)


def everything_of_blue(managed: Managed) -> dict[str, Any]:
    """Return all that is stored of ``blue``, but for what it did itself."""
    own = {"audit_log", "api_answers", "web_sessions"}
    return {
        name: list(managed.data[name].find({"tenantId": "blue"}).sort("_id"))
        for name in managed.data.list_collection_names()
        if name not in own
    }


def leaks(text: str, world: World) -> list[str]:
    shared = {"definition_id", "key", "assignee", "correlation_key"}
    secrets = {SECRET, "BLUE-FAILED", "BLUE-ENDED", "BLUE-PENDING", "BLUE-HELD", "BLUE-TOKEN"}
    secrets |= {found for name, found in world.ids.items() if name not in shared}
    return [secret for secret in secrets if secret in text]


async def test_every_endpoint_answers_the_wrong_tenant_as_if_there_were_nothing(
    managed: Managed,
) -> None:
    definition_id = await managed.deploy()
    empty = nobody(definition_id)
    before = {each.id: await call(managed, each, empty, RED) for each in OPERATIONS}
    for name in managed.data.list_collection_names():
        managed.data[name].delete_many({"tenantId": "red"})
    world = await blue(managed, definition_id)
    stored = everything_of_blue(managed)
    assert sum(map(len, stored.values())) > 10

    after = {each.id: await call(managed, each, world, RED) for each in OPERATIONS}

    assert everything_of_blue(managed) == stored
    for operation in OPERATIONS:
        status, text = after[operation.id]
        assert comparable((status, text)) == comparable(before[operation.id]), operation
        assert not leaks(text, world), operation
        # Without an id there is nothing to hide but rows; with one of somebody else's, it is not there.
        if set(operation.names) & {"instance_id", "incident_id", "task_id", "job_id"}:
            assert (status, json.loads(text)["code"]) == (404, "NOT_FOUND"), operation
        elif operation.id in REFUSED:
            assert (status, json.loads(text)["code"]) == (403, "FORBIDDEN"), operation
        elif operation.id in SHARED:
            assert status in {200, 204}, (operation, text)
        else:
            assert status < 400 or status == 404, (operation, text)


async def test_an_ended_instance_is_as_hidden_as_a_running_one(managed: Managed) -> None:
    definition_id = await managed.deploy()
    world = await blue(managed, definition_id)
    world.ids["instance_id"] = world.ids["ended_instance_id"]

    for operation in OPERATIONS:
        if "instance_id" in operation.names:
            status, text = await call(managed, operation, world, RED)
            assert (status, json.loads(text)["code"]) == (404, "NOT_FOUND"), operation


async def test_the_same_calls_reach_what_they_are_about_with_the_right_tenant(
    managed: Managed,
) -> None:
    """Without this a call that nobody could make right would pass for one that is refused."""
    definition_id = await managed.deploy()
    missed: list[object] = []
    unseen: set[str] = set()
    for operation in OPERATIONS:
        if not set(operation.names) & {"instance_id", "incident_id", "task_id", "job_id"}:
            continue
        world = await blue(managed, definition_id, parts_for(operation))
        status, text = await call(managed, operation, world, BLUE)
        if status in {401, 403, 404}:
            missed.append((operation.id, status, text))
        # An id that was asked for stands in the answer under its name.
        if operation.method == "get" and "<" not in text and not leaks(text, world):
            unseen.add(operation.id)
        for name in set(managed.data.list_collection_names()) - {"process_definitions", "meta"}:
            managed.data[name].delete_many({})

    assert missed == []
    # A parcel that waits has no incident, and at this level of events no timeline.
    assert unseen <= {"listEvents", "listIncidentsOfInstance"}


async def test_an_identity_without_a_tenant_may_cross(managed: Managed) -> None:
    definition_id = await managed.deploy()
    world = await blue(managed, definition_id)
    kinds = {"instance_id", "incident_id", "task_id", "job_id"}

    for operation in OPERATIONS:
        if operation.method == "get" and not operation.is_stream and set(operation.names) & kinds:
            status, text = await call(managed, operation, world, {})
            assert status == 200, (operation, text)


OF_ALL = (f"{DASHBOARD_PATH}/relay", f"{DASHBOARD_PATH}/tokens")
"""Pages that concern all tenants: refused to one, whatever there is."""

PAGES = [
    (method.lower(), f"{DASHBOARD_PATH}{route.path}")
    for router in _PAGES
    for route in router.routes
    for method in sorted(getattr(route, "methods", ()) - {"HEAD"})
]


async def test_every_page_shows_and_changes_nothing_of_another_tenant(managed: Managed) -> None:
    definition_id = await managed.deploy()
    world = await blue(managed, definition_id)
    stored = everything_of_blue(managed)
    hidden = 0

    for method, path in PAGES:
        ids = world.ids
        if path.startswith(f"{DASHBOARD_PATH}/tasks"):
            ids = {**ids, "task_id": ids["external_task_id"]}
        for name in re.findall(r"{(\w+)}", path):
            path = path.replace(f"{{{name}}}", ids[name])  # noqa: PLW2901
        answer = await managed.http.request(method.upper(), path, headers=RED, data={"reason": "x"} if method == "post" else None)  # fmt: skip
        assert answer.status_code < 500, (method, path, answer.text)
        shown = answer.text
        for found in world.ids.values():
            if found in path:
                shown = shown.replace(found, "")
                refused = {403} if path.startswith(OF_ALL) else {400, 404}
                assert answer.status_code in refused or found in {PARCEL, "eve"}, (method, path)
                hidden += answer.status_code == 404
        assert not leaks(shown, world), (method, path)

    assert everything_of_blue(managed) == stored
    assert hidden > 20


def test_what_these_tests_know_of_is_in_the_description() -> None:
    assert REFUSED | SHARED | set(BODIES) | set(QUERIES) <= set(BY_ID)
