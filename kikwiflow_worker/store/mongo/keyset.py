"""Keyset pages: a list goes on behind the last row that was seen, however many rows came before it."""

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.store.mongo.driver import Document

Position: TypeAlias = tuple[datetime, str]
"""Of a row in its list: the instant that orders it, and its id."""


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a list: a date field, and the id where dates are equal."""

    field: str
    newest_first: bool

    @property
    def sort(self) -> list[tuple[str, int]]:
        """What the server sorts by."""
        return [(self.field, -1 if self.newest_first else 1), ("_id", 1)]

    def after(self, position: Position) -> Document:
        """Return the filter for what comes after ``position``."""
        at, row_id = position
        return self._bounded("$lte" if self.newest_first else "$gte", at, {"$lte": row_id})

    def from_instant(self, position: Position) -> Document:
        """Return the filter for what comes after ``position``, and for all rows of its instant."""
        return {self.field: {"$lte" if self.newest_first else "$gte": position[0]}}

    def up_to(self, position: Position) -> Document:
        """Return the filter for what comes before ``position``, and for the row that is there."""
        at, row_id = position
        return self._bounded("$gte" if self.newest_first else "$lte", at, {"$gt": row_id})

    def _bounded(self, bound: str, at: datetime, left_out: Document) -> Document:
        # Said as what is left out among equals: from alternatives the server may make a plan that sorts in memory.
        return {self.field: {bound: at}, "$nor": [{self.field: at, "_id": left_out}]}

    def position_of(self, row: Document) -> Position:
        """Return where ``row`` is in the list."""
        return row[self.field], row["_id"]

    def rank(self, position: Position) -> tuple[float, str]:
        """Return what sorts positions in this order."""
        seconds = position[0].timestamp()
        return -seconds if self.newest_first else seconds, position[1]


STARTED = Order("startedAt", newest_first=True)
CREATED = Order("createdAt", newest_first=False)
NEWEST = Order("createdAt", newest_first=True)
DUE = Order("dueDate", newest_first=False)


def encode_cursor(position: Position) -> str:
    """Return a position as callers get it."""
    return encode_parts(position[0].isoformat(), position[1])


def decode_cursor(cursor: str) -> Position:
    """Return the position that a caller gives back.

    Raises:
        OperationError: It is not one that a page gave.
    """
    try:
        at, last_id = decode_parts(cursor)
        check_texts(id=last_id)
        return instant(at), str(last_id)
    except (ValueError, TypeError, OverflowError, OperationError) as error:
        raise unknown_cursor() from error


def instant(text: object) -> datetime:
    """Return the instant of a cursor; a text that is none raises ValueError or TypeError."""
    return datetime.fromisoformat(text).astimezone(UTC)  # type: ignore[arg-type]


def encode_parts(*parts: object) -> str:
    """Return the parts of a position as one text."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def decode_parts(cursor: str) -> list[object]:
    """Return the parts that ``encode_parts`` was given.

    Raises:
        OperationError: It is not one that a page gave.
    """
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        parts: list[object] = list(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise unknown_cursor() from error
    return parts


def unknown_cursor() -> OperationError:
    """Return the error for a cursor that no page gave."""
    return OperationError("the cursor is not one that a page gave; start again without it")
