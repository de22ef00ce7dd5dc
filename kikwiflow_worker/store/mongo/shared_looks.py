"""One look at the database for all who want to see the same thing at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Look(Generic[T]):
    """A look that is under way; ``number`` says how many began before it."""

    number: int
    found: asyncio.Future[T]


class SharedLooks(Generic[K, T]):
    """Shares looks between callers on one event loop, and answers nobody with what was seen before they asked.

    A caller who comes while a look is under way waits for the next one, together with all who came meanwhile. So each
    sees what he would have seen alone, and many at once cost two looks instead of one each.

    Args:
        look: Looks in the database.
    """

    def __init__(self, look: Callable[[K], Awaitable[T]]) -> None:
        self._look = look
        self._under_way: dict[K, _Look[T]] = {}
        self._begun = 0

    async def see(self, what: K) -> T:
        """Return what a look finds that begins after this call.

        Raises:
            Exception: What the look raised, to all who share it: one by one they would wait for a database that is away.
        """
        begun_before = self._begun
        while (current := self._under_way.get(what)) is not None:
            await asyncio.wait([current.found])
            is_mine = current.number >= begun_before
            if is_mine and not current.found.cancelled():
                return current.found.result()
        return await self._see_now(what)

    async def _see_now(self, what: K) -> T:
        look: _Look[T] = _Look(self._begun, asyncio.get_running_loop().create_future())
        self._under_way[what] = look
        self._begun += 1
        try:
            found = await self._look(what)
        except Exception as error:
            look.found.set_exception(error)
            # Nobody may be waiting: the future must not complain that nobody heard of it.
            look.found.exception()
            raise
        else:
            look.found.set_result(found)
            return found
        finally:
            del self._under_way[what]
            # If this caller was cancelled, those who share his look begin another one.
            look.found.cancel()
