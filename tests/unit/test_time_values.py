"""ISO-8601 values as authors write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kikwiflow_worker.engine.time_values import delay_after, parse_instant, parse_time_value
from kikwiflow_worker.errors import ExecutionError

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-31T23:59:59Z", datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("2026-12-31t23:59:59z", datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("2026-12-31T23:59:59.250Z", datetime(2026, 12, 31, 23, 59, 59, 250_000, tzinfo=UTC)),
        ("2026-12-31T23:59:59.123456789Z", datetime(2026, 12, 31, 23, 59, 59, 123_456, tzinfo=UTC)),
        ("2026-12-31T23:59:59+02:00", datetime(2026, 12, 31, 21, 59, 59, tzinfo=UTC)),
        (" 2026-12-31T23:59Z ", datetime(2026, 12, 31, 23, 59, tzinfo=UTC)),
    ],
)
def test_an_instant_with_an_offset_is_taken_as_it_is(text: str, expected: datetime) -> None:
    instant = parse_time_value(text, now=NOW)

    assert instant == expected
    assert instant.tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("PT1H", timedelta(hours=1)),
        ("P1D", timedelta(days=1)),
        ("P1DT2H", timedelta(days=1, hours=2)),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("PT0,5S", timedelta(milliseconds=500)),
        ("pt5m", timedelta(minutes=5)),
        ("PT0S", timedelta()),
        ("+PT1M", timedelta(minutes=1)),
        ("P2W", timedelta(weeks=2)),
        ("-PT1H", timedelta(hours=-1)),
        ("PT-6H", timedelta(hours=-6)),
        ("-PT-6H", timedelta(hours=6)),
        ("P1DT-1H", timedelta(hours=23)),
    ],
)
def test_a_duration_is_added_to_now(text: str, length: timedelta) -> None:
    assert parse_time_value(text, now=NOW) == NOW + length
    assert delay_after(text, NOW) == NOW + length


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1M", datetime(2026, 2, 28, 12, 0, tzinfo=UTC)),
        ("P1Y", datetime(2027, 1, 31, 12, 0, tzinfo=UTC)),
        ("P1M1D", datetime(2026, 3, 1, 12, 0, tzinfo=UTC)),
        ("-P2M", datetime(2025, 11, 30, 12, 0, tzinfo=UTC)),
    ],
)
def test_months_and_years_follow_the_calendar(text: str, expected: datetime) -> None:
    assert parse_time_value(text, now=NOW) == expected


def test_the_result_is_utc_whatever_zone_now_is_in() -> None:
    now = NOW.astimezone(timezone(timedelta(hours=5)))

    due_at = parse_time_value("PT1H", now=now)

    assert due_at == NOW + timedelta(hours=1)
    assert due_at.tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-12-31", "a date without a time"),
        ("2026-12-31T23:59:59", "without an offset"),
        ("2026-02-30T00:00:00Z", "not a time value"),
        ("10 minutes", "not a time value"),
        ("60", "not a time value"),
        ("", "not a time value"),
        ("tomorrow", "not a time value"),
        ("P", "not a duration"),
        ("PT", "not a duration"),
        ("P1DT", "not a duration"),
        ("-P", "not a duration"),
        ("PT1H30", "not a duration"),
        ("P0.5Y", "not a duration"),
        ("PT\u0663H", "not a duration"),
        ("PT1H\nPT1H", "not a duration"),
    ],
)
def test_anything_else_is_refused_with_what_to_write(text: str, reason: str) -> None:
    with pytest.raises(ExecutionError, match=reason) as caught:
        parse_time_value(text, now=NOW)

    assert "write" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "P9000Y",
        "-P3000Y",
        "P99999999D",
        "P" + "9" * 60 + "D",
        "P" + "9" * 60 + "M",
        "9999-12-31T23:59:59-14:00",
    ],
)
def test_an_instant_outside_the_calendar_is_refused(text: str) -> None:
    with pytest.raises(ExecutionError, match="outside the years 1 to 9999"):
        parse_time_value(text, now=NOW)


@pytest.mark.parametrize("text", ["P" + "9" * 100_000 + "D", "2026T" + "0" * 100_000])
def test_an_endless_text_is_refused(text: str) -> None:
    with pytest.raises(ExecutionError, match="not a"):
        parse_time_value(text, now=NOW)


def test_a_refusal_does_not_repeat_the_text() -> None:
    with pytest.raises(ExecutionError) as caught:
        parse_time_value("secret-token", now=NOW)

    assert "secret-token" not in str(caught.value)


def test_an_instant_is_no_delay() -> None:
    with pytest.raises(ExecutionError, match="not a duration"):
        delay_after("2026-12-31T23:59:59Z", NOW)


def test_a_duration_is_no_instant() -> None:
    with pytest.raises(ExecutionError, match="not a time value"):
        parse_instant("PT1H")
