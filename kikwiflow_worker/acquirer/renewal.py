"""Renewing locks in a thread of its own, which no handler can block and which is the last to stop (design 6)."""

import threading
from datetime import timedelta

import structlog

from kikwiflow_worker.acquirer.claim_book import ClaimBook
from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import KikwiflowError
from kikwiflow_worker.store.protocol import LockKeeper
from kikwiflow_worker.telemetry import Event, Metrics, emit

_RETRY_S = 0.5
"""Between attempts while renewing fails."""


class LockRenewer:
    """Renews the locks of all claims at a third of their length.

    Args:
        lock: How long a lock lasts from each renewal.
    """

    def __init__(
        self,
        keeper: LockKeeper,
        book: ClaimBook,
        *,
        worker_id: str,
        lock: timedelta,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._keeper = keeper
        self._book = book
        self._worker_id = worker_id
        self._lock = lock
        self._clock = clock
        self._metrics = metrics
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lock-renewal", daemon=True)
        self._renewed_at = clock.monotonic()

    def start(self) -> None:
        """Start the thread."""
        self._renewed_at = self._clock.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and close its connection; call it last."""
        self._stop.set()
        self._thread.join(timeout=6.0)
        self._keeper.close()

    @property
    def is_late(self) -> bool:
        """Whether renewal is so late that locks may lapse: nothing new should be claimed or started."""
        return self._clock.monotonic() - self._renewed_at > self._lock.total_seconds() * 2 / 3

    def renew_once(self) -> None:
        """Renew what is held, and release what is locked under our name without our knowing.

        Raises:
            KikwiflowError: The store did not answer.
        """
        started = self._clock.monotonic()
        claims = self._book.to_renew(started, lock_s=self._lock.total_seconds())
        gone = self._keeper.renew(claims, lock=self._lock)
        lost = self._book.renewed(
            claims, locked_until=started + self._lock.total_seconds(), lost=gone
        )
        self._metrics.lock_renewals.labels(result="ok").inc(len(claims) - len(gone))
        self._metrics.lock_renewals.labels(result="lost").inc(len(lost))
        for claim in lost:
            self._metrics.locks_lost.inc()
            emit(
                Event.LOCK_LOST, task_id=claim.task_id, epoch=claim.epoch, worker_id=claim.worker_id
            )
        released = self._keeper.release_unknown(self._worker_id, known=self._book.known_ids())
        if released:
            self._metrics.steps.released_unknown(released)
        self._renewed_at = self._clock.monotonic()
        emit(Event.LOCK_RENEWED, claims=len(claims), lost=len(lost))

    def _run(self) -> None:
        interval = self._lock.total_seconds() / 3
        wait = interval
        while not self._stop.wait(wait):
            try:
                self.renew_once()
                wait = interval
            except KikwiflowError as error:
                self._metrics.lock_renewals.labels(result="failed").inc()
                emit(Event.STORE_UNAVAILABLE, doing="renewing locks", error=str(error))
                wait = min(_RETRY_S, interval)
            except Exception:
                # Without this thread every lock of the worker would lapse, and none be taken any more.
                wait = min(_RETRY_S, interval)
                structlog.get_logger().exception(
                    Event.SERVICE_CRASHED, service="lock renewal", restarts_in_s=wait
                )
