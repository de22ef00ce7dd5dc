"""The runner: chains of tasks that are handed on, suspects, stopping. The engine is real, queue and commits are not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import cast

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from kikwiflow_worker.acquirer.claim_book import ClaimBook
from kikwiflow_worker.acquirer.slots import Slots
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.model.runtime import Claim, ClaimedTask
from kikwiflow_worker.model.unit_of_work import Committed, UnitOfWork
from kikwiflow_worker.operations import execution
from kikwiflow_worker.operations.execution import Commit, Outcome, OutcomeKind
from kikwiflow_worker.operations.services import Invoker, Services
from kikwiflow_worker.store.protocol import TaskQueue
from kikwiflow_worker.telemetry import Metrics
from kikwiflow_worker.testing import ManualClock
from kikwiflow_worker.worker import runner as runner_module
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.lanes import CommitLanes
from kikwiflow_worker.worker.registry import registry_of
from kikwiflow_worker.worker.reporting import StepReport
from kikwiflow_worker.worker.runner import (
    MAX_CHAIN_S,
    MAX_CHAIN_STEPS,
    SHORTER_BY,
    RunnerHooks,
    RunnerParts,
    TaskRunner,
)
from tests.support.stores import an_instance
from tests.unit.test_claim_book import a_claimed_task

NOTHING = UnitOfWork((), ())


@dataclass
class FakeQueue:
    released: list[str] = field(default_factory=list)

    async def release(self, claim: Claim) -> bool:
        self.released.append(claim.task_id)
        return True


@dataclass
class ChainingLanes:
    """Commits everything, and hands on a task with the next number whenever it may.

    Attributes:
        asked: For each commit, whether it might hand on.
        on_commit: Called while a commit is under way, with its task's id.
        away: Commits that fail before the first succeeds.
    """

    clock: ManualClock
    asked: list[bool] = field(default_factory=list)
    on_commit: Callable[[str], None] = lambda _: None
    away: int = 0
    length: int = 1_000_000

    async def commit(
        self, claimed: ClaimedTask, unit: UnitOfWork, may_hand_on: Callable[[], bool]
    ) -> Committed:
        await asyncio.sleep(0)
        if self.away:
            self.away -= 1
            raise StoreUnavailableError("away")
        may = may_hand_on()
        self.asked.append(may)
        self.on_commit(claimed.task.id)
        number = int(claimed.task.id) + 1
        if not may or number > self.length:
            return Committed(claimable=1)
        return Committed(handed_on=a_task(str(number), self.clock))


@dataclass
class Bench:
    clock: ManualClock = field(default_factory=ManualClock)
    queue: FakeQueue = field(default_factory=FakeQueue)
    slots: Slots = field(default_factory=lambda: Slots(4))
    book: ClaimBook = field(default_factory=ClaimBook)
    ran: list[str] = field(default_factory=list)
    claimable: int = 0
    may_hand_on: bool = True
    does_older_work_wait: bool = False
    on_step: Callable[[ClaimedTask], object] = lambda _: None

    def __post_init__(self) -> None:
        self.lanes = ChainingLanes(self.clock)
        handlers = HandlerRuntime(registry_of(()), threads=1)
        metrics = Metrics(CollectorRegistry(), version="1", instance="w")
        self.runner = TaskRunner(
            cast("Services", None),
            cast("TaskQueue", self.queue),
            RunnerParts(
                handlers=handlers,
                book=self.book,
                slots=self.slots,
                lanes=cast("CommitLanes", self.lanes),
                report=StepReport(self.clock, metrics),
            ),
            clock=self.clock,
            hooks=RunnerHooks(
                on_claimable=self._noted_claimable,
                may_hand_on=lambda: self.may_hand_on,
                does_older_work_wait=lambda: self.does_older_work_wait,
            ),
        )

    def _noted_claimable(self) -> None:
        self.claimable += 1

    async def step(
        self, services: Services, invoker: Invoker, claimed: ClaimedTask, commit: Commit
    ) -> Outcome:
        """Stand for ``execute_task``: note the run, do what the test wants, commit."""
        self.ran.append(claimed.task.id)
        done = self.on_step(claimed)
        if asyncio.iscoroutine(done):
            await done
        return Outcome(OutcomeKind.COMPLETED, await commit(NOTHING), unit=NOTHING)

    @asynccontextmanager
    async def running(self, *claimed: ClaimedTask) -> AsyncIterator[None]:
        """Dispatch tasks, and wait at the end of the block until none runs."""
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            for each in claimed:
                self.runner.dispatch(each, group)
            yield


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    monkeypatch.setattr(runner_module, "execute_task", made.step)
    assert execution.execute_task is not made.step
    return made


def a_task(task_id: str, clock: ManualClock, *, crashes: int = 0) -> ClaimedTask:
    claimed = a_claimed_task(task_id, locked_until=clock.monotonic() + 30)
    return replace(claimed, task=replace(claimed.task, crash_count=crashes))


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def test_what_is_handed_on_runs_in_the_slot_of_its_predecessor(bench: Bench) -> None:
    bench.lanes.length = 3
    used, held = set(), set()
    bench.on_step = lambda _: (used.add(bench.slots.used), held.add(len(bench.book)))

    async with bench.running(a_task("1", bench.clock)):
        pass

    assert bench.ran == ["1", "2", "3"]
    assert (used, held) == ({1}, {1})
    assert (bench.slots.used, len(bench.book)) == (0, 0)


async def test_a_chain_makes_room_after_its_longest_length(bench: Bench) -> None:
    async with bench.running(a_task("1", bench.clock)):
        pass

    assert len(bench.ran) == MAX_CHAIN_STEPS
    assert bench.lanes.asked == [True] * (MAX_CHAIN_STEPS - 1) + [False]
    assert bench.claimable == 1, "its last task is left to whoever polls, and the acquirer is told"


async def test_a_chain_makes_room_after_its_longest_time(bench: Bench) -> None:
    bench.on_step = lambda _: bench.clock.advance(timedelta(seconds=MAX_CHAIN_S / 4))

    async with bench.running(a_task("1", bench.clock)):
        pass

    assert bench.ran == ["1", "2", "3", "4"]


async def test_chains_are_shorter_while_older_work_waits(bench: Bench) -> None:
    bench.does_older_work_wait = True

    async with bench.running(a_task("1", bench.clock)):
        pass

    assert len(bench.ran) == MAX_CHAIN_STEPS / SHORTER_BY


async def test_chains_take_less_time_while_older_work_waits(bench: Bench) -> None:
    bench.does_older_work_wait = True
    bench.on_step = lambda _: bench.clock.advance(timedelta(seconds=MAX_CHAIN_S / SHORTER_BY / 2))

    async with bench.running(a_task("1", bench.clock)):
        pass

    assert bench.ran == ["1", "2"]


async def test_nothing_is_handed_on_when_the_worker_says_so(bench: Bench) -> None:
    def not_after_two(task_id: str) -> None:
        bench.may_hand_on = task_id != "2"

    bench.lanes.on_commit = not_after_two

    async with bench.running(a_task("1", bench.clock)):
        pass

    assert bench.ran == ["1", "2", "3"]


async def test_after_the_first_stop_nothing_is_born_claimed(bench: Bench) -> None:
    def stops(claimed: ClaimedTask) -> None:
        if claimed.task.id == "3":
            bench.runner.drain()

    bench.on_step = stops

    async with bench.running(a_task("1", bench.clock)):
        pass

    assert bench.ran == ["1", "2", "3"], "what ran is finished"
    assert bench.lanes.asked == [True, True, False]
    assert bench.queue.released == []


async def test_a_stop_while_a_task_is_being_handed_on_gives_it_back(bench: Bench) -> None:
    bench.lanes.on_commit = lambda task_id: bench.runner.drain() if task_id == "2" else None

    async with bench.running(a_task("1", bench.clock)):
        pass

    assert bench.ran == ["1", "2"]
    assert bench.queue.released == ["3"]
    assert (bench.slots.used, len(bench.book)) == (0, 0)


async def test_a_handed_on_task_whose_lock_has_lapsed_is_not_started(bench: Bench) -> None:
    bench.lanes.length = 2
    late = replace(a_task("2", bench.clock), locked_until=bench.clock.monotonic())

    async def commit(claimed: ClaimedTask, unit: UnitOfWork, may: Callable[[], bool]) -> Committed:
        return Committed(handed_on=late)

    bench.lanes.commit = commit  # type: ignore[method-assign]

    async with bench.running(a_task("1", bench.clock)):
        pass

    assert bench.ran == ["1"]
    assert bench.queue.released == ["2"]


async def test_an_outage_during_a_chain_is_waited_for(bench: Bench) -> None:
    bench.lanes.length, bench.lanes.away = 2, 3

    with capture_logs() as logs:
        async with bench.running(a_task("1", bench.clock)):
            pass

    assert bench.ran == ["1", "2"], "no handler runs again"
    assert [line["retry_in_s"] for line in logs if "retry_in_s" in line] == [0.1, 0.2, 0.4]


async def test_the_second_stop_ends_the_wait_for_the_database(bench: Bench) -> None:
    bench.lanes.away = 1_000_000
    bench.on_step = lambda _: bench.runner.cancel()

    async with bench.running(a_task("1", bench.clock)):
        pass

    assert bench.queue.released == ["1"]
    assert bench.slots.used == 0


async def test_a_task_that_a_batch_names_twice_runs_once(bench: Bench) -> None:
    bench.lanes.length = 1

    with capture_logs() as logs:
        async with bench.running(a_task("1", bench.clock), a_task("1", bench.clock)):
            pass

    assert bench.ran == ["1"]
    assert bench.slots.used == 0
    assert [line["event"] for line in logs if line["event"] == "claim.lost"]


async def test_claims_are_known_to_the_renewal_before_their_tasks_have_a_turn(bench: Bench) -> None:
    async with asyncio.TaskGroup() as group:
        bench.runner.dispatch(a_task("1", bench.clock), group)
        known = bench.book.known_ids()
        bench.runner.drain()

    assert known == {"1"}


async def test_a_suspect_runs_alone_and_hands_nothing_on(bench: Bench) -> None:
    gate = asyncio.Event()
    bench.on_step = lambda claimed: gate.wait() if claimed.task.id == "1" else None
    beside: list[int] = []

    async with bench.running(a_task("1", bench.clock), a_task("50", bench.clock, crashes=2)):
        await until(lambda: bench.ran)
        before = list(bench.ran)
        bench.lanes.on_commit = lambda task_id: beside.append(bench.slots.used)
        gate.set()

    assert before == ["1"]
    assert bench.ran == ["1", "50"]
    assert beside[-1] == 1
    assert bench.lanes.asked == [False, False], "a chain would keep the suspect waiting"


async def test_of_two_suspects_one_is_given_back_before_the_other_starts(bench: Bench) -> None:
    released: list[list[str]] = []
    bench.on_step = lambda _: released.append(list(bench.queue.released))

    suspects = [a_task(name, bench.clock, crashes=2) for name in ("1", "50", "70")]
    async with bench.running(*suspects):
        pass

    assert bench.ran == ["1"]
    assert released == [["50", "70"]], "the death of one must not be blamed on those beside it"


async def test_suspects_that_wait_are_given_back_at_a_stop(bench: Bench) -> None:
    gate = asyncio.Event()
    bench.on_step = lambda claimed: gate.wait()

    async with bench.running(a_task("1", bench.clock), a_task("50", bench.clock, crashes=2)):
        await until(lambda: bench.ran)
        bench.runner.drain()
        await until(lambda: bench.queue.released)
        gate.set()

    assert bench.ran == ["1"]
    assert bench.queue.released == ["50"]


async def test_what_was_handed_on_is_renewed_and_its_predecessor_is_not(bench: Bench) -> None:
    renewed: list[list[str]] = []
    bench.on_step = lambda _: renewed.append(
        [claim.task_id for claim in bench.book.to_renew(0.0, lock_s=30)]
    )
    bench.lanes.length = 2

    async with bench.running(a_task("1", bench.clock)):
        pass

    assert renewed == [["1"], ["2"]]


@pytest.mark.field_case("S-03")
async def test_a_task_that_still_runs_here_is_not_run_a_second_time(bench: Bench) -> None:
    earlier, again = a_claimed_task(epoch=1), a_claimed_task(epoch=2)
    bench.book.hold(earlier, lambda: None)

    with capture_logs() as lines:
        async with bench.running(again):
            pass

    assert bench.slots.used == 0
    assert [line["event"] for line in lines] == ["claim.lost"]
    assert bench.book.known_ids() == {"t"}
    assert bench.queue.released == []


@pytest.mark.field_case("S-05")
async def test_a_claim_whose_lock_has_lapsed_before_its_handler_starts_is_given_back(
    bench: Bench,
) -> None:
    late = a_claimed_task(locked_until=bench.clock.monotonic())

    with capture_logs() as lines:
        async with bench.running(late):
            pass

    assert (bench.ran, bench.queue.released) == ([], ["t"])
    assert bench.slots.used == 0
    assert [line["event"] for line in lines] == ["task.released"]


@pytest.mark.field_case("S-45")
async def test_what_goes_wrong_beside_the_handler_frees_the_slot_too(bench: Bench) -> None:
    def breaks(_: ClaimedTask) -> None:
        raise RuntimeError("a mistake of ours")

    bench.on_step = breaks

    with capture_logs() as lines:
        async with bench.running(a_task("1", bench.clock)):
            pass

    assert bench.slots.used == 0
    assert bench.book.known_ids() == frozenset()
    assert "service.crashed" in [line["event"] for line in lines]


@pytest.mark.field_case("S-87")
async def test_every_line_of_a_step_says_whose_it_is(bench: Bench) -> None:
    instance = an_instance(id="i", definition_key="parcel", definition_version=3)
    late = replace(a_claimed_task(locked_until=bench.clock.monotonic()), instance=instance)

    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        async with bench.running(late):
            pass

    (line,) = lines
    assert {key: line[key] for key in line if key not in {"event", "log_level"}} == {
        "task_id": "t",
        "instance_id": "i",
        "node_id": "N",
        "definition_id": "d",
        "definition_key": "parcel",
        "definition_version": 3,
        "attempt": 1,
        "worker_id": "w",
        "epoch": 1,
    }
