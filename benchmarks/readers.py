"""What people who watch the dashboard cost a busy worker."""

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.plan import Plan, Scenario
from benchmarks.processes import ring
from benchmarks.report import Figure, Section
from benchmarks.site import Database, Rate, Site, measure
from benchmarks.workers import cpu_s, environment, free_port

_INSTANCES = 1_000
_SLOTS = 128
_READERS = 50
_INTERVAL_S = 5.0
_WINDOWS = 4
"""Of the plan, so that every reader looks several times in each."""

_READY_S = 30.0
_STOP_S = 15.0
_LISTS = ("overview", "instances", "tasks", "incidents", "retrying", "timers", "workers")


async def run(site: Site, plan: Plan) -> Section:
    """Measure steps a second of one worker with and without readers, in turns, on the same work.

    Readers are there for one interval before anything is counted: people open their tabs once.
    """
    alone: list[Rate] = []
    watched: list[Rate] = []
    looks: list[dict[str, Any]] = []
    shares: list[float] = []
    async with site.database(ring()) as database:
        await database.start_many("ring", plan.count(_INSTANCES, least=200))
        paths = await _paths(database)
        with (
            database.workers(1, concurrency=_SLOTS) as workers,
            _dashboard(database) as (url, pid),
        ):
            window = {"warm_up_s": plan.warm_up_s, "window_s": plan.window_s * _WINDOWS}
            settle_s = _INTERVAL_S * min(1.0, plan.scale * 10)
            for _ in range(plan.rounds):
                alone.append(measure(site, workers, **window))
                used, began = cpu_s(pid), time.monotonic()
                with _readers(url, paths, seconds=settle_s + sum(window.values())) as tabs:
                    await asyncio.sleep(settle_s)
                    watched.append(measure(site, workers, **window))
                    looks.append(json.loads(tabs.communicate(timeout=_READY_S)[0]))
                shares.append((cpu_s(pid) - used) / (time.monotonic() - began))
    return _section(alone, watched, looks, shares)


async def _paths(database: Database) -> list[str]:
    """Return the pages that are watched: every list, the definition, and an instance."""
    (definition,) = await database.kikwiflow.reads.list_definitions()
    (instance,) = (await database.kikwiflow.list_instances(limit=1)).items
    paths = [f"/dashboard/{name}" for name in _LISTS]
    return [
        *paths,
        f"/dashboard/definitions/{definition.key}",
        f"/dashboard/instances/{instance.id}",
    ]


def _section(
    alone: list[Rate], watched: list[Rate], looks: list[dict[str, Any]], shares: list[float]
) -> Section:
    section = Section(SCENARIO.name, SCENARIO.title)
    before = [rate.per_second for rate in alone]
    section.add(Figure(name="nobody looks", unit="steps/s", samples=before))
    section.add(
        Figure(
            name=f"{_READERS} readers look",
            unit="steps/s",
            samples=[rate.per_second for rate in watched],
            floor=before,
            per="that of nobody",
            at_least=0.9,
        )
    )
    section.add(
        Figure(name="a page", unit="ms", samples=[look["median_s"] * 1000 for look in looks])
    )
    section.add(Figure(name="the dashboard's process", unit="cores", samples=shares))
    section.notes.append(
        f"each reader asks for its page every {_INTERVAL_S:g} s: {', '.join(_LISTS)}, a definition and an instance; "
        f"{sum(look['count'] for look in looks)} pages, {sum(look['refused'] for look in looks)} refused, "
        f"95 % of them within {max(look['p95_s'] for look in looks) * 1000:.0f} ms"
    )
    return section


@contextmanager
def _dashboard(database: Database) -> Iterator[tuple[str, int]]:
    """Serve the dashboard for the block; give its address and its process id."""
    site, port = database.site, free_port()
    where = ("--mongodb-uri", site.uri, "--mongodb-database", database.name)
    address = f"127.0.0.1:{port}"
    with (site.folder / "dashboard.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kikwiflow_worker", "serve", "--address", address, *where],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(site.folder),
            start_new_session=True,
        )
    try:
        url = f"http://{address}"
        _await_page(f"{url}/dashboard/workers", process)
        yield url, process.pid
    finally:
        _stop(process)


@contextmanager
def _readers(url: str, paths: list[str], *, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """Let the readers look for ``seconds``, in a process of their own; it prints what they got."""
    options = ("--readers", _READERS, "--interval-s", _INTERVAL_S, "--seconds", seconds)
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.tabs", url, *paths, *map(str, options)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            _stop(process)


def _await_page(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                answer.read()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


SCENARIO = Scenario(
    name="readers", title=f"A busy worker while {_READERS} people watch the dashboard", run=run
)
