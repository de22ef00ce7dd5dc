"""The documents of bulk jobs, and the task that carries one."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.bulk import (
    MAX_REASONS,
    BulkAction,
    BulkCounts,
    BulkFilter,
    BulkJob,
    BulkProgress,
    BulkReason,
    BulkStatus,
)
from kikwiflow_worker.model.capability import NO_CAPABILITIES
from kikwiflow_worker.model.runtime import Claim, ClaimedTask, IncidentType, TaskType
from kikwiflow_worker.model.unit_of_work import RecordProgress, RemoveTask, RescheduleTask
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.support.groups import commit_group, committed, put_claimed, unit_of
from tests.support.profiler import profiled
from tests.support.stores import (
    FAR_AWAY,
    LONG_AGO,
    Json,
    claim_next,
    commit,
    new_id,
    snapshot,
    together,
)

pytestmark = pytest.mark.mongo

ANA = "ana"
STEP = BulkProgress(
    counts=BulkCounts(done=2, skipped=1),
    reasons=(BulkReason("incident-3", "it is not open any more"),),
    chunk=("incident-4", "incident-5"),
    cursor="behind-5",
    is_read=False,
    is_last=False,
)


def a_job(**fields: Any) -> BulkJob:
    chosen: Json = {
        "id": new_id(),
        "action": BulkAction.RETRY_INCIDENTS,
        "filter": BulkFilter(definition_key="parcel", incident_type=IncidentType.FAILED_JOB),
        "created_at": LONG_AGO,
        "created_by": ANA,
        "expires_at": FAR_AWAY,
        "matched": 7,
    }
    return BulkJob(**{**chosen, **fields})


async def put(store: MongoStore, **fields: Any) -> BulkJob:
    job = a_job(**fields)
    await store.bulk.create(job)
    return job


async def put_running(store: MongoStore) -> tuple[BulkJob, ClaimedTask]:
    """Store a job that runs, and claim the task that carries it."""
    job = await put(store)
    assert await store.bulk.confirm(job, at=LONG_AGO, by=ANA)
    claimed = await claim_next(store, NO_CAPABILITIES)
    assert claimed is not None
    return job, claimed


def again(claim: Claim) -> RescheduleTask:
    return RescheduleTask(claim=claim, due_at=LONG_AGO, attempts=0, retries_left=1, error="")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {
            "action": BulkAction.MIGRATE,
            "filter": BulkFilter(definition_key="parcel", business_key="P-1", node_id="TASK"),
            "tenant_id": "acme",
            "target_version": 3,
            "is_capped": True,
        },
        {"filter": BulkFilter(instance_id="instance-1")},
    ],
    ids=["retry", "migrate", "of an instance"],
)
async def test_a_job_is_found_as_it_was_stored(store: MongoStore, fields: Json) -> None:
    job = await put(store, **fields)

    assert await store.bulk.find(job.id) == job


async def test_a_job_is_not_there_for_another_tenant(store: MongoStore) -> None:
    job = await put(store, tenant_id="acme")
    await put(store)

    assert await store.bulk.find(job.id, tenant_id="globex") is None
    assert await store.bulk.find(job.id, tenant_id="acme") == job
    assert (await store.bulk.list(tenant_id="acme")).items == (job,)
    assert (await store.bulk.list(tenant_id="globex")).items == ()


async def test_jobs_are_listed_newest_first(store: MongoStore, data: Database[Json]) -> None:
    jobs = [await put(store, created_at=LONG_AGO + timedelta(hours=hour)) for hour in range(5)]

    with profiled(data) as entries:
        first = await store.bulk.list(limit=2)
    rest = await store.bulk.list(limit=5, cursor=first.next_cursor)

    assert (*first.items, *rest.items) == tuple(reversed(jobs))
    (entry,) = [entry for entry in entries if entry["ns"].endswith("bulk_jobs")]
    assert entry["docsExamined"] == 3


async def test_a_confirmed_job_is_carried_by_one_task_however_often_it_is_confirmed(
    store: MongoStore, data: Database[Json]
) -> None:
    job = await put(store, tenant_id="acme")

    confirmed = await together(
        *(lambda: store.bulk.confirm(job, at=LONG_AGO, by=ANA) for _ in range(4))
    )

    assert sorted(confirmed) == [False, False, False, True]
    running = replace(job, status=BulkStatus.RUNNING, confirmed_at=LONG_AGO, confirmed_by=ANA)
    assert await store.bulk.find(job.id) == running
    (row,) = data.executable_tasks.find()
    assert (row["type"], row["taskDefinitionId"]) == (TaskType.BULK_JOB.value, job.id)
    assert row["tenantId"] == "acme"
    assert await claim_next(store, NO_CAPABILITIES) is not None


async def test_a_step_is_added_with_its_claim_or_not_at_all(
    store: MongoStore, data: Database[Json]
) -> None:
    job, claimed = await put_running(store)
    record = RecordProgress(job.id, STEP, LONG_AGO)
    before = snapshot(data)
    lost = Claim(claimed.claim.task_id, "rival", claimed.claim.epoch)
    with pytest.raises(ClaimLostError):
        await commit(store, record, guards=(again(lost),))
    assert snapshot(data) == before

    await commit(store, record, guards=(again(claimed.claim),))

    after = await store.bulk.find(job.id)
    assert after is not None
    assert (after.counts, after.reasons) == (STEP.counts, STEP.reasons)
    assert (after.chunk, after.cursor, after.status) == (
        STEP.chunk,
        STEP.cursor,
        BulkStatus.RUNNING,
    )
    with pytest.raises(ClaimLostError):
        await commit(store, record, guards=(again(claimed.claim),))


async def test_counts_add_up_and_reasons_stop_at_their_limit(store: MongoStore) -> None:
    job, claimed = await put_running(store)
    reasons = tuple(BulkReason(f"item-{number}", "no") for number in range(MAX_REASONS - 1))
    step = replace(STEP, reasons=reasons)
    await commit(store, RecordProgress(job.id, step, LONG_AGO), guards=(again(claimed.claim),))
    next_claim = await claim_next(store, NO_CAPABILITIES)
    assert next_claim is not None

    last = BulkProgress(
        counts=BulkCounts(failed=2),
        reasons=(BulkReason("x", "no"), BulkReason("y", "no")),
        chunk=(),
        cursor=None,
        is_read=True,
        is_last=True,
    )
    await commit(
        store, RecordProgress(job.id, last, LONG_AGO), guards=(RemoveTask(next_claim.claim),)
    )

    after = await store.bulk.find(job.id)
    assert after is not None
    assert after.counts == BulkCounts(done=2, skipped=1, failed=2)
    assert after.reasons == (*reasons, BulkReason("x", "no"))
    assert (after.status, after.ended_at, after.chunk) == (BulkStatus.DONE, LONG_AGO, ())


async def test_a_cancelled_job_stays_cancelled(store: MongoStore) -> None:
    job, claimed = await put_running(store)

    assert await store.bulk.cancel(job, at=LONG_AGO, by="bob")
    assert not await store.bulk.cancel(job, at=LONG_AGO, by="ana")
    last = replace(STEP, chunk=(), cursor=None, is_read=True, is_last=True)
    await commit(store, RecordProgress(job.id, last, FAR_AWAY), guards=(RemoveTask(claimed.claim),))

    after = await store.bulk.find(job.id)
    assert after is not None
    assert (after.status, after.cancelled_by, after.ended_at) == (
        BulkStatus.CANCELLED,
        "bob",
        LONG_AGO,
    )
    assert after.counts == STEP.counts


async def test_a_cancelled_preview_cannot_be_confirmed(store: MongoStore) -> None:
    job = await put(store)

    assert await store.bulk.cancel(job, at=LONG_AGO, by=ANA)

    assert not await store.bulk.confirm(job, at=LONG_AGO, by=ANA)


async def test_a_step_that_is_committed_in_a_group_is_added_as_well(store: MongoStore) -> None:
    job, claimed = await put_running(store)
    others = [unit_of(RemoveTask(held)) for _, _, held in await put_claimed(store, 2)]
    record = RecordProgress(job.id, STEP, LONG_AGO)

    committed(
        await commit_group(store, others[0], unit_of(again(claimed.claim), record), others[1])
    )

    after = await store.bulk.find(job.id)
    assert after is not None
    assert (after.counts, after.chunk) == (STEP.counts, STEP.chunk)
