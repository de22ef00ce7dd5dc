"""A host against what waits beside it: one of them goes on, the other is gone (protocol R10)."""

import pytest

from kikwiflow_worker.errors import NotFoundError
from kikwiflow_worker.operations.execution import OutcomeKind
from tests.support.race_nodes import (
    catch_event,
    catcher,
    deadline,
    join,
    reminder,
    split,
    step,
    timer,
    wait,
)
from tests.support.races import LOST, Arena

pytestmark = [pytest.mark.mongo, pytest.mark.timeout(120)]

DONE, LATE, CAUGHT = wait("DONE"), wait("LATE"), wait("CAUGHT")


@pytest.mark.field_case("S-73")
async def test_a_completion_against_the_deadline_of_its_task(arena: Arena, races: int) -> None:
    await arena.deploy(wait("HOST", "DONE", "DEADLINE"), deadline("HOST"), DONE, LATE)

    async for ids in arena.batches(races):
        hosts, deadlines = arena.waits("HOST"), await arena.claimed("DEADLINE")

        results = await arena.race(
            (
                lambda side, host=hosts[i]: side.client.complete(host),
                lambda side, due=deadlines[i]: side.run(due),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (NotFoundError, LOST))
            assert arena.places()[instance_id] == ["DONE", "LATE"][winner]


async def test_a_timer_against_its_own_deadline(arena: Arena, races: int) -> None:
    await arena.deploy(timer("HOST", "DONE", "DEADLINE"), deadline("HOST"), DONE, LATE)

    async for ids in arena.batches(races):
        hosts, deadlines = await arena.claimed("HOST"), await arena.claimed("DEADLINE")

        results = await arena.race(
            (
                lambda side, host=hosts[i]: side.run(host),
                lambda side, due=deadlines[i]: side.run(due),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (LOST, LOST))
            assert arena.places()[instance_id] == ["DONE", "LATE"][winner]


async def test_a_host_that_ends_its_branch_against_its_deadline(arena: Arena, races: int) -> None:
    await arena.deploy(
        split("HOST", "OTHER"),
        timer("HOST", "JOIN", "DEADLINE"),
        deadline("HOST"),
        wait("LATE", "JOIN"),
        wait("OTHER", "JOIN"),
        join(),
    )

    async for ids in arena.batches(races):
        hosts, deadlines = await arena.claimed("HOST"), await arena.claimed("DEADLINE")

        results = await arena.race(
            (
                lambda side, host=hosts[i]: side.run(host),
                lambda side, due=deadlines[i]: side.run(due),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (LOST, LOST))
            rests = ["JOIN OTHER", "JOIN LATE OTHER"][winner]
            assert arena.places()[instance_id] == rests


async def test_a_message_to_a_boundary_event_against_the_deadline(arena: Arena, races: int) -> None:
    host = wait("HOST", "DONE", "DEADLINE", "CATCH")
    await arena.deploy(host, deadline("HOST"), catch_event("HOST"), DONE, LATE, CAUGHT)

    async for ids in arena.batches(races):
        keys, deadlines = arena.keys(), await arena.claimed("DEADLINE")

        results = await arena.race(
            (
                lambda side, key=keys[i]: side.client.correlate(key),
                lambda side, due=deadlines[i]: side.run(due),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (NotFoundError, LOST))
            assert arena.places()[instance_id] == ["CAUGHT", "LATE"][winner]


async def test_a_message_to_a_catcher_against_its_deadline(arena: Arena, races: int) -> None:
    await arena.deploy(catcher("HOST", "CAUGHT", "DEADLINE"), deadline("HOST"), CAUGHT, LATE)

    async for ids in arena.batches(races):
        keys, deadlines = arena.keys(), await arena.claimed("DEADLINE")

        results = await arena.race(
            (
                lambda side, key=keys[i]: side.client.correlate(key),
                lambda side, due=deadlines[i]: side.run(due),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (NotFoundError, LOST))
            assert arena.places()[instance_id] == ["CAUGHT", "LATE"][winner]


async def test_a_message_to_a_boundary_event_against_the_host_s_completion(
    arena: Arena, races: int
) -> None:
    await arena.deploy(wait("HOST", "DONE", "CATCH"), catch_event("HOST"), DONE, CAUGHT)

    async for ids in arena.batches(races):
        keys, hosts = arena.keys(), arena.waits("HOST")

        results = await arena.race(
            (
                lambda side, key=keys[i]: side.client.correlate(key),
                lambda side, host=hosts[i]: side.client.complete(host),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (NotFoundError, NotFoundError))
            assert arena.places()[instance_id] == ["CAUGHT", "DONE"][winner]


@pytest.mark.parametrize("kind", ["wait", "step"])
async def test_a_cycle_of_a_reminder_against_its_host(arena: Arena, races: int, kind: str) -> None:
    host = (
        wait("HOST", "DONE", "REMINDER")
        if kind == "wait"
        else step("HOST", "DONE", boundaryEventIds=["REMINDER"])
    )
    await arena.deploy(host, reminder("HOST"), wait("NUDGE"), DONE)

    async for ids in arena.batches(races):
        cycles = await arena.claimed("REMINDER")
        hosts = arena.waits("HOST") if kind == "wait" else await arena.claimed("HOST")

        results = await arena.race(
            (
                lambda side, cycle=cycles[i]: side.run(cycle),
                lambda side, host=hosts[i]: (
                    side.client.complete(host) if kind == "wait" else side.run(host)
                ),
            )
            for i in ids
        )

        for instance_id, (cycle, ended) in zip(ids, results, strict=True):
            assert not isinstance(ended, Exception)
            fired = cycle.kind is OutcomeKind.COMPLETED
            assert fired or cycle.kind in LOST
            arena.wins[0 if fired else 1] += 1
            assert arena.places()[instance_id] == ("DONE NUDGE" if fired else "DONE")
