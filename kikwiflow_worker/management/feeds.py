"""What changes while somebody watches it: looked at once for all who watch the same, and only while somebody does.

Nothing runs in the background. Whoever watches looks again after an interval; who comes within the same interval, or while a
look is under way, gets what that look found. Before anybody gets it, it is found out again who that is; a feed ends when
they would not be let in any more, when the server stops, and after ``LONGEST_S`` in any case: a browser comes back by itself
and goes on where it was.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, Generic, TypeVar

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.management.problems import KeysUnavailableError, TooManyStreamsError

T = TypeVar("T")

SHORTEST_INTERVAL_S = 1.0
LONGEST_INTERVAL_S = 60.0
HEARTBEAT_S = 15
"""Without anything new a comment is sent, so that no proxy takes the connection for dead."""

LONGEST_S = 300.0
MOST_READERS = 500


@dataclass(frozen=True, slots=True)
class Watched(Generic[T]):
    """What somebody watches.

    Attributes:
        key: Equal for those who may share a look: it holds the tenant that they see.
        look: Looks in the database.
    """

    key: Hashable
    look: Callable[[], Awaitable[T]]


@dataclass(slots=True)
class _Latest:
    """The last look, and who may make the next one."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    begun_at: float | None = None
    found: Any = None


class Feeds:
    """The feeds of one server, on one event loop."""

    def __init__(self, clock: Clock, *, longest_s: float = LONGEST_S) -> None:
        self._clock = clock
        self._longest_s = longest_s
        self._stopping = asyncio.Event()
        self._latest: dict[Hashable, _Latest] = {}
        self._readers: Counter[Hashable] = Counter()
        self._secret = token_bytes(32)

    @property
    def readers(self) -> int:
        """How many watch something now."""
        return self._readers.total()

    def stop(self) -> None:
        """Let all feeds end."""
        self._stopping.set()

    def fingerprint(self, state: object) -> str:
        """Return a text that is equal for equal states and tells nothing of them; it must have an unambiguous ``repr``."""
        return blake2b(repr(state).encode(), key=self._secret, digest_size=12).hexdigest()

    def check_room(self) -> None:
        """Refuse one more reader where there are too many.

        Raises:
            TooManyStreamsError: There are.
        """
        if self.readers >= MOST_READERS:
            raise TooManyStreamsError(
                f"{MOST_READERS} streams are open, which is the limit; close some, or start another server"
            )

    async def follow(
        self,
        next_look: Callable[[], Watched[T]],
        interval_s: float,
        is_let_in: Callable[[], Awaitable[bool]],
    ) -> AsyncGenerator[T, None]:
        """Yield what is found now, and again after every interval, as long as the reader is let in.

        While the database is away, or nobody can say who the reader is, nothing comes.

        Args:
            next_look: Returns what to look at next; it may go on from what was found.
            interval_s: Taken as the nearest one that is allowed.
            is_let_in: Asked after each look, so that nothing is told on an answer from before it.
        """
        interval_s = min(max(interval_s, SHORTEST_INTERVAL_S), LONGEST_INTERVAL_S)
        ends_at = self._clock.monotonic() + self._longest_s
        while not self._stopping.is_set() and self._clock.monotonic() < ends_at:
            watched = next_look()
            with self._reading(watched.key):
                try:
                    found = await self._see(watched, interval_s)
                    goes_on = await is_let_in()
                except (StoreUnavailableError, KeysUnavailableError):
                    pass
                else:
                    if not goes_on:
                        return
                    yield found
                await self._wait(interval_s)

    async def _see(self, watched: Watched[T], interval_s: float) -> T:
        latest = self._latest.setdefault(watched.key, _Latest())
        asked_at = self._clock.monotonic()
        async with latest.turn:
            # Half an interval: who looks every interval must not get again what he has seen.
            if latest.begun_at is None or latest.begun_at < asked_at - interval_s / 2:
                begun_at = self._clock.monotonic()
                try:
                    latest.found = await watched.look()
                except StoreUnavailableError as error:
                    # For all: one after the other they would each wait for a database that is away.
                    latest.found = error
                latest.begun_at = begun_at
            if isinstance(latest.found, StoreUnavailableError):
                raise latest.found
            found: T = latest.found
            return found

    async def _wait(self, seconds: float) -> None:
        """Wait, but not for a server that stops."""
        async with asyncio.TaskGroup() as group:
            waits = {
                group.create_task(self._clock.sleep(seconds)),
                group.create_task(self._stopping.wait()),
            }
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    @contextmanager
    def _reading(self, key: Hashable) -> Iterator[None]:
        self._readers[key] += 1
        try:
            yield
        finally:
            self._readers[key] -= 1
            if not self._readers[key]:
                del self._readers[key]
                self._latest.pop(key, None)
