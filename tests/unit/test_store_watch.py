"""The database's coming and going is told once per change, also when it is away from the start."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog
from prometheus_client import CollectorRegistry

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import StoreRefusedError, StoreUnavailableError
from kikwiflow_worker.telemetry import Metrics
from kikwiflow_worker.worker.health import HealthState
from kikwiflow_worker.worker.store_watch import StoreWatch

AWAY = StoreUnavailableError("no primary")


@pytest.fixture
def watch() -> StoreWatch:
    metrics = Metrics(CollectorRegistry(), version="0", instance="worker-1")
    return StoreWatch(HealthState(SystemClock()), metrics, SystemClock())


@contextmanager
def told() -> Iterator[list[str]]:
    """Collect the events of the block."""
    events: list[str] = []
    with structlog.testing.capture_logs() as lines:
        yield events
    events += [str(line["event"]) for line in lines]


def test_a_database_that_is_there_from_the_start_is_no_event(watch: StoreWatch) -> None:
    with told() as events:
        watch.heard(None)
        watch.heard(None)

    assert events == []
    assert watch.is_reachable


def test_a_database_that_is_away_from_the_start_is_told_once(watch: StoreWatch) -> None:
    with told() as events:
        watch.heard(AWAY)
        watch.heard(AWAY)

    assert events == ["store.unavailable"]
    assert not watch.is_reachable


def test_each_change_is_told(watch: StoreWatch) -> None:
    with told() as events:
        watch.heard(None)
        watch.heard(AWAY)
        watch.heard(AWAY)
        watch.heard(None)

    assert events == ["store.unavailable", "store.recovered"]
    assert watch.is_reachable


def test_a_refusal_that_shows_after_an_outage_is_told_once_more(watch: StoreWatch) -> None:
    refused = StoreRefusedError("check the password")

    with told() as events:
        watch.heard(None)
        for error in (AWAY, refused, AWAY, refused, None, refused, AWAY):
            watch.heard(error)

    assert events == [*["store.unavailable"] * 2, "store.recovered", "store.unavailable"]
