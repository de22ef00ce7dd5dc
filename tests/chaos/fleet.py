"""The worker processes of a run: one per place, replaced when they are stopped or killed."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.mongo import MongoServer
from tests.support.workers import Site, WorkerProcess, Workers, install

PLUGIN = Path(__file__).parent / "plugin"
ALWAYS = "kikwiflow-chaos"
SELDOM = "kikwiflow-chaos-seldom"
LOCK_S = 5.0
POLL_MAX_S = 0.5
SKEW_S = 600.0
GRACE_S = 25.0

SETTINGS: dict[str, object] = {
    "concurrency": 64,
    "lock_seconds": LOCK_S,
    "poll_interval_seconds": 0.1,
    "poll_max_seconds": POLL_MAX_S,
    "grace_seconds": GRACE_S,
    # Longer than the longest outage of a run, so that a worker that is just being started outlasts it too.
    "startup_timeout_seconds": 120,
    "log_level": "warning",
}


@dataclass(frozen=True, slots=True)
class Exit:
    """A worker that ended: as it was asked to, or by itself."""

    name: str
    pid: int
    code: int


@dataclass(slots=True)
class Fleet:
    """Starts workers and knows which of them were asked to end. Its methods may be called from any thread."""

    site: Site
    uri: str
    database: str
    guard: Callable[[int], None]
    places: list[WorkerProcess] = field(default_factory=list)
    frozen: set[int] = field(default_factory=set)
    _asked: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _workers: Workers = field(init=False)

    def __post_init__(self) -> None:
        self._workers = Workers(self.site, MongoServer(self.uri), self.database)

    @classmethod
    def assemble(
        cls, folder: Path, uri: str, database: str, guard: Callable[[int], None]
    ) -> "Fleet":
        """Install the handlers into a folder and return a fleet without workers.

        Args:
            guard: Is told the process id of every worker.
        """
        packages = folder / "packages"
        packages.mkdir()
        install(packages, PLUGIN / "chaos_handlers.py", ALWAYS)
        install(packages, PLUGIN / "chaos_seldom.py", SELDOM)
        return cls(Site(packages, folder), uri, database, guard)

    def start(self, size: int) -> None:
        """Start so many workers."""
        self.places = [self.launch(f"worker-{place}") for place in range(size)]

    def launch(
        self, name: str, *, skew_s: float = 0.0, has_all: bool = True, **settings: object
    ) -> WorkerProcess:
        """Start a worker and return at once.

        Args:
            has_all: Whether it has all handlers, or not those that are seldom needed.
            settings: Settings other than those of all workers.
        """
        environment = {"KIKWIFLOW_TEST_SKEW_S": str(skew_s)} if skew_s else {}
        handlers = f"{ALWAYS},{SELDOM}" if has_all else ALWAYS
        with self._lock:
            worker = self._workers.start(
                name, environment=environment, handlers=handlers, **{**SETTINGS, **settings}
            )
        self.guard(worker.pid)
        return worker

    def replace(self, place: int, *, skew_s: float = 0.0, has_all: bool = True) -> WorkerProcess:
        """Start a worker under the name of the one in this place, which it takes; return it."""
        place %= len(self.places)
        new = self.launch(self.places[place].name, skew_s=skew_s, has_all=has_all)
        self.places[place] = new
        return new

    def at(self, place: int) -> WorkerProcess:
        """Return the worker in a place, counted round."""
        return self.places[place % len(self.places)]

    def asked(self, worker: WorkerProcess) -> None:
        """Note that this worker is about to be ended by us."""
        self._asked.add(worker.pid)

    @property
    def awake(self) -> Sequence[WorkerProcess]:
        """The workers that run and that nobody has asked to end or frozen."""
        return [
            worker
            for worker in list(self._workers.started)
            if worker.process.poll() is None
            and worker.pid not in self._asked
            and worker.pid not in self.frozen
        ]

    @property
    def deserters(self) -> list[Exit]:
        """The workers that ended although nobody asked them to."""
        return [
            Exit(worker.name, worker.pid, worker.process.returncode)
            for worker in self._workers.started
            if worker.process.poll() is not None and worker.pid not in self._asked
        ]

    def crashes(self) -> list[str]:
        """Return a line for each unexpected error that a worker has logged."""
        return [
            f"{worker.name} (process {worker.pid}) logged an unexpected error: "
            f"{str(line.get('exception') or line).strip().splitlines()[-1]}"
            for worker in self._workers.started
            for line in worker.events("service.crashed")
        ]

    def kill_all(self) -> None:
        """End all that still run."""
        for worker in self._workers.started:
            self.asked(worker)
        self._workers.kill_all()
