"""External tasks, messages, incidents, executable tasks and workers over HTTP."""

from typing import Any

import pytest

from tests.support.management import Managed

pytestmark = pytest.mark.mongo


async def test_a_task_is_claimed_given_back_and_completed_once(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel()
    task = await managed.task_of(waiting)
    path = f"/external-tasks/{task.id}"

    async def put(action: str) -> int:
        return (await managed.api.put(f"{path}/{action}")).status_code

    assert [await put(each) for each in ("claim/ann", "claim/ann", "claim/bob")] == [204, 204, 409]
    assert (await managed.api.get(path)).json()["assignee"] == "ann"
    assert await put("unclaim?assignee=bob") == 409
    assert [await put("unclaim"), await put("unclaim")] == [204, 204]
    done = await managed.api.post(
        f"{path}/complete", json={"variables": {"approved": {"value": True}}}
    )
    again = await managed.api.post(f"{path}/complete")
    gone = await managed.api.get(path)

    assert done.status_code == 202
    assert done.json()["variables"]["approved"]["value"] is True
    assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")
    assert gone.status_code == 404


async def test_tasks_are_listed_for_people(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel("P-1")
    await managed.a_waiting_parcel("P-2")
    await managed.api.put(f"/external-tasks/{(await managed.task_of(waiting)).id}/claim/ann")

    async def found(**parameters: str) -> list[str]:
        page = (await managed.api.get("/external-tasks", params=parameters)).json()
        return [task["taskDefinitionId"] for task in page["items"]]

    assert sorted(await found()) == ["APPROVE", "APPROVE", "RECALL", "RECALL"]
    assert await found(forPeople="true", unassigned="true") == ["APPROVE"]
    assert await found(assignee="ann") == ["APPROVE"]
    assert await found(**{"process-instance-id": waiting.id, "task-definition-id": "RECALL"}) == [
        "RECALL"
    ]


async def test_a_message_ends_the_wait_for_its_key(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel("a/b?c")

    response = await managed.api.post("/events/correlate/recall-a%2Fb%3Fc")
    again = await managed.api.post("/events/correlate/recall-a%2Fb%3Fc", json={"variables": {}})

    assert (response.status_code, response.json()["id"]) == (202, waiting.id)
    assert response.json()["status"] == "COMPLETED"
    assert (again.status_code, again.json()["code"]) == (404, "NOT_FOUND")


async def test_a_message_is_kept_until_somebody_waits_and_delivered_once(managed: Managed) -> None:
    message = {"correlationKey": "recall-P-1", "messageId": "m-1", "keepForSeconds": 60}

    kept = await managed.api.post("/events/correlate", json=message)
    known = await managed.api.post("/events/correlate", json=message)
    refused = await managed.api.post("/events/correlate", json={"correlationKey": "nobody"})

    assert (kept.status_code, kept.json()) == (202, {"outcome": "kept", "instance": None})
    assert known.json() == {"outcome": "known", "instance": None}
    assert refused.status_code == 404


async def test_an_incident_is_read_and_retried_once(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()
    path = f"/incidents/{incident.id}"

    (listed,) = (await managed.api.get("/incidents")).json()["items"]
    shown = (await managed.api.get(path)).json()
    retried = await managed.api.put(f"{path}/retry")
    again = await managed.api.put(f"{path}/retry")

    assert listed == shown
    assert "the scales are broken" in shown["message"]
    assert "RuntimeError" in shown["stackTrace"]
    assert retried.status_code == 204
    assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")


async def test_an_incident_is_put_right_with_variables(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()

    response = await managed.api.post(
        f"/incidents/{incident.id}/resolve", json={"variables": {"broken": {"value": False}}}
    )
    await managed.work()

    assert (response.json()["status"], response.json()["resolvedBy"]) == ("RESOLVED", "anonymous")
    instance = await managed.kikwiflow.get_instance(incident.instance_id)
    assert (await managed.task_of(instance)).node_id == "APPROVE"


async def test_an_incident_is_skipped(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()

    await managed.api.post(f"/incidents/{incident.id}/resolve", json={"skip": True})
    await managed.work()

    instance = await managed.kikwiflow.get_instance(incident.instance_id)
    assert "grams" not in instance.variables
    assert (await managed.task_of(instance)).node_id == "APPROVE"


async def test_incidents_are_found_by_what_failed(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()

    async def found(**parameters: str) -> int:
        return len((await managed.api.get("/incidents", params=parameters)).json()["items"])

    assert await found(type="FAILED_JOB", taskDefinitionId="WEIGH") == 1
    assert await found(processDefinitionKey="other") == 0
    assert await found(status="RESOLVED") == 0
    assert await found(anyStatus="true") == 1
    assert await found(createdAfter="2099-01-01T00:00:00Z") == 0
    assert await found(processInstanceId=incident.instance_id) == 1


async def test_a_task_gets_other_attempts_and_another_time(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()
    path = f"/executable-tasks/{incident.task_id}"

    failed = (await managed.api.get(path)).json()
    changed = await managed.api.put(
        f"{path}/retries", json={"retries": 5, "dueDate": "2099-01-01T00:00:00+02:00"}
    )
    nothing = await managed.api.put(f"{path}/retries", json={})

    assert failed["status"] == "ERROR"
    assert (changed.json()["status"], changed.json()["retries"]) == ("PENDING", 5)
    assert changed.json()["dueDate"] == "2098-12-31T22:00:00Z"
    assert (nothing.status_code, nothing.json()["code"]) == (422, "UNPROCESSABLE")
    assert (await managed.api.get(f"/incidents/{incident.id}")).json()["status"] == "RESOLVED"


async def test_timers_are_listed_with_when_they_fire(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel()
    await managed.kikwiflow.complete((await managed.task_of(waiting)).id)

    (timer,) = (await managed.api.get("/timers")).json()["items"]

    assert timer["taskDefinitionId"] == "LATER"
    assert timer["dueDate"] is not None


async def test_what_no_worker_can_do_is_seen(managed: Managed) -> None:
    await managed.a_parcel()

    (wait,) = (await managed.api.get("/waiting-handlers")).json()["items"]
    workers = (await managed.api.get("/workers")).json()

    assert (wait["handlerName"], wait["isServed"]) == ("weigh_parcel", False)
    assert wait["waiting"] == {"total": 1, "isCapped": False}
    assert workers == {"items": [], "nextCursor": None}


OF_SOMETHING: list[tuple[str, str, Any]] = [
    ("GET", "/external-tasks/unknown", None),
    ("PUT", "/external-tasks/unknown/claim/ann", None),
    ("PUT", "/external-tasks/unknown/unclaim", None),
    ("POST", "/external-tasks/unknown/complete", None),
    ("POST", "/events/correlate/unknown", None),
    ("GET", "/incidents/unknown", None),
    ("PUT", "/incidents/unknown/retry", None),
    ("POST", "/incidents/unknown/resolve", {}),
    ("GET", "/executable-tasks/unknown", None),
    ("PUT", "/executable-tasks/unknown/retries", {"retries": 1}),
]


async def test_what_is_unknown_is_not_found(managed: Managed) -> None:
    for method, path, body in OF_SOMETHING:
        response = await managed.api.request(method, path, json=body)
        assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND"), (method, path)
