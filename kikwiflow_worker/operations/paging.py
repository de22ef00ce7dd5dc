"""Reading a list to its end, page after page."""

from collections.abc import AsyncIterator
from typing import Protocol, TypeVar

from kikwiflow_worker.store.views import Page

_PAGE = 500

Query_contra = TypeVar("Query_contra", contravariant=True)
Item = TypeVar("Item")


class Listing(Protocol[Query_contra, Item]):
    """One of the lists of ``RuntimeReads`` or of the client."""

    async def __call__(self, query: Query_contra, *, limit: int, cursor: str | None) -> Page[Item]:
        """Return one page."""
        ...


async def every(listing: Listing[Query_contra, Item], query: Query_contra) -> AsyncIterator[Item]:
    """Yield everything that a list has; what changes meanwhile is seen as it is when its page is read."""
    cursor: str | None = None
    while True:
        page = await listing(query, limit=_PAGE, cursor=cursor)
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
