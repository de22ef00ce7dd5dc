"""A real Chromium without a window, and what it noticed on the pages that a test opened."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    ViewportSize,
    async_playwright,
)

PROGRAM = "/usr/bin/chromium"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PHONE: ViewportSize = {"width": 390, "height": 844}
LAPTOP: ViewportSize = {"width": 1280, "height": 800}
PATIENCE_MS = 10_000


def find_chromium() -> str:
    """Return the browser's program; skip the test if this host has none."""
    found = shutil.which("chromium") or (PROGRAM if Path(PROGRAM).exists() else None)
    if found is None:
        pytest.skip("no chromium on this host; install Debian's package chromium")
    return found


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """Run a browser with a new, empty profile for the block."""
    program = find_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, headless=True, args=list(FLAGS)
        )
        try:
            yield browser
        finally:
            await browser.close()


@dataclass(slots=True)
class Watched:
    """A tab of the dashboard at ``url``, and all that it did that it should not.

    Attributes:
        errors: Of the console, and of scripts.
        strangers: Requests to any other host.
        dialogs: Texts of ``alert`` and its like.
    """

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    async def open(self, path: str) -> Page:
        """Go to a path of the server."""
        response = await self.page.goto(f"{self.url}{path}", wait_until="load")
        assert response is not None
        assert response.status < 400, f"{path}: {response.status} {await response.text()}"
        return self.page

    def assert_clean(self) -> None:
        """Refuse what should not have happened."""
        assert self.errors == []
        assert self.strangers == []
        assert self.dialogs == []


@asynccontextmanager
async def watched(
    browser: Browser, url: str, *, size: ViewportSize | None = None, dark: bool = False
) -> AsyncIterator[Watched]:
    """Open a tab with cookies of its own for the block, and refuse at its end what it should not have done."""
    context = await browser.new_context(
        viewport=size or LAPTOP,
        color_scheme="dark" if dark else "light",
        locale="en-GB",
        timezone_id="UTC",
    )
    context.set_default_timeout(PATIENCE_MS)
    tab = Watched(await context.new_page(), url)
    host = urlsplit(url).netloc

    def said(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            tab.errors.append(f"{message.text} at {message.location}")

    def asked(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in {"data", "blob", "about"} and parts.netloc != host:
            tab.strangers.append(request.url)

    async def shown(dialog: Dialog) -> None:
        tab.dialogs.append(dialog.message)
        await dialog.dismiss()

    tab.page.on("console", said)
    tab.page.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.page.on("request", asked)
    tab.page.on("dialog", shown)
    try:
        yield tab
        tab.assert_clean()
    finally:
        await context.close()


PICTURES_VARIABLE = "KIKWIFLOW_TEST_PICTURES"
"""The folder that pictures of the documentation are written to, ``docs/images`` as a rule."""


async def take_picture(page: Page, name: str) -> None:
    """Write a picture for the documentation, if the variable above asks for it."""
    folder = os.environ.get(PICTURES_VARIABLE)
    if folder:
        await page.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")
