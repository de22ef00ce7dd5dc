"""Renewing locks, one pass at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from kikwiflow_worker.acquirer.claim_book import ClaimBook
from kikwiflow_worker.acquirer.renewal import LockRenewer
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.model.runtime import Claim
from kikwiflow_worker.telemetry import Metrics
from kikwiflow_worker.testing import ManualClock
from tests.unit.test_claim_book import a_claimed_task

LOCK = timedelta(seconds=30)


@dataclass
class FakeKeeper:
    """Renews everything but ``lost``; fails while ``away``, and once with ``failure``."""

    lost: frozenset[Claim] = frozenset()
    away: bool = False
    failure: Exception | None = None
    renewed: list[tuple[Claim, ...]] = field(default_factory=list)
    known: list[frozenset[str]] = field(default_factory=list)

    def renew(self, claims: Sequence[Claim], *, lock: timedelta) -> frozenset[Claim]:
        if self.away:
            raise StoreUnavailableError("away")
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        self.renewed.append(tuple(claims))
        return self.lost

    def release_unknown(self, worker_id: str, *, known: frozenset[str]) -> int:
        self.known.append(known)
        return 0

    def close(self) -> None: ...


def a_renewer(keeper: FakeKeeper, book: ClaimBook, clock: ManualClock) -> LockRenewer:
    metrics = Metrics(CollectorRegistry(), version="1", instance="w")
    return LockRenewer(keeper, book, worker_id="w", lock=LOCK, clock=clock, metrics=metrics)


def test_a_renewal_lets_the_lock_end_one_length_from_its_start() -> None:
    keeper, book, clock = FakeKeeper(), ClaimBook(), ManualClock()
    claimed = a_claimed_task(locked_until=30.0)
    renewer = a_renewer(keeper, book, clock)

    book.hold(claimed, lambda: None)
    clock.advance(timedelta(seconds=10))
    renewer.renew_once()

    assert keeper.renewed == [(claimed.claim,)]
    assert keeper.known == [frozenset({"t"})]
    assert book.is_locked(claimed.claim, 39.9)
    assert not book.is_locked(claimed.claim, 40.0)


def test_a_lost_claim_reaches_its_owner() -> None:
    claimed = a_claimed_task()
    keeper, book = FakeKeeper(lost=frozenset([claimed.claim])), ClaimBook()
    told: list[str] = []

    book.hold(claimed, lambda: told.append("lost"))
    a_renewer(keeper, book, ManualClock()).renew_once()

    assert told == ["lost"]


@pytest.mark.field_case("S-86")
def test_a_claim_that_was_committed_meanwhile_is_no_lost_lock() -> None:
    claimed, clock = a_claimed_task(locked_until=1.0), ManualClock()
    keeper, book = FakeKeeper(lost=frozenset([claimed.claim])), ClaimBook()
    metrics = Metrics(CollectorRegistry(), version="1", instance="w")
    renewer = LockRenewer(keeper, book, worker_id="w", lock=LOCK, clock=clock, metrics=metrics)

    book.hold(claimed, lambda: None)
    with capture_logs() as lines, book.committing([claimed.claim]):
        renewer.renew_once()

    assert "lock.lost" not in [line["event"] for line in lines]
    assert b"kikwiflow_locks_lost_total 0.0" in metrics.render()


def test_it_is_late_when_two_thirds_of_a_lock_passed_without_a_renewal() -> None:
    keeper, clock = FakeKeeper(), ManualClock()
    renewer = a_renewer(keeper, ClaimBook(), clock)

    clock.advance(timedelta(seconds=19))
    early = renewer.is_late
    clock.advance(timedelta(seconds=2))
    late = renewer.is_late
    renewer.renew_once()

    assert (early, late, renewer.is_late) == (False, True, False)


def test_a_failed_renewal_stays_late_and_loses_nothing() -> None:
    keeper, book, clock = FakeKeeper(away=True), ClaimBook(), ManualClock()
    renewer = a_renewer(keeper, book, clock)
    told: list[str] = []

    book.hold(a_claimed_task(), lambda: told.append("lost"))
    clock.advance(timedelta(seconds=25))
    with pytest.raises(StoreUnavailableError):
        renewer.renew_once()

    assert renewer.is_late
    assert told == []


@pytest.mark.parametrize("failure", [None, StoreUnavailableError("away"), RuntimeError("odd")])
def test_the_thread_renews_whatever_happens_and_stops(failure: Exception | None) -> None:
    keeper, book = FakeKeeper(failure=failure), ClaimBook()
    metrics = Metrics(CollectorRegistry(), version="1", instance="w")
    renewer = LockRenewer(
        keeper,
        book,
        worker_id="w",
        lock=timedelta(milliseconds=30),
        clock=ManualClock(),
        metrics=metrics,
    )

    renewer.start()
    for _ in range(500):
        if len(keeper.renewed) >= 2:
            break
        renewer._stop.wait(0.01)
    renewer.stop()

    assert len(keeper.renewed) >= 2
    assert not renewer._thread.is_alive()
