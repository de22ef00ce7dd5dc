"""What becomes of a task after a failure: another attempt at a given time, or an incident."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from kikwiflow_worker.engine.effects import Failure, FailureKind
from kikwiflow_worker.engine.time_values import delay_after
from kikwiflow_worker.model.nodes import RetryPolicy, RetryStrategy
from kikwiflow_worker.model.runtime import IncidentType

_LATEST = timedelta(days=365 * 100)
_FALLBACK_INTERVAL = "PT1M"
"""Of a LINEAR policy without intervals (core reference 1.6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDefaults:
    """For nodes without a retry policy.

    Attributes:
        max_retries: Attempts in total, as in Kikwiflow: 1 or less means no second attempt.
        interval: ISO-8601 duration between attempts.
    """

    max_retries: int = 3
    interval: str = "PT3M"


@dataclass(frozen=True, slots=True, kw_only=True)
class TryAgain:
    """Another attempt, not before ``due_at``."""

    due_at: datetime
    attempts: int
    retries_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """An incident for a person."""

    type: IncidentType
    attempts: int


Verdict: TypeAlias = TryAgain | GiveUp


def attempts_allowed(policy: RetryPolicy | None, defaults: RetryDefaults) -> int:
    """Return the number of attempts in total that a new task has."""
    return defaults.max_retries if policy is None else policy.max_retries


def decide(
    failure: Failure,
    *,
    attempts: int,
    retries_left: int,
    policy: RetryPolicy | None,
    defaults: RetryDefaults,
    now: datetime,
) -> Verdict:
    """Decide about a failure after ``attempts`` earlier ones.

    Business and fatal errors become an incident at once. RETRY_LATER waits and uses no attempt. The delay of anything
    else follows the policy (core reference 3.19): LINEAR takes the interval at index ``attempts``, the last one for
    ever; EXPONENTIAL_BACKOFF is ``initialInterval * multiplier ** attempts`` up to ``maxInterval``.

    Raises:
        ExecutionError: The policy holds a text that is no duration; a deploy refuses such a file.
    """
    match failure.kind:
        case FailureKind.RETRY_LATER:
            return TryAgain(
                due_at=now + min(failure.delay, _LATEST),
                attempts=attempts,
                retries_left=retries_left,
            )
        case FailureKind.BUSINESS:
            return GiveUp(type=IncidentType.UNHANDLED_BUSINESS_ERROR, attempts=attempts + 1)
        case FailureKind.FATAL:
            return GiveUp(type=_fatal_type(failure), attempts=attempts + 1)
        case FailureKind.TECHNICAL:
            left = retries_left - 1
            if left <= 0:
                return GiveUp(type=IncidentType.FAILED_JOB, attempts=attempts + 1)
            due_at = _due_at(policy, defaults, attempts, now)
            return TryAgain(due_at=due_at, attempts=attempts + 1, retries_left=left)


def _fatal_type(failure: Failure) -> IncidentType:
    too_large = failure.error_type == "VariableTooLargeError"
    return IncidentType.VARIABLES_TOO_LARGE if too_large else IncidentType.FAILED_JOB


def _due_at(
    policy: RetryPolicy | None, defaults: RetryDefaults, attempts: int, now: datetime
) -> datetime:
    if policy is None:
        return delay_after(defaults.interval, now)
    match policy.strategy:
        case None:
            return now
        case RetryStrategy.LINEAR:
            intervals = policy.intervals or (_FALLBACK_INTERVAL,)
            return delay_after(intervals[min(attempts, len(intervals) - 1)], now)
        case RetryStrategy.EXPONENTIAL_BACKOFF:
            return now + _backoff(policy, attempts, now)


def _backoff(policy: RetryPolicy, attempts: int, now: datetime) -> timedelta:
    initial = delay_after(policy.initial_interval or _FALLBACK_INTERVAL, now) - now
    longest = delay_after(policy.max_interval, now) - now if policy.max_interval else _LATEST
    try:
        return min(initial * (policy.multiplier**attempts), longest)
    except OverflowError:
        return longest
