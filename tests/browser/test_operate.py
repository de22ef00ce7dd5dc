"""The way of ``docs/howto/operate.md``, from ``make demo KEEP=1`` on, walked in a browser.

The last steps are for the deep run: traces and tokens have quicker tests of their own.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from kikwiflow_worker.embedded import find_mongod
from kikwiflow_worker.errors import ConfigurationError
from tests.support.browser import take_picture, watched
from tests.support.workers import free_port, wait_until

ROOT = Path(__file__).parents[2]
API = "/kikwiflow/api/v1"
WORKERS = ("desk-1", "desk-2")
pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(180),
]


@dataclass(frozen=True, slots=True)
class Demo:
    """The demonstration as it runs: what it printed, and how to call commands beside it."""

    shown: str
    folder: Path
    environment: dict[str, str]

    def address(self, label: str) -> str:
        """Return the address that it printed behind a label."""
        found = re.search(rf"^ *{label} +(http://\S+)$", self.shown, re.MULTILINE)
        assert found is not None, self.shown
        return found[1].rstrip("/")

    def command(self, *arguments: str) -> str:
        """Run ``kikwiflow-worker`` in another terminal; return what it prints."""
        return subprocess.run(
            [sys.executable, "-m", "kikwiflow_worker", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=30,
            check=True,
        ).stdout

    def log(self, name: str) -> str:
        """Return what a worker has logged."""
        return (self.folder / f"{name}.log").read_text()

    def lines_about(self, instance: str) -> dict[str, list[str]]:
        """Return which steps of an instance each worker began, as lines of its log."""
        return {
            name: [
                line
                for line in self.log(name).splitlines()
                if '"task.started"' in line and instance in line
            ]
            for name in WORKERS
        }

    @contextmanager
    def guarded(self) -> Iterator[str]:
        """Serve the dashboard a second time, to those with a token only; give its address."""
        address = f"127.0.0.1:{free_port()}"
        options = ("--address", address, "--authentication", "tokens")
        server = subprocess.Popen(
            [sys.executable, "-m", "kikwiflow_worker", "serve", *options],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield f"http://{address}"
        finally:
            server.terminate()
            server.wait(20)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Run the demonstration until the end of the module, and see that Ctrl-C stops all of it."""
    try:
        find_mongod()
    except ConfigurationError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("demo")
    kept = {name: text for name, text in os.environ.items() if not name.startswith("KIKWIFLOW_")}
    output = folder / "output"
    with output.open("wb") as shown:
        process = subprocess.Popen(
            [sys.executable, ROOT / "demo" / "run.py", "--keep", "--instances", "0"],
            cwd=folder,
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=shown,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: "Ctrl-C stops" in output.read_text() or process.poll() is not None,
            "the demonstration is ready",
        )
        assert process.poll() is None, output.read_text()
        embedded = {"KIKWIFLOW_EMBEDDED": str(folder / ".demo" / "mongodb")}
        yield Demo(output.read_text(), folder / ".demo", kept | embedded)
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
    assert code == 0, output.read_text()
    shutil.rmtree(folder)


async def follow(page: Page, *texts: str) -> None:
    """Wait until each text stands on the page, which follows by itself."""
    for text in texts:
        await expect(page.get_by_text(text).first).to_be_visible(timeout=30_000)


async def test_a_newcomer_puts_an_order_right(demo: Demo, browser: Browser) -> None:
    async with watched(browser, demo.address("dashboard")) as tab:
        page = await tab.open("/")
        await take_picture(page, "overview")
        await page.locator("#incidents").get_by_role("link", name="ORDER-7001").click()

        await follow(page, "variable 'price' must be an amount; set it and retry the incident")
        await page.get_by_text("Stack trace").click()
        await follow(page, "Fatal")
        await page.get_by_text("Stack trace").click()
        await take_picture(page, "instance-failed")
        instance = page.url

        await page.locator("#variables, main").get_by_role("link", name="Edit").last.click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Value").fill('[{"pieces": 2, "price": "600.00"}]')
        await dialog.get_by_role("button", name="Set").click()
        await follow(page, '"600.00"')

        await page.get_by_role("link", name="Retry", exact=True).click()
        await page.get_by_role("button", name="Retry the step").click()
        await expect(page.locator("#incidents .failure")).to_have_count(0, timeout=30_000)
        # The page follows by itself: nobody loads it again.
        await expect(page.locator("#work")).to_contain_text("Review the order", timeout=30_000)
        await take_picture(page, "instance-waiting")

        await page.get_by_role("navigation").get_by_role("link", name="Tasks").click()
        row = page.get_by_role("row").filter(has_text="ORDER-7001")
        await row.get_by_role("link", name="Review the order").click()
        await page.get_by_role("button", name="Claim").click()
        await follow(page, "The task is yours.")
        await page.get_by_label("Released?").fill("RELEASE")
        await take_picture(page, "task")
        await page.get_by_role("button", name="Complete").click()

        assert page.url == instance
        await follow(page, "Completed “Review the order”.")
        await expect(page.locator("#status")).to_contain_text("completed", timeout=40_000)
        await page.reload()
        await follow(page, '"DELIVERED"')
        await take_picture(page, "instance-ended")


async def test_what_the_workers_measure_is_scraped(demo: Demo) -> None:
    for name in WORKERS:
        metrics = read(demo.address(f"metrics of {name}"))

        assert re.search(r"^kikwiflow_oldest_due_seconds \d", metrics, re.MULTILINE)
        assert re.search(r"^kikwiflow_incidents_open \d", metrics, re.MULTILINE)


@pytest.mark.deep
async def test_one_trace_leads_through_two_workers(demo: Demo) -> None:
    started = {start_order(demo, f"ORDER-8{number:03}") for number in range(6)}

    def shared() -> list[str]:
        names = {instance: demo.lines_about(instance) for instance in started}
        return [each for each, lines in names.items() if all(lines.values())]

    wait_until(shared, "both workers have run steps of one order")
    both = demo.lines_about(shared()[0])
    lines = "".join(line for own in both.values() for line in own)
    (trace,) = set(re.findall(r'"trace_id": "(\w+)"', lines))
    for name in WORKERS:
        wait_until(
            lambda name=name: re.search(rf'"name": "process \w+".*{trace}', demo.log(name)),  # type: ignore[misc]
            f"{name} has written a span of the trace",
        )


@pytest.mark.deep
async def test_a_revoked_token_opens_nothing(demo: Demo, browser: Browser) -> None:
    create = ("tokens", "create", "ana", "--role", "operator", "--all-tenants", "--json")
    secret = json.loads(demo.command(*create))["secret"]
    with demo.guarded() as url:
        listing = f"{url}{API}/process-instances"
        wait_until(lambda: status_of(listing) == 401, "the server asks for a token")
        assert status_of(listing, secret) == 200
        async with watched(browser, url) as tab:
            page = await tab.open("/dashboard/overview")
            await page.get_by_label("Token").fill(secret)
            await page.get_by_role("button").last.click()
            await follow(page, "What needs attention now")

        demo.command("tokens", "revoke", "ana")

        wait_until(lambda: status_of(listing, secret) == 401, "the token is refused")


def start_order(demo: Demo, business_key: str) -> str:
    """Start an order that needs no person, over HTTP; return its id."""
    variables = {"lines": [{"pieces": 1, "price": "45.00"}], "isExpress": True}
    order = {
        "processDefinitionKey": "order-fulfilment",
        "businessKey": business_key,
        "variables": {name: {"value": value} for name, value in variables.items()},
    }
    request = urllib.request.Request(
        f"{demo.address('dashboard')}{API}/process-instances",
        data=json.dumps(order).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(json.load(answer)["id"])


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read(), "utf-8")


def status_of(url: str, secret: str = "") -> int:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=10
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
