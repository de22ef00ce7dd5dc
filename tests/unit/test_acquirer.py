"""The claim loop, with a queue of ten lines."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from kikwiflow_worker.acquirer.acquirer import Acquirer, AcquirerHooks, AcquirerOptions
from kikwiflow_worker.acquirer.pacing import Pacing
from kikwiflow_worker.acquirer.slots import Slots
from kikwiflow_worker.errors import StoreError, StoreUnavailableError
from kikwiflow_worker.model.capability import NO_CAPABILITIES, Capabilities
from kikwiflow_worker.model.runtime import Claim, ClaimedTask
from kikwiflow_worker.telemetry import Metrics
from kikwiflow_worker.testing import ManualClock
from tests.unit.test_claim_book import a_claimed_task


@dataclass
class FakeQueue:
    """Gives out ``tasks`` one by one; an exception in the list is raised."""

    tasks: list[ClaimedTask | StoreError | None]
    on_empty: Callable[[], None] = lambda: None
    asked: int = 0
    swept: int = 0

    async def claim_due(
        self, *, worker_id: str, lock: timedelta, capabilities: Capabilities, limit: int
    ) -> tuple[ClaimedTask, ...]:
        self.asked += 1
        if not self.tasks:
            self.on_empty()
            return ()
        task = self.tasks.pop(0)
        if isinstance(task, StoreError):
            raise task
        return (task,) if task else ()

    async def claim(self, task_id: str, *, worker_id: str, lock: timedelta) -> ClaimedTask | None:
        raise NotImplementedError

    async def release(self, claim: Claim) -> bool:
        raise NotImplementedError

    async def deliver_arrivals(self, *, limit: int) -> int:
        self.swept += 1
        return 0


@dataclass
class Bench:
    """An acquirer with its surroundings, which stops when the queue is empty."""

    queue: FakeQueue
    slots: Slots = field(default_factory=lambda: Slots(2))
    may_claim: bool = True
    dispatched: list[str] = field(default_factory=list)
    heard: list[StoreError | None] = field(default_factory=list)
    progressed: int = 0
    clock: ManualClock = field(default_factory=ManualClock)
    on_dispatch: Callable[[ClaimedTask], None] = lambda _: None

    def __post_init__(self) -> None:
        self.acquirer = Acquirer(
            self.queue,
            self.slots,
            Pacing(shortest_s=0.001, longest_s=0.001, jitter=random.Random(1)),
            options=AcquirerOptions(
                worker_id="w", lock=timedelta(seconds=30), capabilities=NO_CAPABILITIES
            ),
            hooks=AcquirerHooks(
                may_claim=lambda: self.may_claim,
                dispatch=self._dispatch,
                on_progress=self._progress,
                on_store=self.heard.append,
            ),
            clock=self.clock,
            metrics=Metrics(CollectorRegistry(), version="1", instance="w"),
        )
        self.queue.on_empty = self.acquirer.stop

    def _dispatch(self, claimed: ClaimedTask) -> None:
        self.dispatched.append(claimed.task.id)
        self.slots.take()
        self.on_dispatch(claimed)

    def _progress(self) -> None:
        self.progressed += 1


async def test_it_claims_until_nothing_is_due() -> None:
    bench = Bench(FakeQueue([a_claimed_task("a"), a_claimed_task("b")]), Slots(3))

    await bench.acquirer.run()

    assert bench.dispatched == ["a", "b"]
    assert bench.queue.asked == 3
    assert bench.progressed == 3


async def test_it_never_claims_more_than_free_slots() -> None:
    bench = Bench(
        FakeQueue([a_claimed_task("a"), a_claimed_task("b"), a_claimed_task("c")]), Slots(2)
    )

    async with asyncio.TaskGroup() as group:
        running = group.create_task(bench.acquirer.run())
        while bench.slots.free:
            await asyncio.sleep(0)
        full = list(bench.dispatched)
        bench.slots.give_back()
        while len(bench.dispatched) < 3:
            await asyncio.sleep(0)
        bench.slots.give_back()
        await running

    assert full == ["a", "b"]
    assert bench.dispatched == ["a", "b", "c"]


async def test_waiting_for_a_slot_counts_as_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kikwiflow_worker.acquirer.acquirer._WAITING_STEP_S", 0.001)
    bench = Bench(FakeQueue([a_claimed_task("a"), a_claimed_task("b")]), Slots(1))

    async with asyncio.TaskGroup() as group:
        group.create_task(bench.acquirer.run())
        while bench.progressed < 10:
            await asyncio.sleep(0.001)
        bench.acquirer.stop()

    assert bench.dispatched == ["a"]


async def test_a_store_that_fails_is_asked_again() -> None:
    away = StoreUnavailableError("away")
    bench = Bench(FakeQueue([away, away, a_claimed_task("a")]))

    await bench.acquirer.run()

    assert bench.dispatched == ["a"]
    assert bench.heard[:3] == [away, away, None]
    assert bench.progressed == 4


async def test_it_claims_nothing_while_the_renewal_is_late() -> None:
    bench = Bench(FakeQueue([a_claimed_task("a")]), may_claim=False)

    async with asyncio.TaskGroup() as group:
        group.create_task(bench.acquirer.run())
        while bench.progressed < 3:
            await asyncio.sleep(0.001)
        bench.acquirer.stop()

    assert bench.dispatched == []
    assert bench.queue.asked == 0


async def test_a_task_with_two_lapsed_locks_runs_alone() -> None:
    suspect = a_claimed_task("poison")
    suspect = replace(suspect, task=replace(suspect.task, crash_count=2))
    bench = Bench(FakeQueue([suspect, a_claimed_task("other")]), Slots(5))

    async with asyncio.TaskGroup() as group:
        running = group.create_task(bench.acquirer.run())
        while not bench.dispatched:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        while_it_runs = list(bench.dispatched)
        bench.slots.give_back()
        await running

    assert while_it_runs == ["poison"]
    assert bench.dispatched == ["poison", "other"]


async def test_interrupted_deliveries_are_looked_for_when_idle() -> None:
    bench = Bench(FakeQueue([None, None]))
    bench.clock.advance(timedelta(seconds=6))

    await bench.acquirer.run()

    assert bench.queue.swept == 1


async def test_a_wake_up_ends_the_wait() -> None:
    queue = FakeQueue([None, a_claimed_task("a")])
    bench = Bench(queue)
    bench.acquirer._pacing = Pacing(shortest_s=3600, longest_s=3600, jitter=random.Random(1))
    bench.on_dispatch = lambda _: bench.acquirer.stop()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(bench.acquirer.run())
        while not bench.dispatched:
            bench.acquirer.wake()
            await asyncio.sleep(0)

    assert bench.dispatched == ["a"]


def test_waits_grow_to_the_longest_and_start_again_after_work() -> None:
    pacing = Pacing(shortest_s=1.0, longest_s=5.0, jitter=random.Random(1))

    waits = [pacing.next_wait_s() for _ in range(8)]
    pacing.found_work()
    first_again = pacing.next_wait_s()

    assert all(0.5 <= wait <= 5.0 for wait in waits)
    assert waits[0] <= 1.0
    assert waits[-1] > 2.4
    assert first_again <= 1.0
