"""Routes of the audit."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from kikwiflow_worker.management.api.shapes import Cursor, Limit, PageOf, Shape
from kikwiflow_worker.management.backend import Admin
from kikwiflow_worker.store.access import AuditEntry, AuditQuery

router = APIRouter(prefix="/audit", tags=["audit"])

Given = Annotated[str | None, Query(min_length=1, max_length=1000)]


class AuditShape(Shape):
    """A call that was to change something."""

    id: str
    at: datetime
    actor: str
    tenant_id: str | None
    operation: str
    request_id: str
    subjects: dict[str, str]
    result: str | None

    @classmethod
    def of(cls, entry: AuditEntry) -> "AuditShape":
        """Return the document of ``entry``."""
        return cls(
            id=entry.id,
            at=entry.at,
            actor=entry.actor,
            tenant_id=entry.tenant_id,
            operation=entry.operation,
            request_id=entry.request_id,
            subjects=dict(entry.subjects),
            result=entry.result,
        )


@router.get("", operation_id="listAudit")
async def list_audit(
    caller: Admin,
    *,
    actor: Given = None,
    operation: Given = None,
    subject: Annotated[
        str | None,
        Query(min_length=1, max_length=1000, description="The id of anything that was changed."),
    ] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> PageOf[AuditShape]:
    """List who changed what, newest first, refused changes included; without a result: under way, or the server died."""
    query = AuditQuery(actor=actor, operation=operation, subject=subject)
    page = await caller.audit_log.list(query, limit=limit, cursor=cursor)
    return PageOf(
        items=[AuditShape.of(entry) for entry in page.items], next_cursor=page.next_cursor
    )
