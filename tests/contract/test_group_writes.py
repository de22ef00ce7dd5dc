"""Groups of correlation keys: the group's row decides which key is the last (protocol R13)."""

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.nodes import MatchPolicy
from kikwiflow_worker.model.runtime import ExternalTask, ExternalTaskType
from kikwiflow_worker.model.unit_of_work import (
    CompleteExternalTask,
    Detach,
    InsertExternalTask,
    InsertTask,
    MatchKey,
)
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.stores import (
    LONG_AGO,
    Json,
    a_task,
    an_external_task,
    commit,
    new_id,
    snapshot,
    together,
)

pytestmark = pytest.mark.mongo


async def put_group(store: MongoStore, *keys: str) -> tuple[ExternalTask, dict[str, ExternalTask]]:
    """Store a group and its keys; return both."""
    group = an_external_task(
        type=ExternalTaskType.GROUP,
        match_policy=MatchPolicy.ALL,
        pending_keys=keys,
        total_keys=len(keys),
    )
    rows = {
        key: an_external_task(
            type=ExternalTaskType.GROUP_KEY, correlation_key=key, group_id=group.id
        )
        for key in keys
    }
    await commit(store, InsertExternalTask(group), *map(InsertExternalTask, rows.values()))
    return group, rows


def match(group: ExternalTask, row: ExternalTask, *pending: str) -> MatchKey:
    """Return the guard for a key of a group whose pending keys were loaded as ``pending``."""
    return MatchKey(
        task_id=row.id,
        group_id=group.id,
        key=row.correlation_key or "",
        pending_keys=pending or group.pending_keys,
    )


def completion(group: ExternalTask, *pending: str) -> CompleteExternalTask:
    return CompleteExternalTask(
        task_id=group.id,
        instance_id=group.instance_id,
        definition_id=group.definition_id,
        node_id=group.node_id,
        completed_at=LONG_AGO,
        completed_by="ann",
        pending_keys=pending,
    )


async def pending_of(store: MongoStore, group: ExternalTask) -> tuple[str, ...]:
    found = await store.runtime.find_external_task(group.id)
    assert found is not None
    return found.pending_keys


async def test_a_matched_key_is_taken_from_its_group_and_waits_no_more(store: MongoStore) -> None:
    group, rows = await put_group(store, "a", "b", "c")

    await commit(store, guards=(match(group, rows["b"]),))

    assert await pending_of(store, group) == ("a", "c")
    waiting = [
        await store.runtime.find_waiting(key, tenant_id=None, taken=frozenset()) for key in "abc"
    ]
    assert waiting == [rows["a"], None, rows["c"]]


async def test_a_match_decided_on_other_pending_keys_writes_nothing(
    store: MongoStore, data: Database[Json]
) -> None:
    group, rows = await put_group(store, "a", "b", "c")
    await commit(store, guards=(match(group, rows["a"]),))
    before = snapshot(data)

    with pytest.raises(ClaimLostError, match=rows["b"].id):
        await commit(store, InsertTask(a_task()), guards=(match(group, rows["b"], "a", "b", "c"),))

    assert snapshot(data) == before


async def test_a_key_is_matched_once(store: MongoStore, data: Database[Json]) -> None:
    group, rows = await put_group(store, "a", "b", "c")
    await commit(store, guards=(match(group, rows["a"]),))
    before = snapshot(data)

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(match(group, rows["a"], "b", "c"),))

    assert snapshot(data) == before


async def test_a_key_of_a_group_that_is_gone_is_not_matched(
    store: MongoStore, data: Database[Json]
) -> None:
    group, rows = await put_group(store, "a", "b")
    data.external_tasks.delete_one({"_id": group.id})
    before = snapshot(data)

    with pytest.raises(ClaimLostError):
        await commit(store, guards=(match(group, rows["a"]),))

    assert snapshot(data) == before


async def test_of_two_matches_at_once_one_counts(store: MongoStore) -> None:
    group, rows = await put_group(store, "a", "b", "c")

    results = await together(
        *(lambda row=rows[key]: commit(store, guards=(match(group, row),)) for key in "ab")
    )

    lost = [isinstance(result, ClaimLostError) for result in results]
    assert sorted(lost) == [False, True]
    assert await pending_of(store, group) == (("b", "c"), ("a", "c"))[lost.index(False)]


async def test_a_group_is_completed_by_its_last_pending_key(
    store: MongoStore, data: Database[Json]
) -> None:
    group, rows = await put_group(store, "a", "b")
    await commit(store, guards=(match(group, rows["a"]),))

    await commit(store, Detach(group.id), guards=(completion(group, "b"),))

    assert data.external_tasks.count_documents({}) == 0
    record = await store.reads.find_completed_external_task(group.id)
    assert record is not None
    assert record.completed_by == "ann"


@pytest.mark.parametrize("pending", [("b",), ("b", "a"), ()])
async def test_a_completion_decided_on_other_pending_keys_writes_nothing(
    store: MongoStore, data: Database[Json], pending: tuple[str, ...]
) -> None:
    group, _ = await put_group(store, "a", "b")
    before = snapshot(data)

    with pytest.raises(ClaimLostError):
        await commit(store, Detach(group.id), guards=(completion(group, *pending),))

    assert snapshot(data) == before


async def test_two_last_keys_at_once_are_never_both_the_last(store: MongoStore) -> None:
    group, rows = await put_group(store, "a", "b")

    first, second = await together(
        lambda: commit(store, guards=(match(group, rows["a"]),)),
        lambda: commit(store, guards=(match(group, rows["b"]),)),
    )

    assert isinstance(first, ClaimLostError) != isinstance(second, ClaimLostError)
    assert len(await pending_of(store, group)) == 1


async def test_two_keys_of_an_any_group_at_once_complete_it_once(
    store: MongoStore, data: Database[Json]
) -> None:
    group, _ = await put_group(store, "a", "b")

    results = await together(
        *(
            lambda: commit(
                store,
                Detach(group.id),
                InsertTask(a_task(id=new_id())),
                guards=(completion(group, "a", "b"),),
            )
            for _ in range(2)
        )
    )

    assert sum(isinstance(result, ClaimLostError) for result in results) == 1
    assert data.executable_tasks.count_documents({}) == 1
