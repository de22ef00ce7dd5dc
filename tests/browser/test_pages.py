"""Every page of the dashboard in a real browser: on a laptop and a phone, in the light and in the dark, with malice."""

import pytest
from fastapi.routing import APIRoute
from playwright.async_api import Browser, expect

from tests.browser.conftest import Served
from tests.browser.seeds import fill, fill_with_malice
from tests.support.accessibility import barriers_on, scrolls_sideways
from tests.support.browser import LAPTOP, PHONE, watched

pytestmark = [pytest.mark.mongo, pytest.mark.asyncio(loop_scope="session")]

LISTS = (
    *("overview", "instances", "instances?status=ENDED", "tasks", "tasks?show=all", "incidents"),
    *("incidents?status=ANY", "retrying", "timers", "handlers", "workers", "bulk", "definitions"),
    *("relay", "relay?status=PENDING", "tokens"),
)
OWN = (
    *("definitions/{key}", "definitions/{key}/suspend", "definitions/{key}/start"),
    "definitions/{key}/source",
    *("definitions/{key}/compare?before=1&after=2", "deploy", "tasks/{task}", "tasks/{catch}"),
    *("incidents/{incident}", "incidents/{incident}/retry", "incidents/{incident}/skip"),
    *("instances/{waiting}", "instances/{failed}", "instances/{ended}", "bulk/{job}"),
    *(f"instances/{{waiting}}/{name}" for name in ("cancel", "suspend", "resume", "migrate")),
    *("instances/{order}/variables?name=amount", "instances/{order}/variables/remove?name=amount"),
    "instances/{retrying}/tasks/{retried}/override",
    *("relay/{event}", "relay/{event}/resend", "relay/{event}/drop", "relay/resend"),
    "tokens/{token}/revoke",
)
DARK = ("overview", "workers", "instances/{failed}", "tasks/{task}", "incidents/{incident}/retry")
ELSEWHERE = {"/dashboard/login"}
"""It asks only where not everybody is trusted."""

WITH_MALICE = tuple(
    path
    for path in OWN
    if not any(
        name in path
        for name in ("{catch}", "{ended}", "{job}", "{retr", "{order}", "{token}", "compare")
    )
)
"""The pages that show texts of an instance, of its definition or of its incident."""


def paths_of(templates: tuple[str, ...], ids: dict[str, str]) -> list[str]:
    return [f"/dashboard/{path.format(**ids)}" for path in templates]


async def test_every_page_of_the_dashboard_is_looked_at_here(served: Served) -> None:
    ids = await fill(served.managed)
    looked_at = [path.partition("?")[0] for path in paths_of(LISTS + OWN, ids)]

    missing = [
        route.path
        for route in served.managed.app.routes
        if isinstance(route, APIRoute) and "GET" in route.methods
        if route.path.startswith("/dashboard/") and route.path not in ELSEWHERE
        if not any(route.path_regex.fullmatch(path) for path in looked_at)
    ]

    assert missing == []


async def test_every_page_can_be_read_by_everybody_and_fits_a_phone(
    served: Served, browser: Browser
) -> None:
    ids = await fill(served.managed)

    barriers: dict[str, list[str]] = {}
    wide: dict[str, list[str]] = {}
    async with watched(browser, served.url) as tab:
        for path in paths_of(LISTS + OWN, ids):
            await tab.page.set_viewport_size(LAPTOP)
            page = await tab.open(path)
            barriers[path] = await barriers_on(page)
            await page.set_viewport_size(PHONE)
            wide[path] = await scrolls_sideways(page)

    assert {path: found for path, found in barriers.items() if found} == {}
    assert {path: found for path, found in wide.items() if found} == {}


async def test_text_stands_out_in_the_dark(served: Served, browser: Browser) -> None:
    ids = await fill(served.managed)

    barriers: dict[str, list[str]] = {}
    async with watched(browser, served.url, dark=True) as tab:
        for path in paths_of(DARK, ids):
            barriers[path] = await barriers_on(await tab.open(path))

    assert {path: found for path, found in barriers.items() if found} == {}


async def test_what_is_stored_is_never_taken_for_html(served: Served, browser: Browser) -> None:
    ids = await fill_with_malice(served.managed)

    async with watched(browser, served.url) as tab:
        for path in paths_of(LISTS + WITH_MALICE, ids):
            page = await tab.open(path)
            assert await page.locator("[data-planted]").count() == 0, path
            assert await page.locator("a[href^='javascript']").count() == 0, path


async def test_an_empty_database_says_what_to_do(served: Served, browser: Browser) -> None:
    async with watched(browser, served.url, size=PHONE) as tab:
        for path in LISTS:
            page = await tab.open(f"/dashboard/{path}")
            assert await page.locator(".empty, .warning").count() >= 1, path


async def test_the_start_page_follows_by_itself(served: Served, browser: Browser) -> None:
    async with watched(browser, served.url) as tab:
        await tab.page.clock.install()
        page = await tab.open("/dashboard/overview")
        await expect(page.locator("#tiles")).to_contain_text("Open incidents 0")
        await served.managed.a_failed_parcel("PARCEL-9")

        await page.clock.fast_forward(5_000)

        await expect(page.locator("#tiles")).to_contain_text("Open incidents 1")
        await expect(page.locator("#incidents")).to_contain_text("PARCEL-9")
