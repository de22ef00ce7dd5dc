"""Values as people type them into forms."""

from datetime import UTC, datetime

import pytest

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.management.web.reading import MAX_VALUE, read_day, read_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("150", 150),
        (" 1.5 ", 1.5),
        ("true", True),
        ("null", None),
        ("twelve", "twelve"),
        ('"150"', "150"),
        ('{"a": [1]}', {"a": [1]}),
        ("NaN", "NaN"),
        ("1e999", "1e999"),
        ("9" * 5_000, "9" * 5_000),
        ("", ""),
    ],
)
def test_a_value_is_json_where_it_is_and_text_elsewhere(text: str, value: object) -> None:
    assert read_value("Value", text) == value


@pytest.mark.parametrize("text", ["{", "[1,", '"open', "[" * 100_000, "x" * (MAX_VALUE + 1)])
def test_what_begins_like_json_and_is_not_is_refused_by_name(text: str) -> None:
    with pytest.raises(OperationError, match=r"^Price "):
        read_value("Price", text)


def test_a_day_begins_at_midnight_in_utc_unless_it_says_otherwise() -> None:
    assert read_day("Since", "2026-11-30") == datetime(2026, 11, 30, tzinfo=UTC)
    assert read_day("Since", "2026-11-30T02:00+02:00") == datetime(2026, 11, 30, tzinfo=UTC)
    assert read_day("Since", " ") is None
    with pytest.raises(OperationError, match="Since must be a date such as"):
        read_day("Since", "yesterday")
