"""Pages of what the store gives as a whole because it is never much."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.store.views import Page

T = TypeVar("T")


def paged(
    rows: Sequence[T], *, limit: int, cursor: str | None, key: Callable[[T], tuple[Any, ...]]
) -> Page[T]:
    """Return the page of ``rows`` behind ``cursor``; ``key`` is what they are ordered by.

    Raises:
        OperationError: The cursor is not one that a page gave.
    """
    try:
        after = _decode(cursor) if cursor else None
        behind = [row for row in rows if after is None or key(row) > after]
    except (ValueError, TypeError, RecursionError) as error:
        raise OperationError(
            "the cursor is not one that a page gave; start again without it"
        ) from error
    shown = tuple(behind[:limit])
    return Page(shown, _encode(key(shown[-1])) if len(behind) > limit else None)


def _encode(after: tuple[Any, ...]) -> str:
    return base64.urlsafe_b64encode(json.dumps(after).encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[Any, ...]:
    after = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    if not isinstance(after, list) or not after:
        raise ValueError("a cursor is a list of what comes last")
    return tuple(after)
