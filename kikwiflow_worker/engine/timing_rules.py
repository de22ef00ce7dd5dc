"""What can be wrong with retry policies, timers and schedules."""

from collections.abc import Iterator
from datetime import UTC, datetime

from kikwiflow_worker.engine.findings import at, error, is_blank, needed, unreadable, warning
from kikwiflow_worker.engine.schedules import check_schedule
from kikwiflow_worker.engine.time_values import delay_after, parse_time_value
from kikwiflow_worker.errors import ExecutionError, Problem
from kikwiflow_worker.model.nodes import (
    BoundaryInterruptiveTimer,
    BoundaryNonInterruptiveTimer,
    RetryPolicy,
    RetryStrategy,
    ScheduleType,
    TimerProvider,
    TimerTaskNode,
)

ANY_INSTANT = datetime(2026, 1, 1, tzinfo=UTC)
"""Durations are checked by adding them to something; which instant it is does not matter."""


def retry_problems(node_id: str, policy: RetryPolicy) -> Iterator[Problem]:
    """Yield everything that is wrong with the retry policy of a node."""
    if policy.max_retries < 0:
        yield error(
            at(node_id, "retryPolicy", "maxRetries"), "is negative", "write the number of attempts"
        )
    elif policy.max_retries == 0:
        yield warning(
            at(node_id, "retryPolicy", "maxRetries"),
            "without maxRetries the first failure opens an incident",
            "write the number of attempts in total, or remove the retryPolicy to use the defaults",
        )
    if policy.strategy is None:
        yield warning(
            at(node_id, "retryPolicy", "strategy"),
            "without a strategy the next attempt follows at once",
            "write LINEAR or EXPONENTIAL_BACKOFF",
        )
    if policy.strategy is RetryStrategy.EXPONENTIAL_BACKOFF and is_blank(policy.initial_interval):
        yield error(
            at(node_id, "retryPolicy", "initialInterval"),
            "EXPONENTIAL_BACKOFF has no initialInterval",
            "write the first delay as a duration, such as PT5S",
        )
    if policy.multiplier <= 0:
        yield error(
            at(node_id, "retryPolicy", "multiplier"),
            f"{policy.multiplier} is not greater than 0",
            "write the factor between two delays, such as 2",
        )
    for index, interval in enumerate(policy.intervals):
        yield from _duration_problems(at(node_id, "retryPolicy", "intervals", index), interval)
    if policy.initial_interval:
        yield from _duration_problems(
            at(node_id, "retryPolicy", "initialInterval"), policy.initial_interval
        )
    if policy.max_interval:
        yield from _duration_problems(
            at(node_id, "retryPolicy", "maxInterval"), policy.max_interval
        )


def _duration_problems(path: str, text: str) -> Iterator[Problem]:
    try:
        ends_at = delay_after(text, ANY_INSTANT)
    except ExecutionError as reason:
        yield unreadable(path, text, reason)
        return
    if ends_at < ANY_INSTANT:
        yield error(path, f"{text!r} is negative", "write a duration of zero or more")


def timer_problems(node: TimerTaskNode | BoundaryInterruptiveTimer) -> Iterator[Problem]:
    """Yield everything that is wrong with the due date of a timer."""
    match node.provider_type:
        case None:
            yield error(
                at(node.id, "providerType"),
                "nothing says when the timer is due",
                "write STATIC and a staticValue, VARIABLE and a providerVariable, or BEAN and a providerBean",
            )
        case TimerProvider.BEAN:
            yield from needed(node.id, "providerBean", node.provider_bean)
        case TimerProvider.VARIABLE:
            yield from needed(node.id, "providerVariable", node.provider_variable)
        case TimerProvider.STATIC:
            value = node.static_value
            if value is None or is_blank(value):
                yield from needed(node.id, "staticValue", value)
                return
            try:
                parse_time_value(value, now=ANY_INSTANT)
            except ExecutionError as reason:
                yield unreadable(at(node.id, "staticValue"), value, reason)


def recurrence_problems(node: BoundaryNonInterruptiveTimer) -> Iterator[Problem]:
    """Yield everything that is wrong with the schedule of a recurring timer."""
    policy = node.schedule_policy
    if policy is None or policy.type is None:
        yield error(
            at(node.id, "schedulePolicy"),
            "nothing says when the timer fires",
            "write a schedulePolicy with type RATE_DURATION, CRON or FIXED_DATES",
        )
        return
    if policy.max_occurrences is not None and policy.max_occurrences < 1:
        yield warning(
            at(node.id, "schedulePolicy", "maxOccurrences"),
            "the timer never fires",
            "write 1 or more, or remove it for no limit",
        )
    if policy.type is ScheduleType.FIXED_DATES and not policy.fixed_dates:
        yield error(
            at(node.id, "schedulePolicy", "fixedDates"),
            "FIXED_DATES has no dates",
            "list instants such as 2026-12-31T23:59:59Z",
        )
    yield from check_schedule(node)
