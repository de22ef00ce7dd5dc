"""ISO-8601 instants and durations as authors write them in definitions and variables.

Accepted is what the Java engine accepts (``2026-12-31T23:59:59Z``, ``PT1H``, ``pt5m``, ``PT-6H``, ``PT0.5S``), and in
addition weeks, months and years. Months and years are calendar lengths: one month after 31 January is the last day of
February. A day is 24 hours.

The messages of errors never repeat the text: it may come from a variable. Callers put in front where it came from.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import isodate

from kikwiflow_worker.errors import ExecutionError

_FORMS = (
    "write a duration such as PT30M or P1D, or an instant with its offset such as "
    "2026-12-31T23:59:59Z"
)
_LONGEST = 100

_NUMBER = r"[+-]?\d+(?:[.,]\d+)?"
_DURATION = re.compile(
    rf"""
    (?P<sign>[+-]?)P(?=.)
    (?:(?P<years>[+-]?\d+)Y)?
    (?:(?P<months>[+-]?\d+)M)?
    (?:(?P<weeks>{_NUMBER})W)?
    (?:(?P<days>{_NUMBER})D)?
    (?:T(?=.)
        (?:(?P<hours>{_NUMBER})H)?
        (?:(?P<minutes>{_NUMBER})M)?
        (?:(?P<seconds>{_NUMBER})S)?
    )?
    """,
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)
_DATE_ONLY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)

_SECONDS: Mapping[str, int] = {
    "weeks": 604_800,
    "days": 86_400,
    "hours": 3_600,
    "minutes": 60,
    "seconds": 1,
}


def parse_time_value(text: str, *, now: datetime) -> datetime:
    """Return the instant that ``text`` names, in UTC: itself, or ``now`` plus a duration.

    Args:
        text: An instant with an offset, or a duration; a negative duration gives an instant in the past.
        now: Aware.

    Raises:
        ExecutionError: Neither of the two, or outside the years 1 to 9999.
    """
    stripped = text.strip()
    if _looks_like_duration(stripped):
        return delay_after(stripped, now)
    return parse_instant(stripped)


def parse_instant(text: str) -> datetime:
    """Return the instant that ``text`` names, in UTC.

    Raises:
        ExecutionError: It is not an instant with an offset, or outside the years 1 to 9999.
    """
    stripped = text.strip()
    if _DATE_ONLY.fullmatch(stripped):
        raise ExecutionError("a date without a time; write both, as 2026-12-31T00:00:00Z")
    if "T" not in stripped.upper() or len(stripped) > _LONGEST:
        raise ExecutionError(f"not a time value; {_FORMS}")
    try:
        instant = datetime.fromisoformat(stripped.upper())
    except ValueError:
        raise ExecutionError(f"not a time value; {_FORMS}") from None
    if instant.tzinfo is None:
        raise ExecutionError(f"an instant without an offset; {_FORMS}")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise _out_of_range() from None


def delay_after(text: str, now: datetime) -> datetime:
    """Return ``now`` plus the duration that ``text`` names, in UTC.

    Args:
        text: A duration; a negative one gives an instant in the past.
        now: Aware.

    Raises:
        ExecutionError: It is not a duration, or leads outside the years 1 to 9999.
    """
    parts = _duration_parts(text.strip())
    if parts is None:
        raise ExecutionError("not a duration; write one such as PT30S, PT15M or P1D")
    try:
        moved: datetime = now.astimezone(UTC) + isodate.Duration(
            years=parts.years, months=parts.months
        )
        return moved + parts.rest
    except (OverflowError, ValueError):
        raise _out_of_range() from None


@dataclass(frozen=True, slots=True)
class _Parts:
    """A duration split into what needs a calendar and what does not."""

    years: int
    months: int
    rest: timedelta


def _looks_like_duration(text: str) -> bool:
    return text.upper().lstrip("+-").startswith("P")


def _duration_parts(text: str) -> _Parts | None:
    match = _DURATION.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    sign = -1 if match["sign"] == "-" else 1
    seconds = sum(
        Decimal(match[unit].replace(",", ".")) * length
        for unit, length in _SECONDS.items()
        if match[unit] is not None
    )
    try:
        rest = timedelta(microseconds=int(sign * seconds * 1_000_000))
    except OverflowError:
        raise _out_of_range() from None
    return _Parts(
        years=sign * int(match["years"] or 0), months=sign * int(match["months"] or 0), rest=rest
    )


def _out_of_range() -> ExecutionError:
    return ExecutionError(
        "leads outside the years 1 to 9999; write a nearer instant or a shorter duration"
    )
