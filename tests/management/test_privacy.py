"""Variables that a definition masks: no answer, no page, no event and no log line shows them to who may not read them.

Markers are planted in variables, and everything that can be asked is asked: the routes come from the API's description and
from the dashboard itself, so that a new one is asked too.
"""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import httpx
import pytest
from fastapi import Request
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.handler import ExecutionContext, task_handler
from kikwiflow_worker.management.app import description
from kikwiflow_worker.management.web.navigation import DASHBOARD_PATH
from kikwiflow_worker.management.web.router import _PAGES as PAGES
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.model.identity import Identity, Role
from kikwiflow_worker.model.runtime import ProcessInstance
from kikwiflow_worker.operations.execution import execute_task
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import StoreOptions
from kikwiflow_worker.telemetry import LogFormat, LogLevel, configure_logging
from tests.support.dead_letters import store_dead_letter
from tests.support.definitions import a_node, a_start, a_task, an_end
from tests.support.management import LOCK, WORKER, Managed, manage
from tests.support.mongo import MongoServer

pytestmark = pytest.mark.mongo

OPERATORS, NOBODY = "OPERATORS-MARK-91", "NOBODYS-MARK-77"
RULES = {
    "kikwiflow.variables.ssn": "roles=operator",
    "kikwiflow.variables.pin": "masked",
    "kikwiflow.variables.code": "masked; write=operator",
}
VARIABLES = {"ssn": OPERATORS, "pin": NOBODY, "code": NOBODY, "open": "OPEN-MARK-12"}
WRITABLE = {name: value for name, value in VARIABLES.items() if name != "pin"}
"""By operators."""
NODES = (
    a_start("WEIGH"),
    a_task("WEIGH", "CHOOSE", executor="weigh_person", commitBefore=True, retryPolicy={
        "strategy": "LINEAR", "intervals": ["PT1H"], "maxRetries": 2}),
    a_node("CHOOSE", "EXCLUSIVE_GATEWAY", "ASK", providerType="VARIABLE", providerVariable="pin"),
    a_node("ASK", "EXTERNAL_TASK", "CALL"),
    a_node("CALL", "CALL_ACTIVITY_COORDINATOR", "END", calledElement="helper"),
    an_end(),
)  # fmt: skip
HELPER = (a_start("DO"), a_node("DO", "EXTERNAL_TASK", "FAIL"), a_task("FAIL", executor="weigh_person", commitBefore=True), an_end())  # fmt: skip
STREAM_S = 5


@task_handler("weigh_person")
def weigh_person(context: ExecutionContext) -> None:
    """Fail as careless code does: with values in the message, one on a line that looks like code."""
    if context.get("mode") in ("retry", "fail"):
        raise ValueError(f"cannot weigh {context.get('ssn')}\n  pin = {context.get('pin')}")


@dataclass(slots=True)
class Whoever:
    """An authenticator that says who the tests want to be."""

    role: Role = Role.VIEWER

    async def identify(self, _: Request) -> Identity:
        return Identity(actor="somebody", roles=frozenset({self.role}))


@dataclass(slots=True)
class Office:
    """The application with people in every state.

    Attributes:
        ids: What can stand in a path, by the name that the path has for it.
    """

    managed: Managed
    whoever: Whoever
    ids: dict[str, list[str]]
    running: ProcessInstance
    failed: ProcessInstance
    child_id: str

    @property
    def followed(self) -> dict[str, list[str]]:
        """Those whose streams are read."""
        return {
            "instance_id": [self.failed.id, self.child_id],
            "definition_id": [self.failed.definition_id],
        }


@pytest.fixture
async def office(
    mongo_server: MongoServer, data: Database[dict[str, Any]]
) -> AsyncIterator[Office]:
    whoever = Whoever()
    options = StoreOptions(outbox=OutboxOptions(EventLevel.FULL))
    async with manage(mongo_server.uri, data, authenticator=whoever, options=options) as managed:
        flows = [{"targetNodeId": "ASK", "isDefault": True}]
        nodes = [*NODES[:2], {**NODES[2], "outgoing": flows}, *NODES[3:]]
        await managed.deploy(*nodes, key="office", extensionProperties=RULES)
        await managed.deploy(*HELPER, key="helper")
        running = await _start(managed, "running")
        failed = await _start(managed, "failed", mode="fail")
        await _start(managed, "retrying", mode="retry")
        parent = await _start(managed, "parent")
        await _work(managed)
        for task in (await managed.kikwiflow.list_external_tasks()).items:
            if task.instance_id == parent.id:
                await managed.kikwiflow.complete(task.id, {"mode": "fail"})
        await _work(managed)
        (child,) = (await managed.kikwiflow.list_instances()).items[:1]
        for task in (await managed.kikwiflow.list_external_tasks()).items:
            if task.instance_id == child.id:
                await managed.kikwiflow.complete(task.id)
        data.executable_tasks.update_many({"status": "PENDING"}, {"$set": {"retries": 1}})
        await _make_due(data, failed.id)
        await _work(managed)
        await managed.kikwiflow.set_variables(running.id, {"ssn": OPERATORS, "pin": NOBODY})
        ended = await _start(managed, "ended")
        await managed.kikwiflow.cancel(ended.id)
        await _work(managed)
        _store_as_releases_without_masks_did(data, failed)
        yield Office(managed, whoever, _ids(data), running, failed, child.id)


def _store_as_releases_without_masks_did(
    data: Database[dict[str, Any]], instance: ProcessInstance
) -> None:
    changed = {"name": "pin", "value": NOBODY, "variables": {"ssn": OPERATORS}}
    for number, kind in enumerate(("PROCESS_VARIABLE_CHANGED", "ONLY_LATER_RELEASES_KNOW")):
        store_dead_letter(
            data,
            f"dead-{number}",
            instance.id,
            instance.definition_id,
            eventType=kind,
            payload=changed,
            lastError=f"ValueError: {OPERATORS}",
        )


async def _start(managed: Managed, business_key: str, **more: object) -> ProcessInstance:
    return await managed.kikwiflow.start("office", business_key, variables={**VARIABLES, **more})


async def _work(managed: Managed) -> None:
    runner = Kikwiflow(managed.store, handlers=[weigh_person])
    capabilities = runner.new_invoker().capabilities
    claim = managed.store.queue.claim_due
    while due := await claim(worker_id=WORKER, lock=LOCK, capabilities=capabilities, limit=1):
        commit = managed.store.runtime.commit
        await execute_task(managed.services, runner.new_invoker(), due[0], commit)
    runner.close()


async def _make_due(data: Database[dict[str, Any]], instance_id: str) -> None:
    of_it = {"processInstanceId": {"$in": [instance_id, *_children(data)]}, "status": "PENDING"}
    long_ago = data.executable_tasks.find_one({})["createdAt"]  # type: ignore[index]
    data.executable_tasks.update_many(of_it, {"$set": {"claimableAt": long_ago}})


def _children(data: Database[dict[str, Any]]) -> list[str]:
    found = data.process_instances.find({"parentInstanceId": {"$exists": True}}, {"_id": 1})
    return [row["_id"] for row in found]


def _ids(data: Database[dict[str, Any]]) -> dict[str, list[str]]:
    def of(*names: str) -> list[str]:
        return [row["_id"] for name in names for row in data[name].find({}, {"_id": 1})]

    return {
        "instance_id": of("process_instances", "process_history"),
        "definition_id": of("process_definitions"),
        "key": ["office", "helper"],
        "task_id": of("executable_tasks", "external_tasks"),
        "incident_id": of("incidents"),
        "job_id": ["none"],
        "event_id": of("outbox_events"),
        "token_id": ["none"],
        "node_id": ["WEIGH"],
        "name": ["pin"],
    }


def _paths(office: Office) -> Iterator[str]:
    """Yield every path that can be asked with GET, with every id that fits into it."""
    api = [path for path, methods in description()["paths"].items() if "get" in methods]
    pages = [
        DASHBOARD_PATH + route.path
        for router in PAGES
        for route in router.routes
        if "GET" in getattr(route, "methods", ())
    ]
    for path in (*api, *pages):
        names = re.findall(r"{(\w+)(?::\w+)?}", path)
        # A stream is awaited until it says no more: one of what failed is enough.
        ids = office.followed if path.endswith("/stream") else office.ids
        for values in product(*(ids[name] for name in names)):
            filled = path
            for name, value in zip(names, values, strict=True):
                filled = re.sub(rf"{{{name}(:\w+)?}}", value, filled)
            yield filled


async def _ask(managed: Managed, path: str) -> tuple[int, str]:
    if not path.endswith("/stream"):
        response = await managed.http.get(path, headers={"Accept": "*/*"})
        return response.status_code, response.text
    return await _stream(managed, path)


async def _stream(managed: Managed, path: str) -> tuple[int, str]:
    """Return what a stream sends before it has nothing to say for a moment."""
    sent: list[dict[str, Any]] = []
    spoken, gone = asyncio.Event(), asyncio.Event()
    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        if message := next(asked, None):
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(dict(message))
        spoken.set()

    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": [(b"host", b"kikwiflow.test")], "scheme": "http", "root_path": "",
        "client": ("127.0.0.1", 1), "server": ("kikwiflow.test", 80), "asgi": {"version": "3.0"},
    }  # fmt: skip
    answering = asyncio.ensure_future(managed.app(scope, receive, send))
    try:
        async with asyncio.timeout(STREAM_S):
            while not answering.done():
                spoken.clear()
                await asyncio.wait_for(asyncio.shield(spoken.wait()), 0.25)
    except TimeoutError:
        pass
    gone.set()
    answering.cancel()
    await asyncio.gather(answering, return_exceptions=True)
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], body.decode()


async def _shown(office: Office, role: Role) -> tuple[dict[str, str], int]:
    """Return what a role is shown, by path, and how many were answered."""
    office.whoever.role = role
    answers = {}
    for path in _paths(office):
        status, text = await _ask(office.managed, path)
        assert status < 500, (path, text)
        if status == 200:
            answers[path] = text
    return answers, len(answers)


async def test_no_answer_no_page_and_no_log_line_shows_what_is_masked(office: Office) -> None:
    log = io.StringIO()
    configure_logging(LogLevel.DEBUG, LogFormat.JSON, log)

    for_viewer, answered = await _shown(office, Role.VIEWER)
    for_operator, _ = await _shown(office, Role.OPERATOR)

    leaks = [path for path, text in for_viewer.items() if OPERATORS in text or NOBODY in text]
    assert leaks == []
    assert [path for path, text in for_operator.items() if NOBODY in text] == []
    assert "MARK" not in log.getvalue()
    assert log.getvalue()
    # The markers are there to be found: what everybody may read, and what an operator may, is shown.
    assert answered > 40
    assert sum("OPEN-MARK-12" in text for text in for_viewer.values()) > 5
    assert sum(OPERATORS in text for text in for_operator.values()) > 5
    assert any(OPERATORS in text for path, text in for_operator.items() if office.child_id in path)


async def test_events_are_stored_without_what_not_everybody_may_read(office: Office) -> None:
    stored = office.managed.data.outbox_events.find({"lastError": None})
    events = repr(list(stored))

    assert "PROCESS_VARIABLE_CHANGED" in events
    assert "GATEWAY_ANSWER_RESOLVED" in events
    assert "INCIDENT_CREATED" in events
    assert "OPEN-MARK-12" in events
    assert OPERATORS not in events
    assert NOBODY not in events


async def test_an_error_is_shown_with_its_kind_and_where_it_was_raised(office: Office) -> None:
    api = office.managed.api
    path = f"/process-instances/{office.failed.id}/incidents"

    office.whoever.role = Role.VIEWER
    (seen,) = (await api.get(path)).json()["items"]

    assert seen["message"].startswith("ValueError: (masked")
    assert "in weigh_person" in seen["stackTrace"]
    assert "raise ValueError" not in seen["stackTrace"]


async def _set(office: Office, role: Role, variables: Mapping[str, Any]) -> int:
    office.whoever.role = role
    body = {"variables": {name: {"value": value} for name, value in variables.items()}}
    path = f"/process-instances/{office.running.id}/variables"
    return (await office.managed.api.put(path, json=body)).status_code


async def test_who_may_not_read_a_variable_may_not_change_it(office: Office) -> None:
    kikwiflow, running_id = office.managed.kikwiflow, office.running.id
    before = (await kikwiflow.get_instance(running_id)).variables

    assert await _set(office, Role.OPERATOR, {"open": 2, "pin": 1}) == 403
    assert (await kikwiflow.get_instance(running_id)).variables == before

    assert await _set(office, Role.OPERATOR, {"open": 2, "ssn": 1}) == 200
    after = (await kikwiflow.get_instance(running_id)).variables
    assert after == {**before, "open": 2, "ssn": 1}


async def test_a_start_sets_only_what_the_caller_may_write(office: Office) -> None:
    managed, office.whoever.role = office.managed, Role.OPERATOR
    body = {"processDefinitionKey": "office", "businessKey": "by-api"}

    async def start(variables: Mapping[str, Any]) -> httpx.Response:
        given = {name: {"value": value} for name, value in variables.items()}
        return await managed.api.post("/process-instances", json={**body, "variables": given})

    refused = await start({"open": 1, "pin": 2})
    known = managed.data.process_instances.count_documents({"businessKey": "by-api"})
    allowed = await start(WRITABLE)

    assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
    assert "'pin'" in refused.json()["detail"]
    assert known == 0
    assert allowed.status_code == 201
    assert (await managed.kikwiflow.get_instance(allowed.json()["id"])).variables == WRITABLE


async def test_a_start_that_is_asked_again_is_the_same_whatever_a_new_version_says(
    office: Office,
) -> None:
    managed, office.whoever.role = office.managed, Role.OPERATOR
    start = {"processDefinitionKey": "helper", "businessKey": "H"}
    start |= {"variables": {"open": {"value": 1}}}
    key = {"Idempotency-Key": "start-1"}
    first = await managed.api.post("/process-instances", json=start, headers=key)
    await managed.deploy(
        *HELPER, key="helper", extensionProperties={"kikwiflow.variables.open": "masked"}
    )

    again = await managed.api.post("/process-instances", json=start, headers=key)
    other = await managed.api.post("/process-instances", json=start)

    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 403)
    assert first.json()["id"] == again.json()["id"]


async def test_a_message_is_kept_only_with_what_its_sender_may_write_everywhere(
    office: Office,
) -> None:
    office.whoever.role = Role.OPERATOR

    async def keep(name: str) -> int:
        message = {"correlationKey": "later", "keepForSeconds": 60}
        message |= {"variables": {name: {"value": 1}}}
        return (await office.managed.api.post("/events/correlate", json=message)).status_code

    assert [await keep(name) for name in ("pin", "ssn", "open")] == [403, 202, 202]


async def test_what_answers_a_change_masks_as_what_answers_a_look(office: Office) -> None:
    managed, api = office.managed, office.managed.api
    office.whoever.role = Role.OPERATOR
    start = {
        "processDefinitionKey": "office",
        "businessKey": "by-api",
        "variables": {name: {"value": value} for name, value in WRITABLE.items()},
    }
    work = {"workerId": "w", "topics": ["weigh_person"], "maxTasks": 5}
    (asked,) = (
        task
        for task in (await managed.kikwiflow.list_external_tasks()).items
        if task.instance_id == office.running.id
    )

    answers = [
        await api.post("/process-instances", json=start),
        await api.post("/external-work/fetch-and-lock", json=work),
        await api.put(
            f"/process-instances/{office.running.id}/variables",
            json={"variables": {"open": {"value": 1}}},
        ),
        await api.post(f"/external-tasks/{asked.id}/complete", json={"variables": {}}),
        await api.post("/process-instances/search", json={"limit": 100}),
    ]

    assert [answer.status_code // 100 for answer in answers] == [2] * len(answers)
    for answer in answers:
        assert OPERATORS in answer.text
        assert NOBODY not in answer.text


async def test_a_search_by_a_masked_value_is_refused(office: Office) -> None:
    api, http = office.managed.api, office.managed.http
    for asked in ({}, {"processDefinitionKeys": ["office"]}):
        search = {**asked, "variables": {"ssn": OPERATORS}}
        office.whoever.role = Role.VIEWER
        refused = await api.post("/process-instances/search", json=search)
        office.whoever.role = Role.OPERATOR
        allowed = await api.post("/process-instances/search", json=search)

        assert refused.status_code == 403
        assert len(allowed.json()["items"]) > 2
    office.whoever.role = Role.VIEWER
    page = await http.get(
        f"{DASHBOARD_PATH}/instances", params={"variable": "ssn", "value": OPERATORS}
    )
    assert page.status_code == 403


async def test_a_search_among_other_definitions_finds_no_child_that_inherited_the_rule(
    office: Office,
) -> None:
    search = {"processDefinitionKeys": ["helper"], "variables": {"ssn": OPERATORS}}

    office.whoever.role = Role.VIEWER
    for_viewer = await office.managed.api.post("/process-instances/search", json=search)
    office.whoever.role = Role.OPERATOR
    for_operator = await office.managed.api.post("/process-instances/search", json=search)

    assert for_viewer.json()["items"] == []
    assert [each["id"] for each in for_operator.json()["items"]] == [office.child_id]


async def test_a_version_that_is_gone_shows_nothing(office: Office) -> None:
    managed = office.managed
    instance = managed.data.process_instances
    instance.update_one({"_id": office.running.id}, {"$set": {"processDefinitionId": "gone"}})

    office.whoever.role = Role.ADMIN
    seen = (await managed.api.get(f"/process-instances/{office.running.id}")).json()

    assert {each["isMasked"] for each in seen["variables"].values()} == {True}
    assert json.dumps(seen).count("MARK") == 0
