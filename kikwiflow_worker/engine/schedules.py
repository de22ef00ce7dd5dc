"""When a recurring timer fires: its first cycle, the next one, and what becomes of cycles that were missed.

A schedule is a grid of instants that does not depend on when a worker comes round to firing, so it never drifts:

- RATE_DURATION: an ISO-8601 duration, counted from the creation of the timer. Months and years are calendar lengths in
  UTC and keep their day: monthly from 31 January is 28 February, then 31 March. A day is 24 hours.
- FIXED_DATES: the instants listed, in any order.
- CRON: a cron expression in the time zone of the property ``kikwiflow.timeZone`` (default UTC), or, as in the Java
  engine, a duration. Five fields are read as ``crontab`` does (if both the day of the month and the day of the week are
  restricted, either suffices); six fields, seconds first, as Spring does (both must fit). Names such as ``@daily`` work.

When the clocks change, a cron expression that restricts the hours names times of the day: a time that the clocks show
twice fires the first time only, and times that they leave out fire once, at the moment of the change. An expression for
every hour (``*`` as the hours) names readings of the clock: it fires at each instant whose local time fits, so
``*/15 * * * *`` goes on every 15 minutes. Either way instants strictly increase.

``kikwiflow.missedFires`` says what happens to cycles that nobody fired in time:

- ``fire_once`` (default): the cycle that waited fires late, the others are dropped.
- ``skip``: a cycle that is more than ``MISSED_AFTER`` late does not run (``is_missed``), and takes no number.
- ``catch_up``: all of them fire, oldest first. If they are more than ``kikwiflow.maxCatchUp`` (default 100), the cycle
  that waited fires and then the newest ones, that many in all.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeVar
from zoneinfo import ZoneInfo

import isodate
from croniter import HOUR_FIELD, CroniterBadDateError, CroniterError, croniter

from kikwiflow_worker.engine.findings import at, is_blank, unreadable
from kikwiflow_worker.engine.time_values import delay_after, parse_instant
from kikwiflow_worker.errors import ExecutionError, Problem
from kikwiflow_worker.model.nodes import BoundaryNonInterruptiveTimer, SchedulePolicy, ScheduleType

TIME_ZONE = "kikwiflow.timeZone"
MISSED_FIRES = "kikwiflow.missedFires"
MAX_CATCH_UP = "kikwiflow.maxCatchUp"

MISSED_AFTER = timedelta(seconds=60)
"""What counts as missed under ``skip``: long enough for a worker to restart, whatever the interval."""

_DEFAULT_CATCH_UP = 100
_MOST_CATCH_UP = 1000
_LONGEST_EXPRESSION = 250
# 29 February on a given day of the week can be 40 years away.
_YEARS_SEARCHED = 50
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_SHORTEST_MONTH = timedelta(days=28)
_LONGEST_MONTH = timedelta(days=31)
# Schedules are checked by asking them for a date; which instant it is counted from does not matter.
_ANY_INSTANT = datetime(2026, 1, 1, tzinfo=UTC)

_T = TypeVar("_T")


class MissedFires(StrEnum):
    """What happens to cycles that were due while no worker ran."""

    FIRE_ONCE = "fire_once"
    SKIP = "skip"
    CATCH_UP = "catch_up"


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One cycle of a recurring timer; ``number`` counts from 1 and counts cycles that fire, not those dropped."""

    due_at: datetime
    number: int


class _Grid(Protocol):
    def after(self, instant: datetime) -> datetime | None:
        """Return the first instant of the schedule that is later, or None."""


def first_occurrence(node: BoundaryNonInterruptiveTimer, *, now: datetime) -> Occurrence | None:
    """Return the first cycle of a timer that is created at ``now``, or None if it never fires.

    Raises:
        ExecutionError: The schedule cannot be read or never matches; the message names the node and the field.
    """
    if not _may_fire(node, 1):
        return None
    with _naming(node):
        due_at = _grid(node, now.astimezone(UTC), None).after(now.astimezone(UTC))
    return None if due_at is None else Occurrence(due_at, 1)


def next_occurrence(
    node: BoundaryNonInterruptiveTimer,
    *,
    previous: datetime,
    occurrence: int,
    now: datetime,
    created_at: datetime | None = None,
    ran: bool = True,
) -> Occurrence | None:
    """Return the cycle after the one that was due at ``previous``, or None if there is none.

    It is always later than ``previous``, and later than ``now`` unless the timer catches up.

    Args:
        previous: When the present cycle was due, not when it fired.
        occurrence: The present cycle's number.
        created_at: The ``now`` of the first occurrence. Months and years are counted from it; without it from
            ``previous``, and then a day that one month lacks is lost for good.
        ran: False for a cycle that was missed and skipped: the next one takes its number.

    Raises:
        ExecutionError: The schedule cannot be read or never matches; the message names the node and the field.
    """
    number = occurrence + 1 if ran else occurrence
    if not _may_fire(node, number):
        return None
    previous, now = previous.astimezone(UTC), now.astimezone(UTC)
    with _naming(node):
        grid = _grid(node, previous, created_at)
        due_at = grid.after(previous)
        if due_at is not None and due_at <= now:
            due_at = grid.after(_dropped_until(grid, previous, now, _cycles_to_catch_up(node)))
    return None if due_at is None else Occurrence(due_at, number)


def is_missed(node: BoundaryNonInterruptiveTimer, *, due_at: datetime, now: datetime) -> bool:
    """Return whether a cycle must not run any more: it is too late and the timer skips what it missed.

    Raises:
        ExecutionError: The timer's ``kikwiflow.missedFires`` cannot be read.
    """
    with _naming(node):
        return _missed_fires(node) is MissedFires.SKIP and now - due_at > MISSED_AFTER


def check_schedule(node: BoundaryNonInterruptiveTimer) -> Iterator[Problem]:
    """Yield an error for each value of the schedule, and of its properties, that cannot be used."""
    policy = node.schedule_policy
    values: list[tuple[tuple[str | int, ...], str, Callable[[str], object]]] = []
    if policy is not None and policy.type is ScheduleType.FIXED_DATES:
        values += [
            (("schedulePolicy", "fixedDates", index), text, parse_instant)
            for index, text in enumerate(policy.fixed_dates)
        ]
    elif policy is not None and policy.type is not None:
        parse = _parse_rate if policy.type is ScheduleType.RATE_DURATION else _parse_cron_or_rate
        values.append((("schedulePolicy", "expression"), policy.expression or "", parse))
    values += [
        (("extensionProperties", name), node.extension_properties[name], parse_property)
        for name, parse_property in _PROPERTIES.items()
        if not is_blank(node.extension_properties.get(name))
    ]
    for path, text, read in values:
        try:
            read(text)
        except ExecutionError as reason:
            yield unreadable(at(node.id, *path), text, reason)


def _may_fire(node: BoundaryNonInterruptiveTimer, number: int) -> bool:
    policy = node.schedule_policy
    return policy is not None and (
        policy.max_occurrences is None or number <= policy.max_occurrences
    )


@contextmanager
def _naming(node: BoundaryNonInterruptiveTimer) -> Iterator[None]:
    try:
        yield
    except ExecutionError as reason:
        raise ExecutionError(f"recurring timer {node.id}: {reason}") from None
    except OverflowError:
        raise ExecutionError(
            f"recurring timer {node.id}: its next date is after the year 9999; write a shorter schedule"
        ) from None


def _read(name: str, text: str, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(text)
    except ExecutionError as reason:
        raise ExecutionError(f"{name} {text!r} cannot be used: {reason}") from None


def _property(
    node: BoundaryNonInterruptiveTimer, name: str, parse: Callable[[str], _T], default: _T
) -> _T:
    text = node.extension_properties.get(name)
    return default if text is None or is_blank(text) else _read(name, text, parse)


def _parse_zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text.strip())
    except (KeyError, ValueError, OSError):
        raise ExecutionError(
            "not a time zone; write an IANA name such as Europe/Berlin or America/Sao_Paulo"
        ) from None


def _parse_missed_fires(text: str) -> MissedFires:
    try:
        return MissedFires(text.strip().lower())
    except ValueError:
        raise ExecutionError(f"not a policy; write one of {', '.join(MissedFires)}") from None


def _parse_max_catch_up(text: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 6):
        raise ExecutionError(f"not a number; write one from 1 to {_MOST_CATCH_UP}")
    if not 1 <= int(digits) <= _MOST_CATCH_UP:
        raise ExecutionError(f"out of range; write a number from 1 to {_MOST_CATCH_UP}")
    return int(digits)


_UTC_ZONE = ZoneInfo("UTC")
_PROPERTIES: Mapping[str, Callable[[str], object]] = {
    TIME_ZONE: _parse_zone,
    MISSED_FIRES: _parse_missed_fires,
    MAX_CATCH_UP: _parse_max_catch_up,
}


def _missed_fires(node: BoundaryNonInterruptiveTimer) -> MissedFires:
    return _property(node, MISSED_FIRES, _parse_missed_fires, MissedFires.FIRE_ONCE)


def _cycles_to_catch_up(node: BoundaryNonInterruptiveTimer) -> int:
    """Return how many late cycles may follow the present one, which is late itself."""
    if _missed_fires(node) is not MissedFires.CATCH_UP:
        return 0
    return _property(node, MAX_CATCH_UP, _parse_max_catch_up, _DEFAULT_CATCH_UP) - 1


def _dropped_until(grid: _Grid, previous: datetime, now: datetime, keep: int) -> datetime:
    """Return the earliest instant, by whole seconds, after which at most ``keep`` cycles are due up to ``now``."""

    def leaves_few(seconds: int) -> bool:
        due_at = grid.after(previous + seconds * _SECOND)
        for _ in range(keep):
            if due_at is None or due_at > now:
                return True
            due_at = grid.after(due_at)
        return due_at is None or due_at > now

    if keep == 0:
        return now
    return previous + _SECOND * bisect_left(
        range((now - previous) // _SECOND + 1), x=True, key=leaves_few
    )


def _grid(
    node: BoundaryNonInterruptiveTimer, previous: datetime, created_at: datetime | None
) -> _Grid:
    policy = node.schedule_policy or SchedulePolicy()
    match policy.type:
        case None:
            raise ExecutionError("nothing says when it fires; give its schedulePolicy a type")
        case ScheduleType.FIXED_DATES:
            return _Dates([_read("fixedDates", text, parse_instant) for text in policy.fixed_dates])
        case ScheduleType.RATE_DURATION:
            schedule: _Cron | _Rate = _read("expression", policy.expression or "", _parse_rate)
        case ScheduleType.CRON:
            schedule = _read("expression", policy.expression or "", _parse_cron_or_rate)
    match schedule:
        case _Cron():
            return _LocalTimes(schedule, _property(node, TIME_ZONE, _parse_zone, _UTC_ZONE))
        case _Rate(months=0):
            return _Steps(previous, schedule)
        case _Rate():
            return _Steps(created_at or previous, schedule)


@dataclass(frozen=True, slots=True)
class _Dates:
    dates: Sequence[datetime]

    def after(self, instant: datetime) -> datetime | None:
        return min((date for date in self.dates if date > instant), default=None)


@dataclass(frozen=True, slots=True)
class _Rate:
    """A length of time: calendar months and the remainder, neither of them negative, not both zero."""

    months: int
    rest: timedelta


@dataclass(frozen=True, slots=True)
class _Steps:
    """``origin`` plus 1, 2, 3 ... times a rate."""

    origin: datetime
    rate: _Rate

    def after(self, instant: datetime) -> datetime:
        elapsed, rate = instant - self.origin, self.rate
        fewest = max(elapsed // (rate.months * _LONGEST_MONTH + rate.rest), 0) + 1
        most = max(elapsed // (rate.months * _SHORTEST_MONTH + rate.rest), 0) + 1
        candidates = range(fewest, most)
        is_later = bisect_left(candidates, x=True, key=lambda count: self._step(count) > instant)
        return self._step(fewest + is_later)

    def _step(self, count: int) -> datetime:
        if not self.rate.months:
            return self.origin + count * self.rate.rest
        try:
            moved: datetime = self.origin + isodate.Duration(months=count * self.rate.months)
        except ValueError as year:
            raise OverflowError from year
        return moved + count * self.rate.rest


class _Cron:
    """A cron expression, asked in readings of the local clock (naive, whole seconds).

    Attributes:
        is_every_hour: Whether it leaves the hours open: see the module's text about clock changes.
    """

    def __init__(self, text: str) -> None:
        fields = text.split()
        if len(fields) not in {5, 6} and not text.startswith("@"):
            raise _not_cron()
        # croniter reads R as a random number, drawn anew each time.
        if len(text) > _LONGEST_EXPRESSION or any(field[0] in "rR" for field in fields):
            raise _not_cron()
        try:
            self._dates = croniter(
                text,
                _ANY_INSTANT.replace(tzinfo=None),
                day_or=len(fields) != 6,
                max_years_between_matches=_YEARS_SEARCHED,
                second_at_beginning=True,
            )
        except (CroniterError, LookupError, TypeError, ValueError):
            raise _not_cron() from None
        self.is_every_hour = self._dates.expanded[HOUR_FIELD] == ["*"]

    def after(self, reading: datetime) -> datetime:
        try:
            following: datetime = self._dates.get_next(datetime, start_time=reading)
        except CroniterBadDateError:
            raise ExecutionError("no date ever matches; write days that its months have") from None
        except ValueError as year:
            raise OverflowError from year
        return following


@dataclass(frozen=True, slots=True)
class _LocalTimes:
    """A cron expression on the clocks of a time zone."""

    cron: _Cron
    zone: ZoneInfo

    def after(self, instant: datetime) -> datetime:
        instant = instant.replace(microsecond=0)
        if self.cron.is_every_hour:
            return self._next_fitting_instant(instant)
        return self._first_instant_of(self.cron.after(self._furthest_reading(instant)))

    def _next_fitting_instant(self, instant: datetime) -> datetime:
        offset = self._offset(instant)
        reading = instant + offset
        while True:
            due_at = self.cron.after(_naive(reading)).replace(tzinfo=UTC) - offset
            change = self._next_change(instant, due_at)
            if change is None:
                return due_at
            instant, offset = change, self._offset(change)
            reading = instant + offset - _SECOND

    def _furthest_reading(self, instant: datetime) -> datetime:
        """Return what the clock has shown at most: while it repeats a stretch, the end of that stretch."""
        local = instant.astimezone(self.zone)
        if not local.fold:
            return _naive(local)
        before = local.replace(fold=0).utcoffset() or timedelta(0)
        change = self._next_change(instant - (before - self._offset(instant)), instant)
        return _naive((change or instant) + before - _SECOND)

    def _first_instant_of(self, reading: datetime) -> datetime:
        """Return when the clock first shows ``reading``, or skips it."""
        first = reading.replace(tzinfo=self.zone, fold=0).astimezone(UTC)
        if _naive(first.astimezone(self.zone)) == reading:
            return first
        before = reading.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
        return self._next_change(before, first) or first

    def _next_change(self, instant: datetime, until: datetime) -> datetime | None:
        """Return the first instant, not later than ``until``, at which the offset of ``instant`` has changed."""
        offset = self._offset(instant)
        while instant < until:
            following = min(instant + _DAY, until)
            if self._offset(following) != offset:
                seconds = range((following - instant) // _SECOND)
                return instant + _SECOND * bisect_left(
                    seconds, x=True, key=lambda s: self._offset(instant + s * _SECOND) != offset
                )
            instant = following
        return None

    def _offset(self, instant: datetime) -> timedelta:
        return instant.astimezone(self.zone).utcoffset() or timedelta(0)


def _naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None, fold=0)


def _not_cron() -> ExecutionError:
    return ExecutionError(
        "not a schedule; write a cron expression of 5 fields such as 0 9 * * MON-FRI, or of 6 with seconds first"
    )


def _parse_rate(text: str) -> _Rate:
    rest = delay_after(text, _ANY_INSTANT) - _ANY_INSTANT
    if rest <= timedelta(0):
        raise ExecutionError("not longer than zero; write the time between two firings")
    date_part = text.upper().partition("T")[0]
    if "Y" not in date_part and "M" not in date_part:
        return _Rate(0, rest)
    try:
        length = isodate.parse_duration(text.strip().upper())
    except isodate.ISO8601Error:
        raise ExecutionError(
            "months or years beside a sign; write a duration such as P1M or P1Y"
        ) from None
    if isinstance(length, timedelta):
        return _Rate(0, rest)
    return _Rate(int(length.years * 12 + length.months), length.tdelta)


def _parse_cron_or_rate(text: str) -> _Cron | _Rate:
    if text.strip().upper().lstrip("+-").startswith("P"):
        return _parse_rate(text)
    cron = _Cron(text.strip())
    cron.after(_naive(_ANY_INSTANT))
    return cron
