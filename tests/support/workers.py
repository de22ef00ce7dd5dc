"""Real worker processes for acceptance tests: started with the command line, stopped by their id, whatever happens."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.mongo import MongoServer

ROOT = Path(__file__).parents[2]
PLUGIN = Path(__file__).parent / "plugin"
DISTRIBUTION = "kikwiflow-acceptance"

LOCK_S = 1.0
"""The shortest lock that the settings allow."""

POLL_S = 0.05
POLL_MAX_S = 0.2
PATIENCE_S = 30.0
"""How long to wait for what should happen soon; nothing that works comes near it."""

Json = dict[str, Any]

DEEP = [
    pytest.mark.deep,
    pytest.mark.skipif(
        "KIKWIFLOW_TEST_DEEP" not in os.environ, reason="KIKWIFLOW_TEST_DEEP is not set"
    ),
]
"""Marks of what takes too long for every run."""


def wait_until(
    is_true: Callable[[], object], what: str | Callable[[], str], *, within_s: float = PATIENCE_S
) -> None:
    """Look every few milliseconds until ``is_true``; fail with ``what`` was waited for."""
    deadline = time.monotonic() + within_s
    while not is_true():
        if time.monotonic() > deadline:
            pytest.fail(
                f"not within {within_s:g} s: {what if isinstance(what, str) else what()}",
                pytrace=True,
            )
        time.sleep(0.01)


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@dataclass(frozen=True, slots=True)
class Effect:
    """One line of the effects log: a handler's call began or ended.

    Attributes:
        at: Monotonic time in seconds, the same clock for all processes of the host.
    """

    key: str
    node: str
    instance: str
    pid: int
    phase: str
    at: float


@dataclass(frozen=True, slots=True)
class Site:
    """What the workers of one test share: handlers, effects log, gates.

    Attributes:
        packages: A folder with the handlers as an installed distribution, for ``PYTHONPATH``.
        folder: Where the effects log, the gates and the workers' output are.
    """

    packages: Path
    folder: Path

    @property
    def log(self) -> Path:
        """The effects log."""
        return self.folder / "effects.jsonl"

    def effects(self, *, node: str | None = None, phase: str | None = None) -> list[Effect]:
        """Return what handlers did so far; a line that is being written is left out."""
        if not self.log.exists():
            return []
        lines = self.log.read_bytes().split(b"\n")[:-1]
        found = [Effect(**json.loads(line)) for line in lines]
        return [
            effect
            for effect in found
            if node in (None, effect.node) and phase in (None, effect.phase)
        ]

    def open_gate(self, of: str | int) -> None:
        """Let handlers at a gate go on: those of a node, or those of a process."""
        (self.folder / f"gate-{of}").touch()

    def environment(self) -> dict[str, str]:
        """Return the environment of a worker, without the settings of whoever runs the tests."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("KIKWIFLOW_", "COV_"))}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(self.packages), str(ROOT)]),
            "KIKWIFLOW_TEST_EFFECTS": str(self.log),
        }


@dataclass(slots=True)
class WorkerProcess:
    """One worker as a process of its own."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path
    port: int

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def status(self, path: str) -> int:
        """Return the HTTP status of a health path; 0 if nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def wait_ready(self) -> "WorkerProcess":
        """Wait until it claims tasks."""

        def is_ready() -> bool:
            assert self.process.poll() is None, f"{self.name} has exited; {self.tail()}"
            return self.status("/readyz") == 200

        wait_until(is_ready, lambda: f"{self.name} is ready; {self.tail()}")
        return self

    def events(self, name: str | None = None, **match: object) -> list[Json]:
        """Return its log lines so far: those with this event and these values."""
        found = []
        for line in self.output.read_bytes().split(b"\n")[:-1]:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if name in (None, entry.get("event")) and match.items() <= entry.items():
                found.append(entry)
        return found

    def wait_event(self, name: str, *, within_s: float = PATIENCE_S, **match: object) -> Json:
        """Wait for a log line; return the first."""
        wait_until(
            lambda: self.events(name, **match),
            lambda: f"{self.name} logs {name} {match}; {self.tail()}",
            within_s=within_s,
        )
        return self.events(name, **match)[0]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it alone."""
        self.process.send_signal(number)

    def stop(self, *, within_s: float = PATIENCE_S) -> int:
        """Send SIGTERM and return the exit code."""
        self.send(signal.SIGTERM)
        return self.wait_exit(within_s=within_s)

    def kill(self) -> None:
        """End it at once, as the out-of-memory killer would."""
        self.process.kill()
        self.process.wait()

    def wait_exit(self, *, within_s: float = PATIENCE_S) -> int:
        """Wait until it has exited; return the exit code."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.name} has not exited within {within_s:g} s; {self.tail()}")

    def tail(self) -> str:
        """Return its last output, for messages."""
        lines = self.output.read_text(errors="replace").splitlines()
        telling = [line for line in lines if '"handler.loaded"' not in line]
        return "its last lines:\n" + "\n".join(telling[-12:])


@dataclass(slots=True)
class Workers:
    """Starts worker processes and remembers them, so that every one is stopped."""

    site: Site
    server: MongoServer
    database: str
    started: list[WorkerProcess] = field(default_factory=list)

    def start(
        self, name: str, *, environment: Mapping[str, str] | None = None, **options: object
    ) -> WorkerProcess:
        """Start a worker and return at once.

        Args:
            options: Settings other than those of all workers here, as ``lock_seconds=2``; None leaves one out.
        """
        port = free_port()
        chosen: Json = {
            "instance_name": name,
            "mongodb_uri": self.server.uri,
            "mongodb_database": self.database,
            "handlers": DISTRIBUTION,
            "lock_seconds": LOCK_S,
            "poll_interval_seconds": POLL_S,
            "poll_max_seconds": POLL_MAX_S,
            "health_address": f"127.0.0.1:{port}",
            "log_format": "json",
            **options,
        }
        output = self.site.folder / f"{len(self.started)}-{name}.log"
        process = run_command(chosen, {**self.site.environment(), **(environment or {})}, output)
        worker = WorkerProcess(name, process, output, port)
        self.started.append(worker)
        return worker

    def kill_all(self) -> None:
        """End all that still run; a stopped process ends as well."""
        for worker in self.started:
            if worker.process.poll() is None:
                worker.kill()


def run_command(
    options: Mapping[str, object], environment: Mapping[str, str], output: Path
) -> subprocess.Popen[bytes]:
    """Start the command line in a process group of its own, its output in a file."""
    arguments = [
        part
        for name, value in options.items()
        if value is not None
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    with output.open("wb") as target:
        return subprocess.Popen(
            [sys.executable, "-m", "kikwiflow_worker", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=output.parent,
            start_new_session=True,
        )


def install(folder: Path, module: Path, distribution: str) -> None:
    """Put a module into a folder as an installed distribution that offers it as handlers."""
    shutil.copy(module, folder)
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[kikwiflow_worker.handlers]\n{module.stem} = {module.stem}\n"
    )


@pytest.fixture(scope="session")
def handler_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the acceptance handlers are installed."""
    folder = tmp_path_factory.mktemp("packages")
    install(folder, PLUGIN / "acceptance_handlers.py", DISTRIBUTION)
    return folder


@pytest.fixture
def site(handler_packages: Path, tmp_path: Path) -> Site:
    """Return the site of this test."""
    return Site(handler_packages, tmp_path)


@pytest.fixture
def workers(site: Site, mongo_server: MongoServer, database_name: str) -> Iterator[Workers]:
    """Return a way to start workers on the database of this test; all are stopped at its end."""
    started = Workers(site, mongo_server, database_name)
    try:
        yield started
    finally:
        started.kill_all()
