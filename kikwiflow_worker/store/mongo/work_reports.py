"""What external workers said about their claims."""

from datetime import timedelta

from kikwiflow_worker.model.external_work import ReportKind, ReportOutcome, WorkReport
from kikwiflow_worker.model.runtime import Claim
from kikwiflow_worker.store.mongo.driver import Collection, Document, Session, settled

KEPT_FOR = timedelta(days=1)
"""A worker that has not heard the answer asks again within minutes."""


async def insert_report(collection: Collection, report: WorkReport, *, session: Session) -> None:
    """Keep a report; one that is there already, after a crash without transactions, stays as it is."""
    fields = encode_report(report)
    found = {"_id": fields.pop("_id")}
    await settled(
        collection.update_one(found, {"$setOnInsert": fields}, upsert=True, session=session)
    )


def report_filter(claim: Claim) -> Document:
    """Return the filter for the report of a claim."""
    return {"_id": f"{claim.task_id}:{claim.epoch}", "workerId": claim.worker_id}


def encode_report(report: WorkReport) -> Document:
    """Return the document of a report."""
    tenant = {} if report.tenant_id is None else {"tenantId": report.tenant_id}
    return {
        **report_filter(report.claim),
        "taskId": report.claim.task_id,
        "epoch": report.claim.epoch,
        "kind": report.kind.value,
        "outcome": report.outcome.value,
        "processInstanceId": report.instance_id,
        "taskDefinitionId": report.node_id,
        "reportedAt": report.reported_at,
        "expiresAt": report.reported_at + KEPT_FOR,
        **tenant,
    }


def decode_report(document: Document) -> WorkReport:
    """Return the report of a document."""
    return WorkReport(
        claim=Claim(document["taskId"], document["workerId"], document["epoch"]),
        kind=ReportKind(document["kind"]),
        outcome=ReportOutcome(document["outcome"]),
        instance_id=document["processInstanceId"],
        node_id=document["taskDefinitionId"],
        tenant_id=document.get("tenantId"),
        reported_at=document["reportedAt"],
    )
