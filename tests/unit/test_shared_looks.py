"""Callers at the same time share a look, and nobody gets one that began before he asked."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kikwiflow_worker.store.mongo.shared_looks import SharedLooks


class Database:
    """Counts looks; each waits until it is let go on, and finds its own number."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Event] = []
        self.fails = False

    async def look(self, what: str) -> str:
        gate = asyncio.Event()
        self.waiting.append(gate)
        number = len(self.waiting)
        await gate.wait()
        if self.fails:
            raise RuntimeError("away")
        return f"{what} {number}"

    async def let_go(self, number: int) -> None:
        await turns()
        self.waiting[number - 1].set()
        await turns()


async def turns() -> None:
    """Let everybody go on who can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def see(database: Database) -> Callable[[str], Awaitable[str]]:
    return SharedLooks(database.look).see


async def test_who_comes_during_a_look_shares_the_next_one(
    database: Database, see: Callable[[str], Awaitable[str]]
) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(see("A"))
        await turns()
        others = [group.create_task(see("A")) for _ in range(5)]
        await database.let_go(1)
        await database.let_go(2)

    assert first.result() == "A 1"
    assert [other.result() for other in others] == ["A 2"] * 5
    assert len(database.waiting) == 2


async def test_different_things_are_looked_at_apart(
    database: Database, see: Callable[[str], Awaitable[str]]
) -> None:
    async with asyncio.TaskGroup() as group:
        seen = [group.create_task(see(what)) for what in "AB"]
        await database.let_go(1)
        await database.let_go(2)

    assert [one.result() for one in seen] == ["A 1", "B 2"]


async def test_a_look_that_fails_fails_for_all_who_share_it(
    database: Database, see: Callable[[str], Awaitable[str]]
) -> None:
    first = asyncio.ensure_future(see("A"))
    await turns()
    others = [asyncio.ensure_future(see("A")) for _ in range(3)]
    await database.let_go(1)
    database.fails = True
    await database.let_go(2)
    database.fails = False

    results = await asyncio.gather(first, *others, return_exceptions=True)
    assert [str(result) for result in results] == ["A 1", "away", "away", "away"]
    assert len(database.waiting) == 2


async def test_a_caller_who_gives_up_takes_nobody_with_him(
    database: Database, see: Callable[[str], Awaitable[str]]
) -> None:
    first = asyncio.ensure_future(see("A"))
    await turns()
    others = [asyncio.ensure_future(see("A")) for _ in range(3)]
    await database.let_go(1)
    others[0].cancel()
    await database.let_go(2)
    await database.let_go(3)

    results = await asyncio.gather(first, *others, return_exceptions=True)
    assert isinstance(results[1], asyncio.CancelledError)
    assert [results[0], *results[2:]] == ["A 1", "A 3", "A 3"]
