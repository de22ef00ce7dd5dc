"""The port of bulk jobs: their documents. What they change goes through the other ports, item by item."""

from datetime import datetime
from typing import Protocol

from kikwiflow_worker.model.bulk import BulkJob
from kikwiflow_worker.store.views import Page


class BulkStore(Protocol):
    """Bulk jobs. With ``tenant_id``, those of one tenant only."""

    async def create(self, job: BulkJob) -> None:
        """Store a job that was not stored before."""
        ...

    async def find(self, job_id: str, *, tenant_id: str | None = None) -> BulkJob | None:
        """Return a job, as the majority knows it."""
        ...

    async def list(
        self, *, limit: int = 20, cursor: str | None = None, tenant_id: str | None = None
    ) -> Page[BulkJob]:
        """Return jobs, newest first."""
        ...

    async def confirm(self, job: BulkJob, *, at: datetime, by: str) -> bool:
        """Let a job run, with the task that carries it, in one transaction; False if it is not PREVIEWED any more."""
        ...

    async def cancel(self, job: BulkJob, *, at: datetime, by: str) -> bool:
        """Let a job end after the items that are being done; False if it has ended."""
        ...
