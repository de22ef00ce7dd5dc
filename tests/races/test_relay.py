"""Relays that die or stand still in the middle of a round: nothing is lost, and each instance keeps its order."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count

import pytest

from kikwiflow_worker.relay.message import Message
from kikwiflow_worker.relay.relay import Relay
from kikwiflow_worker.store.relay import ClaimedSlice, FailedEvent, Round, StoredEvent, slice_of
from tests.support.relay import SINK, ListSink, RelayBench, bench
from tests.support.stores import leaking_driver

__all__ = ["bench", "leaking_driver"]

# A relay that dies while it connects leaves a socket that the driver forgets; it is collected now or later.
pytestmark = [
    pytest.mark.mongo,
    pytest.mark.usefixtures("leaking_driver"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
    ),
]


class Writers:
    """Store events as commits do: in transactions, several at once, each instance's one after the other."""

    def __init__(self, bench: RelayBench, chance: random.Random) -> None:
        self._bench = bench
        self._chance = chance
        self.written: dict[str, list[str]] = {}

    async def write(self, instance: str, commits: int) -> None:
        numbers = count()
        for _ in range(commits):
            ids = [f"{instance}/{next(numbers)}" for _ in range(self._chance.randint(1, 3))]
            async with self._bench.client.start_session() as session:
                await session.start_transaction()
                await self._bench.put(*ids, instance=instance, session=session)
                await asyncio.sleep(self._chance.random() * 0.005)
                await session.commit_transaction()
            self.written.setdefault(instance, []).extend(ids)


class FatalSink(ListSink):
    """Takes some events, the last of which is the end of its relay: nothing of that round is recorded."""

    def __init__(
        self, refuses: Callable[[Message], Awaitable[None]], log: list[Message], left: int
    ) -> None:
        super().__init__(refuses)
        self._log = log
        self._left = left
        self.is_over = asyncio.Event()

    async def deliver(self, message: Message) -> None:
        """Take it and note it; after the last one return never."""
        await super().deliver(message)
        self._log.append(message)
        self._left -= 1
        if self._left <= 0:
            self.is_over.set()
            await asyncio.Event().wait()


async def live_and_die(relay: Relay, sink: FatalSink, bench: RelayBench, life_s: float) -> None:
    """Run a relay until its sink or time ends it, wherever it is then; its lock lapses at once, so that no test waits for it."""
    running = asyncio.ensure_future(relay.run())
    with suppress(TimeoutError):
        await asyncio.wait_for(sink.is_over.wait(), life_s)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await bench.make_due()


async def check_chaos(
    bench: RelayBench, *, seed: int, instances: int, commits: int, lives: int
) -> tuple[int, int]:
    """Let relays die while events are written; return how many events there were, and how many deliveries."""
    chance = random.Random(seed)
    writers = Writers(bench, chance)
    log: list[Message] = []  # what all sinks took, in the order in which they did

    async def moody(message: Message) -> None:
        await asyncio.sleep(chance.random() * 0.002)
        if chance.random() < 0.05:
            raise OSError("not now")

    async def reincarnate(name: int) -> None:
        for life in range(lives):
            sink = FatalSink(moody, log, chance.randint(1, 30))
            relay = bench.relay(sink, owner=f"relay-{name}.{life}", most_strikes=1000)
            await live_and_die(relay, sink, bench, chance.random())

    async with asyncio.TaskGroup() as group:
        for number in range(instances):
            group.create_task(writers.write(f"I-{number}", commits))
        for name in range(3):
            group.create_task(reincarnate(name))

    last = bench.relay(FatalSink(at_once, log, 1_000_000), owner="last")
    while set((await bench.statuses()).values()) != {"RELAYED"}:
        await bench.make_due()
        await last.send_ready()
    for instance, ids in writers.written.items():
        assert list(dict.fromkeys(one.id for one in log if one.instance_id == instance)) == ids
    return len({one.id for one in log}), len(log)


async def at_once(_: Message) -> None:
    """Refuse nothing."""


async def test_relays_that_die_in_the_middle_lose_nothing_and_keep_the_order(
    bench: RelayBench,
) -> None:
    events, deliveries = await check_chaos(bench, seed=11, instances=12, commits=10, lives=3)

    assert events > 150
    assert deliveries > events  # some rounds did end in the middle


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(20))
async def test_relays_that_die_very_often(bench: RelayBench, seed: int) -> None:
    await check_chaos(bench, seed=seed, instances=40, commits=25, lives=15)


async def test_a_relay_that_stood_still_changes_nothing_when_it_goes_on(
    bench: RelayBench,
) -> None:
    await bench.put("a", "b", "c")
    standing, may_go_on = asyncio.Event(), asyncio.Event()

    async def stand_still_at_b(message: Message) -> None:
        if message.id == "b":
            standing.set()
            await may_go_on.wait()
            raise OSError("the connection is long gone")

    slow, quick = ListSink(stand_still_at_b), ListSink()
    async with asyncio.TaskGroup() as group:
        still = group.create_task(bench.relay(slow, owner="slow").send_ready())
        await standing.wait()
        await bench.make_due()  # its lock lapses
        await bench.relay(quick, owner="quick").run_until_idle()
        may_go_on.set()

    (round_,) = still.result()
    assert [len(round_.delivered), len(round_.failed)] == [1, 1]
    assert quick.of("I-1") == ["a", "b", "c"]
    assert set((await bench.statuses()).values()) == {"RELAYED"}


async def test_a_drop_during_a_round_leaves_nothing_held_for_ever(bench: RelayBench) -> None:
    """A round that holds what is behind a dead letter, and a person who drops it: one of the two comes second and sees the other."""
    for number in range(10):
        await bench.events.delete_many({})
        await bench.put("dead", "next")
        claimed = await claim(bench)
        dead, _ = claimed.events
        failed = Round(delivered=(), failed=[a_death(dead)])
        assert await bench.store.relay.record(claimed, failed)
        await bench.put("later")

        async with asyncio.TaskGroup() as group:
            if number % 2:
                group.create_task(claim(bench))
            dropped = group.create_task(bench.store.relay_care.drop("dead", by=None))
            if not number % 2:
                group.create_task(claim(bench))

        assert dropped.result()
        statuses = await bench.statuses()
        assert (statuses["next"], statuses["later"]) == ("PENDING", "PENDING")
        await bench.make_due()


async def claim(bench: RelayBench) -> ClaimedSlice | None:
    return await bench.store.relay.claim(
        slice_of("I-1"), sink=SINK, owner="one", lock=timedelta(seconds=30), limit=10
    )


def a_death(event: StoredEvent) -> FailedEvent:
    return FailedEvent(event=event, strikes=1, error="no", retry_at=None)
