"""What people do to put single instances and tasks right, while workers and others change the same ones."""

from datetime import timedelta

import pytest

from kikwiflow_worker.errors import ConflictError, NotFoundError
from kikwiflow_worker.model.runtime import IncidentStatus
from kikwiflow_worker.operations.execution import Outcome, OutcomeKind
from tests.support.race_nodes import step, wait
from tests.support.races import LOST, Arena, Side

pytestmark = [pytest.mark.mongo, pytest.mark.timeout(120)]

DONE = wait("DONE")
TARGET, SOURCE = 1, 2
"""Instances run with the second version, the latest, and are moved to the first."""


def definition_ids(arena: Arena) -> set[tuple[str, str]]:
    """Return for each row the version of its instance and its own."""
    versions = {
        row["_id"]: row["processDefinitionId"] for row in arena.data.process_instances.find()
    }
    rows = [*arena.data.executable_tasks.find(), *arena.data.external_tasks.find()]
    return {(versions[row["processInstanceId"]], row["processDefinitionId"]) for row in rows}


async def test_a_migration_against_a_worker_s_step(arena: Arena, races: int) -> None:
    await arena.deploy(step("STEP", "NEXT"), step("NEXT", "DONE"), DONE)
    await arena.deploy(step("STEP", "NEXT"), step("NEXT"))

    async for ids in arena.batches(races):
        tasks = await arena.claimed("STEP")

        results = await arena.race_steps(
            ids, tasks, lambda side, i: side.client.migrate(i, version=TARGET)
        )

        places = arena.places()
        for instance_id, (verdict, outcome) in zip(ids, results, strict=True):
            assert verdict.migrated
            assert outcome.kind in {OutcomeKind.COMPLETED, *LOST}
            went_on = outcome.kind is OutcomeKind.COMPLETED
            assert places[instance_id] == ("NEXT" if went_on else "STEP")
            arena.wins[1 if went_on else 0] += 1
        ((of_instance, of_row),) = definition_ids(arena)
        assert of_instance == of_row
        await arena.run_due()
        assert arena.places() == dict.fromkeys(ids, "DONE")


@pytest.mark.field_case("S-82")
async def test_a_migration_against_a_step_to_a_node_that_the_other_version_lacks(
    arena: Arena, races: int
) -> None:
    await arena.deploy(step("STEP", "NEW"), wait("NEW"))
    await arena.deploy(step("STEP", "OLD"), wait("OLD"))

    async for ids in arena.batches(races):
        tasks = await arena.claimed("STEP")

        results = await arena.race_steps(
            ids, tasks, lambda side, i: side.client.migrate(i, version=TARGET)
        )

        places = arena.places()
        for instance_id, (verdict, outcome) in zip(ids, results, strict=True):
            went_on = outcome.kind is OutcomeKind.COMPLETED
            assert went_on or outcome.kind in LOST
            assert verdict.migrated is not went_on
            assert places[instance_id] == ("OLD" if went_on else "STEP")
            arena.wins[1 if went_on else 0] += 1
        await arena.run_due()


@pytest.mark.field_case("S-82")
async def test_a_migration_against_a_person_s_completion(arena: Arena, races: int) -> None:
    await arena.deploy(wait("TASK", "NEW"), wait("NEW"))
    await arena.deploy(wait("TASK", "OLD"), wait("OLD"))

    async for ids in arena.batches(races):
        results = await arena.race_completions(
            ids, lambda side, i: side.client.migrate(i, version=TARGET)
        )

        places = arena.places()
        for instance_id, (verdict, completed) in zip(ids, results, strict=True):
            assert not isinstance(completed, Exception)
            assert places[instance_id] == ("NEW" if verdict.migrated else "OLD")
            arena.wins[0 if verdict.migrated else 1] += 1
        assert all(of_instance == of_row for of_instance, of_row in definition_ids(arena))


async def test_a_delete_against_the_completion_that_ends_the_instance(
    arena: Arena, races: int
) -> None:
    await arena.deploy(wait("TASK"))

    async for ids in arena.batches(races):
        results = await arena.race_completions(ids, lambda side, i: side.client.delete(i))

        for deleted, completed in results:
            assert deleted is None
            refused = isinstance(completed, Exception)
            assert not refused or isinstance(completed, NotFoundError)
            arena.wins[0 if refused else 1] += 1
        assert arena.statuses() == {}
        assert arena.data.completed_external_tasks.count_documents({}) == 0
        ids.clear()


async def test_a_delete_against_a_worker_s_step(arena: Arena, races: int) -> None:
    await arena.deploy(step("STEP", "NEXT"), step("NEXT"))

    async for ids in arena.batches(races):
        tasks = await arena.claimed("STEP")

        results = await arena.race_steps(ids, tasks, lambda side, i: side.client.delete(i))

        for deleted, outcome in results:
            assert deleted is None
            assert outcome.kind in {OutcomeKind.COMPLETED, OutcomeKind.CANCELLED, *LOST}
            arena.wins[1 if outcome.kind is OutcomeKind.COMPLETED else 0] += 1
        assert arena.places() == {}
        assert arena.statuses() == {}
        ids.clear()


async def test_an_override_against_the_claim_of_its_task(arena: Arena, races: int) -> None:
    await arena.deploy(step("STEP", "DONE"), DONE)

    async def claim_and_run(side: Side, task_id: str) -> Outcome:
        return await side.run(await side.claim(task_id))

    async for ids in arena.batches(races):
        tasks = arena.tasks("STEP")

        results = await arena.race(
            (
                lambda side, task=tasks[i]: side.client.override_task(task, retries=7),
                lambda side, task=tasks[i]: claim_and_run(side, task),
            )
            for i in ids
        )

        for overridden, outcome in results:
            assert outcome.kind is OutcomeKind.COMPLETED
            refused = isinstance(overridden, Exception)
            assert not refused or isinstance(overridden, ConflictError | NotFoundError)
            arena.wins[1 if refused else 0] += 1
        assert arena.places() == dict.fromkeys(ids, "DONE")


async def test_an_override_against_the_retry_of_an_incident(arena: Arena, races: int) -> None:
    await arena.deploy(step("STEP", "DONE"), DONE)

    async for ids in arena.batches(races, broken=True):
        opened = await arena.fail_steps(ids, await arena.claimed("STEP"))
        tasks = arena.tasks("STEP")
        later = arena.sides[0].client.services.runtime.now() + timedelta(hours=1)

        results = await arena.race(
            (
                lambda side, task=tasks[i], at=later: side.client.override_task(
                    task, due_at=at, by="left"
                ),
                lambda side, one=opened[i]: side.client.retry_incident(one, resolved_by="right"),
            )
            for i in ids
        )

        for instance_id, (overridden, retried) in zip(ids, results, strict=True):
            assert not isinstance(overridden, Exception)
            incident = arena.data.incidents.find_one({"_id": opened[instance_id]})
            row = arena.data.executable_tasks.find_one({"_id": tasks[instance_id]})
            assert incident is not None
            assert row is not None
            was_late = isinstance(retried, ConflictError)
            assert incident["resolvedBy"] == ("left" if was_late else "right")
            assert (row["status"], row["attempts"], row["dueDate"]) == ("PENDING", 0, later)
            arena.wins[0 if was_late else 1] += 1
        arena.data.executable_tasks.update_many({}, [{"$set": {"claimableAt": "$$NOW"}}])
        await arena.run_due()
        assert arena.places() == dict.fromkeys(ids, "DONE")


@pytest.mark.field_case("S-47")
async def test_a_skip_against_the_retry_of_an_incident(arena: Arena, races: int) -> None:
    await arena.deploy(step("STEP", "DONE"), DONE)

    async for ids in arena.batches(races, broken=True):
        opened = await arena.fail_steps(ids, await arena.claimed("STEP"))
        tasks = arena.tasks("STEP")

        results = await arena.race(
            (
                lambda side, one=opened[i]: side.client.retry_incident(one, skip=True),
                lambda side, one=opened[i]: side.client.retry_incident(one),
            )
            for i in ids
        )

        skipped = {row["_id"] for row in arena.data.executable_tasks.find({"isSkipped": True})}
        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (ConflictError, ConflictError))
            assert (tasks[instance_id] in skipped) == (winner == 0)
        await arena.run_due()
        assert arena.places() == dict.fromkeys(ids, "DONE")


async def test_a_skip_against_a_cancel(arena: Arena, races: int) -> None:
    await arena.deploy(step("STEP", "DONE"), DONE)

    async for ids in arena.batches(races, broken=True):
        opened = await arena.fail_steps(ids, await arena.claimed("STEP"))

        results = await arena.race(
            (
                lambda side, one=opened[i]: side.client.retry_incident(one, skip=True),
                lambda side, i=i: side.client.cancel(i),
            )
            for i in ids
        )

        statuses = {row["_id"]: row["status"] for row in arena.data.incidents.find()}
        for instance_id, (skipped, cancelled) in zip(ids, results, strict=True):
            assert cancelled is None
            was_late = isinstance(skipped, Exception)
            assert not was_late or isinstance(skipped, ConflictError)
            left = IncidentStatus.CLOSED if was_late else IncidentStatus.RESOLVED
            assert statuses[opened[instance_id]] == left.value
            arena.wins[1 if was_late else 0] += 1
        assert arena.places() == {}
        assert arena.statuses() == dict.fromkeys(ids, "CANCELLED")
