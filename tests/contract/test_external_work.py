"""Tasks for external workers: which they get, in which order, and what their locks are worth."""

from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.external_work import ReportKind, ReportOutcome, WorkReport
from kikwiflow_worker.model.runtime import Claim, ClaimedTask, ExecutableTask, TaskStatus, TopicNode
from kikwiflow_worker.model.unit_of_work import RecordReport, RemoveTask
from kikwiflow_worker.store.external_work import Fetch
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
NODE, ELSEWHERE = TopicNode("invoice", "RENDER"), TopicNode("order", "RENDER")
BY_TOPIC: Json = {"topics": (TOPIC,)}
BY_NODE: Json = {"topics": (), "nodes": (NODE,)}
"""What all tasks of the tests below that have a topic can be fetched by."""

by_either = pytest.mark.parametrize("by", [BY_TOPIC, BY_NODE], ids=["topic", "node"])


async def put(store: MongoStore, minutes: int = 0, **fields: object) -> ExecutableTask:
    """Store a task of the topic that has been due since so many minutes after ``LONG_AGO``."""
    at = LONG_AGO + timedelta(minutes=minutes)
    chosen = {"handler_name": TOPIC, "topic_node": NODE, "claimable_at": at, **fields}
    return await put_task(store, **chosen)


async def fetch(
    store: MongoStore,
    limit: int = 1,
    *,
    topics: tuple[str, ...] = (TOPIC,),
    nodes: tuple[TopicNode, ...] = (),
    worker_id: str = WORKER,
    tenant_id: str | None = None,
) -> tuple[ClaimedTask, ...]:
    wanted = Fetch(
        worker_id=worker_id,
        topics=frozenset(topics),
        nodes=frozenset(nodes),
        lock=LOCK,
        tenant_id=tenant_id,
    )
    return await store.external_work.fetch(wanted, limit=limit)


async def fetch_one(store: MongoStore, worker_id: str = WORKER, **by: Any) -> ClaimedTask:
    (claimed,) = await fetch(store, worker_id=worker_id, **by)
    return claimed


@by_either
async def test_a_fetch_locks_a_task_of_the_topic_with_its_instance(
    store: MongoStore, by: Json
) -> None:
    instance = an_instance(variables={"weight": 7})
    task = a_task(instance_id=instance.id, handler_name=TOPIC, topic_node=NODE)
    await put_instance(store, task, id=instance.id, variables={"weight": 7})

    claimed = await fetch_one(store, **by)

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


async def test_a_fetch_by_node_leaves_others_of_its_topic_alone(store: MongoStore) -> None:
    """Those of another definition, another node, or an executable task that has the handler."""
    for node in (ELSEWHERE, TopicNode("invoice", "PRINT"), None):
        await put(store, topic_node=node)
    wanted = await put(store, 10)

    assert [one.task.id for one in await fetch(store, 5, **BY_NODE)] == [wanted.id]


@pytest.mark.parametrize("fields", [{"claimable_at": FAR_AWAY}, {"claimable_at": None}])
async def test_what_is_not_due_is_not_fetched_by_node(store: MongoStore, fields: Json) -> None:
    await put(store, **fields)

    assert await fetch(store, 5, **BY_NODE) == ()


async def test_a_fetch_by_topic_and_node_shares_its_tasks_between_them(store: MongoStore) -> None:
    for minutes in range(8):
        await put(store, minutes, handler_name="pack", topic_node=None, priority=9)
        await put(store, minutes, priority=0)
    both: Json = {"topics": ("pack",), "nodes": (NODE,)}

    shared = await fetch(store, 4, **both)
    one_by_one = [one for _ in range(12) for one in await fetch(store, 1, **both)]

    assert sorted(one.task.handler_name or "" for one in shared) == ["pack"] * 2 + [TOPIC] * 2
    assert len(one_by_one) == 12, "also when the other has nothing left"


async def test_neither_topic_nor_node_starves_the_other(store: MongoStore) -> None:
    """Which of them comes first is drawn: sixty fetches do not all take from one."""
    both: Json = {"topics": ("pack",), "nodes": (NODE,)}
    taken = set()
    for minutes in range(60):
        await put(store, minutes, handler_name="pack", topic_node=None)
        await put(store, minutes)
        (claimed,) = await fetch(store, 1, **both)
        taken.add(claimed.task.handler_name)
        if len(taken) == 2:
            return
    pytest.fail(f"only {taken} was fetched")


async def test_tasks_without_a_topic_have_no_entry_in_the_indexes_of_nodes(
    store: MongoStore, data: Database[Json]
) -> None:
    """So a row of the engine costs no more than before; a marked one has two entries."""
    for _ in range(3):
        await put(store, topic_node=None)
    await put(store)
    await put(store, claimable_at=None)

    entries = data.command("validate", "executable_tasks")["keysPerIndex"]

    assert (entries["claim"], entries["node_claim"], entries["fair_node_claim"]) == (4, 1, 1)


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
                    topic_node=NODE,
                    claimable_at=LONG_AGO + since + timedelta(seconds=number),
                    **fields,
                )
            ),
            "_id": f"{fields}-{since}-{number}",
        }
        for number in range(count)
    ]
    data.executable_tasks.insert_many(rows)


@by_either
async def test_most_of_a_fetch_are_the_most_urgent(
    store: MongoStore, data: Database[Json], by: Json
) -> None:
    put_many(data, 50, timedelta(0), priority=1)
    put_many(data, 50, timedelta(hours=1), priority=9)

    claimed = await fetch(store, 8, **by)

    assert sorted(one.task.priority for one in claimed) == [1] * 2 + [9] * 6


@by_either
async def test_the_oldest_is_not_forgotten(
    store: MongoStore, data: Database[Json], by: Json
) -> None:
    """A quarter of each fetch is chosen at random among the eight oldest: sixty fetches do not all pass one by."""
    put_many(data, 600, timedelta(0), priority=9)
    oldest = await put(store, -1, priority=0)

    for _ in range(60):
        if oldest.id in {one.task.id for one in await fetch(store, 8, **by)}:
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


@by_either
async def test_a_fetch_for_one_tenant_takes_nothing_of_another(store: MongoStore, by: Json) -> None:
    own = [await put(store, tenant_id="acme", priority=priority) for priority in (0, 9)]
    await put(store, tenant_id="globex")
    await put(store)

    claimed = [one for _ in range(4) for one in await fetch(store, 3, tenant_id="acme", **by)]

    assert {one.task.id for one in claimed} == {task.id for task in own}


@by_either
async def test_a_fetch_for_nobody_takes_those_of_all_tenants(store: MongoStore, by: Json) -> None:
    await put(store, tenant_id="acme")
    await put(store)

    claimed = [one for _ in range(3) for one in await fetch(store, 1, **by)]

    assert {one.task.tenant_id for one in claimed} == {"acme", None}


@pytest.mark.field_case("S-21")
async def test_two_workers_at_once_never_share_a_task(store: MongoStore) -> None:
    tasks = [await put(store, minutes) for minutes in range(20)]

    batches = await together(
        *(
            lambda name=f"w-{number}", by=by: fetch(store, 5, worker_id=name, **by)
            for number, by in enumerate([BY_TOPIC, BY_NODE] * 2)
        )
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


async def test_it_is_known_since_when_a_task_is_held(
    store: MongoStore, data: Database[Json]
) -> None:
    """By whoever takes the report, also after the lock was extended; a claim of a worker of ours notes nothing."""
    await put(store)
    claimed = await fetch_one(store, "external/ann/php.1")
    await store.external_work.extend(claimed.claim, lock=LOCK * 7)

    held = await store.external_work.find_held(claimed.claim)

    assert held is not None
    assert held.claimed_at == claimed.claimed_at
    await store.external_work.unlock(claimed.claim)
    assert "fetchedAt" not in row_of(data, claimed.task.id)
    second = await fetch_one(store, "external/ann/php.2")
    lapse(data, second.task.id)
    await fetch_one(store, WORKER)
    assert "fetchedAt" not in row_of(data, claimed.task.id)


def row_of(data: Database[Json], task_id: str) -> Json:
    row: Json | None = data.executable_tasks.find_one({"_id": task_id})
    assert row is not None
    return row


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


@by_either
@pytest.mark.parametrize("tenant_id", [None, "acme"])
async def test_a_fetch_examines_about_what_it_returns(
    store: MongoStore, data: Database[Json], tenant_id: str | None, by: Json
) -> None:
    """Neither other topics, nodes and tenants nor what is not due yet is looked at."""

    own: Json = {"handler_name": TOPIC, "topic_node": NODE, "tenant_id": tenant_id}
    kinds: list[Json] = [
        own,
        {**own, "claimable_at": FAR_AWAY},
        {**own, "handler_name": "another_topic", "topic_node": ELSEWHERE},
        {**own, "tenant_id": "globex"} if tenant_id else {},
        *([{**own, "topic_node": None}] if by is BY_NODE else []),
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
            claimed = await fetch(store, limit, tenant_id=tenant_id, **by)
        finds = [entry for entry in entries if "sort" in entry.get("command", {})]

        assert len(claimed) == limit
        assert finds
        for entry in finds:
            # Four candidates for each task, and one seek for each priority of the topic.
            assert entry["docsExamined"] <= 4 * limit
            assert entry["keysExamined"] <= 4 * limit + 22
