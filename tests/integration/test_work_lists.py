"""The dashboard's work lists: what they show, and what their forms change."""

import html
import re

import httpx
import pytest

from kikwiflow_worker.management.web.navigation import PLACES
from kikwiflow_worker.store.views import ExternalTaskQuery, IncidentQuery
from tests.browser.seeds import fill
from tests.support.management import Managed, manage, managed
from tests.support.mongo import MongoServer

__all__ = ["managed"]

pytestmark = pytest.mark.mongo


@pytest.fixture
async def ids(managed: Managed) -> dict[str, str]:
    return await fill(managed)


async def text_of(managed: Managed, path: str) -> str:
    """Return the text of a page, its marks and addresses left out."""
    page = await managed.http.get(f"/dashboard/{path}")
    assert page.status_code == 200, page.text
    return html.unescape(re.sub(r"<[^>]+>|\s+", " ", page.text))


async def post(managed: Managed, path: str, **fields: str) -> httpx.Response:
    """Send a form, and follow where it leads."""
    return await managed.http.post(f"/dashboard/{path}", data=fields, follow_redirects=True)


async def test_the_start_page_says_what_needs_attention(
    managed: Managed, ids: dict[str, str]
) -> None:
    shown = re.sub(r" +", " ", await text_of(managed, "overview"))

    assert "Open incidents 1 a person must look" in shown
    assert "Unclaimed tasks 3" in shown
    assert "Retrying 1 by themselves" in shown
    assert "nobody_has_it (1)" in shown
    assert "Workers 1 4 of 10 slots busy" in shown
    assert "RuntimeError: the scales are broken" in shown


async def test_a_person_claims_gives_back_and_completes_a_task(
    managed: Managed, ids: dict[str, str]
) -> None:
    path = f"tasks/{ids['task']}"

    claimed = await post(managed, f"{path}/claim")
    mine = await text_of(managed, "tasks?show=mine")
    given_back = await post(managed, f"{path}/unclaim")
    done = await post(managed, f"{path}/complete", **{"decide-released": "true", "variables": ""})

    assert "The task is yours." in claimed.text
    assert "Review the order" in mine
    assert "The task is nobody&#39;s again." in given_back.text
    assert done.status_code == 200
    assert done.url.path == f"/dashboard/instances/{ids['order']}"
    ended = await managed.kikwiflow.get_instance(ids["order"])
    assert ended.variables["released"] is True
    assert ended.ended_at is not None


UNREADABLE = {
    '{"weight": ': (422, "More variables begins like JSON"),
    "[1]": (422, "must be a JSON object"),
    '{"": 1}': (422, "name"),
}


async def test_a_form_that_cannot_be_read_is_shown_again_with_what_was_typed(
    managed: Managed, ids: dict[str, str]
) -> None:
    for typed, (status, said) in UNREADABLE.items():
        refused = await post(managed, f"tasks/{ids['task']}/complete", variables=typed)

        assert refused.status_code == status, typed
        assert said in refused.text
        assert html.escape(typed, quote=False) in html.unescape(refused.text)
    query = ExternalTaskQuery(instance_id=ids["order"])
    assert len((await managed.kikwiflow.list_external_tasks(query)).items) == 1


async def test_who_comes_too_late_reads_why(managed: Managed, ids: dict[str, str]) -> None:
    await managed.kikwiflow.claim(ids["task"], assignee="ann")

    late_claim = await post(managed, f"tasks/{ids['task']}/claim")
    await managed.kikwiflow.complete(ids["task"], {"released": True}, completed_by="ann")
    late_form = await post(managed, f"tasks/{ids['task']}/complete", variables="")

    assert (late_claim.status_code, "claimed by ann" in late_claim.text) == (409, True)
    assert (late_form.status_code, "completed by ann" in late_form.text) == (404, True)


async def test_all_incidents_that_fit_are_retried_after_a_preview(
    managed: Managed, ids: dict[str, str]
) -> None:
    for number in range(3):
        await managed.a_failed_parcel(f"BROKEN-{number}")

    preview = await post(managed, "incidents/retry", definition="parcel", node="WEIGH", type="")
    job = preview.url.path.removeprefix("/dashboard/")
    still_open = await managed.kikwiflow.list_incidents()
    await post(managed, f"{job}/confirm")
    await managed.work()
    report = re.sub(r" +", " ", await text_of(managed, job))

    assert "Do it for all 4" in preview.text
    assert len(still_open.items) == 4
    assert "Retried 4" in report
    assert "Failed 0" in report
    resolved = await managed.kikwiflow.list_incidents(IncidentQuery(status=None))
    assert sum("anonymous" in (each.resolved_by or "") for each in resolved.items) == 4


FOUND = {
    "key=ORDER-1": {"ORDER-1"},
    "definition=crate": {"CRATE-1"},
    "variable=amount&value=150": {"ORDER-1"},
    'variable=amount&value="150"': set(),
    "variable=amount": {"ORDER-1"},
    "variable=broken&value=true": {"PARCEL-3", "CRATE-1"},
    "status=ENDED": {"PARCEL-4"},
    "status=CANCELLED": set(),
    "since=2100-01-01": set(),
}


async def test_instances_are_found_by_key_definition_status_and_variable(
    managed: Managed, ids: dict[str, str]
) -> None:
    found: dict[str, set[str]] = {}
    for query in FOUND:
        page = await managed.http.get(f"/dashboard/instances?{query}")
        found[query] = set(re.findall(r">([A-Z]+-\d)</a>", page.text))

    assert found == FOUND


NONSENSE = {
    "instances?value=1": (422, "say which variable"),
    "instances?variable=a&value={": (422, "begins like JSON"),
    "instances?since=soon": (422, "must be a date"),
    "instances?status=LOST": (400, "status"),
    "instances?cursor=nonsense": (422, "cursor"),
    "incidents?type=LOST": (400, "type"),
    "tasks?show=lost": (400, "show"),
}


async def test_a_question_that_makes_no_sense_is_answered_with_a_page_that_says_so(
    managed: Managed,
) -> None:
    for path, (status, said) in NONSENSE.items():
        page = await managed.http.get(f"/dashboard/{path}")

        assert page.status_code == status, path
        assert page.headers["content-type"].startswith("text/html")
        assert said in page.text, path


async def test_the_lists_of_what_waits_name_it(managed: Managed, ids: dict[str, str]) -> None:
    retrying = await text_of(managed, "retrying")
    timers = await text_of(managed, "timers")
    handlers = await text_of(managed, "handlers")
    messages = await text_of(managed, "tasks?show=all")

    assert "CRATE-1" in retrying
    assert "the scales are broken" in retrying
    assert "PARCEL-5" in timers
    assert "no worker has it" in handlers
    assert "waits for recall-PARCEL-1" in messages


async def test_a_list_is_read_page_by_page(managed: Managed) -> None:
    await managed.deploy()
    for number in range(30):
        await managed.kikwiflow.start("parcel", f"PARCEL-{number:02}")

    first = await managed.http.get("/dashboard/instances")
    (next_page,) = re.findall(r'href="([^"]+)" rel="next"', first.text)
    second = await managed.http.get(html.unescape(next_page))

    keys = [re.findall(r">(PARCEL-\d\d)</a>", page.text) for page in (first, second)]
    assert [len(each) for each in keys] == [25, 5]
    assert sorted(keys[0] + keys[1]) == [f"PARCEL-{number:02}" for number in range(30)]
    assert "First page" in second.text


async def test_lists_are_shown_though_a_definition_cannot_be_read(
    managed: Managed, ids: dict[str, str], mongo_server: MongoServer
) -> None:
    broken = {
        "$set": {"source": '{"key": "parcel", "flowNodes": {"A": {"type": "OF_A_LATER_RELEASE"}}}'}
    }
    managed.data.process_definitions.update_many({"key": "parcel"}, broken)
    async with manage(mongo_server.uri, managed.data) as restarted:
        failed = f"instances/{ids['failed']}"
        for path in ("overview", "incidents", "tasks", "timers", "instances", failed):
            page = await restarted.http.get(f"/dashboard/{path}")

            assert page.status_code == 200, (path, page.text)
            assert "PARCEL-" in page.text, path


async def test_who_is_bound_to_a_tenant_can_go_wherever_the_navigation_leads(
    managed: Managed, ids: dict[str, str]
) -> None:
    red = {"X-Tenant-Id": "red"}

    home = await managed.http.get("/dashboard/overview", headers=red)
    nav = re.search(r"<nav.*?</nav>", home.text, re.DOTALL)
    assert nav is not None
    led = re.findall(r'href="(/dashboard/[^"]*)"', nav.group())
    pages = {path: (await managed.http.get(path, headers=red)).status_code for path in led}

    assert home.status_code == 200
    assert set(pages) == {f"/dashboard{place.path}" for place in PLACES if not place.is_of_all}
    assert set(pages.values()) == {200}, pages
    assert not {f"/dashboard/{name}" for name in ("workers", "relay", "tokens")} & set(pages)
    assert "No worker is alive" not in home.text
