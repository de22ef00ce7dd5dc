"""``python -m tests.chaos.full_disk``: the embedded server's disk is full under load, and later it is not.

A scenario of its own, since the server is not one of the replica set's: a worker with ``--embedded`` on a file system so
small that a ballast file fills it. ``mongod`` then aborts. The worker goes on without it, not ready; when there is space
again, whoever uses the directory next starts the server on the old port, and the work goes on.
"""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from kikwiflow_worker.embedded import EmbeddedMongo
from tests.chaos.cluster import wait_for
from tests.chaos.fleet import Fleet
from tests.chaos.load import Load
from tests.chaos.verify import verify
from tests.chaos.verify_report import Report
from tests.support.workers import WorkerProcess

DATABASE = "chaos"
_DISK_MB = 700
"""``mongod`` needs about 300 for its empty journal."""

_BACKLOG = 30
_SPARE = 256 * 1024
_AWAY_S = 4.0
_REST_S = 90.0


@dataclass(frozen=True, slots=True)
class FullDisk:
    """What came of it.

    Attributes:
        how: What made the disk full.
        is_alive: Whether the worker lived on, and ``/livez`` said so, while the server was away.
        was_ready: Whether ``/readyz`` said that it was ready all the same.
    """

    how: str
    is_alive: bool
    was_ready: bool
    report: Report

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost and the worker told the truth."""
        return self.is_alive and not self.was_ready and self.report.is_clean


class Disk:
    """A small file system, or a limit on the files of one process where mounting is not allowed."""

    def __init__(self, folder: Path, *, is_mounted: bool) -> None:
        self.folder = folder
        self.is_mounted = is_mounted

    @property
    def how(self) -> str:
        """What makes it full, in words."""
        return "a full tmpfs" if self.is_mounted else "a limit on the size of files"

    def fill(self, server: EmbeddedMongo) -> None:
        """Leave the server no room to write."""
        if not self.is_mounted:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (_SPARE, resource.RLIM_INFINITY))
            return
        state = os.statvfs(self.folder)
        with self._ballast.open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, state.f_bavail * state.f_frsize - _SPARE)

    def clear(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """Mount a small file system if we may; remove it afterwards."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MB}m", "none", str(folder)]
    is_mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        yield Disk(folder, is_mounted=is_mounted)
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


async def run(folder: Path, *, seed: int, tasks: int) -> FullDisk:
    """Carry the scenario out in an empty folder."""
    with small_disk(folder / "disk") as disk:
        home = disk.folder / "server"
        server = EmbeddedMongo.acquire(home)
        fleet = Fleet.assemble(folder, server.uri, DATABASE, lambda pid: None)
        load = Load(server.uri, DATABASE, seed=seed, tasks=tasks, folder=folder, backlog=_BACKLOG)
        try:
            await load.prepare()
            worker = fleet.launch("worker", mongodb_uri=None, embedded=home)
            await asyncio.to_thread(
                wait_for, lambda: worker.status("/readyz") == 200, "it is ready"
            )
            async with asyncio.TaskGroup() as group:
                driving = group.create_task(load.run(lambda: True))
                is_alive, was_ready, server = await asyncio.to_thread(
                    _fill_and_clear, disk, server, worker, fleet.site.log
                )
                await driving
            await asyncio.wait_for(load.finish(), _REST_S)
            fleet.kill_all()
            report = verify(server.uri, DATABASE, fleet.site.log, folder / "ledger.jsonl")
            return FullDisk(disk.how, is_alive, was_ready, report)
        finally:
            await load.close()
            fleet.kill_all()
            server.release()


def _fill_and_clear(
    disk: Disk, server: EmbeddedMongo, worker: WorkerProcess, effects: Path
) -> tuple[bool, bool, EmbeddedMongo]:
    """Fill the disk under load, look at the worker while the server is gone, and let the server start again."""
    wait_for(lambda: effects.exists() and effects.stat().st_size > 20_000, "the work has begun")
    disk.fill(server)
    wait_for(lambda: not _is_running(server.pid), "mongod ends for lack of space")
    time.sleep(_AWAY_S)
    is_alive = worker.process.poll() is None and worker.status("/livez") == 200
    was_ready = worker.status("/readyz") == 200
    disk.clear()
    again = EmbeddedMongo.acquire(server.directory)
    server.release()
    return is_alive, was_ready, again


def _is_running(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def main() -> None:
    """Run it and print what came of it."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="kikwiflow-full-disk-") as folder:
        found = asyncio.run(run(Path(folder), seed=1, tasks=1_000))
    report = found.report
    console.print(
        f"{found.how}: {report.tasks:,} tasks, {len(report.lost)} lost, {len(report.doubled)} doubled, "
        f"{report.handler_repeats} handler calls repeated; the worker lived on: {found.is_alive}"
    )
    for line in (*report.lost, *report.doubled, *report.stuck, *report.other):
        console.print(line)
    sys.exit(not found.is_good)


if __name__ == "__main__":
    main()
