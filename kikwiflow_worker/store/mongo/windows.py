"""Pages and counts that examine a bounded part of an index, however little of it fits.

A look knows an index, the filter that the index answers, and the rest, which is tested row by row. Without a rest it stops at
the page's last row. With one it may find little, so it ends at a boundary: the last row of as many as may be examined. The
boundary is looked for first, in the keys of the index alone, so that what is stored meanwhile is neither skipped nor shown twice.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kikwiflow_worker.store.mongo.driver import Collection, Document, fetched, settled
from kikwiflow_worker.store.mongo.keyset import Order, Position
from kikwiflow_worker.store.search import COUNT_CAP, EXAMINED_PER_COUNT, Count

MAX_TIME_MS = 5_000
"""Of one query."""

MAX_RANGES = 150
"""Ranges of an index that one query merges; the server sorts in memory from 200 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One way into a collection.

    Attributes:
        index: Its name; the server is told to use it.
        found: The filter that leads its keys: equalities, and a range of what orders it.
        tail: What further fields of the index decide.
        rest: What only the documents decide.
        is_covered: Whether the keys alone answer all but the rest.
    """

    collection: Collection
    index: str
    order: Order
    found: Document
    tail: Document = field(default_factory=dict)
    rest: Document = field(default_factory=dict)
    is_covered: bool = True

    @property
    def tested(self) -> Document:
        """What is tested row by row."""
        return every(self.tail, self.rest)

    def with_rest(self, more: Document) -> "Look":
        """Return it with more to be tested on the documents."""
        return replace(self, rest=every(self.rest, more))


@dataclass(frozen=True, slots=True)
class Window:
    """Rows in their order, and the position up to which there are no others; None: there are none behind it."""

    rows: tuple[Document, ...]
    reached: Position | None


def every(*conditions: Document) -> Document:
    """Return the filter for what meets all conditions."""
    given = [condition for condition in conditions if condition]
    return {"$and": given} if len(given) > 1 else given[0] if given else {}


async def read_page(
    looks: Sequence[Look], *, after: Position | None, limit: int, budget: int
) -> Window:
    """Return the first ``limit`` rows that any of ``looks`` finds, which share their order, after a position.

    Args:
        budget: Rows to examine at most, all looks together.
    """
    if not looks:
        return Window((), None)
    order = looks[0].order
    share = max(limit + 1, budget // len(looks))
    windows = await asyncio.gather(*(_read(look, after, limit + 1, share) for look in looks))
    ends = [window.reached for window in windows if window.reached is not None]
    end = min(ends, key=order.rank) if ends else None
    rows = sorted(
        (row for window in windows for row in window.rows),
        key=lambda row: order.rank(order.position_of(row)),
    )
    known = [
        row for row in rows if end is None or order.rank(order.position_of(row)) <= order.rank(end)
    ]
    if len(known) > limit:
        return Window(tuple(known[:limit]), order.position_of(known[limit - 1]))
    return Window(tuple(known), end)


async def _read(look: Look, after: Position | None, wanted: int, budget: int) -> Window:
    ahead = every(look.found, look.order.after(after) if after else {})
    boundary = await _boundary(look, after, budget) if look.tested else None
    found = every(ahead, look.tested, look.order.up_to(boundary) if boundary else {})
    cursor = look.collection.find(found, max_time_ms=MAX_TIME_MS, hint=look.index)
    rows = tuple(await fetched(cursor.sort(look.order.sort), wanted))
    return Window(rows, look.order.position_of(rows[-1]) if len(rows) == wanted else boundary)


async def _boundary(look: Look, after: Position | None, budget: int) -> Position | None:
    """Return the position of the last row that may be examined; None if the list ends before it."""
    if after is None:
        return await _nth(look, {}, budget)
    # Rows of the very instant are counted in: without their ids the keys alone answer.
    reached = await _nth(look, look.order.from_instant(after), budget)
    if reached is None or look.order.rank(reached) > look.order.rank(after):
        return reached
    return await _nth(look, look.order.after(after), budget)


async def _nth(look: Look, ahead: Document, number: int) -> Position | None:
    keys = {"_id": 1, look.order.field: 1}
    found = every(look.found, ahead)
    cursor = look.collection.find(found, keys, max_time_ms=MAX_TIME_MS, hint=look.index)
    rows = await fetched(cursor.sort(look.order.sort).skip(number - 1), 1)
    return look.order.position_of(rows[0]) if rows else None


async def count(looks: Sequence[Look]) -> Count:
    """Return how many rows ``looks`` find, all together."""
    return add(await asyncio.gather(*map(_count, looks)))


def add(counts: Sequence[Count]) -> Count:
    """Return the sum, up to the cap."""
    value = sum(each.value for each in counts)
    is_capped = any(each.is_capped for each in counts) or value > COUNT_CAP
    return Count(min(value, COUNT_CAP), is_capped)


async def _count(look: Look) -> Count:
    most = COUNT_CAP if look.is_covered and not look.rest else EXAMINED_PER_COUNT
    found = [{"$match": look.found}] if look.found else []
    reached = await _number(look, [*found, {"$limit": most + 1}])
    if not look.tested or not reached:
        return Count(min(reached, most), reached > most)
    value = await _number(look, [*found, {"$limit": most}, {"$match": look.tested}])
    return Count(value, reached > most)


async def _number(look: Look, stages: list[dict[str, Any]]) -> int:
    pipeline = [*stages, {"$group": {"_id": None, "number": {"$sum": 1}}}]
    rows = await settled(
        look.collection.aggregate(pipeline, maxTimeMS=MAX_TIME_MS, hint=look.index)
    )
    numbers = await rows.to_list(1)
    return int(numbers[0]["number"]) if numbers else 0
