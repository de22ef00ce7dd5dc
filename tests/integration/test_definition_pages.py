"""The pages of definitions, over the real database: what they show, and what their forms do."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from kikwiflow_worker.model.runtime import InstanceStatus
from kikwiflow_worker.store.views import InstanceQuery
from tests.support.definitions import a_file, a_node, a_start, a_task, an_end
from tests.support.management import PARCEL_NODES, Managed, managed, recorded
from tests.support.pages import BROWSER, Element, fields_of, look, read_page, submit
from tests.support.stores import LONG_AGO

pytestmark = pytest.mark.mongo
__all__ = ["managed", "recorded"]

ROOT = Path(__file__).parents[2]


def rows_of(page: Element, title: str) -> list[list[str]]:
    table = page.one("div", role="region", aria_label=title)
    return [[cell.text for cell in row.all("td")] for row in table.one("tbody").all("tr")]


def count_on(page: Element, node_id: str, kind: str) -> list[str]:
    node = page.one("g", data_node=node_id)
    return [each.text for each in node.all("g", class_="count") if kind in each.attributes["class"]]


async def test_the_list_tells_what_the_instances_of_each_definition_do(managed: Managed) -> None:
    await managed.a_failed_parcel()
    await managed.a_waiting_parcel()
    await managed.an_ended_parcel()
    await managed.deploy(a_start(), a_task("TASK", "END"), an_end(), key="idle", name="Idle")

    page = await look(managed, "/definitions")

    idle, parcel = rows_of(page, "Definitions")
    assert idle[:6] == ["Idle idle", "1", "0", "0", "0", "0"]
    assert parcel[:6] == ["parcel", "1", "2", "1", "1", "0"]


async def test_every_node_of_a_large_definition_has_its_figures(managed: Managed) -> None:
    last = 299
    steps = [
        a_node(f"N{number}", "EXTERNAL_TASK", f"N{number + 1}" if number < last else "END")
        for number in range(last + 1)
    ]
    definition_id = await managed.deploy(a_start("N0"), *steps, an_end(), key="large")
    instance = await managed.kikwiflow.start("large", "LARGE-1")
    at_last = {"$set": {"taskDefinitionId": f"N{last}"}}
    managed.data.external_tasks.update_one({"processInstanceId": instance.id}, at_last)
    managed.data.outbox_events.insert_one(
        {
            "eventType": "EXTERNAL_TASK_COMPLETED",
            "processDefinitionId": definition_id,
            "timestamp": LONG_AGO,
            "payload": {
                "taskDefinitionId": f"N{last}",
                "createdAt": LONG_AGO,
                "completedAt": LONG_AGO + timedelta(hours=2),
            },
        }
    )

    page = await look(managed, "/definitions/large")

    assert count_on(page, f"N{last}", "tokens") == ["1"]
    assert "⌀ 2 h" in page.one("g", data_node=f"N{last}").text
    assert len(rows_of(page, "Nodes")) == last + 3


async def test_nothing_deployed_is_said_with_what_to_do(managed: Managed) -> None:
    page = await look(managed, "/definitions")

    assert page.one("p", class_="empty").one("a").attributes["href"] == "/dashboard/deploy"


async def test_the_graph_carries_tokens_incidents_and_average_times(recorded: Managed) -> None:
    await recorded.a_failed_parcel()
    await recorded.a_waiting_parcel()
    await recorded.a_waiting_parcel("PARCEL-2")
    events = recorded.data.outbox_events
    for event in events.find({"eventType": "FLOW_NODE_FINISHED"}):
        if event["payload"].get("flowNodeDefinitionId") == "WEIGH":
            start = event["payload"]["finishedAt"].replace(second=0, microsecond=0)
            events.update_one(
                {"_id": event["_id"]},
                {"$set": {"payload.startedAt": start, "payload.finishedAt": start.replace(second=3)}},
            )  # fmt: skip

    page = await look(recorded, "/definitions/parcel")

    assert count_on(page, "APPROVE", "tokens") == ["2"]
    assert count_on(page, "WEIGH", "failed") == ["1"]
    assert count_on(page, "LATER", "tokens") == []
    assert count_on(page, "RECALL", "tokens") == []
    weigh = page.one("g", data_node="WEIGH")
    assert weigh.one("text", class_="note").text == "⌀ 3 s"
    links = [each for each in page.all("a") if each.all("g", data_node="APPROVE")]
    (address,) = [each.attributes["href"] for each in links]
    assert address == "/dashboard/instances?definition=parcel&node=APPROVE"
    standing = read_page(await recorded.http.get(address))
    assert [row[0] for row in rows_of(standing, "Instances")] == ["PARCEL-1", "PARCEL-2"]
    rows = {row[0]: row[2:] for row in rows_of(page, "Nodes")}
    assert rows["WEIGH"] == ["1", "1", "3 s"]
    assert rows["Approve the parcel APPROVE"][:2] == ["2", "0"]
    stream = page.one("main").attributes["data-stream"].partition("?")[0]
    (row,) = await recorded.kikwiflow.reads.list_definitions(key="parcel")
    assert stream.endswith(f"/process-definitions/{row.id}/stream")


async def test_a_key_may_have_any_characters(managed: Managed) -> None:
    keys = {"sales/order", "order 7%2F é?#", "a/start/b"}
    for key in keys:
        await managed.deploy(key=key)
        await managed.deploy(key=key, description="Second")
    links = (await look(managed, "/definitions")).one("tbody").all("a")

    pages = {each.text: await managed.http.get(each.attributes["href"]) for each in links}

    assert pages.keys() == keys
    for key, shown in pages.items():
        addresses = (each.attributes["href"] for each in read_page(shown).all("a"))
        hrefs = {each for each in addresses if "/definitions/" in each}
        assert len(hrefs) >= 6
        for href in hrefs:
            answer = await managed.http.get(href)
            assert answer.status_code == 200, (href, answer.text)
            assert key in read_page(answer).text, href


async def test_an_older_version_is_shown_with_its_own_figures(managed: Managed) -> None:
    await managed.a_waiting_parcel()
    await managed.deploy(*PARCEL_NODES, description="Second")

    latest = await look(managed, "/definitions/parcel")
    older = await look(managed, "/definitions/parcel?version=1")

    assert count_on(latest, "APPROVE", "tokens") == []
    assert count_on(older, "APPROVE", "tokens") == ["1"]
    assert [row[0] for row in rows_of(latest, "Versions")] == ["2 latest", "1"]


async def test_two_versions_stand_side_by_side_with_what_differs_marked(managed: Managed) -> None:
    await managed.deploy()
    changed = [
        {**each, "name": "Let somebody approve", "layout": {"x": 1, "y": 2}}
        if each["id"] == "APPROVE"
        else each
        for each in PARCEL_NODES
        if each["id"] != "RECALL"
    ]
    changed = [
        {**each, "boundaryEventIds": []} if each["id"] == "APPROVE" else each for each in changed
    ]
    await managed.deploy(*changed, a_task("EXTRA", "END"), description="With an extra step")

    page = await look(managed, "/definitions/parcel/compare?before=1&after=2")

    differences = {row[0].split()[-1]: row[1:] for row in rows_of(page, "What differs")}
    assert differences == {
        "APPROVE": ["changed", "name, boundaryEventIds"],
        "EXTRA": ["added", ""],
        "RECALL": ["removed", ""],
    }
    old, new = page.all("svg", class_="graph-svg")
    assert {each.attributes["data-node"] for each in old.all("g", class_="removed")} == {"RECALL"}
    assert {each.attributes["data-node"] for each in new.all("g", class_="added")} == {"EXTRA"}
    assert all(len(each.all("g", class_="changed")) == 1 for each in (old, new))
    assert "The definition itself differs in description" in page.text
    same = await look(managed, "/definitions/parcel/compare?before=2&after=2")
    assert "No node differs" in same.text


async def test_a_file_is_checked_without_being_stored_and_then_deployed(managed: Managed) -> None:
    source = (ROOT / "demo/processes/expense-approval.kikwi").read_text()

    checked = await submit(managed, "/deploy", source=source, do="check")
    stored_after_check = await managed.kikwiflow.reads.list_definitions()
    deployed = await submit(managed, "/deploy", source=source, do="deploy")
    again = await submit(managed, "/deploy", source=source, do="deploy")

    assert checked.status_code == 200
    assert "can be deployed" in read_page(checked).one("p", class_="flash").text
    assert len(read_page(checked).all("g", class_="node")) == 8
    assert stored_after_check == ()
    assert deployed.status_code == again.status_code == 303
    page = read_page(await managed.http.get(again.headers["location"]))
    assert "has this content already" in page.one("p", class_="flash").text
    (row,) = await managed.kikwiflow.reads.list_definitions()
    assert (row.key, row.version) == ("expense-approval", 1)


async def test_a_file_that_is_uploaded_goes_before_the_text(managed: Managed) -> None:
    form = fields_of((await look(managed, "/deploy")).one("form", method="post"))
    content = json.dumps(a_file(key="uploaded")).encode()

    response = await managed.http.post(
        "/dashboard/deploy",
        data=form | {"source": "no JSON at all", "do": "deploy"},
        files={"file": ("it.kikwi", content, "application/octet-stream")},
        headers=BROWSER,
    )

    assert response.status_code == 303, response.text
    assert [row.key for row in await managed.kikwiflow.reads.list_definitions()] == ["uploaded"]


async def test_everything_that_is_wrong_with_a_file_is_listed_and_its_text_kept(
    managed: Managed,
) -> None:
    source = json.dumps(a_file(a_start("NOBODY"), a_node("ALONE", "EXTERNAL_TASK", "NOBODY")))

    response = await submit(managed, "/deploy", source=source, do="deploy")

    assert response.status_code == 422
    page = read_page(response)
    wrong = rows_of(page, "Problems")
    assert ["error", "flowNodes.START.outgoing[0].targetNodeId"] in [row[:2] for row in wrong]
    assert all(row[3] for row in wrong)
    assert json.loads(fields_of(page.one("form", method="post"))["source"]) == json.loads(source)
    assert await managed.kikwiflow.reads.list_definitions() == ()


async def test_an_empty_form_asks_for_a_file(managed: Managed) -> None:
    response = await submit(managed, "/deploy", do="check")

    assert response.status_code == 422
    assert "choose a .kikwi file" in read_page(response).one("p", class_="problem").text


async def test_a_form_sent_twice_starts_one_instance(managed: Managed) -> None:
    await managed.deploy()
    form = fields_of((await look(managed, "/definitions/parcel/start")).one("form", method="post"))
    form |= {"business_key": "P-1", "variables": '{"grams": 3}'}

    answers = [
        await managed.http.post("/dashboard/definitions/parcel/start", data=form, headers=BROWSER)
        for _ in range(2)
    ]

    assert {each.status_code for each in answers} == {303}
    (instance,) = (await managed.kikwiflow.list_instances(InstanceQuery())).items
    assert {each.headers["location"] for each in answers} == {f"/dashboard/instances/{instance.id}"}
    assert (instance.business_key, instance.variables["grams"]) == ("P-1", 3)
    assert instance.started_by == "anonymous"


async def test_a_start_that_cannot_be_is_shown_again_with_what_is_wrong(managed: Managed) -> None:
    await managed.deploy()

    path = "/definitions/parcel/start"
    response = await submit(managed, path, business_key="P-1", variables="[1]")

    assert response.status_code == 422
    page = read_page(response)
    assert "must be a JSON object" in page.one("p", class_="problem").text
    assert fields_of(page.one("form", method="post"))["business_key"] == "P-1"


async def test_a_start_with_a_variable_that_the_role_may_not_write_is_refused(
    managed: Managed,
) -> None:
    await managed.deploy(extensionProperties={"kikwiflow.variables.iban": "masked"})

    path = "/definitions/parcel/start"
    refused = await submit(managed, path, business_key="P-1", variables='{"iban": "DE-1"}')
    started = await submit(managed, path, business_key="P-2", variables='{"recallKey": "r"}')

    assert (refused.status_code, started.status_code) == (403, 303)
    problem = read_page(refused).one("p", class_="problem").text
    assert "may not write variable 'iban'" in problem
    (instance,) = (await managed.kikwiflow.list_instances(InstanceQuery())).items
    assert instance.business_key == "P-2"


async def test_a_definition_is_suspended_and_resumed_with_its_instances(managed: Managed) -> None:
    instance = await managed.a_waiting_parcel()

    suspended = await submit(managed, "/definitions/parcel/suspend")
    resting = await managed.kikwiflow.get_instance(instance.id)
    page = await look(managed, "/definitions/parcel")
    resumed = await submit(managed, "/definitions/parcel/resume")

    assert {suspended.status_code, resumed.status_code} == {303}
    assert resting.status is InstanceStatus.SUSPENDED
    assert page.one("span", class_="badge-suspended")
    assert (await managed.kikwiflow.get_instance(instance.id)).status is InstanceStatus.ACTIVE


async def test_the_source_is_shown_as_it_was_deployed(managed: Managed) -> None:
    await managed.deploy(description="Weigh & approve <parcels>")

    page = await look(managed, "/definitions/parcel/source")

    shown = json.loads(page.one("pre").text)
    assert shown["description"] == "Weigh & approve <parcels>"
    assert set(shown["flowNodes"]) == {str(node["id"]) for node in PARCEL_NODES}
