"""When a timer is due."""

from datetime import UTC, datetime, timedelta

from kikwiflow_worker.engine.time_values import parse_time_value
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.nodes import BoundaryInterruptiveTimer, TimerProvider, TimerTaskNode
from kikwiflow_worker.model.variables import Variables, to_text


def due_at(value: str | datetime | timedelta, *, now: datetime, timer: str) -> datetime:
    """Return the instant, in UTC, that a timer's value stands for.

    Args:
        value: An ISO-8601 instant or duration, an aware instant, or a length of time from ``now``.
        timer: The timer's node id, for the message.

    Raises:
        ExecutionError: The text is neither, the instant has no zone, or the result is out of range.
    """
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ExecutionError(f"timer {timer}: the instant has no time zone; give an aware datetime")
    try:
        match value:
            case str():
                return parse_time_value(value, now=now)
            case timedelta():
                return now + value
            case datetime():
                return value.astimezone(UTC)
    except OverflowError:
        raise ExecutionError(
            f"timer {timer}: its due date is out of range; give an earlier one"
        ) from None
    except ExecutionError as error:
        raise ExecutionError(f"timer {timer}: {error}") from None


def given_due_date(timer: TimerTaskNode | BoundaryInterruptiveTimer, variables: Variables) -> str:
    """Return the due date that a timer holds itself or finds in a variable.

    Raises:
        ExecutionError: The variable is missing or null.
    """
    if timer.provider_type is TimerProvider.STATIC:
        return timer.static_value or ""
    name = timer.provider_variable or ""
    text = to_text(variables.get(name))
    if text is None:
        raise ExecutionError(
            f"timer {timer.id} takes its due date from variable {name!r}, which is missing or null; "
            "set it to an ISO-8601 instant or duration and retry"
        )
    return text
