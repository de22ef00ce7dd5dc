"""The documents of bulk jobs."""

from datetime import datetime

from kikwiflow_worker.model.bulk import (
    MAX_REASONS,
    BulkAction,
    BulkCounts,
    BulkFilter,
    BulkJob,
    BulkReason,
    BulkStatus,
    carrier_of,
)
from kikwiflow_worker.model.runtime import IncidentType
from kikwiflow_worker.model.unit_of_work import RecordProgress
from kikwiflow_worker.store.mongo.codec import encode_task
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Collection, Document, Session, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.keyset import NEWEST
from kikwiflow_worker.store.mongo.queries import list_page
from kikwiflow_worker.store.mongo.transactions import Transactions
from kikwiflow_worker.store.views import Page

_OPEN = [BulkStatus.PREVIEWED.value, BulkStatus.RUNNING.value]


class MongoBulk:
    """The port of bulk jobs of one database; contracts are those of ``BulkStore``."""

    def __init__(self, collections: Collections, transactions: Transactions) -> None:
        self._jobs = collections.bulk_jobs
        self._tasks = collections.tasks
        self._transactions = transactions

    async def create(self, job: BulkJob) -> None:
        """Store a job."""
        with translated("storing a bulk job"):
            await settled(self._jobs.insert_one(encode_job(job)))

    async def find(self, job_id: str, *, tenant_id: str | None = None) -> BulkJob | None:
        """Return a job."""
        found = {"_id": job_id, **_of(tenant_id)}
        with translated(f"loading bulk job {job_id}"):
            document = await settled(self._jobs.find_one(found))
        return decode_job(document) if document else None

    async def list(
        self, *, limit: int = 20, cursor: str | None = None, tenant_id: str | None = None
    ) -> Page[BulkJob]:
        """Return jobs, newest first."""
        return await list_page(self._jobs, _of(tenant_id), NEWEST, decode_job, limit, cursor)

    async def confirm(self, job: BulkJob, *, at: datetime, by: str) -> bool:
        """Let a job run."""
        carrier = encode_task(carrier_of(job, now=at), None)

        async def start(session: Session) -> bool:
            found = {"_id": job.id, "status": BulkStatus.PREVIEWED.value}
            running = {
                "status": BulkStatus.RUNNING.value,
                "confirmedAt": at,
                "confirmedBy": by,
            }
            changed = await settled(
                self._jobs.update_one(found, {"$set": running}, session=session)
            )
            if changed.matched_count == 0:
                return False
            await settled(self._tasks.insert_one(carrier, session=session))
            return True

        return await self._transactions.run(f"starting bulk job {job.id}", start)

    async def cancel(self, job: BulkJob, *, at: datetime, by: str) -> bool:
        """Let a job end after the items that are being done."""
        found = {"_id": job.id, "status": {"$in": _OPEN}}
        ended = {"status": BulkStatus.CANCELLED.value, "endedAt": at, "cancelledBy": by}
        with translated(f"cancelling bulk job {job.id}"):
            changed = await settled(self._jobs.update_one(found, {"$set": ended}))
        return bool(changed.matched_count == 1)


async def record_progress(jobs: Collection, change: RecordProgress, *, session: Session) -> None:
    """Add a step to a job; that it ends is noted unless it was cancelled before."""
    progress = change.progress
    fields: Document = {
        "chunk": list(progress.chunk),
        "cursor": progress.cursor,
        "isRead": progress.is_read,
    }
    counts = {f"counts.{name}": number for name, number in _counts(progress.counts).items()}
    reasons = [_reason(reason) for reason in progress.reasons]
    update: Document = {
        "$set": fields,
        "$inc": counts,
        "$push": {"reasons": {"$each": reasons, "$slice": MAX_REASONS}},
    }
    await settled(jobs.update_one({"_id": change.job_id}, update, session=session))
    if progress.is_last:
        running = {"_id": change.job_id, "status": BulkStatus.RUNNING.value}
        done = {"$set": {"status": BulkStatus.DONE.value, "endedAt": change.at}}
        await settled(jobs.update_one(running, done, session=session))


def encode_job(job: BulkJob) -> Document:
    """Return the document of a job."""
    chosen = job.filter
    document: Document = {
        "_id": job.id,
        "action": job.action.value,
        "filter": _present(
            {
                "processDefinitionKey": chosen.definition_key,
                "processInstanceId": chosen.instance_id,
                "businessKey": chosen.business_key,
                "taskDefinitionId": chosen.node_id,
                "incidentType": chosen.incident_type.value if chosen.incident_type else None,
            }
        ),
        "createdAt": job.created_at,
        "createdBy": job.created_by,
        "expiresAt": job.expires_at,
        "tenantId": job.tenant_id,
        "targetVersion": job.target_version,
        "matched": job.matched,
        "isCapped": job.is_capped,
        "status": job.status.value,
        "confirmedAt": job.confirmed_at,
        "confirmedBy": job.confirmed_by,
        "endedAt": job.ended_at,
        "cancelledBy": job.cancelled_by,
        "counts": _counts(job.counts),
        "reasons": [_reason(reason) for reason in job.reasons],
        "chunk": list(job.chunk),
        "cursor": job.cursor,
        "isRead": job.is_read,
    }
    return _present(document)


def decode_job(document: Document) -> BulkJob:
    """Return the job of a document."""
    chosen = document["filter"]
    incident_type = chosen.get("incidentType")
    return BulkJob(
        id=document["_id"],
        action=BulkAction(document["action"]),
        filter=BulkFilter(
            definition_key=chosen.get("processDefinitionKey"),
            instance_id=chosen.get("processInstanceId"),
            business_key=chosen.get("businessKey"),
            node_id=chosen.get("taskDefinitionId"),
            incident_type=IncidentType(incident_type) if incident_type else None,
        ),
        created_at=document["createdAt"],
        created_by=document["createdBy"],
        expires_at=document["expiresAt"],
        tenant_id=document.get("tenantId"),
        target_version=document.get("targetVersion"),
        matched=document["matched"],
        is_capped=document["isCapped"],
        status=BulkStatus(document["status"]),
        confirmed_at=document.get("confirmedAt"),
        confirmed_by=document.get("confirmedBy"),
        ended_at=document.get("endedAt"),
        cancelled_by=document.get("cancelledBy"),
        counts=BulkCounts(**document["counts"]),
        reasons=tuple(BulkReason(one["itemId"], one["message"]) for one in document["reasons"]),
        chunk=tuple(document["chunk"]),
        cursor=document.get("cursor"),
        is_read=document["isRead"],
    )


def _counts(counts: BulkCounts) -> dict[str, int]:
    return {"done": counts.done, "skipped": counts.skipped, "failed": counts.failed}


def _reason(reason: BulkReason) -> Document:
    return {"itemId": reason.item_id, "message": reason.message}


def _of(tenant_id: str | None) -> Document:
    return {} if tenant_id is None else {"tenantId": tenant_id}


def _present(document: Document) -> Document:
    return {field: value for field, value in document.items() if value is not None}
