"""Feeds share looks, bound how often and how long they look, and end when they are told to."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import pytest

from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.management.feeds import MOST_READERS, Feeds, Watched
from kikwiflow_worker.management.problems import KeysUnavailableError, TooManyStreamsError

READERS = 20


class HandClock:
    """A clock that a test sets; who sleeps by it sleeps until he is cancelled."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


class QuickClock(HandClock):
    """A clock on which every sleep is over at once."""

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class Counter:
    """Something to look at that changes with every look."""

    def __init__(self) -> None:
        self.looks = 0
        self.is_away = False

    async def __call__(self) -> int:
        self.looks += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise StoreUnavailableError("away")
        return self.looks


class Door:
    """Says whether a reader is let in, or that nobody knows."""

    def __init__(self) -> None:
        self.is_open = True
        self.error: Exception | None = None

    async def __call__(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.is_open


def follow(
    feeds: Feeds, look: Counter, key: str = "a", door: Door | None = None
) -> AsyncGenerator[int, None]:
    return feeds.follow(lambda: Watched(key, look), 2.0, door or Door())


async def test_readers_at_the_same_time_share_one_look() -> None:
    feeds, look = Feeds(HandClock()), Counter()
    readers = [follow(feeds, look) for _ in range(READERS)]

    seen = await asyncio.gather(*(anext(reader) for reader in readers))

    assert seen == [1] * READERS
    assert feeds.readers == READERS
    for reader in readers:
        await reader.aclose()
    assert feeds.readers == 0


async def test_who_comes_later_within_the_interval_gets_what_was_seen() -> None:
    clock, look = HandClock(), Counter()
    feeds = Feeds(clock)
    first = follow(feeds, look)
    assert await anext(first) == 1

    clock.at = 0.9
    second = follow(feeds, look)
    assert await anext(second) == 1
    clock.at = 1.1
    third = follow(feeds, look)
    assert await anext(third) == 2


async def test_what_was_seen_is_forgotten_with_the_last_reader() -> None:
    feeds, look = Feeds(HandClock()), Counter()
    reader = follow(feeds, look)
    assert await anext(reader) == 1
    await reader.aclose()

    assert await anext(follow(feeds, look)) == 2


async def test_different_things_are_looked_at_apart() -> None:
    feeds, one, other = Feeds(HandClock()), Counter(), Counter()

    await anext(follow(feeds, one, "a"))
    await anext(follow(feeds, other, "b"))

    assert (one.looks, other.looks) == (1, 1)


async def test_nobody_waits_in_line_for_a_database_that_is_away() -> None:
    feeds, look = Feeds(HandClock()), Counter()
    look.is_away = True
    readers = [asyncio.ensure_future(anext(follow(feeds, look))) for _ in range(READERS)]
    for _ in range(10):
        await asyncio.sleep(0)

    assert look.looks == 1
    feeds.stop()
    ended = await asyncio.gather(*readers, return_exceptions=True)
    assert {type(each) for each in ended} == {StopAsyncIteration}


async def test_a_feed_ends_with_the_look_after_which_its_reader_is_not_let_in_any_more() -> None:
    feeds, look, door = Feeds(QuickClock()), Counter(), Door()
    reader = follow(feeds, look, door=door)
    assert await anext(reader) == 1

    door.is_open = False

    assert [found async for found in reader] == []
    assert look.looks == 2
    assert feeds.readers == 0


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), KeysUnavailableError("away")])
async def test_nothing_is_told_while_nobody_knows_who_the_reader_is(error: Exception) -> None:
    look, door = Counter(), Door()
    feeds = Feeds(QuickClock(), longest_s=10.0)
    reader = follow(feeds, look, door=door)
    assert await anext(reader) == 1

    door.error = error
    told = asyncio.ensure_future(anext(reader))
    while look.looks < 3:
        await asyncio.sleep(0)
    assert not told.done()
    door.error = None

    assert await told >= 3


async def test_a_feed_ends_after_its_longest_time() -> None:
    look = Counter()
    feeds = Feeds(QuickClock(), longest_s=10.0)

    seen = [found async for found in follow(feeds, look)]

    assert seen == [1, 2, 3, 4, 5]
    assert feeds.readers == 0


async def test_a_server_has_only_so_many_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds, look = Feeds(HandClock()), Counter()
    readers = [follow(feeds, look) for _ in range(MOST_READERS)]
    await asyncio.gather(*(anext(reader) for reader in readers))

    with pytest.raises(TooManyStreamsError, match="500 streams are open"):
        feeds.check_room()
    await readers.pop().aclose()
    feeds.check_room()


def test_a_fingerprint_tells_states_apart_and_nothing_of_them() -> None:
    feeds = Feeds(HandClock())

    assert feeds.fingerprint(("a", 1)) == feeds.fingerprint(("a", 1))
    assert feeds.fingerprint(("a", 1)) != feeds.fingerprint(("a", 2))
    assert feeds.fingerprint(("a", 1)) != Feeds(HandClock()).fingerprint(("a", 1))
