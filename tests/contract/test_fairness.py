"""Who is served first: priorities inside a tenant, turns between tenants, and a bounded wait for the rest."""

from datetime import timedelta

import pytest

from kikwiflow_worker.model.capability import NO_CAPABILITIES
from kikwiflow_worker.model.unit_of_work import InsertTask, UnitOfWork
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.stores import LOCK, LONG_AGO, a_task, claim_next


async def fill(store: MongoStore, **groups: tuple[int, dict[str, object]]) -> None:
    """Insert the given number of due tasks for each group; a group's name starts the ids of its tasks."""
    changes = [
        InsertTask(
            a_task(
                id=f"{name}-{number:04}",
                claimable_at=LONG_AGO + timedelta(seconds=number),
                **fields,
            )
        )
        for name, (count, fields) in groups.items()
        for number in range(count)
    ]
    await store.runtime.commit(UnitOfWork((), tuple(changes)))


async def claimed(store: MongoStore, times: int) -> list[str]:
    found = []
    for _ in range(times):
        task = await claim_next(store, NO_CAPABILITIES)
        found.append(task.task.id.split("-")[0] if task else "nothing")
    return found


async def claimed_together(store: MongoStore, times: int, *, limit: int) -> list[str]:
    found = []
    for _ in range(times):
        tasks = await store.queue.claim_due(
            worker_id="w", lock=LOCK, capabilities=NO_CAPABILITIES, limit=limit
        )
        found += [task.task.id.split("-")[0] for task in tasks]
    return found


@pytest.mark.field_case("S-40")
async def test_the_highest_priority_goes_first_and_the_lowest_goes_too(store: MongoStore) -> None:
    await fill(
        store, low=(10, {"priority": 1}), high=(30, {"priority": 9}), normal=(10, {"priority": 5})
    )

    found = await claimed(store, 24)

    assert found.count("high") >= 15, "three of four claims go by priority"
    assert found.count("low") >= 1, "every fourth takes the oldest"


@pytest.mark.field_case("S-41")
async def test_one_tenant_does_not_keep_another_waiting(store: MongoStore) -> None:
    await fill(store, big=(1000, {"tenant_id": "big"}), small=(1, {"tenant_id": "small"}))

    found = await claimed(store, 6)

    assert "small" in found


async def test_tenants_take_turns(store: MongoStore) -> None:
    await fill(
        store,
        a=(40, {"tenant_id": "a"}),
        b=(40, {"tenant_id": "b"}),
        none=(40, {}),
    )

    found = await claimed(store, 24)

    assert min(found.count(name) for name in ("a", "b", "none")) >= 5


@pytest.mark.field_case("S-39")
async def test_everything_is_claimed_in_the_end(store: MongoStore) -> None:
    await fill(
        store,
        a=(7, {"tenant_id": "a", "priority": 0}),
        b=(5, {"tenant_id": "b"}),
        none=(3, {"priority": 9}),
    )

    found = await claimed(store, 17)

    assert sorted(found) == ["a"] * 7 + ["b"] * 5 + ["none"] * 3 + ["nothing"] * 2


async def test_batches_take_the_highest_priority_first_and_the_lowest_too(
    store: MongoStore,
) -> None:
    await fill(
        store, low=(30, {"priority": 1}), high=(90, {"priority": 9}), normal=(30, {"priority": 5})
    )
    await claimed_together(store, 1, limit=4)

    found = await claimed_together(store, 4, limit=16)

    assert found.count("high") >= 48, "three of four go by priority"
    assert found.count("low") >= 1, "a fourth goes to the oldest"


async def test_in_batches_one_tenant_does_not_keep_another_waiting(store: MongoStore) -> None:
    await fill(store, big=(1000, {"tenant_id": "big"}), small=(1, {"tenant_id": "small"}))

    found = await claimed_together(store, 2, limit=16)

    assert "small" in found
    assert len(found) == 32, "what one tenant leaves is another's"


async def test_tenants_share_batches(store: MongoStore) -> None:
    await fill(
        store,
        a=(200, {"tenant_id": "a"}),
        b=(200, {"tenant_id": "b"}),
        none=(200, {}),
    )

    found = await claimed_together(store, 4, limit=24)

    assert len(found) == 96
    assert min(found.count(name) for name in ("a", "b", "none")) >= 18


async def test_many_tenants_come_to_their_turn_over_several_batches(store: MongoStore) -> None:
    groups: dict[str, tuple[int, dict[str, object]]] = {
        f"t{number}": (100, {"tenant_id": f"t{number}"}) for number in range(10)
    }
    await fill(store, **groups)

    found = await claimed_together(store, 5, limit=16)

    assert set(found) == set(groups)


async def test_everything_is_claimed_in_batches_in_the_end(store: MongoStore) -> None:
    await fill(
        store,
        a=(37, {"tenant_id": "a", "priority": 0}),
        b=(25, {"tenant_id": "b"}),
        none=(13, {"priority": 9}),
    )

    found = await claimed_together(store, 20, limit=16)

    assert (found.count("a"), found.count("b"), found.count("none")) == (37, 25, 13)
