"""The items of a bulk job: which they are, and what is done to one of them."""

from dataclasses import dataclass, replace
from enum import Enum

from kikwiflow_worker.errors import (
    ConflictError,
    DefinitionError,
    KikwiflowError,
    NotFoundError,
)
from kikwiflow_worker.model.bulk import BulkAction, BulkJob
from kikwiflow_worker.model.runtime import InstanceStatus
from kikwiflow_worker.operations import incidents, instances, migration
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.search import Count, IncidentSearch, InstanceSearch, only

_RUNNING = (InstanceStatus.ACTIVE, InstanceStatus.SUSPENDED)
_STATUSES = {
    BulkAction.CANCEL: _RUNNING,
    BulkAction.SUSPEND: (InstanceStatus.ACTIVE,),
    BulkAction.RESUME: (InstanceStatus.SUSPENDED,),
    BulkAction.MIGRATE: _RUNNING,
}


class Ending(Enum):
    """What became of an item."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of an item, and why it is not done."""

    ending: Ending
    message: str = ""


@dataclass(frozen=True, slots=True)
class Items:
    """The next items of a job; ``cursor`` is None after the last ones."""

    ids: tuple[str, ...]
    cursor: str | None


async def count_items(services: Services, job: BulkJob) -> BulkJob:
    """Return the job with the number of its items now."""
    query = await _query(services, job)
    match query:
        case IncidentSearch():
            count = await services.searches.count_incidents(query)
        case InstanceSearch():
            count = await services.searches.count_instances(query)
        case None:
            count = Count(0)
    return replace(job, matched=count.value, is_capped=count.is_capped)


async def read_items(services: Services, job: BulkJob, *, limit: int) -> Items:
    """Return the items behind the job's cursor, at most ``limit``."""
    query = await _query(services, job)
    match query:
        case IncidentSearch():
            found = await services.searches.search_incidents(query, limit=limit, cursor=job.cursor)
            return Items(tuple(incident.id for incident in found.items), found.next_cursor)
        case InstanceSearch():
            page = await services.searches.search_instances(query, limit=limit, cursor=job.cursor)
            return Items(tuple(instance.id for instance in page.items), page.next_cursor)
        case None:
            return Items((), None)


async def _query(services: Services, job: BulkJob) -> IncidentSearch | InstanceSearch | None:
    """Return the search for the job's items; None if there can be none."""
    chosen = job.filter
    keys = only(chosen.definition_key)
    if job.action is BulkAction.RETRY_INCIDENTS:
        return IncidentSearch(
            definition_keys=keys,
            instance_id=chosen.instance_id,
            node_id=chosen.node_id,
            type=chosen.incident_type,
            tenant_id=job.tenant_id,
            created_before=job.created_at,
        )
    query = InstanceSearch(
        definition_keys=keys,
        business_keys=only(chosen.business_key),
        node_id=chosen.node_id,
        statuses=_STATUSES[job.action],
        tenant_id=job.tenant_id,
        started_before=job.created_at,
    )
    if job.action is not BulkAction.MIGRATE:
        return query
    versions = await services.reads.list_definitions(key=chosen.definition_key)
    others = tuple(each.id for each in versions if each.version != job.target_version)
    return replace(query, definition_keys=(), definition_ids=others) if others else None


async def do_item(services: Services, job: BulkJob, item_id: str) -> Result:
    """Do what the job is for to one item.

    An item that is as the job wants it is done, whether by this attempt or by an earlier one whose worker died before it
    could count it.

    Raises:
        StoreUnavailableError: The database does not answer; the item is tried again.
    """
    try:
        problem = await _act(services, job, item_id)
    except (ConflictError, NotFoundError) as error:
        if await _is_done(services, job, item_id):
            return Result(Ending.DONE)
        return Result(Ending.SKIPPED, str(error))
    except KikwiflowError as error:
        if error.retryable:
            raise
        return Result(Ending.FAILED, str(error))
    return Result(Ending.FAILED, problem) if problem else Result(Ending.DONE)


async def _act(services: Services, job: BulkJob, item_id: str) -> str | None:
    """Act once; return what keeps the item from it, if something does."""
    by = _actor(job)
    match job.action:
        case BulkAction.RETRY_INCIDENTS:
            await incidents.resolve(services, item_id, variables={}, skip=False, resolved_by=by)
        case BulkAction.CANCEL:
            await instances.cancel(services, item_id, cancelled_by=by)
        case BulkAction.SUSPEND:
            await instances.suspend(services, item_id)
        case BulkAction.RESUME:
            await instances.resume(services, item_id)
        case BulkAction.MIGRATE:
            return await _migrate(services, job, item_id)
    return None


async def _migrate(services: Services, job: BulkJob, item_id: str) -> str | None:
    try:
        verdict = await migration.migrate(
            services, item_id, version=job.target_version, dry_run=False
        )
    except DefinitionError:
        if await _is_done(services, job, item_id):
            return None
        raise
    return "; ".join(verdict.problems) or None


async def _is_done(services: Services, job: BulkJob, item_id: str) -> bool:
    """Return whether an item is as the job wants it."""
    if job.action is BulkAction.RETRY_INCIDENTS:
        incident = await services.reads.find_incident(item_id)
        return incident is not None and incident.resolved_by == _actor(job)
    instance = await services.runtime.find_instance(item_id)
    if job.action is BulkAction.CANCEL:
        ended = await services.runtime.find_ended_instance(item_id)
        return ended is not None and ended.status is InstanceStatus.CANCELLED
    if instance is None:
        return False
    if job.action is BulkAction.MIGRATE:
        return instance.definition_version == job.target_version
    wanted = InstanceStatus.SUSPENDED if job.action is BulkAction.SUSPEND else InstanceStatus.ACTIVE
    return instance.status is wanted


def _actor(job: BulkJob) -> str:
    """Return who is recorded with each item: the person, and the job, by which an interrupted step knows its own work."""
    return f"{job.confirmed_by or job.created_by} (bulk job {job.id})"
