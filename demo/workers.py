"""Worker processes as a user starts them: a command line, a log file, a health address."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOCK_S = 3
_READY_S = 45.0
_STOP_S = 20.0
_ANSWER_S = 1.0


class WorkerFailedError(Exception):
    """A worker did not start; the message quotes its log."""


@dataclass(slots=True)
class Program:
    """One ``kikwiflow-worker`` command on this host, with an HTTP port.

    Attributes:
        probe: The path that answers once it is ready.
    """

    name: str
    process: subprocess.Popen[bytes]
    port: int
    log: Path
    was_killed: bool = False
    probe: str = "readyz"

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def state(self) -> str:
        """Return how it is, in one word."""
        return "alive" if self.is_alive else "killed" if self.was_killed else "stopped"

    async def wait_until_ready(self) -> None:
        """Wait until its probe says yes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                while self.is_alive:
                    if await self._get(self.probe) is not None:
                        return
                    await asyncio.sleep(0.1)
        tail = "".join(self.log.read_text(errors="replace").splitlines(keepends=True)[-5:])
        raise WorkerFailedError(f"{self.name} is not ready; its log {self.log} ends with\n{tail}")

    def kill(self) -> None:
        """Let the process die at once, as in a power cut."""
        self.was_killed = True
        self.process.kill()
        self.process.wait(timeout=_STOP_S)

    def request_stop(self) -> None:
        """Ask it to finish what runs, with SIGTERM."""
        if self.is_alive:
            self.process.send_signal(signal.SIGTERM)

    def wait_until_stopped(self) -> None:
        """Wait for its end; kill what does not end in time."""
        try:
            self.process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    async def _get(self, path: str) -> str | None:
        return await asyncio.to_thread(_get, f"http://127.0.0.1:{self.port}/{path}")


@dataclass(slots=True)
class WorkerProcess(Program):
    """A worker.

    Attributes:
        attempts: How many task runs its metrics last showed.
    """

    attempts: int = 0

    @classmethod
    def start(
        cls, name: str, directory: Path, *, bank: Path, more: Mapping[str, str] | None = None
    ) -> "WorkerProcess":
        """Start a worker on the embedded database of ``directory``; ``more`` is added to its environment."""
        port, log = free_port(), directory / f"{name}.log"
        process = launch(_options(name, directory, port), log, bank=bank, more=more)
        return cls(name, process, port, log)

    async def look(self) -> None:
        """Read the metrics; a worker that does not answer keeps its last figures."""
        metrics = await self._get("metrics") if self.is_alive else None
        if metrics is not None:
            lines = metrics.splitlines()
            runs = [line for line in lines if line.startswith("kikwiflow_task_attempts_total{")]
            self.attempts = int(sum(float(line.rpartition(" ")[2]) for line in runs))

    def events(self) -> Iterator[dict[str, object]]:
        """Yield the lines of the log; the last one of a killed worker may be torn."""
        with self.log.open(errors="replace") as lines:
            for line in lines:
                with suppress(ValueError):
                    yield json.loads(line)


def launch(
    arguments: Sequence[str], log: Path, *, bank: Path, more: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start ``kikwiflow-worker`` with ``arguments``; ``more`` is added to its environment."""
    # Whatever this shell has set for a worker of its own is not meant for these.
    inherited = {key: text for key, text in os.environ.items() if not key.startswith("KIKWIFLOW_")}
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "kikwiflow_worker", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=inherited | {"SAMPLE_BANK_DIRECTORY": str(bank)} | dict(more or {}),
            start_new_session=True,  # Ctrl-C is for the demonstration, which then stops the workers itself
        )


def stop(programs: Sequence[Program]) -> None:
    """Stop all of them, by their process ids, and wait until they are gone."""
    for program in programs:
        program.request_stop()
    for program in programs:
        program.wait_until_stopped()


def command_line(name: str, directory: Path) -> str:
    """Return how a user would start such a worker."""
    return f"kikwiflow-worker --instance-name {name} --embedded {directory}/mongodb --lock-seconds {LOCK_S}"


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What the logs of all workers say.

    Attributes:
        rescued: The ids of the tasks that were taken over.
    """

    completed: int
    failed_attempts: int
    asked_to_wait: int
    rescued: frozenset[str]


def summarize(workers: Sequence[WorkerProcess]) -> LogSummary:
    """Return what the logs of ``workers`` say."""
    kinds: Counter[str] = Counter()
    rescued: set[str] = set()
    for worker in workers:
        for line in worker.events():
            kind = str(line.get("event"))
            if kind == "task.retry_scheduled" and line.get("error_type") == "RetryLater":
                kind = "asked to wait"
            kinds[kind] += 1
            if kind == "task.rescued":
                rescued.add(str(line["task_id"]))
    return LogSummary(
        completed=kinds["task.completed"],
        failed_attempts=kinds["task.retry_scheduled"],
        asked_to_wait=kinds["asked to wait"],
        rescued=frozenset(rescued),
    )


def _options(name: str, directory: Path, port: int) -> list[str]:
    options = {
        "--instance-name": name,
        "--embedded": directory / "mongodb",
        "--lock-seconds": LOCK_S,
        "--concurrency": 12,
        "--poll-interval-seconds": 0.1,
        "--poll-max-seconds": 0.5,
        "--health-address": f"127.0.0.1:{port}",
        "--handlers": "kikwiflow-handlers",
        "--log-format": "json",
        "--log-level": "debug",
    }
    return [str(part) for option in options.items() for part in option]


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _get(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
            return str(answer.read(), "utf-8")
    except OSError:
        return None
