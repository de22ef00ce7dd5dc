"""Every page of the dashboard in a real browser: on a laptop and on a phone, light and dark, with malice stored in it."""

import pytest
from playwright.async_api import Browser

from tests.browser.conftest import Served
from tests.browser.seeds import fill, fill_with_malice
from tests.support.accessibility import barriers_on, scrolls_sideways
from tests.support.browser import PHONE, watched

pytestmark = [pytest.mark.mongo, pytest.mark.asyncio(loop_scope="session")]

LISTS = (
    *("overview", "instances", "instances?status=ENDED", "tasks", "tasks?show=all", "incidents"),
    *("incidents?status=ANY", "retrying", "timers", "handlers", "workers", "bulk", "definitions"),
)


def paths_of(ids: dict[str, str]) -> list[str]:
    """Return the addresses of all pages that there are something to see on."""
    own = [f"definitions/{ids['definition']}", f"tasks/{ids['task']}"]
    own += [f"instances/{ids[name]}" for name in ("waiting", "failed", "ended") if name in ids]
    return [f"/dashboard/{path}" for path in (*LISTS, *own)]


async def test_every_page_can_be_read_on_a_laptop_by_everybody(
    served: Served, browser: Browser
) -> None:
    ids = await fill(served.managed)

    found: dict[str, list[str]] = {}
    for dark in (False, True):
        async with watched(browser, served.url, dark=dark) as tab:
            for path in paths_of(ids):
                page = await tab.open(path)
                found[f"{path} dark={dark}"] = await barriers_on(page)

    assert {path: barriers for path, barriers in found.items() if barriers} == {}


async def test_no_page_scrolls_sideways_on_a_phone(served: Served, browser: Browser) -> None:
    ids = await fill(served.managed)

    async with watched(browser, served.url, size=PHONE) as tab:
        wide = {path: await scrolls_sideways(await tab.open(path)) for path in paths_of(ids)}

    assert {path: parts for path, parts in wide.items() if parts} == {}


async def test_what_is_stored_is_never_taken_for_html(served: Served, browser: Browser) -> None:
    ids = await fill_with_malice(served.managed)

    async with watched(browser, served.url) as tab:
        for path in paths_of(ids):
            page = await tab.open(path)
            assert await page.locator("[data-planted]").count() == 0, path
            assert await page.locator("a[href^='javascript']").count() == 0, path


async def test_an_empty_database_says_what_to_do(served: Served, browser: Browser) -> None:
    async with watched(browser, served.url, size=PHONE) as tab:
        for path in LISTS:
            page = await tab.open(f"/dashboard/{path}")
            assert await page.locator(".empty, .warning").count() >= 1, path
            assert await barriers_on(page) == [], path
