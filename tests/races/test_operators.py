"""What people do to whole instances while their steps are under way (protocol R8)."""

import pytest

from kikwiflow_worker.errors import ConflictError, NotFoundError
from kikwiflow_worker.operations.execution import OutcomeKind
from tests.support.race_nodes import step, wait
from tests.support.races import LOST, Arena

pytestmark = [pytest.mark.mongo, pytest.mark.timeout(120)]

DONE = wait("DONE")
SWEPT = frozenset({*LOST, OutcomeKind.CANCELLED})


async def test_a_cancel_against_the_completion_that_ends_the_instance(
    arena: Arena, races: int
) -> None:
    await arena.deploy(wait("TASK"))

    async for ids in arena.batches(races):
        results = await arena.race_completions(ids, lambda side, i: side.client.cancel(i))

        statuses = arena.statuses()
        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (ConflictError, NotFoundError))
            assert statuses[instance_id] == ["CANCELLED", "COMPLETED"][winner]


async def test_a_cancel_against_a_completion_after_which_more_follows(
    arena: Arena, races: int
) -> None:
    await arena.deploy(wait("TASK", "DONE"), DONE)

    async for ids in arena.batches(races):
        results = await arena.race_completions(ids, lambda side, i: side.client.cancel(i))

        for cancelled, completed in results:
            assert cancelled is None
            refused = isinstance(completed, Exception)
            assert not refused or isinstance(completed, NotFoundError)
            arena.wins[0 if refused else 1] += 1
        assert arena.places() == {}
        assert arena.statuses() == dict.fromkeys(ids, "CANCELLED")


async def test_a_cancel_against_a_worker_s_step(arena: Arena, races: int) -> None:
    await arena.deploy(step("STEP", "NEXT"), step("NEXT"))

    async for ids in arena.batches(races):
        tasks = await arena.claimed("STEP")

        results = await arena.race_steps(ids, tasks, lambda side, i: side.client.cancel(i))

        for cancelled, outcome in results:
            assert cancelled is None
            assert outcome.kind in {OutcomeKind.COMPLETED, *SWEPT}
            arena.wins[1 if outcome.kind is OutcomeKind.COMPLETED else 0] += 1
        assert arena.places() == {}
        assert arena.statuses() == dict.fromkeys(ids, "CANCELLED")


async def test_a_resume_against_the_parking_of_a_task(arena: Arena, races: int) -> None:
    await arena.deploy(step("STEP", "DONE"), DONE)

    async for ids in arena.batches(races):
        for instance_id in ids:
            await arena.sides[0].client.suspend(instance_id)
        tasks = await arena.claimed("STEP")

        results = await arena.race_steps(ids, tasks, lambda side, i: side.client.resume(i))

        places = arena.places()
        for instance_id, (resumed, outcome) in zip(ids, results, strict=True):
            assert resumed is None
            assert outcome.kind in {OutcomeKind.COMPLETED, OutcomeKind.PARKED}
            parked = outcome.kind is OutcomeKind.PARKED
            assert places[instance_id] == ("STEP" if parked else "DONE")
            arena.wins[1 if parked else 0] += 1
        assert arena.data.executable_tasks.count_documents({"isParked": True}) == 0


async def test_a_suspend_against_a_person_s_completion(arena: Arena, races: int) -> None:
    await arena.deploy(wait("TASK", "STEP"), step("STEP"))

    async for ids in arena.batches(races):
        results = await arena.race_completions(ids, lambda side, i: side.client.suspend(i))

        for suspended, completed in results:
            assert suspended is None
            refused = isinstance(completed, Exception)
            assert not refused or isinstance(completed, ConflictError)
            arena.wins[0 if refused else 1] += 1
        await arena.run_due()
        assert set(arena.places().values()) <= {"TASK", "STEP"}
        for instance_id in ids:
            await arena.sides[1].client.resume(instance_id)


async def test_two_retries_of_one_incident(arena: Arena, races: int) -> None:
    await arena.deploy(step("STEP"))

    async for ids in arena.batches(races, broken=True):
        tasks = await arena.claimed("STEP")
        opened = await arena.fail_steps(ids, tasks)

        results = await arena.race(
            (
                lambda side, one=opened[i]: side.client.retry_incident(one, resolved_by="left"),
                lambda side, one=opened[i]: side.client.retry_incident(one, resolved_by="right"),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (ConflictError, ConflictError))
            incident = arena.data.incidents.find_one({"_id": opened[instance_id]})
            assert incident is not None
            assert incident["resolvedBy"] == ["left", "right"][winner]
        epochs = {row["_id"]: row["epoch"] for row in arena.data.executable_tasks.find()}
        assert epochs == {task.claim.task_id: task.claim.epoch + 2 for task in tasks.values()}
