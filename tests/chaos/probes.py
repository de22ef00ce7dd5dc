"""Asks every worker for its health, and the database for its oldest due work, all the time; judges the answers afterwards."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError

from tests.chaos.fleet import Fleet

INTERVAL_S = 0.2
QUEUE_INTERVAL_S = 0.5
FULL_S = 0.5
"""When due work waits for longer, the workers have enough to do."""

UNKNOWN_S = 2.0
TRUTH_S = 2.0
"""How long ``/readyz`` may lag behind the truth."""

_UP = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one worker; ``live`` and ``ready`` are HTTP statuses, 0 without an answer."""

    at: float
    pid: int
    live: int
    ready: int


@dataclass(frozen=True, slots=True)
class Wait:
    """How long the work that is due has been waiting for a worker: with a backlog, every task waits so long."""

    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which the database took no writes, in monotonic seconds; ``steady_until`` it was there afterwards."""

    away_from: float
    back_at: float
    steady_until: float


@dataclass(frozen=True, slots=True)
class Lag:
    """How late a worker's readiness was: when it was last seen not to tell the truth.

    Attributes:
        down_s: From the loss of the database to the last ``ready``; None if the outage was too short to ask for it.
        up_s: From the new primary to the last ``not ready``; None if it was not there long enough to ask for it.
    """

    pid: int
    at: float
    down_s: float | None
    up_s: float | None


class Probes:
    """Two threads that ask: the workers, and the database."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask_workers, name="health probes", daemon=True),
            threading.Thread(target=self._ask_database, name="queue probe", daemon=True),
        ]
        self.samples: list[Sample] = []
        self.waits: list[Wait] = []

    def start(self) -> None:
        """Ask from now on."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def work_waits(self) -> bool:
        """Whether due work has been waiting for a worker lately, or nothing is known about it."""
        last = self.waits[-1] if self.waits else None
        return last is None or last.seconds > FULL_S or time.monotonic() - last.at > UNKNOWN_S

    def _ask_database(self) -> None:
        with MongoClient[dict[str, Any]](
            self._fleet.uri, tz_aware=True, serverSelectionTimeoutMS=1_000, socketTimeoutMS=2_000
        ) as client:
            database = client[self._fleet.database]
            while not self._stop.wait(QUEUE_INTERVAL_S):
                with suppress(PyMongoError):
                    self.waits.append(_longest_wait(database))

    def _ask_workers(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            for worker in self._fleet.awake:
                at = time.monotonic()
                sample = Sample(at, worker.pid, worker.status("/livez"), worker.status("/readyz"))
                # One that was killed or frozen while it was asked says nothing.
                if worker in self._fleet.awake:
                    self.samples.append(sample)


def _longest_wait(database: Database[dict[str, Any]]) -> Wait:
    now = datetime.now(UTC)
    due = {"status": "PENDING", "claimableAt": {"$lte": now}}
    oldest = database.executable_tasks.find_one(due, {"claimableAt": 1}, sort=[("claimableAt", 1)])
    waited = (now - oldest["claimableAt"]).total_seconds() if oldest else 0.0
    return Wait(time.monotonic(), waited)


def dead_answers(samples: Iterable[Sample]) -> list[Sample]:
    """Return the looks at which a worker that had been up was not said to be alive."""
    born: set[int] = set()
    found = []
    for sample in samples:
        if sample.live == _UP:
            born.add(sample.pid)
        elif sample.pid in born:
            found.append(sample)
    return found


def lags(samples: Sequence[Sample], outages: Sequence[Outage]) -> list[Lag]:
    """Return how late each worker that lived through an outage and a little longer was to say so."""
    by_pid: dict[int, list[Sample]] = {}
    for sample in samples:
        by_pid.setdefault(sample.pid, []).append(sample)
    return [
        lag for outage in outages for pid, mine in by_pid.items() for lag in _lag(pid, mine, outage)
    ]


def _lag(pid: int, mine: list[Sample], outage: Outage) -> Iterator[Lag]:
    away, back = outage.away_from, outage.back_at
    was_ready = any(s.ready == _UP and away - 2.0 < s.at < away for s in mine)
    outlived = mine[-1].at > back + TRUTH_S
    if not was_ready or not outlived:
        return
    still_up = [s.at - away for s in mine if s.ready == _UP and away <= s.at < back]
    after = [s for s in mine if back <= s.at < outage.steady_until]
    still_down = [s.at - back for s in takewhile(lambda s: s.ready != _UP, after)]
    yield Lag(
        pid,
        away,
        max(still_up, default=0.0) if back - away > TRUTH_S else None,
        max(still_down, default=0.0) if outage.steady_until - back > TRUTH_S else None,
    )
