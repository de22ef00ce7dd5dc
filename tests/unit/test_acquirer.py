"""The claim loop, with a queue of ten lines."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from kikwiflow_worker.acquirer.acquirer import Acquirer, AcquirerHooks, AcquirerOptions
from kikwiflow_worker.acquirer.backlog import Backlog
from kikwiflow_worker.acquirer.pacing import Pacing
from kikwiflow_worker.acquirer.slots import Slots
from kikwiflow_worker.errors import (
    ConfigurationError,
    KikwiflowError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kikwiflow_worker.model.capability import NO_CAPABILITIES, Capabilities
from kikwiflow_worker.model.runtime import Claim, ClaimedTask
from kikwiflow_worker.telemetry import Metrics
from kikwiflow_worker.testing import ManualClock
from tests.unit.test_claim_book import a_claimed_task


@dataclass
class FakeQueue:
    """Gives out ``tasks`` in batches; an exception in the list is raised, None ends a batch."""

    tasks: list[ClaimedTask | KikwiflowError | None]
    on_empty: Callable[[], None] = lambda: None
    asked: int = 0
    swept: int = 0
    arrivals: int = 0
    sweep_error: KikwiflowError | None = None
    limits: list[int] = field(default_factory=list)

    async def claim_due(
        self, *, worker_id: str, lock: timedelta, capabilities: Capabilities, limit: int
    ) -> tuple[ClaimedTask, ...]:
        self.asked += 1
        self.limits.append(limit)
        if not self.tasks:
            self.on_empty()
            return ()
        batch: list[ClaimedTask] = []
        while self.tasks and len(batch) < limit:
            task = self.tasks.pop(0)
            if isinstance(task, KikwiflowError):
                raise task
            if task is None:
                break
            batch.append(task)
        return tuple(batch)

    async def claim(self, task_id: str, *, worker_id: str, lock: timedelta) -> ClaimedTask | None:
        raise NotImplementedError

    async def release(self, claim: Claim) -> bool:
        raise NotImplementedError

    async def deliver_arrivals(self, *, limit: int) -> int:
        self.swept += 1
        if self.sweep_error is not None:
            raise self.sweep_error
        found, self.arrivals = self.arrivals, 0
        return found


@dataclass
class Bench:
    """An acquirer with its surroundings, which stops when the queue is empty."""

    queue: FakeQueue
    slots: Slots = field(default_factory=lambda: Slots(2))
    may_claim: bool = True
    dispatched: list[str] = field(default_factory=list)
    heard: list[KikwiflowError | None] = field(default_factory=list)
    progressed: int = 0
    clock: ManualClock = field(default_factory=ManualClock)
    on_dispatch: Callable[[ClaimedTask], None] = lambda _: None
    batch_size: int = 1000

    def __post_init__(self) -> None:
        self.acquirer = Acquirer(
            self.queue,
            self.slots,
            Pacing(shortest_s=0.001, longest_s=0.001, jitter=random.Random(1)),
            options=AcquirerOptions(
                worker_id="w",
                lock=timedelta(seconds=30),
                capabilities=NO_CAPABILITIES,
                batch_size=self.batch_size,
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
    assert bench.queue.limits == [3, 1], "as many as there are free slots, in one call"
    assert bench.progressed == 2


async def test_it_claims_no_more_at_a_time_than_it_is_told_to() -> None:
    bench = Bench(FakeQueue([a_claimed_task("a"), a_claimed_task("b")]), Slots(3), batch_size=1)

    await bench.acquirer.run()

    assert bench.dispatched == ["a", "b"]
    assert bench.queue.limits == [1, 1, 1]


@pytest.mark.field_case("S-05", "S-42", "S-43")
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


@pytest.mark.parametrize("kind", [StoreRefusedError, ConfigurationError])
async def test_a_store_that_refuses_a_running_worker_is_asked_again(
    kind: type[KikwiflowError],
) -> None:
    refused = kind("check the user, its password and authSource")
    bench = Bench(FakeQueue([refused, a_claimed_task("a")]))

    await bench.acquirer.run()

    assert bench.dispatched == ["a"]
    assert bench.heard[:2] == [refused, None]


@pytest.mark.field_case("S-02")
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
    bench = Bench(FakeQueue([suspect, None, a_claimed_task("other")]), Slots(5))

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
    bench.clock.advance(timedelta(seconds=11))

    await bench.acquirer.run()

    assert bench.queue.swept == 1


async def test_a_batch_is_kept_when_the_look_for_arrivals_after_it_fails() -> None:
    away = StoreUnavailableError("away")
    bench = Bench(FakeQueue([a_claimed_task("a"), a_claimed_task("b")], sweep_error=away), Slots(3))
    bench.clock.advance(timedelta(seconds=11))

    await bench.acquirer.run()

    assert bench.dispatched == ["a", "b"]
    assert away in bench.heard


async def test_a_join_that_was_released_late_is_claimed_at_once() -> None:
    queue = FakeQueue([None, a_claimed_task("join")], arrivals=1)
    bench = Bench(queue)
    bench.acquirer._pacing = Pacing(shortest_s=3600, longest_s=3600, jitter=random.Random(1))
    bench.on_dispatch = lambda _: bench.acquirer.stop()
    bench.clock.advance(timedelta(seconds=11))

    async with asyncio.timeout(5):
        await bench.acquirer.run()

    assert bench.dispatched == ["join"]


async def test_it_tells_for_how_long_it_has_been_busy() -> None:
    gate = asyncio.Event()
    bench = Bench(FakeQueue([None, a_claimed_task("a"), a_claimed_task("b"), None]))
    bench.acquirer._pacing = Pacing(shortest_s=3600, longest_s=3600, jitter=random.Random(1))
    bench.on_dispatch = lambda _: gate.set()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(bench.acquirer.run())
        await bench.acquirer.wait_idle()
        bench.clock.advance(timedelta(seconds=60))
        while_idle = bench.acquirer.busy_s
        bench.acquirer.wake()
        await gate.wait()
        bench.clock.advance(timedelta(seconds=7))
        while_full = bench.acquirer.busy_s
        bench.acquirer.stop()

    assert (while_idle, while_full) == (0.0, 7.0)


@pytest.mark.parametrize(
    ("ages", "limit", "is_old"),
    [
        ([30.0, 11.0], 2, True),
        ([30.0, 9.0], 2, False),
        ([30.0, 11.0], 3, False),
        ([], 1, False),
    ],
    ids=["full and all old", "full and one young", "not full", "empty"],
)
def test_the_backlog_is_old_when_a_full_poll_brings_nothing_but_old_tasks(
    ages: list[float], limit: int, is_old: bool
) -> None:
    backlog = Backlog(limit_s=10)
    claimed = [a_claimed_task(str(age)) for age in ages]
    aged = [
        replace(each, claimed_at=each.task.created_at + timedelta(seconds=age))
        for each, age in zip(claimed, ages, strict=True)
    ]

    backlog.polled(aged, limit=limit)

    assert backlog.is_old is is_old


def test_a_task_with_a_due_time_is_as_old_as_its_delay() -> None:
    backlog = Backlog(limit_s=10)
    created = a_claimed_task("timer")
    due_at = created.task.created_at + timedelta(days=30)
    timer = replace(
        created,
        task=replace(created.task, due_at=due_at),
        claimed_at=due_at + timedelta(seconds=1),
    )

    backlog.polled([timer], limit=1)

    assert not backlog.is_old


@pytest.mark.field_case("S-55")
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


@pytest.mark.field_case("S-33")
def test_waits_grow_to_the_longest_and_start_again_after_work() -> None:
    pacing = Pacing(shortest_s=1.0, longest_s=5.0, jitter=random.Random(1))

    waits = [pacing.next_wait_s() for _ in range(8)]
    pacing.found_work()
    first_again = pacing.next_wait_s()

    assert all(0.5 <= wait <= 5.0 for wait in waits)
    assert waits[0] <= 1.0
    assert waits[-1] > 2.4
    assert first_again <= 1.0


def test_hints_that_lead_to_no_work_are_followed_less_and_less() -> None:
    pacing = Pacing(shortest_s=1.0, longest_s=5.0, jitter=random.Random(1))

    pauses = [pacing.next_hint_pause_s() for _ in range(12)]
    pacing.found_work()

    assert pauses[0] == 0.0
    assert 0.005 <= pauses[1] <= 0.01
    assert all(0.5 <= pause <= 1.0 for pause in pauses[9:])
    assert pacing.next_hint_pause_s() == 0.0
