"""Where everything is measured: one embedded replica set, a database for each measurement, and its counters."""

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from pymongo import MongoClient

from benchmarks.workers import WorkerProcess, cpu_s, environment, install_handlers, running
from kikwiflow_worker.client import Handlers, Kikwiflow
from kikwiflow_worker.embedded import EmbeddedMongo

Json = dict[str, Any]

_PATIENCE_S = 60.0

_CACHE = "cache_size=1GB"
"""As any server in service has for its indexes; the embedded one starts with a quarter of that, for laptops."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What was counted in a window.

    Attributes:
        server_s: Processor time of the server.
        client_s: Processor time of all workers, or of the script.
    """

    count: float
    seconds: float
    server_s: float
    client_s: float

    @property
    def per_second(self) -> float:
        """How many a second."""
        return self.count / self.seconds

    @property
    def server_us(self) -> float:
        """The server's processor time for each, in microseconds."""
        return self.server_s / max(self.count, 1) * 1e6

    @property
    def client_us(self) -> float:
        """The clients' processor time for each, in microseconds."""
        return self.client_s / max(self.count, 1) * 1e6


@dataclass(slots=True)
class Site:
    """The server, and a folder for what workers write."""

    folder: Path
    uri: str
    client: MongoClient[Json]
    _databases: int = field(default=0)

    @property
    def server_pid(self) -> int:
        """The server's process id."""
        return int(self.counters()["pid"])

    @property
    def version(self) -> str:
        """The server's version."""
        return str(self.client.server_info()["version"])

    @asynccontextmanager
    async def database(self, *sources: str, handlers: Handlers = ()) -> AsyncIterator["Database"]:
        """Make a database with these definitions, and drop it at the end of the block."""
        self._databases += 1
        name = f"bench_{self._databases}"
        self.client.drop_database(name)
        try:
            async with Kikwiflow.connect(self.uri, database=name, handlers=handlers) as kikwiflow:
                for source in sources:
                    await kikwiflow.deploy(source)
                yield Database(self, name, kikwiflow)
        finally:
            self.client.drop_database(name)

    def counters(self) -> Json:
        """Return the server's counters since its start."""
        return dict(self.client.admin.command("serverStatus"))

    def run_script(self, module: str, *arguments: object) -> Json:
        """Run a bare script as a process of its own; return what it prints, as JSON."""
        done = subprocess.run(
            [sys.executable, "-m", module, *map(str, arguments)],
            env=environment(self.folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            timeout=300,
        )
        return dict(json.loads(done.stdout))


@dataclass(frozen=True, slots=True)
class Database:
    """One database that is measured."""

    site: Site
    name: str
    kikwiflow: Kikwiflow

    @property
    def stored(self) -> Any:
        """The collections, for bare reads and writes."""
        return self.site.client[self.name]

    @contextmanager
    def workers(self, count: int, **settings: object) -> Iterator[list[WorkerProcess]]:
        """Run workers on it for the block."""
        site = self.site
        with running(count, site.uri, self.name, site.folder, **settings) as workers:
            yield workers

    def remove_all(self) -> None:
        """Remove all work; a step that runs finds its claim lost."""
        self.stored.executable_tasks.delete_many({})
        self.stored.process_instances.delete_many({})

    async def start_many(self, key: str, count: int, variables: Json | None = None) -> None:
        """Start one instance, and store copies of what it left: real documents, quickly."""
        started = await self.kikwiflow.start(key, f"{key}-0", variables=variables or {})
        stored = self.stored
        if count == 1:
            return
        instance = stored.process_instances.find_one({"_id": started.id})
        task = stored.executable_tasks.find_one({"processInstanceId": started.id})
        ids = [str(uuid4()) for _ in range(count - 1)]
        batch = max(1, min(1_000, 8_000_000 // (len(str(instance)) + 1)))
        for first in range(0, len(ids), batch):
            chosen = ids[first : first + batch]
            stored.process_instances.insert_many([{**instance, "_id": each} for each in chosen])
            copies = [{**task, "_id": str(uuid4()), "processInstanceId": each} for each in chosen]
            stored.executable_tasks.insert_many(copies)


def measure(
    site: Site, workers: Sequence[WorkerProcess], *, warm_up_s: float, window_s: float
) -> Rate:
    """Count the task runs that workers commit in a window, from when the first is committed."""

    def runs() -> float:
        return sum(worker.metric("kikwiflow_task_attempts_total") for worker in workers)

    _await_more(runs, than=0)
    time.sleep(warm_up_s)
    server_pid = site.server_pid
    before, began = runs(), time.monotonic()
    server, clients = cpu_s(server_pid), sum(cpu_s(worker.pid) for worker in workers)
    time.sleep(window_s)
    _await_more(runs, than=before)
    count, seconds = runs() - before, time.monotonic() - began
    used = sum(cpu_s(worker.pid) for worker in workers) - clients
    return Rate(count, seconds, cpu_s(server_pid) - server, used)


def _await_more(runs: Callable[[], float], *, than: float) -> None:
    """Wait until at least one more is counted: a window in which there was none says nothing."""
    deadline = time.monotonic() + _PATIENCE_S
    while runs() <= than:
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"no task was run within {_PATIENCE_S:g} s; the workers' logs say why"
            )
        time.sleep(0.02)


@contextmanager
def open_site(folder: Path) -> Iterator[Site]:
    """Start the server in ``folder`` for the block."""
    install_handlers(folder / "packages")
    with (
        EmbeddedMongo.acquire(folder / "mongodb") as mongo,
        MongoClient[Json](mongo.uri, tz_aware=True, tzinfo=UTC) as client,
    ):
        client.admin.command("setParameter", 1, wiredTigerEngineRuntimeConfig=_CACHE)
        yield Site(folder, mongo.uri, client)


def now() -> datetime:
    """Return the host's time, to the millisecond as it is stored."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
