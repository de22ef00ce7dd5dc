"""Call activities: a child's end, its call activity's deadline and its parent's end never leave one of them over (R12)."""

import pytest

from kikwiflow_worker.errors import ConflictError, NotFoundError
from kikwiflow_worker.model.runtime import TaskType
from kikwiflow_worker.operations.execution import Outcome, OutcomeKind
from tests.support.race_nodes import call, deadline, wait
from tests.support.races import LOST, Arena, Side

pytestmark = [pytest.mark.mongo, pytest.mark.timeout(120)]

DONE, LATE = wait("DONE"), wait("LATE")
EACH = {"collectionVariable": "items", "elementVariable": "item", "iterationMode": "SEQUENTIAL"}
STARTER = TaskType.CALL_ACTIVITY_STARTER.value
COORDINATOR = TaskType.CALL_ACTIVITY_COORDINATOR.value


async def start_children(arena: Arena) -> dict[str, str]:
    """Run the starters that are due; return the external task of each parent's child."""
    for starter in (await arena.claimed("CALL", type=STARTER)).values():
        assert (await arena.sides[0].run(starter)).kind is OutcomeKind.COMPLETED
    children = {row["_id"]: row["parentInstanceId"] for row in arena.children()}
    return {children[child_id]: task_id for child_id, task_id in arena.waits("TASK").items()}


async def test_a_child_s_completion_against_the_deadline_of_its_call(
    arena: Arena, races: int
) -> None:
    await arena.deploy(wait("TASK"), key="child")
    await arena.deploy(call("CALL", "DONE", "DEADLINE"), deadline("CALL"), DONE, LATE)

    async for ids in arena.batches(races):
        tasks = await start_children(arena)
        coordinators = arena.tasks("CALL", type=COORDINATOR)
        deadlines = await arena.claimed("DEADLINE")

        async def complete_and_go_on(side: Side, task: str, coordinator: str) -> Outcome | None:
            await side.client.complete(task)
            claimed = await side.claim_if_free(coordinator)
            return await side.run(claimed) if claimed else None

        results = await arena.race(
            (
                lambda side, task=tasks[i], call=coordinators[i]: complete_and_go_on(
                    side, task, call
                ),
                lambda side, due=deadlines[i]: side.run(due),
            )
            for i in ids
        )

        places = arena.places()
        for instance_id, (went_on, timed) in zip(ids, results, strict=True):
            assert not isinstance(went_on, Exception)
            done = went_on is not None and went_on.kind is OutcomeKind.COMPLETED
            assert (timed.kind in LOST) if done else (timed.kind is OutcomeKind.COMPLETED)
            assert places[instance_id] == ("DONE" if done else "LATE")
            arena.wins[0 if done else 1] += 1
        assert arena.children() == []


async def test_the_next_child_of_a_sequence_against_the_deadline(arena: Arena, races: int) -> None:
    await arena.deploy(wait("TASK"), key="child")
    await arena.deploy(call("CALL", "DONE", "DEADLINE", **EACH), deadline("CALL"), DONE, LATE)

    async for ids in arena.batches(races, items=[1, 2]):
        for task in (await start_children(arena)).values():
            await arena.sides[0].client.complete(task)
        coordinators = await arena.claimed("CALL", type=COORDINATOR)
        deadlines = await arena.claimed("DEADLINE")

        results = await arena.race(
            (
                lambda side, task=coordinators[i]: side.run(task),
                lambda side, due=deadlines[i]: side.run(due),
            )
            for i in ids
        )

        for advanced, timed in results:
            assert timed.kind is OutcomeKind.COMPLETED
            assert advanced.kind in {OutcomeKind.COMPLETED, *LOST}
            arena.wins[0 if advanced.kind is OutcomeKind.COMPLETED else 1] += 1
        assert {i: arena.places()[i] for i in ids} == dict.fromkeys(ids, "LATE")


async def test_a_starter_against_the_deadline_of_its_call(arena: Arena, races: int) -> None:
    await arena.deploy(wait("TASK"), key="child")
    await arena.deploy(call("CALL", "DONE", "DEADLINE"), deadline("CALL"), DONE, LATE)

    async for ids in arena.batches(races):
        starters = await arena.claimed("CALL", type=STARTER)
        deadlines = await arena.claimed("DEADLINE")

        results = await arena.race(
            (
                lambda side, task=starters[i]: side.run(task),
                lambda side, due=deadlines[i]: side.run(due),
            )
            for i in ids
        )

        for started, timed in results:
            assert timed.kind is OutcomeKind.COMPLETED
            assert started.kind in {OutcomeKind.COMPLETED, *LOST}
            arena.wins[0 if started.kind is OutcomeKind.COMPLETED else 1] += 1
        await arena.run_due()
        assert arena.children() == []
        assert arena.places() == dict.fromkeys(ids, "LATE")


@pytest.mark.field_case("S-74")
async def test_a_parent_s_cancel_against_a_starter_that_starts_its_child(
    arena: Arena, races: int
) -> None:
    await arena.deploy(wait("TASK"), key="child")
    await arena.deploy(call("CALL"))

    async for ids in arena.batches(races):
        starters = await arena.claimed("CALL", type=STARTER)

        results = await arena.race_steps(ids, starters, lambda side, i: side.client.cancel(i))

        for cancelled, started in results:
            assert cancelled is None
            assert started.kind in {OutcomeKind.COMPLETED, *LOST, OutcomeKind.CANCELLED}
            arena.wins[1 if started.kind is OutcomeKind.COMPLETED else 0] += 1
        await arena.run_due()
        assert arena.children() == []
        assert set(arena.statuses().values()) == {"CANCELLED"}


async def test_a_parent_s_cancel_against_its_child_s_completion(arena: Arena, races: int) -> None:
    await arena.deploy(wait("TASK"), key="child")
    await arena.deploy(call("CALL"))

    async for ids in arena.batches(races):
        tasks = await start_children(arena)

        results = await arena.race(
            (
                lambda side, i=i: side.client.cancel(i),
                lambda side, task=tasks[i]: side.client.complete(task),
            )
            for i in ids
        )

        for cancelled, completed in results:
            assert cancelled is None
            assert not isinstance(completed, Exception)
        cancellers = arena.data.executable_tasks.count_documents({"type": "CANCEL_CHILDREN"})
        arena.wins[0] += cancellers
        arena.wins[1] += len(ids) - cancellers
        await arena.run_due()
        assert arena.children() == []


async def test_a_child_s_cancel_against_its_completion(arena: Arena, races: int) -> None:
    await arena.deploy(wait("TASK"), key="child")
    await arena.deploy(call("CALL", "DONE"), DONE)

    async for ids in arena.batches(races):
        tasks = await start_children(arena)
        children = {row["parentInstanceId"]: row["_id"] for row in arena.children()}

        results = await arena.race(
            (
                lambda side, child=children[i]: side.client.cancel(child),
                lambda side, task=tasks[i]: side.client.complete(task),
            )
            for i in ids
        )

        winners = {
            i: arena.one_won(result, (ConflictError, NotFoundError))
            for i, result in zip(ids, results, strict=True)
        }
        statuses = arena.statuses()
        for instance_id, winner in winners.items():
            assert statuses[children[instance_id]] == ["CANCELLED", "COMPLETED"][winner]
        failed = [i for i, winner in winners.items() if winner == 0]
        incidents = arena.open_incidents()
        assert sorted(incidents) == sorted(failed)
        for incident_id in incidents.values():
            await arena.sides[0].client.retry_incident(incident_id)
