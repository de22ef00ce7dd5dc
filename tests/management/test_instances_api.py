"""Starting, showing and changing instances over HTTP."""

from datetime import timedelta
from typing import Any

import pytest

from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import StoreOptions
from tests.support.management import PARCEL, Managed, manage
from tests.support.mongo import MongoServer

pytestmark = pytest.mark.mongo

INSTANCES = "/process-instances"
START = {"processDefinitionKey": PARCEL, "businessKey": "P-1"}


async def start(managed: Managed, **fields: Any) -> dict[str, Any]:
    response = await managed.api.post(INSTANCES, json={**START, **fields})
    assert response.status_code == 201, response.text
    document: dict[str, Any] = response.json()
    return document


async def test_an_instance_starts_with_what_it_is_given(managed: Managed) -> None:
    await managed.deploy()

    started = await start(
        managed,
        variables={"recallKey": {"value": "r"}, "amount": {"value": 120, "name": "amount"}},
        businessValue="1234567890123456.789",
        origin="shop",
        priority=9,
    )

    shown = (await managed.api.get(f"{INSTANCES}/{started['id']}")).json()
    assert shown["variables"]["amount"] == {"name": "amount", "value": 120, "isMasked": False}
    assert shown["businessValue"] == "1234567890123456.789"
    assert (shown["origin"], shown["priority"], shown["startedBy"]) == ("shop", 9, "anonymous")


BAD_STARTS: list[tuple[dict[str, Any], int, str]] = [
    ({"processDefinitionKey": "unknown"}, 404, "DEFINITION_NOT_FOUND"),
    ({"version": 7}, 404, "DEFINITION_NOT_FOUND"),
    ({"businessKey": " "}, 400, "BAD_REQUEST"),
    ({"businessKey": 7}, 400, "BAD_REQUEST"),
    ({"bussinesKey": "P-1"}, 400, "BAD_REQUEST"),
    ({"targetFlowNodeId": "WEIGH"}, 400, "BAD_REQUEST"),
    ({"version": "1"}, 400, "BAD_REQUEST"),
    ({"version": 2**31}, 400, "BAD_REQUEST"),
    ({"priority": 10}, 400, "BAD_REQUEST"),
    ({"variables": {"x": {"value": 2**63}}}, 422, "INVALID_VARIABLE"),
    ({"variables": {"x": {"value": 1, "name": "y"}}}, 422, "INVALID_VARIABLE"),
    ({"variables": {"x": {"value": 1, "isTransient": True}}}, 400, "BAD_REQUEST"),
    ({"variables": {"x": {"value": 1, "isTransient": 0}}}, 400, "BAD_REQUEST"),
    ({"variables": {"": {"value": 1}}}, 422, "INVALID_VARIABLE"),
    ({"variables": {"x": {}}}, 400, "BAD_REQUEST"),
    ({"businessValue": "1e99"}, 400, "BAD_REQUEST"),
    ({"businessValue": 10**40}, 400, "BAD_REQUEST"),
]


async def test_a_start_that_cannot_be_is_refused(managed: Managed) -> None:
    await managed.deploy()

    for fields, status, code in BAD_STARTS:
        response = await managed.api.post(INSTANCES, json={**START, **fields})
        assert (response.status_code, response.json()["code"]) == (status, code), fields

    assert managed.data.process_instances.count_documents({}) == 0


BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b'{"businessKey": "\\ud800", "processDefinitionKey": "parcel"}',
    b"[" * 5000,
    b'{"a":' * 5000,
    b'{"version": ' + b"9" * 5000 + b"}",
    b"\xff",
]


async def test_a_body_that_is_no_start_is_the_callers_mistake(managed: Managed) -> None:
    await managed.deploy()

    for content in BAD_BODIES:
        response = await managed.api.post(
            INSTANCES, content=content, headers={"Content-Type": "application/json"}
        )
        assert response.status_code in {400, 422}, content[:40]
        assert response.headers["Content-Type"] == "application/problem+json"


async def test_instances_are_listed_by_what_they_are_about(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel("P-1")
    ended = await managed.an_ended_parcel("P-2")

    async def found(**parameters: str) -> list[str]:
        page = (await managed.api.get(INSTANCES, params=parameters)).json()
        return [each["businessKey"] for each in page["items"]]

    assert await found() == ["P-1"]
    assert await found(ended="true") == ["P-2"]
    assert await found(status="COMPLETED") == ["P-2"]
    assert await found(businessKey="P-2") == []
    assert await found(activeNodeId="APPROVE") == ["P-1"]
    assert await found(processDefinitionKey=PARCEL) == ["P-1"]
    assert await found(processDefinitionId=waiting.definition_id) == ["P-1"]
    assert await found(**{"process-definition-id": ended.definition_id}) == ["P-1"]
    assert await found(**{"process-definition-id": "unknown"}) == []


async def test_a_misspelled_filter_is_refused_rather_than_ignored(managed: Managed) -> None:
    response = await managed.api.get(INSTANCES, params={"busnessKey": "P-1"})

    assert (response.status_code, response.json()["code"]) == (400, "BAD_REQUEST")
    assert "did you mean businessKey?" in response.json()["detail"]


async def test_a_search_finds_what_fits_all_it_is_given(managed: Managed) -> None:
    for number in range(3):
        await managed.a_waiting_parcel(
            f"P-{number}", variables={"recallKey": f"r-{number}", "size": number % 2}
        )

    async def found(**fields: Any) -> list[str]:
        response = await managed.api.post(f"{INSTANCES}/search", json=fields)
        assert response.status_code == 200, response.text
        return sorted(each["businessKey"] for each in response.json()["items"])

    assert await found() == ["P-0", "P-1", "P-2"]
    assert await found(variables={"size": 0}) == ["P-0", "P-2"]
    assert await found(variables={"size": 0}, businessKeys=["P-2", "P-1"]) == ["P-2"]
    assert await found(variablesExist=["nothing"]) == []
    assert await found(activeNodeId="APPROVE", statuses=["ACTIVE"]) == ["P-0", "P-1", "P-2"]
    assert await found(startedBefore="2020-01-01T00:00:00Z") == []


BAD_SEARCHES: list[dict[str, Any]] = [
    {"page": 0},
    {"startedAfter": 0},
    {"startedAfter": "2020-01-01"},
    {"startedAfter": "2020-01-01T00:00:00"},
    {"limit": 101},
    {"orderBy": "businessKey"},
    {"statuses": ["RUNNING"]},
]


async def test_a_search_that_is_not_understood_is_refused(managed: Managed) -> None:
    for fields in BAD_SEARCHES:
        response = await managed.api.post(f"{INSTANCES}/search", json=fields)
        assert (response.status_code, response.json()["code"]) == (400, "BAD_REQUEST"), fields


async def test_counts_say_whether_they_are_capped(managed: Managed) -> None:
    await managed.a_waiting_parcel("P-1")
    await managed.a_failed_parcel("P-2")

    async def count(path: str, **parameters: str) -> Any:
        return (await managed.api.get(path, params=parameters)).json()

    assert await count(f"{INSTANCES}/count") == {"total": 2, "isCapped": False}
    assert await count("/external-tasks/count", unassigned="true") == {
        "total": 2,  # the task and the catcher of the recall
        "isCapped": False,
    }
    assert await count("/incidents/count") == {"total": 1, "isCapped": False}
    assert await count("/executable-tasks/count", status="ERROR") == {
        "total": 1,
        "isCapped": False,
    }


async def test_a_snapshot_shows_all_that_an_instance_waits_for(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel()

    shown = (await managed.api.get(f"{INSTANCES}/{waiting.id}/snapshot")).json()

    assert shown["instance"]["id"] == waiting.id
    assert "APPROVE" in shown["activeNodes"]
    assert {task["taskDefinitionId"] for task in shown["externalTasks"]} == {"APPROVE", "RECALL"}
    assert shown["isTruncated"] is False


async def test_variables_are_set_and_removed(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel()
    path = f"{INSTANCES}/{waiting.id}/variables"

    done = await managed.api.put(path, json={"variables": {"n": {"value": 1}, "m": {"value": [1]}}})
    gone = await managed.api.put(f"{path}/unset", json={"variableNames": ["n", "never"]})

    assert done.json()["variables"]["n"]["value"] == 1
    assert "n" not in gone.json()["variables"]
    assert gone.json()["variables"]["m"]["value"] == [1]


async def test_an_instance_rests_goes_on_and_ends(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel()
    path = f"{INSTANCES}/{waiting.id}"

    async def post(action: str) -> int:
        return (await managed.api.post(f"{path}/{action}")).status_code

    assert [await post(each) for each in ("resume", "suspend", "suspend", "resume")] == [
        409,
        204,
        409,
        204,
    ]
    assert [await post(each) for each in ("cancel", "cancel")] == [204, 409]
    assert (await managed.api.get(path)).json()["status"] == "CANCELLED"
    assert (await managed.api.put(path)).status_code == 204
    assert (await managed.api.delete(path)).status_code == 404


async def test_a_migration_is_looked_at_first(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel()
    await managed.deploy(name="second")
    path = f"{INSTANCES}/{waiting.id}/migrate"

    looked = (await managed.api.post(path, json={})).json()
    moved = (await managed.api.post(path, json={"dryRun": False})).json()
    again = await managed.api.post(path, json={"dryRun": False})

    assert (looked["migrated"], looked["problems"], looked["toVersion"]) == (False, [], 2)
    assert moved["migrated"] is True
    assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")


async def test_the_history_of_an_ended_instance_is_told_in_pages(
    mongo_server: MongoServer, data: Any
) -> None:
    options = StoreOptions(outbox=OutboxOptions(level=EventLevel.FULL, retention=timedelta(days=1)))
    async with manage(mongo_server.uri, data, options=options) as managed:
        ended = await managed.an_ended_parcel()
        path = f"{INSTANCES}/{ended.id}/events"

        types: list[str] = []
        cursor: str | None = None
        while True:
            more = {"cursor": cursor} if cursor else {}
            page = (await managed.api.get(path, params={"limit": "2", **more})).json()
            types += [event["eventType"] for event in page["items"]]
            cursor = page["nextCursor"]
            if cursor is None:
                break
        only = (await managed.api.get(path, params={"type": "PROCESS_INSTANCE_FINISHED"})).json()

    assert "PROCESS_INSTANCE_STARTED" in types[:2]
    assert types[-1] == "PROCESS_INSTANCE_FINISHED"
    assert len(types) > 4
    assert [event["payload"]["status"] for event in only["items"]] == ["COMPLETED"]


OF_AN_INSTANCE: list[tuple[str, str, Any]] = [
    ("GET", "", None),
    ("DELETE", "", None),
    ("PUT", "", None),
    ("GET", "/snapshot", None),
    ("GET", "/events", None),
    ("GET", "/incidents", None),
    ("POST", "/cancel", None),
    ("POST", "/suspend", None),
    ("POST", "/resume", None),
    ("POST", "/migrate", {}),
    ("PUT", "/variables", {"variables": {}}),
    ("PUT", "/variables/unset", {"variableNames": []}),
]


async def test_an_unknown_instance_is_not_found(managed: Managed) -> None:
    for method, path, body in OF_AN_INSTANCE:
        response = await managed.api.request(method, f"{INSTANCES}/unknown{path}", json=body)
        assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND"), (method, path)
