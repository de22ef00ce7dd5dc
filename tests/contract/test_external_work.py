"""Tasks for external workers: which they get, in which order, and what their locks are worth."""

from datetime import timedelta

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.external_work import ReportKind, ReportOutcome, WorkReport
from kikwiflow_worker.model.runtime import Claim, ClaimedTask, ExecutableTask, TaskStatus
from kikwiflow_worker.model.unit_of_work import RecordReport, RemoveTask
from kikwiflow_worker.store.mongo.codec import encode_task
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.profiler import profiled
from tests.support.stores import (
    FAR_AWAY,
    HANDLER,
    LOCK,
    LONG_AGO,
    RIVAL,
    WORKER,
    Json,
    a_task,
    an_instance,
    claim_any,
    commit,
    lapse,
    put_instance,
    put_task,
    snapshot,
    together,
)

pytestmark = pytest.mark.mongo

TOPIC = "render_invoice"


async def put(store: MongoStore, minutes: int = 0, **fields: object) -> ExecutableTask:
    """Store a task of the topic that has been due since so many minutes after ``LONG_AGO``."""
    at = LONG_AGO + timedelta(minutes=minutes)
    return await put_task(store, **{"handler_name": TOPIC, "claimable_at": at, **fields})


async def fetch(
    store: MongoStore,
    limit: int = 1,
    *,
    topics: tuple[str, ...] = (TOPIC,),
    worker_id: str = WORKER,
    tenant_id: str | None = None,
) -> tuple[ClaimedTask, ...]:
    return await store.external_work.claim_topics(
        worker_id=worker_id, lock=LOCK, topics=topics, limit=limit, tenant_id=tenant_id
    )


async def fetch_one(store: MongoStore, worker_id: str = WORKER) -> ClaimedTask:
    (claimed,) = await fetch(store, worker_id=worker_id)
    return claimed


async def test_a_fetch_locks_a_task_of_the_topic_with_its_instance(store: MongoStore) -> None:
    instance = an_instance(variables={"weight": 7})
    task = a_task(instance_id=instance.id, handler_name=TOPIC)
    await put_instance(store, task, id=instance.id, variables={"weight": 7})

    claimed = await fetch_one(store)

    assert (claimed.claim, claimed.instance) == (Claim(task.id, WORKER, 1), instance)
    stored = await store.reads.find_task(task.id)
    assert stored is not None
    assert (stored.status, stored.worker_id, stored.epoch) == (TaskStatus.LOCKED, WORKER, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"handler_name": None},
        {"handler_name": HANDLER},
        {"claimable_at": FAR_AWAY},
        {"claimable_at": None},
        {"status": TaskStatus.ERROR, "claimable_at": None},
    ],
)
async def test_what_is_of_no_topic_or_not_due_is_not_fetched(
    store: MongoStore, fields: Json
) -> None:
    await put(store, **fields)

    assert await fetch(store, 5) == ()


async def test_a_fetch_of_several_topics_takes_all_of_them(store: MongoStore) -> None:
    tasks = [await put(store, handler_name=name) for name in ("pack", "load", "weigh")]

    claimed = await fetch(store, 5, topics=("pack", "weigh"))

    assert {one.task.id for one in claimed} == {tasks[0].id, tasks[2].id}


def put_many(data: Database[Json], count: int, since: timedelta, **fields: object) -> None:
    """Store due tasks of the topic, a second apart."""
    rows = [
        {
            **encode_task(
                a_task(
                    handler_name=TOPIC,
                    claimable_at=LONG_AGO + since + timedelta(seconds=number),
                    **fields,
                )
            ),
            "_id": f"{fields}-{since}-{number}",
        }
        for number in range(count)
    ]
    data.executable_tasks.insert_many(rows)


async def test_most_of_a_fetch_are_the_most_urgent(store: MongoStore, data: Database[Json]) -> None:
    put_many(data, 50, timedelta(0), priority=1)
    put_many(data, 50, timedelta(hours=1), priority=9)

    claimed = await fetch(store, 8)

    assert sorted(one.task.priority for one in claimed) == [1] * 2 + [9] * 6


async def test_the_oldest_is_not_forgotten(store: MongoStore, data: Database[Json]) -> None:
    """A quarter of each fetch is chosen at random among the eight oldest: sixty fetches do not all pass one by."""
    put_many(data, 600, timedelta(0), priority=9)
    oldest = await put(store, -1, priority=0)

    for _ in range(60):
        if oldest.id in {one.task.id for one in await fetch(store, 8)}:
            break
    else:
        pytest.fail("the oldest task was never fetched")


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_small_fetch_takes_an_urgent_task_or_an_old_one(
    store: MongoStore, limit: int
) -> None:
    await put(store, 0, priority=0)
    await put(store, 10, priority=9)

    claimed = [one for _ in range(2) for one in await fetch(store, limit)]

    assert len(claimed) == 2


async def test_a_fetch_for_one_tenant_takes_nothing_of_another(store: MongoStore) -> None:
    own = [await put(store, tenant_id="acme", priority=priority) for priority in (0, 9)]
    await put(store, tenant_id="globex")
    await put(store)

    claimed = [one for _ in range(4) for one in await fetch(store, 3, tenant_id="acme")]

    assert {one.task.id for one in claimed} == {task.id for task in own}


async def test_a_fetch_for_nobody_takes_those_of_all_tenants(store: MongoStore) -> None:
    await put(store, tenant_id="acme")
    await put(store)

    claimed = [one for _ in range(3) for one in await fetch(store, 1)]

    assert {one.task.tenant_id for one in claimed} == {"acme", None}


@pytest.mark.field_case("S-21")
async def test_two_workers_at_once_never_share_a_task(store: MongoStore) -> None:
    tasks = [await put(store, minutes) for minutes in range(20)]

    batches = await together(
        *(lambda name=f"w-{number}": fetch(store, 5, worker_id=name) for number in range(4))
    )
    rest = [one for _ in range(8) for one in await fetch(store, 5)]

    ids = [one.task.id for batch in (*batches, rest) for one in batch]
    assert sorted(ids) == sorted(task.id for task in tasks)


async def test_a_lapsed_lock_can_be_fetched_by_another_and_counts_as_a_crash(
    store: MongoStore, data: Database[Json]
) -> None:
    await put(store)
    first = await fetch_one(store)
    assert await fetch(store, worker_id=RIVAL) == ()
    lapse(data, first.task.id)

    second = await fetch_one(store, RIVAL)

    assert (second.claim.epoch, second.task.crash_count) == (2, 1)
    assert await store.external_work.find_held(first.claim) is None


async def test_a_lapsed_lock_that_nobody_has_taken_is_still_held(
    store: MongoStore, data: Database[Json]
) -> None:
    await put(store)
    claimed = await fetch_one(store)
    lapse(data, claimed.task.id)

    held = await store.external_work.find_held(claimed.claim)
    ends = await store.external_work.extend(claimed.claim, lock=LOCK)

    assert held is not None
    assert held.claim == claimed.claim
    assert ends is not None
    assert ends > store.runtime.now()
    assert await fetch(store, worker_id=RIVAL) == ()


@pytest.mark.parametrize(
    "claim_of",
    [
        lambda own: Claim(own.task_id, RIVAL, own.epoch),
        lambda own: Claim(own.task_id, own.worker_id, own.epoch + 1),
        lambda own: Claim("somewhere-else", own.worker_id, own.epoch),
    ],
    ids=["another worker", "another epoch", "another task"],
)
async def test_who_does_not_hold_the_lock_changes_nothing(
    store: MongoStore, data: Database[Json], claim_of: object
) -> None:
    await put(store)
    strange: Claim = claim_of((await fetch_one(store)).claim)  # type: ignore[operator]
    before = snapshot(data)

    assert await store.external_work.find_held(strange) is None
    assert await store.external_work.extend(strange, lock=LOCK) is None
    assert not await store.external_work.unlock(strange)
    assert snapshot(data) == before


async def test_a_claim_of_one_tenant_is_not_there_for_another(
    store: MongoStore, data: Database[Json]
) -> None:
    await put(store, tenant_id="acme")
    (claimed,) = await fetch(store, tenant_id="acme")
    before = snapshot(data)
    work, claim = store.external_work, claimed.claim

    assert await work.find_held(claim, tenant_id="globex") is None
    assert await work.extend(claim, lock=LOCK, tenant_id="globex") is None
    assert not await work.unlock(claim, tenant_id="globex")
    assert snapshot(data) == before
    assert await work.find_held(claim, tenant_id="acme") is not None


async def test_an_unlocked_task_is_due_again_and_has_used_no_attempt(store: MongoStore) -> None:
    await put(store)
    claimed = await fetch_one(store)

    assert await store.external_work.unlock(claimed.claim)

    again = await fetch_one(store, RIVAL)
    assert (again.task.attempts, again.task.crash_count, again.claim.epoch) == (0, 0, 3)


async def test_a_report_is_found_by_its_claim_and_only_if_it_was_committed(
    store: MongoStore,
) -> None:
    await put(store, tenant_id="acme")
    claimed = await fetch_one(store)
    report = WorkReport(
        claim=claimed.claim,
        kind=ReportKind.COMPLETED,
        outcome=ReportOutcome.COMPLETED,
        instance_id="instance-1",
        node_id="TASK",
        tenant_id="acme",
        reported_at=LONG_AGO,
    )
    lost = Claim(claimed.claim.task_id, RIVAL, claimed.claim.epoch)

    with pytest.raises(ClaimLostError):
        await commit(store, RecordReport(report), guards=(RemoveTask(lost),))
    assert await store.external_work.find_report(claimed.claim) is None
    await commit(store, RecordReport(report), guards=(RemoveTask(claimed.claim),))

    assert await store.external_work.find_report(claimed.claim) == report
    assert await store.external_work.find_report(lost) is None
    assert await store.external_work.find_report(claimed.claim, tenant_id="globex") is None


async def test_a_fetch_does_not_take_what_our_own_workers_hold(store: MongoStore) -> None:
    await put(store, handler_name=HANDLER)
    assert await claim_any(store)

    assert await fetch(store, topics=(HANDLER,)) == ()


MANY = 1_000


@pytest.mark.parametrize("tenant_id", [None, "acme"])
async def test_a_fetch_examines_about_what_it_returns(
    store: MongoStore, data: Database[Json], tenant_id: str | None
) -> None:
    """Neither other topics and tenants nor what is not due yet is looked at."""

    kinds: list[Json] = [
        {"handler_name": TOPIC, "tenant_id": tenant_id},
        {"handler_name": TOPIC, "tenant_id": tenant_id, "claimable_at": FAR_AWAY},
        {"handler_name": "another_topic", "tenant_id": tenant_id},
        {"handler_name": TOPIC, "tenant_id": "globex"} if tenant_id else {},
    ]
    rows = []
    for number in range(MANY):
        at = LONG_AGO + timedelta(seconds=number)
        for kind, fields in enumerate(kinds):
            given = {"claimable_at": at, "priority": number % 10, **fields}
            rows.append({**encode_task(a_task(**given)), "_id": f"{kind}-{number}"})
    data.executable_tasks.insert_many(rows, ordered=False)

    for limit in (1, 10):
        with profiled(data) as entries:
            claimed = await fetch(store, limit, tenant_id=tenant_id)
        finds = [entry for entry in entries if "sort" in entry.get("command", {})]

        assert len(claimed) == limit
        assert finds
        for entry in finds:
            # Four candidates for each task, and one seek for each priority of the topic.
            assert entry["docsExamined"] <= 4 * limit
            assert entry["keysExamined"] <= 4 * limit + 22
