"""When a timer is due."""

from datetime import datetime, timedelta

from kikwiflow_worker.engine.time_values import parse_time_value
from kikwiflow_worker.errors import ExecutionError


def due_at(value: str | datetime | timedelta, *, now: datetime) -> datetime:
    """Return the instant that a timer's value stands for.

    Args:
        value: An ISO-8601 instant or duration, an aware instant, or a length of time from ``now``.

    Raises:
        ExecutionError: The text is neither, the instant has no zone, or the result is out of range.
    """
    match value:
        case str():
            return parse_time_value(value, now=now)
        case timedelta():
            try:
                return now + value
            except OverflowError:
                raise ExecutionError(
                    f"a due date {value} from now is out of range; give a shorter time"
                ) from None
        case datetime():
            if value.tzinfo is None:
                raise ExecutionError(f"due date {value} has no time zone; return an aware datetime")
            return value
