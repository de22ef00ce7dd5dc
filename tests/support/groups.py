"""Units of claimed tasks for tests of group commits."""

from datetime import timedelta
from typing import Any

from kikwiflow_worker.model.runtime import Claim, ExecutableTask, ProcessInstance
from kikwiflow_worker.model.unit_of_work import (
    Change,
    Committed,
    Guard,
    InsertInstance,
    InsertTask,
    RemoveTask,
    UnitOfWork,
)
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.values import GroupedUnit, GroupResult, HandOn
from tests.support.stores import CAPABILITIES, LOCK, WORKER, a_task, an_instance, claim, commit

HAND_ON = HandOn(worker_id=WORKER, lock=LOCK, capabilities=CAPABILITIES)


async def commit_group(
    store: MongoStore, *units: UnitOfWork, hand_on: HandOn | None = None
) -> tuple[GroupResult, ...]:
    """Commit units as one group; all may hand on."""
    grouped = [GroupedUnit(unit, may_hand_on=True) for unit in units]
    return await store.runtime.commit_group(grouped, hand_on=hand_on)


def committed(results: tuple[GroupResult, ...]) -> list[Committed]:
    """Return results that must all be commits."""
    assert all(isinstance(one, Committed) for one in results), results
    return [one for one in results if isinstance(one, Committed)]


async def put_claimed(
    store: MongoStore, count: int, **fields: Any
) -> list[tuple[ProcessInstance, ExecutableTask, Claim]]:
    """Store ``count`` instances, each with one task, and claim the tasks; ``fields`` are the tasks'."""
    made = []
    for _ in range(count):
        instance = an_instance(variables={"count": 0})
        task = a_task(instance_id=instance.id, **fields)
        made.append((instance, task))
    inserts: list[Change] = [InsertInstance(instance) for instance, _ in made]
    inserts += [InsertTask(task) for _, task in made]
    await commit(store, *inserts)
    return [(instance, task, await claim(store, task)) for instance, task in made]


def step(store: MongoStore, held: Claim, *changes: Change, **fields: Any) -> UnitOfWork:
    """Return a unit that goes on from one task to the next, which is due at once."""
    now = store.runtime.now() - timedelta(milliseconds=1)
    following = a_task(created_at=now, claimable_at=now, **fields)
    return unit_of(RemoveTask(held), InsertTask(following), *changes)


def unit_of(guard: Guard, *changes: Change) -> UnitOfWork:
    """Return a unit with one guard."""
    return UnitOfWork((guard,), changes)
