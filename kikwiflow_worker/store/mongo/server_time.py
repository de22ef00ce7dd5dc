"""The database's clock, as a process knows it without asking each time."""

import threading
from datetime import UTC, datetime, timedelta

from kikwiflow_worker.clock import Clock


class ServerTime:
    """The latest time the database told, plus the monotonic time since (protocol R19). Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._is_told = False
        self._told = clock.now()
        self._told_at = clock.monotonic()

    def learn(self, told: datetime) -> None:
        """Note what the database's clock said just now; a time that would go back behind an earlier one is ignored.

        Going back would let a task be born due later than its successor; a server whose clock was set back is caught up
        with when it passes the time known here.
        """
        with self._lock:
            at = self._clock.monotonic()
            known = self._told + timedelta(seconds=at - self._told_at)
            if not self._is_told or told > known or known - told > timedelta(seconds=60):
                self._is_told, self._told, self._told_at = True, told, at

    def now(self) -> datetime:
        """Return the database's time, aware, in UTC, to the millisecond."""
        with self._lock:
            now = self._told + timedelta(seconds=self._clock.monotonic() - self._told_at)
        return now.astimezone(UTC).replace(microsecond=now.microsecond // 1000 * 1000)

    def skew_s(self) -> float:
        """Return how many seconds the host's clock is ahead of the database's."""
        return (self._clock.now() - self.now()).total_seconds()
