"""What commands print: tables and fields for people, one JSON document for programs."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kikwiflow_worker.model.plain_json import iso, to_json
from kikwiflow_worker.model.texts import storable
from kikwiflow_worker.telemetry import mask_credentials

_UNLIMITED_WIDTH = 4000
"""Of a table that goes into a file or a pipe, where a wrapped line could not be searched."""

_LEAST_WIDTH = 80
"""Of a table; on a narrower terminal its lines are wrapped by the terminal."""

_ID_WIDTH = 40
"""Up to here the first column is never folded, so that an id can be copied."""

_WORD_WIDTH = 10
"""Up to here no other column is folded."""

_LONGEST_LINE = 200

_DETAIL = "\ue000"
"""Stands for a detail while a table is laid out; ``clean`` lets no such character into a cell."""

_STYLES = {
    "ACTIVE": "cyan",
    "LOCKED": "cyan",
    "COMPLETED": "green",
    "RESOLVED": "green",
    "alive": "green",
    "ok": "green",
    "CANCELLED": "yellow",
    "CANCELLING": "yellow",
    "SUSPENDED": "yellow",
    "silent": "yellow",
    "skip": "dim",
    "warn": "yellow",
    "ERROR": "red",
    "OPEN": "red",
    "fail": "bold red",
}


def record_of(value: object, *, without: Sequence[str] = ()) -> dict[str, object]:
    """Return a dataclass as the JSON object that stands for it, but for some of its fields."""
    record = to_json(value)
    if not isinstance(record, dict):
        raise TypeError(f"{type(value).__name__} is no record")
    return {name: item for name, item in record.items() if name not in without}


def print_json(value: object) -> None:
    """Print one JSON document; half of a surrogate pair, as in the name of a file, is escaped."""
    click.echo(storable(json.dumps(to_json(value), indent=2, ensure_ascii=False, allow_nan=False)))


def masked(value: object) -> object:
    """Return a value in JSON's types, with passwords in URIs masked: for what we say, not for what a process holds."""
    match to_json(value):
        case str(text):
            return mask_credentials(text)
        case list(items):
            return [masked(item) for item in items]
        case dict(items):
            return {name: masked(item) for name, item in items.items()}
        case other:
            return other


def print_json_items(items: Sequence[object], next_cursor: str | None = None) -> None:
    """Print a list as JSON; ``next_cursor`` continues it and is null at its end."""
    print_json({"items": items, "next_cursor": next_cursor})


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    empty: str = "",
    details: Sequence[str | None] = (),
    next_cursor: str | None = None,
) -> None:
    """Print rows for people.

    Args:
        headers: Of the columns; one that ends in ``#`` is a number and aligned so.
        rows: Cells; None is shown as a dash.
        empty: What to print instead of a table without rows.
        details: For each row a text to print in a line of its own below it, or None.
        next_cursor: Where the next page begins, if there is one.
    """
    if not rows:
        click.echo(empty)
        return
    cells = [[_cell(value) for value in row] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for position, header in enumerate(headers):
        longest = max(len(row[position]) for row in cells)
        words = header.rstrip("#").split(" ")
        table.add_column(
            "\n".join(words),
            justify="right" if header.endswith("#") else "left",
            min_width=max(len(word) for word in words),
            no_wrap=longest <= (_WORD_WIDTH if position else _ID_WIDTH),
            overflow="fold",
        )
    texts = iter([detail for detail in details if detail])
    for row, detail in zip_longest(cells, details):
        table.add_row(*row)
        if detail:
            table.add_row(_DETAIL)
    for line in _lines(table):
        click.echo(f"    {clean(next(texts))}" if line.startswith(_DETAIL) else line)
    if next_cursor is not None:
        click.echo(f"\nthere are more: repeat the command with --cursor {next_cursor}")


def print_fields(values: Mapping[str, object]) -> None:
    """Print one thing, a line for each of its fields; a field that is None is left out."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in values.items():
        if value is not None:
            table.add_row(name, _cell(value))
    _print(table)


def print_heading(text: str) -> None:
    """Print a heading after an empty line."""
    click.echo()
    _print(Text(text, style="bold underline"))


def plain(value: object) -> str:
    """Return a variable's value in one line, as its JSON."""
    return json.dumps(to_json(value), ensure_ascii=False, allow_nan=False)


def when(at: datetime | None, now: datetime) -> str | None:
    """Return how far an instant is from ``now``, as ``5m ago`` or ``in 2h``."""
    if at is None:
        return None
    length = abs(at - now)
    if length < timedelta(seconds=1):
        return "now"
    return f"in {_length(length)}" if at > now else f"{_length(length)} ago"


def exactly(at: datetime | None, now: datetime) -> str | None:
    """Return an instant, and how far it is from ``now``."""
    return None if at is None else f"{iso(at)} ({when(at, now)})"


def clean(text: str) -> str:
    """Return text that moves no cursor, with passwords in URIs masked."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else "\ufffd"
        for character in mask_credentials(text)
    )


def _length(length: timedelta) -> str:
    seconds = int(length.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _cell(value: object) -> Text:
    text = "-" if value is None else clean(str(value))
    return Text(text, style=_STYLES.get(text, ""))


def _print(content: Table | Text) -> None:
    for line in _lines(content):
        click.echo(line)


def _lines(content: Table | Text) -> list[str]:
    width = _UNLIMITED_WIDTH
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        width = max(_LEAST_WIDTH, Console().width)
    console = Console(file=sys.stdout, width=width, highlight=False)
    with console.capture() as captured:
        console.print(content)
    return [line.rstrip() for line in captured.get().rstrip("\n").split("\n")]


def first_line(text: str | None) -> str | None:
    """Return the beginning of a text, in one line; None for nothing."""
    line = text.strip().partition("\n")[0] if text else ""
    return (line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + "…") or None
