"""What the pages of instances do in a browser beyond showing: they follow, ask in dialogs, and work without JavaScript."""

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import Served
from tests.support.browser import LAPTOP, watched

pytestmark = [pytest.mark.mongo, pytest.mark.asyncio(loop_scope="session")]


async def test_the_graph_moves_while_somebody_looks(served: Served, browser: Browser) -> None:
    managed = served.managed
    instance = await managed.a_waiting_parcel()
    async with watched(browser, served.url, size=LAPTOP) as tab:
        page = await tab.open(f"/dashboard/instances/{instance.id}")
        await expect(page.locator("#live")).to_be_visible()
        await expect(page.locator("g[data-node=APPROVE]")).to_have_class("node external stands")

        task = await managed.task_of(instance)
        await managed.kikwiflow.complete(task.id, {"approved": True}, completed_by="ann")
        await managed.work()

        await expect(page.locator("g[data-node=LATER]")).to_have_class("node timer stands")
        await expect(page.locator("g[data-node=APPROVE] .count")).to_have_count(0)
        await expect(page.locator("#variables")).to_contain_text("approved")
        await managed.kikwiflow.cancel(instance.id)
        await expect(page.locator("#status")).to_contain_text("cancelled")
        await expect(page.locator("#live")).to_be_hidden()


@pytest.mark.deep
async def test_the_figures_of_a_definition_move_too(served: Served, browser: Browser) -> None:
    await served.managed.a_waiting_parcel()
    async with watched(browser, served.url, size=LAPTOP) as tab:
        page = await tab.open("/dashboard/definitions/parcel")
        count = page.locator("g[data-node=APPROVE] .count.tokens text")
        await expect(count).to_have_text("1")

        await served.managed.a_waiting_parcel("PARCEL-2")

        await expect(count).to_have_text("2", timeout=15_000)


async def test_a_failed_step_is_retried_from_a_dialog(served: Served, browser: Browser) -> None:
    incident = await served.managed.a_failed_parcel()
    async with watched(browser, served.url, size=LAPTOP) as tab:
        page = await tab.open(f"/dashboard/instances/{incident.instance_id}")

        await page.get_by_role("link", name="Retry", exact=True).click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("Retry “WEIGH”?")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await page.get_by_role("link", name="Retry", exact=True).click()
        await dialog.get_by_label("Variables").fill('{"broken": false}')
        await dialog.get_by_role("button", name="Retry the step").click()

        await expect(page.get_by_role("status")).to_have_text("The step is due again.")
        await expect(page.locator(".failure")).to_have_count(0)


async def test_without_javascript_the_same_is_done_by_pages(
    served: Served, browser: Browser
) -> None:
    incident = await served.managed.a_failed_parcel()
    context = await browser.new_context(viewport=LAPTOP, java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{served.url}/dashboard/instances/{incident.instance_id}")

    await page.get_by_role("link", name="Skip", exact=True).click()
    await page.get_by_label("Variables").fill('{"grams": 3}')
    await page.get_by_role("button", name="Skip the step").click()

    await expect(page.get_by_role("status")).to_have_text("Skipped: the path goes on.")
    await expect(page).to_have_url(f"{served.url}/dashboard/instances/{incident.instance_id}")
    await context.close()


@pytest.mark.deep
async def test_a_graph_is_made_larger_and_made_to_fit(served: Served, browser: Browser) -> None:
    instance = await served.managed.a_waiting_parcel()
    async with watched(browser, served.url, size={"width": 800, "height": 600}) as tab:
        page = await tab.open(f"/dashboard/instances/{instance.id}")
        picture = page.locator("svg.graph-svg")

        async def width() -> float:
            box = await picture.bounding_box()
            assert box is not None
            return box["width"]

        before = await width()
        await page.get_by_role("button", name="Larger").click()
        larger = await width()
        await page.get_by_role("button", name="Fit the window").click()

        assert larger > before
        window = await page.locator(".graph").bounding_box()
        assert window is not None
        assert await width() <= window["width"]
