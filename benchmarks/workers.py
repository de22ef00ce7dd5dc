"""Worker processes as a user starts them, and what the system says about any process."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_PLUGIN = Path(__file__).parent / "plugin" / "benchmark_handlers.py"
_DISTRIBUTION = "kikwiflow-benchmarks"
_READY_S = 45.0
_STOP_S = 20.0
_TICKS = os.sysconf("SC_CLK_TCK")


class WorkerFailedError(Exception):
    """A worker did not start; the message quotes its log."""


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """One ``kikwiflow-worker`` on this host."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all its labels but those given."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        total = 0.0
        for line in self._get("metrics").splitlines():
            if line.startswith((f"{name} ", f"{name}{{")) and all(each in line for each in wanted):
                total += float(line.rpartition(" ")[2])
        return total

    def is_ready(self) -> bool:
        """Return whether it claims tasks."""
        try:
            self._get("readyz")
        except OSError:
            return False
        return True

    def wait_until_ready(self) -> None:
        """Wait until it claims tasks."""
        deadline = time.monotonic() + _READY_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])
                raise WorkerFailedError(f"{self.name} is not ready; its log ends with\n{tail}")
            time.sleep(0.02)

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=5) as answer:
            return str(answer.read(), "utf-8")


@contextmanager
def running(
    count: int, uri: str, database: str, folder: Path, **settings: object
) -> Iterator[list[WorkerProcess]]:
    """Run workers for the block, and stop them by their process ids whatever happens.

    Args:
        settings: Of every worker, by name.
    """
    workers: list[WorkerProcess] = []
    try:
        for number in range(count):
            chosen = {"mongodb_uri": uri, "mongodb_database": database, **settings}
            workers.append(_start(f"bench-{number + 1}", folder, chosen))
        for worker in workers:
            worker.wait_until_ready()
        yield workers
    finally:
        for worker in workers:
            worker.process.send_signal(signal.SIGTERM)
        for worker in workers:
            _await_end(worker.process)


def install_handlers(folder: Path) -> None:
    """Put the handlers into a folder as an installed distribution."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(_PLUGIN, folder)
    info = folder / f"{_DISTRIBUTION.replace('-', '_')}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_DISTRIBUTION}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[kikwiflow_worker.handlers]\n{_PLUGIN.stem} = {_PLUGIN.stem}\n"
    )


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process that finds this package and the handlers in ``folder``."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith("KIKWIFLOW_")}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(folder / "packages"), str(_ROOT)])}


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process, in megabytes (1,000,000 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _start(name: str, folder: Path, settings: dict[str, object]) -> WorkerProcess:
    port = free_port()
    chosen = {
        "instance_name": name,
        "handlers": _DISTRIBUTION,
        "health_address": f"127.0.0.1:{port}",
        **settings,
    }
    variables = {f"KIKWIFLOW_{option.upper()}": str(value) for option, value in chosen.items()}
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kikwiflow_worker"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment(folder), **variables},
            start_new_session=True,
        )
    return WorkerProcess(name, process, port, log)


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
