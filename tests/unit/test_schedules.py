"""When a recurring timer fires."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kikwiflow_worker.engine.schedules import (
    MISSED_AFTER,
    Occurrence,
    check_schedule,
    first_occurrence,
    is_missed,
    next_occurrence,
)
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.nodes import BoundaryNonInterruptiveTimer

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def a_timer(
    schedule_type: str | None = None,
    expression: str | None = None,
    *,
    properties: dict[str, str] | None = None,
    **policy: object,
) -> BoundaryNonInterruptiveTimer:
    return BoundaryNonInterruptiveTimer.model_validate(
        {
            "id": "REMIND",
            "type": "BOUNDARY_NON_INTERRUPTIVE_TIMER",
            "schedulePolicy": {"type": schedule_type, "expression": expression, **policy},
            "extensionProperties": {
                f"kikwiflow.{name}": text for name, text in (properties or {}).items()
            },
        }
    )


def hourly(missed_fires: str | None = None, **properties: str) -> BoundaryNonInterruptiveTimer:
    named = {"missedFires": missed_fires} if missed_fires else {}
    return a_timer("RATE_DURATION", "PT1H", properties={**named, **properties})


def cron(expression: str, zone: str | None = None) -> BoundaryNonInterruptiveTimer:
    return a_timer("CRON", expression, properties={"timeZone": zone} if zone else {})


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def cycles(node: BoundaryNonInterruptiveTimer, *, since: datetime) -> Iterator[datetime]:
    """Yield the due times of a timer that is created at ``since`` and always fired in time."""
    cycle = first_occurrence(node, now=since)
    while cycle is not None:
        yield cycle.due_at
        cycle = next_occurrence(
            node,
            previous=cycle.due_at,
            occurrence=cycle.number,
            now=cycle.due_at,
            created_at=since,
        )


def local_cycles(expression: str, zone: str, since: str, count: int) -> list[str]:
    """Return the first cycles as a clock on the wall of ``zone`` shows them, with its offset."""
    start = datetime.fromisoformat(since).replace(tzinfo=ZoneInfo(zone))
    dues = islice(cycles(cron(expression, zone), since=start), count)
    return [f"{due.astimezone(ZoneInfo(zone)):%d %H:%M:%S %z}" for due in dues]


def after(
    node: BoundaryNonInterruptiveTimer, previous: datetime, *, now: datetime
) -> datetime | None:
    cycle = next_occurrence(node, previous=previous, occurrence=1, now=now)
    return None if cycle is None else cycle.due_at


def test_without_a_policy_a_timer_never_fires() -> None:
    node = BoundaryNonInterruptiveTimer(id="REMIND", type="BOUNDARY_NON_INTERRUPTIVE_TIMER")

    assert first_occurrence(node, now=NOON) is None
    assert next_occurrence(node, previous=NOON, occurrence=1, now=NOON) is None


def test_a_policy_without_a_type_is_an_error_that_names_the_timer() -> None:
    with pytest.raises(ExecutionError, match=r"timer REMIND: nothing says when it fires; give"):
        first_occurrence(a_timer(), now=NOON)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_timer_for_no_occurrences_is_never_created(limit: int) -> None:
    node = a_timer("RATE_DURATION", "PT1H", maxOccurrences=limit)

    assert first_occurrence(node, now=NOON) is None


def test_as_many_occurrences_exist_as_the_policy_allows() -> None:
    node = a_timer("RATE_DURATION", "PT1H", maxOccurrences=3)

    assert list(cycles(node, since=NOON)) == [NOON + HOUR, NOON + 2 * HOUR, NOON + 3 * HOUR]


def test_occurrences_are_numbered_from_one() -> None:
    first = first_occurrence(hourly(), now=NOON)
    second = next_occurrence(hourly(), previous=NOON + HOUR, occurrence=1, now=NOON + HOUR)

    assert first == Occurrence(NOON + HOUR, 1)
    assert second == Occurrence(NOON + 2 * HOUR, 2)


def test_a_cycle_that_is_fired_late_does_not_shift_the_next_one() -> None:
    late = NOON + timedelta(minutes=40)

    assert after(hourly(), NOON, now=late) == NOON + HOUR


@pytest.mark.parametrize("expression", ["PT0S", "-PT1H", "P0D", "P1DT-24H"])
@pytest.mark.parametrize("schedule_type", ["RATE_DURATION", "CRON"])
def test_a_duration_must_be_longer_than_zero(schedule_type: str, expression: str) -> None:
    with pytest.raises(
        ExecutionError, match=rf"expression '{expression}' .*: not longer than zero"
    ):
        first_occurrence(a_timer(schedule_type, expression), now=NOON)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (None, "not a duration"),
        ("hourly", "not a duration"),
        ("0 9 * * *", "not a duration"),
        ("P1MT-1H", "beside a sign"),
        ("P9000Y", "outside the years"),
    ],
)
def test_a_rate_that_cannot_be_read_is_an_error(expression: str | None, message: str) -> None:
    with pytest.raises(ExecutionError, match=f"REMIND: expression .* cannot be used: .*{message}"):
        first_occurrence(a_timer("RATE_DURATION", expression), now=NOON)


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [("pt5m", 300), ("P1DT-6H", 64_800), ("PT0.5S", 0.5), ("P1W", 604_800), ("P0Y0M1D", 86_400)],
)
def test_durations_are_read_as_the_java_engine_does(expression: str, seconds: float) -> None:
    first, second = islice(cycles(a_timer("RATE_DURATION", expression), since=NOON), 2)

    assert first - NOON == second - first == timedelta(seconds=seconds)


def test_a_month_keeps_its_day_after_a_shorter_month() -> None:
    dues = cycles(a_timer("RATE_DURATION", "P1M"), since=at("2026-01-31T09:00:00Z"))

    assert [f"{due:%m-%d %H}" for due in islice(dues, 4)] == [
        "02-28 09",
        "03-31 09",
        "04-30 09",
        "05-31 09",
    ]


def test_without_the_creation_a_month_is_counted_from_the_previous_cycle() -> None:
    february = at("2026-02-28T09:00:00Z")

    due = after(a_timer("RATE_DURATION", "P1M"), february, now=february)

    assert due == at("2026-03-28T09:00:00Z")


def test_a_year_from_the_leap_day_returns_to_the_leap_day() -> None:
    dues = cycles(a_timer("RATE_DURATION", "P1Y"), since=at("2024-02-29T00:00:00Z"))

    assert [f"{due:%Y-%m-%d}" for due in islice(dues, 4)] == [
        "2025-02-28",
        "2026-02-28",
        "2027-02-28",
        "2028-02-29",
    ]


def test_months_and_days_are_added_in_this_order() -> None:
    dues = cycles(a_timer("RATE_DURATION", "P1M1DT1H"), since=at("2026-01-31T09:00:00Z"))

    assert list(islice(dues, 2)) == [at("2026-03-01T10:00:00Z"), at("2026-04-02T11:00:00Z")]


def test_the_end_of_the_calendar_is_an_error_that_says_so() -> None:
    last = at("9999-12-31T23:30:00Z")

    with pytest.raises(ExecutionError, match="REMIND: its next date is after the year 9999"):
        after(hourly(), last, now=last)
    with pytest.raises(ExecutionError, match="REMIND: its next date is after the year 9999"):
        after(a_timer("RATE_DURATION", "P1M"), last, now=last)
    with pytest.raises(ExecutionError, match="REMIND: its next date is after the year 9999"):
        after(cron("0 0 1 1 *"), last, now=last)


def dated(*dates: str) -> BoundaryNonInterruptiveTimer:
    return a_timer("FIXED_DATES", fixedDates=list(dates))


def test_fixed_dates_fire_in_the_order_of_time_and_once_each() -> None:
    node = dated(
        "2026-05-01T00:00:00Z",
        "2026-03-01T00:00:00Z",
        "2026-04-01T02:00:00+02:00",
        "2026-04-01T00:00:00Z",
    )

    assert list(cycles(node, since=NOON)) == [
        at("2026-04-01T00:00:00Z"),
        at("2026-05-01T00:00:00Z"),
    ]


def test_the_date_itself_is_not_later_than_itself() -> None:
    assert first_occurrence(dated("2026-03-02T12:00:00Z"), now=NOON) is None


def test_no_dates_at_all_is_no_occurrence() -> None:
    assert first_occurrence(dated(), now=NOON) is None


def test_a_date_that_cannot_be_read_is_an_error_that_names_it() -> None:
    with pytest.raises(
        ExecutionError, match=r"fixedDates '2026-05-01' cannot be used: a date with"
    ):
        first_occurrence(dated("2026-04-01T00:00:00Z", "2026-05-01"), now=NOON)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/15 * * * *", "2026-03-02T12:15:00Z"),
        ("0 9 * * MON-FRI", "2026-03-03T09:00:00Z"),
        ("  0  9 * * 0 ", "2026-03-08T09:00:00Z"),
        ("0 9 * * 7", "2026-03-08T09:00:00Z"),
        ("0 0 L * ?", "2026-03-31T00:00:00Z"),
        ("0 0 * * FRI#1", "2026-03-06T00:00:00Z"),
        ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
        ("0 0 31 * *", "2026-03-31T00:00:00Z"),
        ("@daily", "2026-03-03T00:00:00Z"),
        ("30 * * * * *", "2026-03-02T12:00:30Z"),
        ("0 30 9 * * *", "2026-03-03T09:30:00Z"),
        ("0 0 9 ? * MON", "2026-03-09T09:00:00Z"),
        ("0 0 0 29 2 MON", "2044-02-29T00:00:00Z"),
        ("PT10M", "2026-03-02T12:10:00Z"),
        ("p1d", "2026-03-03T12:00:00Z"),
    ],
)
def test_a_cron_expression_has_five_fields_or_six_with_seconds_first_or_is_a_duration(
    expression: str, expected: str
) -> None:
    assert first_occurrence(cron(expression), now=NOON) == Occurrence(at(expected), 1)


def test_five_fields_take_either_day_field_and_six_fields_take_both() -> None:
    either = islice(cycles(cron("0 0 13 * FRI"), since=NOON), 3)
    both = islice(cycles(cron("0 0 0 13 * FRI"), since=NOON), 2)

    assert [f"{due:%m-%d}" for due in either] == ["03-06", "03-13", "03-20"]
    assert [f"{due:%m-%d}" for due in both] == ["03-13", "11-13"]


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 0 30 2 MON"])
def test_an_expression_that_never_matches_is_an_error(expression: str) -> None:
    with pytest.raises(ExecutionError, match=r"REMIND: expression .* no date ever matches; write"):
        first_occurrence(cron(expression), now=NOON)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "daily",
        "@reboot",
        "* * * *",
        "0 0 9 * * MON 2027",
        "60 * * * *",
        "0 24 * * *",
        "0 9 * * MON-",
        "*/0 * * * *",
        "R * * * *",
        "H * * * *",
        "0 0 * * 5L",
        "1," * 200 + "1 * * * *",
    ],
)
def test_what_is_no_cron_expression_is_refused(expression: str) -> None:
    with pytest.raises(ExecutionError, match="cannot be used: not a schedule; write a cron expr"):
        first_occurrence(cron(expression), now=NOON)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "Europe", "CET+1", "Zürich"])
def test_an_unknown_time_zone_is_an_error_that_names_it(zone: str) -> None:
    with pytest.raises(
        ExecutionError, match=r"REMIND: kikwiflow.timeZone '.*: not a time zone"
    ) as raised:
        first_occurrence(cron("0 9 * * *", zone), now=NOON)

    assert repr(zone) in str(raised.value)


def test_a_blank_time_zone_is_utc() -> None:
    assert first_occurrence(cron("0 9 * * *", " "), now=NOON) == Occurrence(
        at("2026-03-03T09:00:00Z"), 1
    )


BERLIN = "Europe/Berlin"
FALL_BACK = "2026-10-24T12:00:00"  # the clocks repeat 02:00 to 03:00 on the 25th
SPRING_FORWARD = "2026-03-28T12:00:00"  # the clocks leave out 02:00 to 03:00 on the 29th
LORD_HOWE = "Australia/Lord_Howe"  # half an hour


@pytest.mark.parametrize(
    ("expression", "zone", "since", "expected"),
    [
        pytest.param(
            "30 2 * * *",
            BERLIN,
            FALL_BACK,
            ["25 02:30:00 +0200", "26 02:30:00 +0100"],
            id="a repeated time fires the first time only",
        ),
        pytest.param(
            "0,30 1-3 * * *",
            BERLIN,
            FALL_BACK,
            [
                "25 01:00:00 +0200",
                "25 01:30:00 +0200",
                "25 02:00:00 +0200",
                "25 02:30:00 +0200",
                "25 03:00:00 +0100",
                "25 03:30:00 +0100",
                "26 01:00:00 +0100",
            ],
            id="times of the day around a repeated hour",
        ),
        pytest.param(
            "30 * * * *",
            BERLIN,
            "2026-10-25T01:00:00",
            ["25 01:30:00 +0200", "25 02:30:00 +0200", "25 02:30:00 +0100", "25 03:30:00 +0100"],
            id="every hour fires in the repeated hour as well",
        ),
        pytest.param(
            "*/15 * * * *",
            BERLIN,
            "2026-10-25T02:30:00",
            ["25 02:45:00 +0200", "25 02:00:00 +0100", "25 02:15:00 +0100"],
            id="every 15 minutes goes on when the clocks go back",
        ),
        pytest.param(
            "*/20 * 25 10 *",
            BERLIN,
            "2026-10-25T02:40:00",
            ["25 02:00:00 +0100", "25 02:20:00 +0100"],
            id="every hour of one day",
        ),
        pytest.param(
            "30 2 * * *",
            BERLIN,
            SPRING_FORWARD,
            ["29 03:00:00 +0200", "30 02:30:00 +0200"],
            id="a time left out fires when the clocks change",
        ),
        pytest.param(
            "*/15 2 * * *",
            BERLIN,
            SPRING_FORWARD,
            ["29 03:00:00 +0200", "30 02:00:00 +0200"],
            id="several times left out fire once",
        ),
        pytest.param(
            "0 2,3 * * *",
            BERLIN,
            SPRING_FORWARD,
            ["29 03:00:00 +0200", "30 02:00:00 +0200", "30 03:00:00 +0200"],
            id="a time left out and the one it falls on fire once",
        ),
        pytest.param(
            "*/15 * * * *",
            BERLIN,
            "2026-03-29T01:30:00",
            ["29 01:45:00 +0100", "29 03:00:00 +0200", "29 03:15:00 +0200"],
            id="every 15 minutes goes on when the clocks go forward",
        ),
        pytest.param(
            "30 * * * *",
            BERLIN,
            "2026-03-29T01:00:00",
            ["29 01:30:00 +0100", "29 03:30:00 +0200"],
            id="every hour fires an hour later when the clocks go forward",
        ),
        pytest.param(
            "0 0 * * *",
            "America/Sao_Paulo",
            "2018-11-03T12:00:00",
            ["04 01:00:00 -0200", "05 00:00:00 -0200"],
            id="a midnight that does not exist",
        ),
        pytest.param(
            "0 0 4 11 *",
            "America/Sao_Paulo",
            "2018-11-03T12:00:00",
            ["04 01:00:00 -0200", "04 00:00:00 -0300"],
            id="a midnight that does not exist, once a year",
        ),
        pytest.param(
            "45 1 * * *",
            LORD_HOWE,
            "2026-04-04T12:00:00",
            ["05 01:45:00 +1100", "06 01:45:00 +1030"],
            id="half an hour repeated",
        ),
        pytest.param(
            "*/15 * * * *",
            LORD_HOWE,
            "2026-04-05T01:30:00",
            ["05 01:45:00 +1100", "05 01:30:00 +1030", "05 01:45:00 +1030", "05 02:00:00 +1030"],
            id="every 15 minutes when half an hour is repeated",
        ),
        pytest.param(
            "15 2 * * *",
            LORD_HOWE,
            "2026-10-03T12:00:00",
            ["04 02:30:00 +1100", "05 02:15:00 +1100"],
            id="half an hour left out",
        ),
        pytest.param(
            "0 9 30 12 *",
            "Pacific/Apia",
            "2011-12-01T00:00:00",
            ["31 00:00:00 +1400", "30 09:00:00 +1400"],
            id="a whole day left out",
        ),
        pytest.param(
            "59 59 2 * * *",
            BERLIN,
            FALL_BACK,
            ["25 02:59:59 +0200", "26 02:59:59 +0100"],
            id="the last second before the clocks go back",
        ),
    ],
)
def test_the_change_of_the_clocks(
    expression: str, zone: str, since: str, expected: Sequence[str]
) -> None:
    assert local_cycles(expression, zone, since, len(expected)) == expected


@pytest.mark.parametrize("expression", ["30 2 * * *", "*/10 2 * * *", "* * 2 * * *"])
def test_counted_from_within_the_repeated_hour_times_of_the_day_wait_for_the_next_day(
    expression: str,
) -> None:
    second_pass = at("2026-10-25T02:20:00+01:00")

    cycle = first_occurrence(cron(expression, BERLIN), now=second_pass)

    assert cycle is not None
    assert cycle.due_at.astimezone(ZoneInfo(BERLIN)).day == 26


def test_counted_from_within_the_repeated_hour_the_time_at_its_end_is_still_to_come() -> None:
    second_pass = at("2026-10-25T02:20:00+01:00")

    cycle = first_occurrence(cron("0 3 * * *", BERLIN), now=second_pass)

    assert cycle == Occurrence(at("2026-10-25T03:00:00+01:00"), 1)


@pytest.mark.parametrize(
    ("zone", "since"),
    [
        (BERLIN, "2026-10-24T12:00:00Z"),
        (BERLIN, "2026-03-28T12:00:00Z"),
        ("America/Sao_Paulo", "2018-11-03T12:00:00Z"),
        ("America/Sao_Paulo", "2018-02-17T12:00:00Z"),
        (LORD_HOWE, "2026-04-04T03:00:00Z"),
        (LORD_HOWE, "2026-10-03T03:00:00Z"),
        ("Asia/Kathmandu", "2026-10-03T03:00:00Z"),
    ],
)
def test_every_15_minutes_is_every_15_minutes_whatever_the_clocks_do(zone: str, since: str) -> None:
    dues = list(islice(cycles(cron("*/15 * * * *", zone), since=at(since)), 160))

    assert {later - earlier for earlier, later in pairwise(dues)} == {timedelta(minutes=15)}


@pytest.mark.parametrize("zone", [BERLIN, "America/Sao_Paulo", LORD_HOWE])
@pytest.mark.parametrize("time", ["0 0", "45 1", "15 2", "30 2", "0 3"])
def test_a_time_of_the_day_fires_on_every_day_once(zone: str, time: str) -> None:
    dues = list(islice(cycles(cron(f"{time} * * *", zone), since=at("2018-01-01T12:00:00Z")), 400))

    days = [due.astimezone(ZoneInfo(zone)).date() for due in dues]
    assert [later - earlier for earlier, later in pairwise(days)] == [timedelta(days=1)] * 399


FIELD = st.one_of(st.just("*"), st.sampled_from(["*/2", "*/7", "0", "1,2"]))
EXPRESSIONS = st.one_of(
    st.builds(
        lambda minute, hour, day, weekday: f"{minute} {hour} {day} * {weekday}",
        st.one_of(FIELD, st.integers(0, 59).map(str)),
        st.one_of(FIELD, st.integers(0, 23).map(str)),
        st.sampled_from(["*", "1", "25-31", "L"]),
        st.sampled_from(["*", "SUN", "0-3"]),
    ),
    st.builds(lambda second, hour: f"{second} * {hour} * * *", FIELD, FIELD),
    st.sampled_from(["0 0 29 2 *", "* * 29 3 *", "0 30 2 L * ?"]),
)
ZONES = st.sampled_from(
    ["UTC", BERLIN, "America/Sao_Paulo", LORD_HOWE, "Pacific/Apia", "Africa/Casablanca"]
)
# The hours around the changes of the clocks, where a mistake would be.
INSTANTS = st.builds(
    lambda start, offset: start + timedelta(seconds=offset),
    st.sampled_from(
        [
            at("2026-10-25T01:00:00Z"),
            at("2026-03-29T01:00:00Z"),
            at("2018-11-04T03:00:00Z"),
            at("2018-02-18T02:00:00Z"),
            at("2026-04-04T15:00:00Z"),
            at("2026-10-03T15:30:00Z"),
            at("2011-12-30T10:00:00Z"),
            at("2024-02-29T00:00:00Z"),
        ]
    ),
    st.floats(-90_000, 90_000),
)


@settings(max_examples=150, deadline=2000)
@given(expression=EXPRESSIONS, zone=ZONES, since=INSTANTS)
def test_cycles_strictly_increase(expression: str, zone: str, since: datetime) -> None:
    dues = list(islice(cycles(cron(expression, zone), since=since), 12))

    assert all(earlier < later for earlier, later in pairwise([since, *dues]))


@settings(max_examples=100, deadline=2000)
@given(minutes=st.sets(st.integers(0, 59), min_size=1, max_size=4), zone=ZONES, since=INSTANTS)
def test_every_hour_fires_at_each_instant_whose_local_minute_fits(
    minutes: set[int], zone: str, since: datetime
) -> None:
    node = cron(f"{','.join(map(str, minutes))} * * * *", zone)
    minute = since.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while minute.astimezone(ZoneInfo(zone)).minute not in minutes:
        minute += timedelta(minutes=1)

    assert first_occurrence(node, now=since) == Occurrence(minute, 1)


@settings(max_examples=100, deadline=2000)
@given(
    expression=EXPRESSIONS,
    zone=ZONES,
    since=INSTANTS,
    later=st.floats(0, 90_000).map(lambda seconds: timedelta(seconds=seconds)),
)
def test_the_next_cycle_does_not_depend_on_where_one_looks_from(
    expression: str, zone: str, since: datetime, later: timedelta
) -> None:
    node = cron(expression, zone)
    first = first_occurrence(node, now=since)
    assert first is not None

    seen = first_occurrence(node, now=min(since + later, first.due_at - timedelta(microseconds=1)))

    assert seen == first


# --- missed fires --------------------------------------------------------------------------------

DOWN = NOON + timedelta(hours=5, minutes=20)  # five more cycles are due by then
DAILY_DATES = [f"2026-03-0{day}T12:00:00Z" for day in range(3, 9)]


@pytest.mark.parametrize("missed_fires", [None, "fire_once", " FIRE_ONCE ", "skip"])
def test_after_downtime_the_next_cycle_is_the_first_on_the_grid_after_now(
    missed_fires: str | None,
) -> None:
    assert after(hourly(missed_fires), NOON, now=DOWN) == NOON + 6 * HOUR


def test_a_cycle_that_is_due_right_now_is_not_later_than_now() -> None:
    assert after(hourly(), NOON, now=NOON + HOUR) == NOON + 2 * HOUR
    assert after(hourly(), NOON, now=NOON + 5 * HOUR) == NOON + 6 * HOUR


def test_after_downtime_cron_and_fixed_dates_go_on_after_now() -> None:
    dates = a_timer("FIXED_DATES", fixedDates=DAILY_DATES)

    assert after(cron("0 9 * * *", BERLIN), NOON, now=NOON + 100 * HOUR) == at(
        "2026-03-07T08:00:00Z"
    )
    assert after(dates, NOON, now=NOON + 100 * HOUR) == at(DAILY_DATES[4])
    assert after(dates, NOON, now=NOON + 1000 * HOUR) is None


def test_after_downtime_months_stay_on_the_grid() -> None:
    cycle = next_occurrence(
        a_timer("RATE_DURATION", "P1M"),
        previous=at("2026-02-28T09:00:00Z"),
        occurrence=1,
        now=at("2031-04-30T10:00:00Z"),
        created_at=at("2026-01-31T09:00:00Z"),
    )

    assert cycle == Occurrence(at("2031-05-31T09:00:00Z"), 2)


def test_dropped_cycles_take_no_number() -> None:
    cycle = next_occurrence(hourly(), previous=NOON, occurrence=3, now=DOWN)

    assert cycle == Occurrence(NOON + 6 * HOUR, 4)


def test_only_a_timer_that_skips_misses_a_cycle_and_only_a_late_one() -> None:
    in_time, too_late = NOON + MISSED_AFTER, NOON + MISSED_AFTER + timedelta(milliseconds=1)

    assert is_missed(hourly("skip"), due_at=NOON, now=too_late)
    assert not is_missed(hourly("skip"), due_at=NOON, now=in_time)
    assert not is_missed(hourly("catch_up"), due_at=NOON, now=too_late)
    assert not is_missed(hourly(), due_at=NOON, now=too_late)


def test_a_skipped_cycle_leaves_its_number_to_the_next() -> None:
    node = a_timer("RATE_DURATION", "PT1H", maxOccurrences=1, properties={"missedFires": "skip"})

    cycle = next_occurrence(node, previous=NOON, occurrence=1, now=DOWN, ran=False)

    assert cycle == Occurrence(NOON + 6 * HOUR, 1)
    assert next_occurrence(node, previous=NOON, occurrence=1, now=DOWN) is None


def fired_at_once(node: BoundaryNonInterruptiveTimer, *, now: datetime) -> list[datetime]:
    """Return the due times of all cycles that fire at ``now`` after the one of ``NOON``, and of the one after."""
    dues = [NOON]
    while dues[-1] <= now:
        due = after(node, dues[-1], now=now)
        assert due is not None
        dues.append(due)
    return dues


def test_a_timer_that_catches_up_fires_every_missed_cycle_in_order() -> None:
    assert fired_at_once(hourly("catch_up"), now=DOWN) == [NOON + n * HOUR for n in range(7)]


@pytest.mark.parametrize(
    ("limit", "hours"),
    [
        ("1", [0, 6]),
        ("2", [0, 5, 6]),
        ("3", [0, 4, 5, 6]),
        ("6", [*range(7)]),
        ("1000", [*range(7)]),
    ],
)
def test_catching_up_fires_at_most_the_limit_and_drops_the_oldest(
    limit: str, hours: list[int]
) -> None:
    node = hourly("catch_up", maxCatchUp=limit)

    assert fired_at_once(node, now=DOWN) == [NOON + n * HOUR for n in hours]


@pytest.mark.parametrize(
    "node",
    [
        a_timer("CRON", "* * * * * *", properties={"missedFires": "catch_up", "timeZone": BERLIN}),
        a_timer("RATE_DURATION", "PT1S", properties={"missedFires": "catch_up"}),
    ],
)
def test_catching_up_after_months_is_bounded_by_default(node: BoundaryNonInterruptiveTimer) -> None:
    now = NOON + timedelta(days=90)

    dues = fired_at_once(node, now=now)

    assert dues == [NOON, *(now + timedelta(seconds=n) for n in range(-98, 2))]


def test_fixed_dates_and_months_are_caught_up_as_well() -> None:
    catch_up = {"missedFires": "catch_up", "maxCatchUp": "3"}
    dates = a_timer("FIXED_DATES", fixedDates=DAILY_DATES, properties=catch_up)
    monthly = a_timer("RATE_DURATION", "P1M", properties=catch_up)

    assert after(dates, NOON, now=NOON + timedelta(days=30)) == at(DAILY_DATES[-2])
    assert after(monthly, NOON, now=at("2026-12-31T00:00:00Z")) == at("2026-11-02T12:00:00Z")


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"missedFires": "never"}, "missedFires 'never' .* write one of fire_once, skip, catch_up"),
        ({"missedFires": "catch_up", "maxCatchUp": "all"}, "maxCatchUp 'all' .* not a number"),
        ({"missedFires": "catch_up", "maxCatchUp": "0"}, "maxCatchUp '0' .* out of range"),
        ({"missedFires": "catch_up", "maxCatchUp": "1001"}, "maxCatchUp '1001' .* from 1 to 1000"),
    ],
)
def test_a_property_that_cannot_be_read_is_an_error_when_it_matters(
    properties: dict[str, str], message: str
) -> None:
    node = a_timer("RATE_DURATION", "PT1H", properties=properties)

    with pytest.raises(ExecutionError, match=f"timer REMIND: kikwiflow.{message}"):
        after(node, NOON, now=DOWN)


def test_a_schedule_that_can_be_used_has_no_problems() -> None:
    properties = {"timeZone": BERLIN, "missedFires": "catch_up", "maxCatchUp": "5"}

    assert not [*check_schedule(a_timer("CRON", "0 0 9 * * MON", properties=properties))]
    assert not [*check_schedule(a_timer("CRON", "PT5M", properties={"timeZone": ""}))]
    assert not [*check_schedule(a_timer("RATE_DURATION", "P1M"))]
    assert not [*check_schedule(dated("2026-05-01T00:00:00Z"))]
    assert not [*check_schedule(a_timer())]


@pytest.mark.parametrize(
    ("node", "path", "message"),
    [
        (cron("0 0 30 2 *"), "schedulePolicy.expression", "no date ever matches"),
        (cron("* * * * * * *"), "schedulePolicy.expression", "not a schedule"),
        (cron("PT0S"), "schedulePolicy.expression", "not longer than zero"),
        (a_timer("RATE_DURATION", "* * * * *"), "schedulePolicy.expression", "not a duration"),
        (dated("2026-05-01T00:00:00Z", "soon"), "schedulePolicy.fixedDates[1]", "not a time value"),
    ],
)
def test_a_schedule_that_cannot_be_used_is_a_problem_at_its_path(
    node: BoundaryNonInterruptiveTimer, path: str, message: str
) -> None:
    (problem,) = check_schedule(node)

    assert problem.path == f"flowNodes.REMIND.{path}"
    assert problem.is_error
    assert message in problem.message
    assert problem.hint


def test_every_property_that_cannot_be_used_is_a_problem() -> None:
    properties = {"timeZone": "Mars", "missedFires": "never", "maxCatchUp": "-1"}

    problems = [*check_schedule(a_timer("RATE_DURATION", "PT1H", properties=properties))]

    assert [problem.message.split(";")[0] for problem in problems] == [
        "'Mars' cannot be used: not a time zone",
        "'never' cannot be used: not a policy",
        "'-1' cannot be used: not a number",
    ]
    assert all("extensionProperties" in problem.path for problem in problems)
