"""One tenant's view of the ports of external workers and bulk jobs; see ``tenancy``."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kikwiflow_worker.model.bulk import BulkJob
from kikwiflow_worker.model.external_work import WorkReport
from kikwiflow_worker.model.runtime import Claim, ClaimedTask
from kikwiflow_worker.store.bulk import BulkStore
from kikwiflow_worker.store.external_work import ExternalWork, Fetch
from kikwiflow_worker.store.views import Page


@dataclass(frozen=True, slots=True)
class TenantExternalWork:
    """``ExternalWork`` for one tenant, whatever is asked for."""

    _inner: ExternalWork
    _tenant_id: str

    async def fetch(self, wanted: Fetch, *, limit: int) -> tuple[ClaimedTask, ...]:
        """Claim due tasks of the tenant."""
        return await self._inner.fetch(replace(wanted, tenant_id=self._tenant_id), limit=limit)

    async def record_fetch(self, fetch: Fetch) -> None:
        """Note what a worker of the tenant fetches."""
        await self._inner.record_fetch(replace(fetch, tenant_id=self._tenant_id))

    async def find_held(
        self,
        claim: Claim,
        *,
        tenant_id: str | None = None,
    ) -> ClaimedTask | None:
        """Return the task of a claim, if it is the tenant's."""
        return await self._inner.find_held(claim, tenant_id=self._tenant_id)

    async def extend(
        self,
        claim: Claim,
        *,
        lock: timedelta,
        tenant_id: str | None = None,
    ) -> datetime | None:
        """Let the lock of a task of the tenant end later."""
        return await self._inner.extend(claim, lock=lock, tenant_id=self._tenant_id)

    async def unlock(
        self,
        claim: Claim,
        *,
        tenant_id: str | None = None,
    ) -> bool:
        """Give a task of the tenant back."""
        return await self._inner.unlock(claim, tenant_id=self._tenant_id)

    async def find_report(
        self,
        claim: Claim,
        *,
        tenant_id: str | None = None,
    ) -> WorkReport | None:
        """Return what was said about a claim of the tenant."""
        return await self._inner.find_report(claim, tenant_id=self._tenant_id)


@dataclass(frozen=True, slots=True)
class TenantBulkStore:
    """``BulkStore`` for one tenant: its jobs see nothing else, also where a worker carries them out."""

    _inner: BulkStore
    _tenant_id: str

    async def create(self, job: BulkJob) -> None:
        """Store a job of the tenant."""
        await self._inner.create(replace(job, tenant_id=self._tenant_id))

    async def find(
        self,
        job_id: str,
        *,
        tenant_id: str | None = None,
    ) -> BulkJob | None:
        """Return a job of the tenant."""
        return await self._inner.find(job_id, tenant_id=self._tenant_id)

    async def list(
        self,
        *,
        limit: int = 20,
        cursor: str | None = None,
        tenant_id: str | None = None,
    ) -> Page[BulkJob]:
        """Return the jobs of the tenant."""
        return await self._inner.list(limit=limit, cursor=cursor, tenant_id=self._tenant_id)

    async def confirm(self, job: BulkJob, *, at: datetime, by: str) -> bool:
        """Let a job of the tenant run."""
        return job.tenant_id == self._tenant_id and await self._inner.confirm(job, at=at, by=by)

    async def cancel(self, job: BulkJob, *, at: datetime, by: str) -> bool:
        """Let a job of the tenant end."""
        return job.tenant_id == self._tenant_id and await self._inner.cancel(job, at=at, by=by)
