"""Bulk jobs: what one would change, its confirmation, and how far it is."""

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from kikwiflow_worker.management.api.shapes import Cursor
from kikwiflow_worker.management.backend import Operator, Viewer
from kikwiflow_worker.management.web.pages import PostedForm, done, page_router, render
from kikwiflow_worker.operations import bulk

router = page_router()

ROWS = 25
_DONE_WORDS = {
    "RETRY_INCIDENTS": "retried",
    "CANCEL": "cancelled",
    "SUSPEND": "suspended",
    "RESUME": "resumed",
    "MIGRATE": "migrated",
}


@router.get("/bulk")
async def list_jobs(request: Request, caller: Viewer, cursor: Cursor = None) -> HTMLResponse:
    """List bulk jobs, the newest first."""
    page = await bulk.list_jobs(caller.services, limit=ROWS, cursor=cursor)
    return render(
        request, "bulk_jobs.html", caller=caller, jobs=page.items, next_cursor=page.next_cursor
    )


@router.get("/bulk/{job_id}")
async def show_job(request: Request, caller: Viewer, job_id: str) -> HTMLResponse:
    """Show one job: before it is confirmed, what it would do."""
    job = await bulk.get(caller.services, job_id)
    return render(
        request, "bulk_job.html", caller=caller, job=job, done_word=_DONE_WORDS[job.action]
    )


@router.post("/bulk/{job_id}/confirm")
async def confirm(request: Request, caller: Operator, _: PostedForm, job_id: str) -> Response:
    """Let it run."""
    await bulk.confirm(caller.services, job_id, by=caller.identity.actor)
    return done(request, "It runs.", "bulk", job_id)


@router.post("/bulk/{job_id}/cancel")
async def cancel(request: Request, caller: Operator, _: PostedForm, job_id: str) -> Response:
    """Let it end after what it is doing now."""
    await bulk.cancel(caller.services, job_id, by=caller.identity.actor)
    return done(request, "It is cancelled; what it has done stays done.", "bulk", job_id)
