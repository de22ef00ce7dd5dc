"""Who has waited longest for a correlation key."""

from datetime import timedelta

import pytest
from pymongo.database import Database

from kikwiflow_worker.model.runtime import ExternalTask, ExternalTaskStatus, ExternalTaskType
from kikwiflow_worker.model.unit_of_work import InsertExternalTask
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.stores import LONG_AGO, Json, an_external_task, commit

pytestmark = pytest.mark.mongo

KEY = "order-7"


async def put_catcher(store: MongoStore, *, age_s: int = 0, **fields: object) -> ExternalTask:
    """Store a catcher that has waited for ``age_s`` seconds longer than others."""
    chosen: Json = {"type": ExternalTaskType.CATCHER, "correlation_key": KEY, **fields}
    task = an_external_task(created_at=LONG_AGO - timedelta(seconds=age_s), **chosen)
    await commit(store, InsertExternalTask(task))
    return task


async def find(
    store: MongoStore, key: str = KEY, tenant_id: str | None = None, *taken: str
) -> ExternalTask | None:
    return await store.runtime.find_waiting(key, tenant_id=tenant_id, taken=frozenset(taken))


@pytest.mark.field_case("S-72")
async def test_who_has_waited_longest_is_found_first(store: MongoStore) -> None:
    await put_catcher(store, age_s=1)
    oldest = await put_catcher(store, age_s=9)
    await put_catcher(store, age_s=5)

    assert await find(store) == oldest


async def test_of_two_of_one_instant_it_is_always_the_same(store: MongoStore) -> None:
    both = [await put_catcher(store), await put_catcher(store)]

    assert await find(store) == min(both, key=lambda task: task.id)


async def test_only_the_same_key_counts(store: MongoStore) -> None:
    await put_catcher(store, correlation_key="order-70")

    assert await find(store) is None


async def test_nobody_waits_for_a_key_that_no_row_has(store: MongoStore) -> None:
    await put_catcher(store, correlation_key=None)

    assert await find(store, "") is None


@pytest.mark.parametrize("wanted", [None, "acme", "globex"])
async def test_a_tenant_hears_its_own_messages_only(store: MongoStore, wanted: str | None) -> None:
    waiting = {
        tenant: await put_catcher(store, tenant_id=tenant) for tenant in (None, "acme", "globex")
    }

    assert await find(store, KEY, wanted) == waiting[wanted]


@pytest.mark.parametrize(
    ("waiting", "wanted"), [(None, "acme"), ("acme", None), ("acme", "globex")]
)
async def test_no_tenant_is_a_tenant_of_its_own(
    store: MongoStore, waiting: str | None, wanted: str | None
) -> None:
    await put_catcher(store, tenant_id=waiting)

    assert await find(store, KEY, wanted) is None


async def test_tasks_that_are_taken_are_left_out(store: MongoStore) -> None:
    first, second = await put_catcher(store, age_s=2), await put_catcher(store, age_s=1)

    assert await find(store, KEY, None, first.id) == second
    assert await find(store, KEY, None, first.id, second.id) is None


async def test_a_key_that_was_matched_waits_no_more(
    store: MongoStore, data: Database[Json]
) -> None:
    task = await put_catcher(store, type=ExternalTaskType.GROUP_KEY, group_id="group-1")
    correlated = {"status": ExternalTaskStatus.CORRELATED.value}
    data.external_tasks.update_one({"_id": task.id}, {"$set": correlated})

    assert await find(store) is None


@pytest.mark.parametrize(
    "kind", [ExternalTaskType.CATCHER, ExternalTaskType.GROUP_KEY, ExternalTaskType.BOUNDARY_CATCH]
)
async def test_every_kind_of_wait_for_a_key_is_found(
    store: MongoStore, kind: ExternalTaskType
) -> None:
    task = await put_catcher(store, type=kind)

    assert await find(store) == task
