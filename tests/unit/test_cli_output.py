"""What commands print: values as JSON, distances in time, tables that fit."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from kikwiflow_worker.cli.output import clean, first_line, plain, print_table, when
from kikwiflow_worker.model.plain_json import to_json
from tests.support.cli import restored_logging

__all__ = ["restored_logging"]

pytestmark = pytest.mark.usefixtures("restored_logging")

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)


def test_values_become_json() -> None:
    values = {
        "price": Decimal("1.50"),
        "at": NOW,
        "raw": b"\x00\xff",
        "id": UUID(int=1),
        "odd": float("nan"),
        "list": [1, 2.5, None, True, "text"],
    }

    assert to_json(values) == {
        "price": "1.50",
        "at": "2024-05-01T12:00:00.000Z",
        "raw": "AP8=",
        "id": "00000000-0000-0000-0000-000000000001",
        "odd": "nan",
        "list": [1, 2.5, None, True, "text"],
    }
    assert plain({"price": Decimal(1)}) == '{"price": "1"}'


@pytest.mark.parametrize(
    ("distance", "words"),
    [
        (timedelta(0), "now"),
        (timedelta(seconds=-90), "90s ago"),
        (timedelta(minutes=-5), "5m ago"),
        (timedelta(hours=3), "in 3h"),
        (timedelta(days=9), "in 9d"),
    ],
)
def test_distances_in_time_are_short(distance: timedelta, words: str) -> None:
    assert when(NOW + distance, NOW) == words


def test_printed_text_moves_no_cursor_and_hides_passwords() -> None:
    assert (
        clean("a\x1b[2Jb\x07\nmongodb://user:s3cr3t@db")
        == "a\ufffd[2Jb\ufffd\nmongodb://user:***@db"
    )


def test_a_long_message_is_shown_by_its_first_line() -> None:
    assert first_line("\nfirst\nsecond") == "first"
    assert first_line("x" * 500) == "x" * 200 + "…"
    assert first_line("") is None


def test_a_narrow_table_keeps_ids_whole_and_puts_details_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    row_id = str(UUID(int=1))

    print_table(("ID", "NODE"), [(row_id, "N" * 60)], details=["the reason"], next_cursor="abc")

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(f"{row_id}  NNN")
    assert "    the reason" in lines
    assert lines[-1].endswith("--cursor abc")
    assert max(map(len, lines)) <= 80


def test_a_table_in_a_pipe_is_not_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)

    print_table(("ID", "NODE"), [("1", "N" * 300)])

    assert capsys.readouterr().out == f"ID  NODE\n1   {'N' * 300}\n"
