"""Hints from the change stream: what becomes claimable wakes, what does not lets sleep."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.runtime import Branch
from kikwiflow_worker.model.unit_of_work import ArriveTask, InsertTask, RemoveTask
from kikwiflow_worker.store.mongo.store import MongoStore, SilentObserver, StoreOptions
from tests.support.commands import CommandCounter
from tests.support.groups import HAND_ON, commit_group, put_claimed, step, unit_of
from tests.support.mongo import MongoServer
from tests.support.stores import (
    Json,
    a_branch_task,
    a_join,
    claim,
    claim_any,
    commit,
    put_task,
)

pytestmark = pytest.mark.mongo

SOON_S = 5.0
QUIET_S = 0.3
WAITS = 4
"""Requests that a stream holds open, one after the other, while nothing happens."""


class Listener:
    """Counts hints in the background."""

    def __init__(self, store: MongoStore) -> None:
        self.hints = 0
        self._store = store
        self._heard = asyncio.Event()
        self._task = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        async for _ in self._store.wake_ups.watch():
            self.hints += 1
            self._heard.set()

    async def hears(self) -> bool:
        """Return whether a hint comes soon."""
        try:
            await asyncio.wait_for(self._heard.wait(), SOON_S)
        except TimeoutError:
            return False
        self._heard.clear()
        return True

    async def stays_quiet(self) -> bool:
        """Return whether no hint comes for a while, not even behind one that must come."""
        await asyncio.sleep(QUIET_S)
        return not self._heard.is_set()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def listener(store: MongoStore, data: Database[Json]) -> AsyncIterator[Listener]:
    """Return a listener whose stream is open."""
    opened = Listener(store)
    for _ in range(50):
        await put_task(store)
        if opened.hints:
            break
        await asyncio.sleep(0.05)
    await opened.stays_quiet()
    assert await opened.hears(), "the stream is open"
    yield opened
    await opened.stop()


async def test_a_new_task_that_is_due_wakes(store: MongoStore, listener: Listener) -> None:
    await put_task(store)

    assert await listener.hears()


async def test_a_released_task_wakes(store: MongoStore, listener: Listener) -> None:
    held = await claim_any(store)
    assert held is not None
    assert await listener.stays_quiet(), "a claim wakes nobody"

    await store.queue.release(held.claim)

    assert await listener.hears()


async def test_a_join_whose_last_branch_arrived_wakes(
    store: MongoStore, listener: Listener
) -> None:
    join = a_join("b1")
    branch = a_branch_task(join, "b1")
    await commit(store, InsertTask(join), InsertTask(branch))
    assert await listener.hears()
    held = await claim(store, branch)

    await commit(store, guards=(ArriveTask(held, Branch("b1", join.id)),))

    assert await listener.hears()


async def test_what_is_handed_on_or_removed_wakes_nobody(
    store: MongoStore, listener: Listener
) -> None:
    made = await put_claimed(store, 4)
    assert await listener.hears()
    await listener.stays_quiet()
    before = listener.hints

    await commit_group(store, *(step(store, held) for _, _, held in made[:2]), hand_on=HAND_ON)
    await commit_group(store, *(unit_of(RemoveTask(held)) for _, _, held in made[2:]))

    await listener.stays_quiet()
    assert listener.hints == before


async def test_a_stream_on_which_nothing_happens_stays_open(
    mongo_server: MongoServer, data: Database[Json]
) -> None:
    counter = CommandCounter()
    client: AsyncMongoClient[Json] = AsyncMongoClient(
        mongo_server.uri, socketTimeoutMS=500, event_listeners=[counter]
    )
    store = MongoStore(
        client,
        data.name,
        clock=SystemClock(),
        options=StoreOptions(),
        observer=SilentObserver(),
        owns_client=True,
    )
    listener = Listener(store)
    assert await listener.hears()

    with counter.counting() as sent:
        while len(sent) < WAITS:
            await asyncio.sleep(0.05)

    assert sent == ["getMore"] * WAITS
    await listener.stop()
    await store.close()
