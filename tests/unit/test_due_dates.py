"""When a timer is due."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kikwiflow_worker.engine.due_dates import due_at
from kikwiflow_worker.errors import ExecutionError
from tests.support.engine import NOON


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("PT1H", NOON + timedelta(hours=1)),
        ("-PT1H", NOON - timedelta(hours=1)),
        ("2026-12-31T23:59:59+02:00", datetime(2026, 12, 31, 21, 59, 59, tzinfo=UTC)),
        (timedelta(minutes=90), NOON + timedelta(minutes=90)),
        (datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
        (
            datetime(2027, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            datetime(2027, 1, 1, tzinfo=UTC),
        ),
    ],
)
def test_a_due_date_is_an_instant_or_a_length_of_time_from_now(
    value: str | datetime | timedelta, expected: datetime
) -> None:
    assert due_at(value, now=NOON, timer="WAIT") == expected
    assert due_at(value, now=NOON, timer="WAIT").tzinfo is UTC


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("tomorrow", "not a time value"),
        ("", "not a time value"),
        ("2026-12-31", "a date without a time"),
        (datetime(2027, 1, 1), "no time zone"),
        (timedelta.max, "out of range"),
        ("P9999Y", "outside the years 1 to 9999"),
    ],
)
def test_what_is_no_due_date_is_refused(value: str | datetime | timedelta, message: str) -> None:
    with pytest.raises(ExecutionError, match=f"timer WAIT: .*{message}"):
        due_at(value, now=NOON, timer="WAIT")
