"""When a recurring timer fires."""

from datetime import datetime, timedelta
from itertools import islice

import pytest

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
from tests.support.schedules import BERLIN, HOUR, NOON, a_timer, after, at, cron, cycles, hourly


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


@pytest.mark.field_case("S-57")
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


@pytest.mark.field_case("S-60")
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


# --- missed fires --------------------------------------------------------------------------------

DOWN = NOON + timedelta(hours=5, minutes=20)  # five more cycles are due by then
DAILY_DATES = [f"2026-03-0{day}T12:00:00Z" for day in range(3, 9)]


@pytest.mark.field_case("S-57", "S-59", "S-60")
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


@pytest.mark.field_case("S-59")
def test_a_timer_that_catches_up_fires_every_missed_cycle_in_order() -> None:
    assert fired_at_once(hourly("catch_up"), now=DOWN) == [NOON + n * HOUR for n in range(7)]


@pytest.mark.field_case("S-64")
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
