"""Carrying out a bulk job, step by step, as the work of any worker.

A step does the items that the step before wrote down, reads the next ones, and commits both with its claim: what a dead
worker has done of its items is found done by the next one, and each item is counted once.
"""

from collections import Counter

from kikwiflow_worker.model.bulk import (
    BulkCounts,
    BulkJob,
    BulkProgress,
    BulkReason,
    BulkStatus,
)
from kikwiflow_worker.model.runtime import ClaimedTask
from kikwiflow_worker.model.unit_of_work import (
    RecordProgress,
    RemoveTask,
    RescheduleTask,
    UnitOfWork,
)
from kikwiflow_worker.operations.bulk_items import Ending, Items, do_item, read_items
from kikwiflow_worker.operations.services import Services

CHUNK = 25
"""Items of one step: a worker that stops waits for them."""

_LONGEST_REASON = 500


async def next_step(services: Services, claimed: ClaimedTask) -> UnitOfWork:
    """Do the items of the job's present chunk, and return the unit that counts them and names the next ones.

    Raises:
        StoreUnavailableError: The database does not answer; the step is repeated.
    """
    remove = RemoveTask(claimed.claim)
    job = await services.bulk.find(claimed.task.node_id)
    if job is None:
        return UnitOfWork((remove,), ())
    counts, reasons = await _do_chunk(services, job)
    following = Items((), None)
    if job.status is BulkStatus.RUNNING and not job.is_read:
        following = await read_items(services, job, limit=CHUNK)
    progress = BulkProgress(
        counts=counts,
        reasons=reasons,
        chunk=following.ids,
        cursor=following.cursor,
        is_read=following.cursor is None,
        is_last=not following.ids and following.cursor is None,
    )
    now = services.runtime.now()
    record = RecordProgress(job.id, progress, now)
    if progress.is_last:
        return UnitOfWork((remove,), (record,))
    again = RescheduleTask(
        claim=claimed.claim,
        due_at=now,
        attempts=0,
        retries_left=claimed.task.retries_left,
        error=f"{(job.counts + counts).total:,} items looked at so far",
    )
    return UnitOfWork((again,), (record,))


async def _do_chunk(services: Services, job: BulkJob) -> tuple[BulkCounts, tuple[BulkReason, ...]]:
    found: Counter[Ending] = Counter()
    reasons: list[BulkReason] = []
    for item_id in job.chunk:
        result = await do_item(services, job, item_id)
        found[result.ending] += 1
        if result.ending is not Ending.DONE:
            reasons.append(BulkReason(item_id, result.message[:_LONGEST_REASON]))
    counts = BulkCounts(
        done=found[Ending.DONE], skipped=found[Ending.SKIPPED], failed=found[Ending.FAILED]
    )
    return counts, tuple(reasons)
