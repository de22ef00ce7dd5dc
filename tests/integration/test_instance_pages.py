"""The pages of instances and incidents, over the real database: what they show, and what their forms do."""

import asyncio
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from fastapi import Request
from pymongo.database import Database

from kikwiflow_worker.management.identity import Identity, Role
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.model.runtime import IncidentStatus, InstanceStatus, TaskStatus
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import StoreOptions
from kikwiflow_worker.store.views import IncidentQuery, TaskQuery
from tests.support.definitions import a_node, a_start, a_task, an_end
from tests.support.management import PARCEL_NODES, Managed, manage, managed, recorded
from tests.support.mongo import MongoServer
from tests.support.pages import BROWSER, Element, fields_of, look, read_page, submit, titles_of
from tests.support.xss import HOSTILE

pytestmark = pytest.mark.mongo
__all__ = ["managed", "recorded"]

FULL = StoreOptions(outbox=OutboxOptions(level=EventLevel.FULL))


def flash_after(response: httpx.Response) -> str:
    assert response.status_code == 303, response.text
    return response.headers["location"]


def nodes_with(page: Element, name: str) -> set[str]:
    nodes = [each for each in page.all("g", class_=name) if "data-node" in each.attributes]
    return {each.attributes["data-node"] for each in nodes}


async def test_an_instance_shows_where_it_stands_and_the_path_it_took(recorded: Managed) -> None:
    instance = await recorded.a_waiting_parcel("PARCEL-7")

    page = await look(recorded, f"/instances/{instance.id}")

    assert page.one("h1").text == "PARCEL-7"
    assert nodes_with(page, "stands") == {"APPROVE"}
    assert nodes_with(page, "passed") >= {"START", "WEIGH"}
    assert len(page.all("path", class_="passed")) >= 2
    assert page.one("span", class_="badge-active").text == "active"
    titles = titles_of(page)
    assert titles[-1] == "Started"
    assert "Finished" in titles


async def test_an_ended_instance_is_shown_without_anything_to_do(recorded: Managed) -> None:
    instance = await recorded.an_ended_parcel()

    page = await look(recorded, f"/instances/{instance.id}")

    assert page.one("span", class_="badge-completed")
    assert nodes_with(page, "stands") == set()
    assert nodes_with(page, "passed") == {"START", "WEIGH", "APPROVE", "RECALL", "END"}
    assert page.all("a", class_="danger") == []
    assert "data-stream" not in page.one("main").attributes


async def test_without_events_the_page_says_that_the_path_is_not_known(managed: Managed) -> None:
    instance = await managed.a_waiting_parcel()

    page = await look(managed, f"/instances/{instance.id}")

    assert "known in part only" in page.text
    assert nodes_with(page, "stands") == {"APPROVE"}


async def test_a_failed_instance_shows_its_incident_with_the_stack_trace(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()

    page = await look(managed, f"/instances/{incident.instance_id}")

    failure = page.one("section", class_="failure")
    assert "the scales are broken" in failure.one("p", class_="problem").text
    assert 'raise RuntimeError("the scales are broken")' in failure.one("pre", class_="trace").text
    assert nodes_with(page, "failed") == {"WEIGH"}
    assert page.one("span", class_="badge-error").text == "error"
    alone = await look(managed, f"/incidents/{incident.id}")
    assert "the scales are broken" in alone.one("pre", class_="trace").text


async def test_a_live_page_names_a_stream_that_exists(managed: Managed) -> None:
    instance = await managed.a_waiting_parcel()
    page = await look(managed, f"/instances/{instance.id}")

    path = page.one("main").attributes["data-stream"].partition("?")[0]

    assert path == managed.app.url_path_for("stream_instance", instance_id=instance.id)
    assert {each.attributes["id"] for each in page.all("*") if "data-live" in each.attributes} >= {
        "status",
        "graph",
        "work",
        "timeline",
        "variables",
        "incidents",
    }


async def test_a_retried_step_is_due_again_with_the_variables_given(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()

    response = await submit(
        managed, f"/incidents/{incident.id}/retry", variables='{"broken": false}'
    )

    assert flash_after(response).endswith(f"/dashboard/instances/{incident.instance_id}")
    page = read_page(await managed.http.get(response.headers["location"]))
    assert page.one("p", class_="flash").text == "The step is due again."
    again = await look(managed, f"/instances/{incident.instance_id}")
    assert again.all("p", class_="flash") == []
    await managed.work()
    assert await managed.task_of(await managed.kikwiflow.get_instance(incident.instance_id))


async def test_a_skipped_step_lets_the_path_go_on(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()

    response = await submit(managed, f"/incidents/{incident.id}/skip", variables='{"grams": 7}')

    flash_after(response)
    await managed.work()
    instance = await managed.kikwiflow.get_instance(incident.instance_id)
    assert instance.variables["grams"] == 7
    assert await managed.task_of(instance)


async def test_an_incident_that_was_put_right_meanwhile_is_told_of_in_the_form(
    managed: Managed,
) -> None:
    incident = await managed.a_failed_parcel()
    path = f"/incidents/{incident.id}/retry"
    form = (await look(managed, path)).one("form", method="post")
    flash_after(await submit(managed, path))

    late = await managed.http.post(
        f"/dashboard{path}", data=fields_of(form) | {"variables": '{"a": 1}'}, headers=BROWSER
    )

    assert late.status_code == 409
    page = read_page(late)
    assert "not open any more" in page.one("p", class_="problem").text
    assert fields_of(page.one("form", method="post"))["variables"] == '{"a": 1}'


async def test_two_who_retry_at_once_retry_once(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()
    path = f"/incidents/{incident.id}/retry"
    form = fields_of((await look(managed, path)).one("form", method="post"))

    answers = await asyncio.gather(
        *(managed.http.post(f"/dashboard{path}", data=form, headers=BROWSER) for _ in range(2))
    )

    assert sorted(each.status_code for each in answers) == [303, 409]


async def test_a_variable_is_set_from_its_form(managed: Managed) -> None:
    instance = await managed.a_waiting_parcel()

    for typed, kind, stored in (
        ("150", "json", 150),
        ('{"a": [1, null]}', "json", {"a": [1, None]}),
        ("plain words", "json", "plain words"),
        ("150", "text", "150"),
    ):
        response = await submit(
            managed, f"/instances/{instance.id}/variables", name="amount", value=typed, kind=kind
        )

        flash_after(response)
        assert (await managed.kikwiflow.get_instance(instance.id)).variables["amount"] == stored
    page = await look(managed, f"/instances/{instance.id}/variables?name=amount")
    assert fields_of(page.one("form", method="post"))["name"] == "amount"


async def test_a_value_that_cannot_be_read_is_shown_again_with_what_is_wrong(
    managed: Managed,
) -> None:
    instance = await managed.a_waiting_parcel()

    response = await submit(
        managed, f"/instances/{instance.id}/variables", name="amount", value='{"a": '
    )

    assert response.status_code == 422
    page = read_page(response)
    assert "not valid at line 1" in page.one("p", class_="problem").text
    assert fields_of(page.one("form", method="post"))["value"] == '{"a":'
    assert "amount" not in (await managed.kikwiflow.get_instance(instance.id)).variables


async def test_a_variable_is_removed_after_asking(managed: Managed) -> None:
    instance = await managed.a_waiting_parcel()

    flash_after(await submit(managed, f"/instances/{instance.id}/variables/remove?name=grams"))

    assert "grams" not in (await managed.kikwiflow.get_instance(instance.id)).variables


async def test_an_instance_is_suspended_resumed_and_cancelled(managed: Managed) -> None:
    instance = await managed.a_waiting_parcel()

    flash_after(await submit(managed, f"/instances/{instance.id}/suspend"))
    resting = await managed.kikwiflow.get_instance(instance.id)
    flash_after(await submit(managed, f"/instances/{instance.id}/resume"))
    going = await managed.kikwiflow.get_instance(instance.id)
    flash_after(await submit(managed, f"/instances/{instance.id}/cancel"))
    ended = await managed.kikwiflow.get_instance(instance.id)

    assert [each.status for each in (resting, going, ended)] == [
        InstanceStatus.SUSPENDED,
        InstanceStatus.ACTIVE,
        InstanceStatus.CANCELLED,
    ]
    late = await managed.http.get(f"/dashboard/instances/{instance.id}/cancel")
    assert late.status_code == 404
    assert read_page(late).one("h1").text == "Not found"


async def test_migrating_shows_first_whether_it_can_go_on_and_changes_nothing(
    managed: Managed,
) -> None:
    instance = await managed.a_waiting_parcel()
    without = [each for each in PARCEL_NODES if each["id"] not in {"APPROVE", "RECALL"}]
    await managed.deploy(*PARCEL_NODES, description="the same with a description")
    await managed.deploy(
        *[
            a_task("WEIGH", "LATER", commitBefore=True) if each["id"] == "WEIGH" else each
            for each in without
        ]
    )
    path = f"/instances/{instance.id}/migrate"

    choice = await look(managed, path)
    refused = await look(managed, f"{path}?version=3")
    possible = await look(managed, f"{path}?version=2")
    before = await managed.kikwiflow.get_instance(instance.id)
    response = await submit(managed, f"{path}?version=2")

    offered = [each.attributes["value"] for each in choice.one("select").all("option")]
    assert offered == ["3", "2"]
    assert "rests at APPROVE" in refused.text
    assert refused.all("form", method="post") == []
    assert "It can go on" in possible.text
    assert before.definition_version == 1
    flash_after(response)
    assert (await managed.kikwiflow.get_instance(instance.id)).definition_version == 2


async def test_a_tasks_attempts_and_due_time_are_overridden(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()
    path = f"/instances/{incident.instance_id}/tasks/{incident.task_id}/override"

    flash_after(await submit(managed, path, retries="7", due_at="2030-01-01 12:00"))

    (task,) = (
        await managed.kikwiflow.list_tasks(TaskQuery(instance_id=incident.instance_id))
    ).items
    assert (task.status, task.retries_left) == (TaskStatus.PENDING, 7)
    assert task.due_at is not None
    assert task.due_at.isoformat() == "2030-01-01T12:00:00+00:00"
    resolved = await managed.kikwiflow.list_incidents(
        IncidentQuery(instance_id=incident.instance_id, status=None)
    )
    assert [each.status for each in resolved.items] == [IncidentStatus.RESOLVED]
    page = await look(managed, f"/instances/{incident.instance_id}")
    assert page.one("span", class_="badge-pending")


async def test_an_override_that_makes_no_sense_is_refused_in_the_form(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()
    path = f"/instances/{incident.instance_id}/tasks/{incident.task_id}/override"

    for field, typed, said in (
        ("retries", "", "say what to change"),
        ("retries", "many", "must be a number"),
        ("due_at", "tomorrow", "must be like"),
        ("retries", "0", "1 to 1,000,000 attempts"),
    ):
        response = await submit(managed, path, **{field: typed})

        assert response.status_code == 422
        page = read_page(response)
        assert said in page.one("p", class_="problem").text
        assert fields_of(page.one("form", method="post"))[field] == typed


async def test_a_task_of_another_instance_is_not_found(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()
    other = await managed.a_waiting_parcel("OTHER")

    path = f"/dashboard/instances/{other.id}/tasks/{incident.task_id}/override"

    assert (await managed.http.get(path)).status_code == 404


async def test_parent_and_running_children_lead_to_one_another(managed: Managed) -> None:
    await managed.deploy()
    await managed.deploy(
        a_start("CALL"),
        a_node("CALL", "CALL_ACTIVITY_COORDINATOR", "END", calledElement="parcel"),
        an_end(),
        key="batch",
    )
    parent = await managed.kikwiflow.start("batch", "BATCH-1", variables={"recallKey": "r"})
    await managed.work()

    page = await look(managed, f"/instances/{parent.id}")

    link = page.one("section", aria_labelledby="children-title").one("tbody").one("a")
    child = read_page(await managed.http.get(link.attributes["href"]))
    hrefs = {each.attributes["href"] for each in child.all("a")}
    assert f"/dashboard/instances/{parent.id}" in hrefs


class As:
    """Everybody is a person with one role."""

    def __init__(self, role: Role) -> None:
        self.identity = Identity(actor="vera", roles=frozenset({role}))

    async def identify(self, _: Request) -> Identity:
        return self.identity


SECRET = {"kikwiflow.variables.iban": "masked"}


async def test_a_viewer_sees_masked_variables_as_masked_and_no_actions(
    mongo_server: MongoServer, data: Database[dict[str, Any]]
) -> None:
    async with manage(mongo_server.uri, data, authenticator=As(Role.VIEWER), options=FULL) as it:
        await it.deploy(*PARCEL_NODES, extensionProperties=SECRET)
        variables = {"iban": "DE-SECRET-1", "recallKey": "r", "grams": 5, "broken": True}
        instance = await it.kikwiflow.start("parcel", "P", variables=variables)
        await it.work()
        it.data.incidents.update_many({}, {"$set": {"message": "ValueError: DE-SECRET-1"}})

        page = await it.http.get(f"/dashboard/instances/{instance.id}")
        incident = await it.incident_of(instance)
        failure = await it.http.get(f"/dashboard/incidents/{incident.id}")
        denied = await it.http.get(f"/dashboard/instances/{instance.id}/cancel")

        assert "SECRET" not in page.text
        assert "SECRET" not in failure.text
        shown = read_page(page)
        assert shown.one("span", class_="masked").text == "masked"
        assert shown.all("a", data_dialog="") == []
        assert denied.status_code == 403
        assert read_page(denied).one("h1").text == "Not allowed"


async def test_an_operator_may_replace_a_masked_variable_without_seeing_it(
    mongo_server: MongoServer, data: Database[dict[str, Any]]
) -> None:
    rule = {"kikwiflow.variables.iban": "masked; write=operator"}
    async with manage(mongo_server.uri, data, authenticator=As(Role.OPERATOR)) as it:
        await it.deploy(*PARCEL_NODES, extensionProperties=rule)
        variables = {"iban": "DE-SECRET-1", "recallKey": "r"}
        instance = await it.kikwiflow.start("parcel", "P", variables=variables)
        path = f"/instances/{instance.id}/variables?name=iban"

        form = await it.http.get(f"/dashboard{path}")
        response = await submit(it, path, value="DE-2")

        assert "SECRET" not in form.text
        assert "keeps its present value from your role" in read_page(form).text
        flash_after(response)
        assert (await it.kikwiflow.get_instance(instance.id)).variables["iban"] == "DE-2"


async def test_a_form_that_another_site_sends_changes_nothing(managed: Managed) -> None:
    instance = await managed.a_waiting_parcel()
    path = f"/dashboard/instances/{instance.id}/cancel"

    without = await managed.http.post(path, data={}, headers=BROWSER)
    wrong = await managed.http.post(path, data={"csrf": "guessed"}, headers=BROWSER)
    strange = await managed.http.post(path, data={}, headers={"Sec-Fetch-Site": "cross-site"})

    assert {each.status_code for each in (without, wrong, strange)} == {403}
    assert (await managed.kikwiflow.get_instance(instance.id)).status is InstanceStatus.ACTIVE


async def test_what_is_not_there_is_a_page_that_says_so(managed: Managed) -> None:
    for path in ("instances/nobody", "incidents/nobody", "definitions/nobody"):
        response = await managed.http.get(f"/dashboard/{path}")

        assert response.status_code == 404
        assert "nobody" in read_page(response).one("p", class_="problem").text


async def test_no_text_of_an_instance_is_taken_for_html(recorded: Managed) -> None:
    every = " ".join(HOSTILE)
    weighs = [
        a_task(f"N{number}", f"N{number + 1}", name=text, description=text)
        for number, text in enumerate(HOSTILE)
    ]
    last = a_node(
        f"N{len(HOSTILE)}", "EXTERNAL_TASK", {"targetNodeId": "END", "name": every}, name=every
    )
    weighs[0] |= {"commitBefore": True, "retryPolicy": {"maxRetries": 1}}
    nodes = (a_start("N0"), *weighs, last, an_end())
    await recorded.deploy(*nodes, key="evil", name=every, description=every)
    await recorded.deploy(*nodes, key="evil", name=every)
    variables = {text: text for text in HOSTILE} | {"broken": True}
    instance = await recorded.kikwiflow.start(
        "evil", every, version=1, variables=variables, started_by=every, origin=every
    )
    await recorded.work()
    incident = await recorded.incident_of(instance)
    change = {"message": every, "stackTrace": every}
    recorded.data.incidents.update_one({"_id": incident.id}, {"$set": change})
    task = f"/instances/{instance.id}/tasks/{incident.task_id}/override"
    own = (
        *("", "/cancel", "/suspend", "/migrate", "/migrate?version=2", "/variables"),
        *(f"/variables{form}?{urlencode({'name': text})}" for form in ("", "/remove") for text in HOSTILE),
    )  # fmt: skip

    for path in (
        *(
            "/definitions",
            "/definitions/evil",
            "/definitions/evil/source",
            "/definitions/evil/start",
        ),
        *("/definitions/evil/compare?before=1&after=2", "/definitions/evil/suspend", task),
        *(f"/incidents/{incident.id}{form}" for form in ("", "/retry", "/skip")),
        *(f"/instances/{instance.id}{form}" for form in own),
    ):
        page = await look(recorded, path)
        elements = page.all("*")
        attributes = [name for each in elements for name in each.attributes]
        assert [name for name in attributes if name.startswith(("on", "data-planted"))] == []
        assert page.one("script").attributes["src"].startswith("/dashboard/static/dashboard.js")
        assert page.all("iframe") + page.all("style") + page.all("img") == []
        hrefs = [each.attributes.get("href", "") for each in page.all("a")]
        assert [href for href in hrefs if not href.startswith(("/dashboard", "#"))] == []
        if "/variables?name" in path:
            name = fields_of(page.one("form", method="post"))["name"]
            assert fields_of(page.one("form", method="post"))["value"].split() == name.split()


async def test_a_time_ahead_and_behind_is_said_in_words(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()
    due = managed.services.runtime.now() + timedelta(hours=3, seconds=20)
    path = f"/instances/{incident.instance_id}/tasks/{incident.task_id}/override"
    flash_after(await submit(managed, path, due_at=due.strftime("%Y-%m-%d %H:%M:%S")))

    page = await look(managed, f"/instances/{incident.instance_id}")

    assert "in 3 h" in page.one("section", aria_labelledby="work-title").text
