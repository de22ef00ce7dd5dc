"""When another attempt is made, and when a person is asked."""

from datetime import datetime, timedelta

import pytest

from kikwiflow_worker.engine.effects import FailureKind
from kikwiflow_worker.engine.retries import (
    GiveUp,
    RetryDefaults,
    TryAgain,
    Verdict,
    attempts_allowed,
    decide,
)
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.nodes import RetryPolicy
from kikwiflow_worker.model.runtime import IncidentType
from tests.support.engine import NOON, a_failure

DEFAULTS = RetryDefaults()


def a_policy(**fields: object) -> RetryPolicy:
    return RetryPolicy.model_validate(fields)


def decided(
    policy: RetryPolicy | None,
    *,
    attempts: int = 0,
    retries_left: int = 9,
    now: datetime = NOON,
    **failure: object,
) -> Verdict:
    return decide(
        a_failure(**failure),  # type: ignore[arg-type]
        attempts=attempts,
        retries_left=retries_left,
        policy=policy,
        defaults=DEFAULTS,
        now=now,
    )


def delays(policy: RetryPolicy | None, *, now: datetime = NOON) -> list[float]:
    """Fail again and again; return the seconds between the attempts until a person is asked."""
    found: list[float] = []
    attempts, retries_left = 0, attempts_allowed(policy, DEFAULTS)
    while isinstance(
        verdict := decided(policy, attempts=attempts, retries_left=retries_left, now=now), TryAgain
    ):
        found.append((verdict.due_at - now).total_seconds())
        attempts, retries_left = verdict.attempts, verdict.retries_left
    assert verdict == GiveUp(type=IncidentType.FAILED_JOB, attempts=attempts + 1)
    return found


def test_without_a_policy_there_are_three_attempts_three_minutes_apart() -> None:
    assert delays(None) == [180, 180]


def test_max_retries_is_the_number_of_attempts_in_total() -> None:
    assert delays(a_policy(strategy="LINEAR", maxRetries=2, intervals=["PT10S"])) == [10]


@pytest.mark.parametrize("max_retries", [1, 0, -1])
def test_one_attempt_or_less_means_no_second_one(max_retries: int) -> None:
    assert delays(a_policy(strategy="LINEAR", maxRetries=max_retries)) == []


def test_linear_takes_one_interval_after_the_other_and_then_the_last_for_ever() -> None:
    policy = a_policy(strategy="LINEAR", maxRetries=5, intervals=["PT1S", "PT5S"])

    assert delays(policy) == [1, 5, 5, 5]


def test_linear_without_intervals_waits_a_minute() -> None:
    assert delays(a_policy(strategy="LINEAR", maxRetries=3)) == [60, 60]


def test_a_linear_interval_may_be_a_calendar_month() -> None:
    policy = a_policy(strategy="LINEAR", maxRetries=2, intervals=["P1M"])

    assert delays(policy, now=datetime.fromisoformat("2026-01-31T12:00:00Z")) == [28 * 86_400]


def test_exponential_backoff_doubles_up_to_its_cap() -> None:
    policy = a_policy(
        strategy="EXPONENTIAL_BACKOFF",
        maxRetries=6,
        initialInterval="PT10S",
        multiplier=2,
        maxInterval="PT60S",
    )

    assert delays(policy) == [10, 20, 40, 60, 60]


def test_exponential_backoff_without_a_cap_grows_by_its_multiplier() -> None:
    policy = a_policy(
        strategy="EXPONENTIAL_BACKOFF", maxRetries=4, initialInterval="PT2S", multiplier=1.5
    )

    assert delays(policy) == [2, 3, 4.5]


def test_exponential_backoff_without_an_initial_interval_starts_with_a_minute() -> None:
    assert delays(a_policy(strategy="EXPONENTIAL_BACKOFF", maxRetries=3)) == [60, 120]


@pytest.mark.parametrize("attempts", [60, 2_000])
def test_exponential_backoff_never_passes_what_a_date_can_hold(attempts: int) -> None:
    policy = a_policy(
        strategy="EXPONENTIAL_BACKOFF", maxRetries=9_999, initialInterval="PT10S", multiplier=10
    )

    verdict = decided(policy, attempts=attempts, retries_left=9_000)

    assert isinstance(verdict, TryAgain)
    assert verdict.due_at == NOON + timedelta(days=36_500)


def test_a_policy_without_a_strategy_tries_again_at_once() -> None:
    assert delays(a_policy(maxRetries=3)) == [0, 0]


def test_retry_later_waits_and_uses_no_attempt() -> None:
    verdict = decided(
        None,
        attempts=2,
        retries_left=1,
        kind=FailureKind.RETRY_LATER,
        delay=timedelta(seconds=90),
    )

    assert verdict == TryAgain(due_at=NOON + timedelta(seconds=90), attempts=2, retries_left=1)


@pytest.mark.parametrize(
    ("kind", "error_type", "incident_type"),
    [
        (FailureKind.BUSINESS, "ProcessError", IncidentType.UNHANDLED_BUSINESS_ERROR),
        (FailureKind.FATAL, "Fatal", IncidentType.FAILED_JOB),
        (FailureKind.FATAL, "VariableTooLargeError", IncidentType.VARIABLES_TOO_LARGE),
    ],
)
def test_what_no_attempt_heals_goes_to_a_person_at_once(
    kind: FailureKind, error_type: str, incident_type: IncidentType
) -> None:
    verdict = decided(None, retries_left=9, kind=kind, error_type=error_type)

    assert verdict == GiveUp(type=incident_type, attempts=1)


def test_an_interval_that_is_no_duration_is_an_error_of_the_definition() -> None:
    with pytest.raises(ExecutionError, match="not a duration"):
        decided(a_policy(strategy="LINEAR", maxRetries=3, intervals=["soon"]))
