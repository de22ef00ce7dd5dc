"""Asks every worker for its health, and the database for its oldest due work, all the time; judges the answers afterwards."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError

from tests.chaos.fleet import Fleet

INTERVAL_S = 0.2
QUEUE_INTERVAL_S = 0.5
TRUTH_S = 2.0
"""How long ``/readyz`` may lag behind the truth."""

_UP, _DOWN = 200, 503


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
    """A time in which the database took no writes, in monotonic seconds."""

    away_from: float
    back_at: float


@dataclass(frozen=True, slots=True)
class Lag:
    """How late a worker's readiness was.

    Attributes:
        down_s: From the loss of the database to the first ``not ready``; None if the outage was too short to ask for it.
        up_s: From the new primary to the first ``ready``; None if it was not there long enough to ask for it.
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
        lag
        for number, outage in enumerate(outages)
        for pid, mine in by_pid.items()
        for lag in _lag(pid, mine, outage, _next_away(outages, number))
    ]


def _next_away(outages: Sequence[Outage], number: int) -> float:
    return outages[number + 1].away_from if number + 1 < len(outages) else float("inf")


def _lag(pid: int, mine: list[Sample], outage: Outage, next_away: float) -> Iterator[Lag]:
    slack = TRUTH_S + 2 * INTERVAL_S
    was_ready = any(
        s.ready == _UP and outage.away_from - 2.0 < s.at < outage.away_from for s in mine
    )
    outlived = mine[-1].at > outage.back_at + slack
    if not was_ready or not outlived:
        return
    down = _first(mine, _DOWN, outage.away_from, outage.back_at)
    up = _first(mine, _UP, outage.back_at, min(next_away, mine[-1].at))
    asks_down = outage.back_at - outage.away_from > slack
    asks_up = next_away - outage.back_at > slack
    yield Lag(
        pid,
        outage.away_from,
        (down if down is not None else outage.back_at - outage.away_from) if asks_down else None,
        (up if up is not None else float("inf")) if asks_up else None,
    )


def _first(mine: list[Sample], ready: int, since: float, until: float) -> float | None:
    """Return how long after ``since`` the first such answer came."""
    return next((s.at - since for s in mine if s.ready == ready and since <= s.at <= until), None)
