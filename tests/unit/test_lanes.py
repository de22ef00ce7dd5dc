"""Commit lanes, over a store that commits when the test lets it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import cast

import pytest

from kikwiflow_worker.acquirer.claim_book import ClaimBook
from kikwiflow_worker.errors import ClaimLostError, KikwiflowError, StoreUnavailableError
from kikwiflow_worker.model.capability import NO_CAPABILITIES
from kikwiflow_worker.model.runtime import ClaimedTask
from kikwiflow_worker.model.unit_of_work import Committed, InsertTask, RemoveTask, UnitOfWork
from kikwiflow_worker.store.protocol import RuntimeStore
from kikwiflow_worker.store.values import GroupedUnit, HandOn
from kikwiflow_worker.worker.lanes import CommitLanes, LaneOptions
from tests.unit.test_claim_book import a_claimed_task

HAND_ON = HandOn(worker_id="w", lock=timedelta(seconds=30), capabilities=NO_CAPABILITIES)
AWAY = StoreUnavailableError("away")


@dataclass
class Call:
    """One group under way."""

    units: tuple[GroupedUnit, ...]
    hand_on: HandOn | None
    answer: "asyncio.Future[tuple[Committed | KikwiflowError, ...]]"

    @property
    def task_ids(self) -> list[str]:
        return [task_id_of(grouped.unit) for grouped in self.units]

    def succeed(self, *results: Committed | KikwiflowError) -> None:
        self.answer.set_result(results or tuple(Committed() for _ in self.units))


@dataclass
class GatedStore:
    """Keeps every group waiting until the test answers it."""

    calls: list[Call] = field(default_factory=list)

    async def commit_group(
        self, units: Sequence[GroupedUnit], *, hand_on: HandOn | None
    ) -> tuple[Committed | KikwiflowError, ...]:
        call = Call(tuple(units), hand_on, asyncio.get_running_loop().create_future())
        self.calls.append(call)
        return await call.answer

    async def next_call(self, number: int) -> Call:
        while len(self.calls) < number:
            await asyncio.sleep(0)
        return self.calls[number - 1]


@dataclass
class Bench:
    store: GatedStore
    book: ClaimBook
    lanes: CommitLanes
    group: asyncio.TaskGroup

    def commit(
        self,
        task_id: str,
        *,
        instance: str = "i",
        may_hand_on: Callable[[], bool] = lambda: True,
        births: Sequence[str] = (),
    ) -> "asyncio.Task[Committed | Exception]":
        """Commit a unit of a task of its own; what it raises is the result."""
        claimed = a_claim(task_id, instance)
        self.book.hold(claimed, lambda: None)
        inserts = tuple(InsertTask(a_claim(born, instance).task) for born in births)
        unit = UnitOfWork((RemoveTask(claimed.claim),), inserts)

        async def outcome() -> Committed | Exception:
            try:
                return await self.lanes.commit(claimed, unit, may_hand_on)
            except Exception as error:
                return error

        return self.group.create_task(outcome())


@asynccontextmanager
async def a_bench(*, group_size: int = 64, count: int = 1) -> AsyncIterator[Bench]:
    store, book = GatedStore(), ClaimBook()
    options = LaneOptions(group_size=group_size, count=count, hand_on=HAND_ON)
    lanes = CommitLanes(cast("RuntimeStore", store), book, options)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        running = group.create_task(lanes.run())
        yield Bench(store, book, lanes, group)
        running.cancel()


def a_claim(task_id: str, instance: str) -> ClaimedTask:
    claimed = a_claimed_task(task_id)
    return replace(claimed, task=replace(claimed.task, instance_id=instance))


def task_id_of(unit: UnitOfWork) -> str:
    (guard,) = unit.guards
    assert isinstance(guard, RemoveTask)
    return guard.claim.task_id


async def turns(count: int = 10) -> None:
    """Let everything go on that can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_lone_unit_is_committed_at_once() -> None:
    async with a_bench() as bench:
        committing = bench.commit("a")
        call = await bench.store.next_call(1)
        call.succeed(Committed(claimable=3))

        assert await committing == Committed(claimable=3)
        assert call.task_ids == ["a"]
        assert call.hand_on == HAND_ON


async def test_what_comes_while_a_group_is_under_way_makes_the_next_group() -> None:
    async with a_bench() as bench:
        first = bench.commit("a")
        call = await bench.store.next_call(1)
        others = [bench.commit(name) for name in ("b", "c", "d")]
        await turns()
        while_first = len(bench.store.calls)
        call.succeed()
        group = await bench.store.next_call(2)
        group.succeed()

        await asyncio.gather(first, *others)
        assert while_first == 1
        assert group.task_ids == ["b", "c", "d"]


async def test_the_next_units_of_those_who_hear_an_outcome_join_one_group() -> None:
    async with a_bench() as bench:

        async def two_steps(name: str) -> None:
            for step in "12":
                claimed = a_claim(f"{name}{step}", "i")
                unit = UnitOfWork((RemoveTask(claimed.claim),), ())
                await bench.lanes.commit(claimed, unit, lambda: True)

        both = [bench.group.create_task(two_steps(name)) for name in ("a", "b", "c")]
        first = await bench.store.next_call(1)
        waiting = bench.commit("d")
        await turns()
        first.succeed()
        following = await bench.store.next_call(2)
        following.succeed()

        await asyncio.gather(*both, waiting)
        assert sorted(following.task_ids) == ["a2", "b2", "c2", "d"]


async def test_a_group_has_a_largest_size() -> None:
    async with a_bench(group_size=2) as bench:
        waiting = [bench.commit(name) for name in ("a", "b", "c")]
        sizes = []
        for number in (1, 2):
            call = await bench.store.next_call(number)
            sizes.append(len(call.units))
            call.succeed()

        await asyncio.gather(*waiting)
        assert sizes == [2, 1]


async def test_a_group_size_of_one_gives_each_unit_a_transaction_at_once() -> None:
    async with a_bench(group_size=1) as bench:
        waiting = [bench.commit(name) for name in ("a", "b", "c")]
        await bench.store.next_call(3)

        assert [call.task_ids for call in bench.store.calls] == [["a"], ["b"], ["c"]]
        for call in bench.store.calls:
            call.succeed()
        await asyncio.gather(*waiting)


async def test_each_unit_hears_of_itself_only() -> None:
    async with a_bench(group_size=3) as bench:
        good, lost, away = (bench.commit(name) for name in ("a", "b", "c"))
        call = await bench.store.next_call(1)
        call.succeed(Committed(claimable=1), ClaimLostError(call.units[1].unit.guards[0]), AWAY)

        assert await good == Committed(claimable=1)
        assert isinstance(await lost, ClaimLostError)
        assert await away is AWAY


async def test_an_outage_is_told_to_everybody_and_the_lane_goes_on() -> None:
    async with a_bench() as bench:
        both = [bench.commit(name) for name in ("a", "b")]
        (await bench.store.next_call(1)).answer.set_exception(AWAY)
        found = await asyncio.gather(*both)
        later = bench.commit("c")
        (await bench.store.next_call(2)).succeed()

        assert found == [AWAY, AWAY]
        assert await later == Committed()


async def test_what_one_unit_cannot_survive_is_its_own_failure() -> None:
    async with a_bench() as bench:
        good, bad = bench.commit("a"), bench.commit("b")
        (await bench.store.next_call(1)).answer.set_exception(RuntimeError("b is poison"))
        (await bench.store.next_call(2)).succeed()
        (await bench.store.next_call(3)).answer.set_exception(RuntimeError("b is poison"))

        assert await good == Committed()
        assert "poison" in str(await bad)
        assert [call.task_ids for call in bench.store.calls] == [["a", "b"], ["a"], ["b"]]


async def test_units_of_one_instance_go_through_one_lane() -> None:
    async with a_bench(count=4) as bench:
        names = [f"t{number}" for number in range(20)]
        first = [bench.commit(name, instance="one") for name in names[:1]]
        await bench.store.next_call(1)
        rest = [bench.commit(name, instance="one") for name in names[1:]]
        await turns()

        assert len(bench.store.calls) == 1
        bench.store.calls[0].succeed()
        (await bench.store.next_call(2)).succeed()
        await asyncio.gather(*first, *rest)


async def test_lanes_commit_side_by_side() -> None:
    async with a_bench(count=2) as bench:
        waiting = [bench.commit(f"t{n}", instance=f"i{n}") for n in range(20)]
        await bench.store.next_call(2)

        lanes = [set(call.task_ids) for call in bench.store.calls]
        assert lanes[0].isdisjoint(lanes[1])
        assert len(lanes[0] | lanes[1]) == 20
        for call in bench.store.calls:
            call.succeed()
        await asyncio.gather(*waiting)


async def test_claims_are_left_out_of_renewals_while_their_commit_is_under_way_only() -> None:
    async with a_bench() as bench:
        first = bench.commit("a")
        call = await bench.store.next_call(1)
        second = bench.commit("b")
        await turns()
        renewed = [claim.task_id for claim in bench.book.to_renew(0.0, lock_s=30)]
        call.succeed()
        (await bench.store.next_call(2)).succeed()
        await asyncio.gather(first, second)

        assert renewed == ["b"], "what waits for its lane is renewed"
        assert bench.book.to_renew(0.0, lock_s=30) == (), "what has ended is not renewed"


async def test_what_may_be_born_claimed_is_known_before_the_commit_returns() -> None:
    async with a_bench() as bench:
        committing = bench.commit("a", births=["heir"])
        call = await bench.store.next_call(1)
        known = bench.book.known_ids()
        call.succeed()
        await committing

        assert known == {"a", "heir"}
        assert bench.book.known_ids() == {"a"}


async def test_whether_to_hand_on_is_asked_when_the_commit_begins() -> None:
    async with a_bench() as bench:
        may = True
        first = bench.commit("a", may_hand_on=lambda: may)
        call = await bench.store.next_call(1)
        second = bench.commit("b", may_hand_on=lambda: may)
        may = False
        call.succeed()
        later = await bench.store.next_call(2)
        later.succeed()
        await asyncio.gather(first, second)

        assert call.units[0].may_hand_on
        assert not later.units[0].may_hand_on


async def test_a_group_that_hangs_holds_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kikwiflow_worker.worker.lanes._PATIENCE_S", 0.001)
    async with a_bench() as bench:
        stuck = bench.commit("a")
        hanging = await bench.store.next_call(1)
        other = bench.commit("b")
        (await bench.store.next_call(2)).succeed()

        assert await other == Committed()
        assert not stuck.done()
        hanging.succeed()
        await stuck
