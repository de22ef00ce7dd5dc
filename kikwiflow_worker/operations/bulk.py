"""Doing one thing to many incidents or instances: a previewed, confirmed job that workers carry out.

What it comes to, item by item, is in ``bulk_steps``.
"""

from datetime import timedelta

from kikwiflow_worker.errors import ConflictError, NotFoundError, OperationError
from kikwiflow_worker.model.bulk import BulkAction, BulkFilter, BulkJob
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.operations.bulk_items import count_items
from kikwiflow_worker.operations.instances import get_definition
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.views import Page

KEPT_FOR = timedelta(days=30)
"""Jobs are, from their creation on."""


async def create(
    services: Services,
    action: BulkAction,
    chosen: BulkFilter,
    *,
    created_by: str,
    version: int | None = None,
) -> BulkJob:
    """Store a job that changes nothing until it is confirmed, and say how many items it would be about.

    Args:
        version: For MIGRATE: the version to go on with, the latest by default.

    Raises:
        OperationError: The filter does not fit the action.
        DefinitionNotFoundError: No such definition or version.
    """
    check_texts(
        definition_key=chosen.definition_key,
        instance_id=chosen.instance_id,
        business_key=chosen.business_key,
        node_id=chosen.node_id,
        creator=created_by,
    )
    _check(action, chosen, version)
    if chosen.definition_key is not None:
        definition = await get_definition(services, chosen.definition_key, version)
        version = definition.version
    now = services.runtime.now()
    job = BulkJob(
        id=services.new_id(),
        action=action,
        filter=chosen,
        created_at=now,
        created_by=created_by,
        expires_at=now + KEPT_FOR,
        target_version=version if action is BulkAction.MIGRATE else None,
    )
    job = await count_items(services, job)
    await services.bulk.create(job)
    return await get(services, job.id)


async def confirm(services: Services, job_id: str, *, by: str) -> BulkJob:
    """Let a job run; again while it runs, or after it, is no error.

    Raises:
        NotFoundError: No such job.
        ConflictError: It was cancelled.
    """
    check_texts(confirmer=by)
    job = await get(services, job_id)
    if not await services.bulk.confirm(job, at=services.runtime.now(), by=by):
        job = await get(services, job_id)
        if job.confirmed_at is None or job.cancelled_by is not None:
            raise ConflictError(f"bulk job {job_id} cannot be started, it is {job.status}")
        return job
    return await get(services, job_id)


async def cancel(services: Services, job_id: str, *, by: str) -> BulkJob:
    """Let a job end after the items that are being done; what is done stays done.

    Raises:
        NotFoundError: No such job.
        ConflictError: It has ended.
    """
    check_texts(canceller=by)
    job = await get(services, job_id)
    if not await services.bulk.cancel(job, at=services.runtime.now(), by=by):
        job = await get(services, job_id)
        raise ConflictError(f"bulk job {job_id} has ended, it is {job.status}")
    return await get(services, job_id)


async def get(services: Services, job_id: str) -> BulkJob:
    """Return a job.

    Raises:
        NotFoundError: No such job, or it is older than a month.
    """
    check_texts(job_id=job_id)
    job = await services.bulk.find(job_id)
    if job is None:
        raise NotFoundError(f"no bulk job has the id {job_id}, or it is older than a month")
    return job


async def list_jobs(
    services: Services, *, limit: int = 20, cursor: str | None = None
) -> Page[BulkJob]:
    """Return jobs, newest first."""
    return await services.bulk.list(limit=limit, cursor=cursor)


def _check(action: BulkAction, chosen: BulkFilter, version: int | None) -> None:
    of_incidents = action is BulkAction.RETRY_INCIDENTS
    if of_incidents and chosen.business_key is not None:
        raise OperationError("incidents have no business key; choose them by their instance")
    if not of_incidents and (chosen.instance_id is not None or chosen.incident_type is not None):
        raise OperationError(
            f"{action} is about instances: an incident's type or instance says nothing"
        )
    if action is BulkAction.MIGRATE and chosen.definition_key is None:
        raise OperationError("MIGRATE needs the key of a definition")
    if action is not BulkAction.MIGRATE and version is not None:
        raise OperationError("a version is for MIGRATE only")
