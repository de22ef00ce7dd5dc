"""Messages, branches and people who want the same: every key, branch and task counts once (protocol R9, R13)."""

from datetime import timedelta

import pytest

from kikwiflow_worker.errors import ConflictError, NotFoundError
from kikwiflow_worker.operations.correlation import CorrelationOutcome
from kikwiflow_worker.operations.execution import OutcomeKind
from tests.support.race_nodes import catcher, group, join, split, step, thrower, wait
from tests.support.races import Arena

pytestmark = [pytest.mark.mongo, pytest.mark.timeout(120)]

DONE = wait("DONE")
RETRIED = frozenset({OutcomeKind.RETRY_SCHEDULED})


async def test_two_messages_with_one_key(arena: Arena, races: int) -> None:
    await arena.deploy(catcher("CATCHER", "DONE"), DONE)

    async for ids in arena.batches(races):
        keys = arena.keys()

        results = await arena.race(
            (
                lambda side, key=keys[i]: side.client.correlate(key),
                lambda side, key=keys[i]: side.client.correlate(key),
            )
            for i in ids
        )

        for result in results:
            arena.one_won(result, (NotFoundError, NotFoundError))
        assert arena.places() == dict.fromkeys(ids, "DONE")


async def test_two_keys_of_a_group_that_waits_for_any(arena: Arena, races: int) -> None:
    await arena.deploy(group("GROUP", "ANY", "DONE"), DONE)

    async for ids in arena.batches(races):
        keys = arena.keys()

        results = await arena.race(
            (
                lambda side, key=keys[i]: side.client.correlate(f"a-{key}"),
                lambda side, key=keys[i]: side.client.correlate(f"b-{key}"),
            )
            for i in ids
        )

        for result in results:
            arena.one_won(result, (NotFoundError, NotFoundError))
        assert arena.places() == dict.fromkeys(ids, "DONE")


async def test_the_last_two_keys_of_a_group_that_waits_for_all(arena: Arena, races: int) -> None:
    await arena.deploy(group("GROUP", "ALL", "DONE"), DONE)

    async for ids in arena.batches(races):
        keys = arena.keys()
        groups = arena.waits("GROUP", type="EVENT_CATCHER_PARENT")

        results = await arena.race(
            (
                lambda side, key=keys[i]: side.client.correlate(f"a-{key}", actor="left"),
                lambda side, key=keys[i]: side.client.correlate(f"b-{key}", actor="right"),
            )
            for i in ids
        )

        assert not [result for pair in results for result in pair if isinstance(result, Exception)]
        assert arena.places() == dict.fromkeys(ids, "DONE")
        for instance_id in ids:
            last = arena.completed_by(groups[instance_id])
            arena.wins[["left", "right"].index(last)] += 1


@pytest.mark.field_case("S-71")
async def test_the_last_two_branches_of_a_join(arena: Arena, races: int) -> None:
    await arena.deploy(split("A", "B"), step("A", "JOIN"), step("B", "JOIN"), join("DONE"), DONE)

    async for ids in arena.batches(races):
        left, right = await arena.claimed("A"), await arena.claimed("B")

        results = await arena.race(
            (
                lambda side, task=left[i]: side.run(task),
                lambda side, task=right[i]: side.run(task),
            )
            for i in ids
        )

        for pair in results:
            assert [outcome.kind for outcome in pair] == [OutcomeKind.COMPLETED] * 2
            released = [outcome.committed.released for outcome in pair]
            assert sorted(released) == [0, 1]
            arena.wins[released.index(1)] += 1
        assert arena.places() == dict.fromkeys(ids, "JOIN")


async def test_a_person_s_branch_and_a_worker_s_at_one_join(arena: Arena, races: int) -> None:
    await arena.deploy(split("A", "B"), wait("A", "JOIN"), step("B", "JOIN"), join("DONE"), DONE)

    async for ids in arena.batches(races):
        waits, tasks = arena.waits("A"), await arena.claimed("B")

        results = await arena.race(
            (
                lambda side, task=waits[i]: side.client.complete(task),
                lambda side, task=tasks[i]: side.run(task),
            )
            for i in ids
        )

        for completed, outcome in results:
            assert not isinstance(completed, Exception)
            assert outcome.kind is OutcomeKind.COMPLETED
            arena.wins[outcome.committed.released] += 1
        assert arena.places() == dict.fromkeys(ids, "JOIN")


async def test_two_completions_of_one_task(arena: Arena, races: int) -> None:
    await arena.deploy(wait("TASK", "DONE"), DONE)

    async for ids in arena.batches(races):
        tasks = arena.waits("TASK")

        results = await arena.race(
            (
                lambda side, task=tasks[i]: side.client.complete(task, completed_by="left"),
                lambda side, task=tasks[i]: side.client.complete(task, completed_by="right"),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (ConflictError, ConflictError))
            assert arena.completed_by(tasks[instance_id]) == ["left", "right"][winner]
        assert arena.places() == dict.fromkeys(ids, "DONE")


async def test_two_people_who_claim_one_task(arena: Arena, races: int) -> None:
    await arena.deploy(wait("TASK"))

    async for ids in arena.batches(races):
        tasks = arena.waits("TASK")

        results = await arena.race(
            (
                lambda side, task=tasks[i]: side.client.claim(task, assignee="left"),
                lambda side, task=tasks[i]: side.client.claim(task, assignee="right"),
            )
            for i in ids
        )

        for instance_id, result in zip(ids, results, strict=True):
            winner = arena.one_won(result, (ConflictError, ConflictError))
            row = arena.data.external_tasks.find_one({"_id": tasks[instance_id]})
            assert row is not None
            assert row["assignee"] == ["left", "right"][winner]


async def test_a_thrower_against_a_message_with_its_key(arena: Arena, races: int) -> None:
    await arena.deploy(catcher("CATCHER", "DONE"), DONE, key="receiver")
    await arena.deploy(thrower("THROWER"))

    async for ids in arena.batches(races):
        receivers = await arena.receivers(arena.keys())
        keys, throwers = arena.keys(), await arena.claimed("THROWER")

        results = await arena.race(
            (
                lambda side, task=throwers[i]: side.run(task),
                lambda side, key=keys[i]: side.client.correlate(key),
            )
            for i in ids
        )

        winners = [arena.one_won(result, (RETRIED, NotFoundError)) for result in results]
        places = arena.places()
        assert [places.pop(receivers[i]) for i in ids] == ["DONE"] * len(ids)
        missed = [i for i, winner in zip(ids, winners, strict=True) if winner == 1]
        assert places == dict.fromkeys(missed, "THROWER")
        ids.extend(receivers.values())
        ids.extend((await arena.receivers({i: keys[i] for i in missed})).values())
        for task in (await arena.claimed("THROWER")).values():
            assert (await arena.sides[0].run(task)).kind is OutcomeKind.COMPLETED


async def test_two_throwers_of_one_key(arena: Arena, races: int) -> None:
    await arena.deploy(catcher("CATCHER", "DONE"), DONE, key="receiver")
    await arena.deploy(split("A", "B"), thrower("A", "JOIN"), thrower("B", "JOIN"), join())

    async for ids in arena.batches(races):
        keys = arena.keys()
        receivers = await arena.receivers(keys)
        left, right = await arena.claimed("A"), await arena.claimed("B")

        results = await arena.race(
            (
                lambda side, task=left[i]: side.run(task),
                lambda side, task=right[i]: side.run(task),
            )
            for i in ids
        )

        winners = [arena.one_won(result, (RETRIED, RETRIED)) for result in results]
        places = arena.places()
        assert [places.pop(receivers[i]) for i in ids] == ["DONE"] * len(ids)
        assert [places[i] for i in ids] == [["B JOIN", "A JOIN"][winner] for winner in winners]
        ids.extend(receivers.values())
        ids.extend((await arena.receivers(keys)).values())
        for task in [*(await arena.claimed("A")).values(), *(await arena.claimed("B")).values()]:
            assert (await arena.sides[0].run(task)).kind is OutcomeKind.COMPLETED


async def test_two_messages_with_one_id(arena: Arena, races: int) -> None:
    await arena.deploy(catcher("CATCHER", "DONE"), DONE, key="receiver")
    await arena.deploy(catcher("CATCHER", "DONE"), DONE)

    async for ids in arena.batches(races):
        keys = arena.keys()
        receivers = await arena.receivers(keys)

        results = await arena.race(
            (
                lambda side, key=keys[i]: side.client.correlate(key, message_id=key),
                lambda side, key=keys[i]: side.client.correlate(key, message_id=key),
            )
            for i in ids
        )

        for pair in results:
            outcomes = [correlated.outcome for correlated in pair]
            assert sorted(outcomes) == [CorrelationOutcome.DELIVERED, CorrelationOutcome.KNOWN]
            arena.wins[outcomes.index(CorrelationOutcome.DELIVERED)] += 1
        places = arena.places()
        for instance_id in ids:
            pair = {places[instance_id], places[receivers[instance_id]]}
            assert pair == {"CATCHER", "DONE"}
        ids.extend(receivers.values())
        for key in keys.values():
            await arena.sides[0].client.correlate(key)


@pytest.mark.field_case("S-72")
async def test_a_message_to_be_kept_against_the_wait_that_begins(arena: Arena, races: int) -> None:
    await arena.deploy(wait("TASK", "CATCHER"), catcher("CATCHER", "DONE"), DONE)

    async for ids in arena.batches(races):
        keys, tasks = arena.keys(), arena.waits("TASK")

        results = await arena.race(
            (
                lambda side, key=keys[i]: side.client.correlate(key, keep_for=timedelta(hours=1)),
                lambda side, task=tasks[i]: side.client.complete(task),
            )
            for i in ids
        )

        for correlated, _ in results:
            was_kept = correlated.outcome is CorrelationOutcome.KEPT
            arena.wins[0 if was_kept else 1] += 1
        await arena.run_due()
        assert arena.places() == dict.fromkeys(ids, "DONE")


async def test_a_look_for_who_waits_against_the_wait_that_begins(arena: Arena, races: int) -> None:
    await arena.deploy(wait("TASK", "CATCHER"), catcher("CATCHER", "DONE"), DONE)

    async for ids in arena.batches(races):
        keys, tasks = arena.keys(), arena.waits("TASK")
        for key in keys.values():
            await arena.sides[0].client.correlate(key, message_id=key, keep_for=timedelta(hours=1))
        keepers = await arena.claimed_keepers()

        results = await arena.race(
            (
                lambda side, keeper=keepers[keys[i]]: side.run(keeper),
                lambda side, task=tasks[i]: side.client.complete(task),
            )
            for i in ids
        )

        for looked, completed in results:
            assert not isinstance(completed, Exception)
            in_vain = looked.kind is OutcomeKind.KEPT
            assert in_vain or looked.kind in {OutcomeKind.COMPLETED, OutcomeKind.CLAIM_LOST}
            arena.wins[0 if in_vain else 1] += 1
        await arena.run_due()
        assert arena.places() == dict.fromkeys(ids, "DONE")
