"""Routes of bulk jobs: one thing done to many incidents or instances, previewed, confirmed, and carried out by workers."""

from datetime import datetime

from fastapi import APIRouter
from pydantic import Field

from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import (
    Body,
    Cursor,
    Id,
    Limit,
    PageOf,
    Shape,
    Version,
    page_of,
)
from kikwiflow_worker.management.backend import Operator, Viewer
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.model.bulk import BulkAction, BulkFilter, BulkJob, BulkStatus
from kikwiflow_worker.model.runtime import IncidentType
from kikwiflow_worker.operations import bulk

router = APIRouter(prefix="/bulk-jobs", tags=["bulk jobs"])


class Filter(Body):
    """Which items a job is about; all that is given must fit, and what begins after the job was created does not."""

    definition_key: str | None = Field(None, min_length=1, alias="processDefinitionKey")
    instance_id: str | None = Field(
        None, min_length=1, alias="processInstanceId", description="For RETRY_INCIDENTS only."
    )
    business_key: str | None = Field(
        None, min_length=1, description="For all actions but RETRY_INCIDENTS."
    )
    node_id: str | None = Field(
        None,
        min_length=1,
        alias="taskDefinitionId",
        description="Where the incident is, or where a path of the instance stands.",
    )
    incident_type: IncidentType | None = Field(None, description="For RETRY_INCIDENTS only.")

    def chosen(self) -> BulkFilter:
        """Return it as the operation takes it."""
        return BulkFilter(
            definition_key=self.definition_key,
            instance_id=self.instance_id,
            business_key=self.business_key,
            node_id=self.node_id,
            incident_type=self.incident_type,
        )


class NewJob(Body):
    """What is to be done to which items."""

    action: BulkAction
    filter: Filter = Field(default_factory=Filter)
    version: Version | None = Field(
        None, description="For MIGRATE: where instances go, the latest by default."
    )


class Reason(Shape):
    """Why an item was skipped, or failed."""

    item_id: str
    message: str


class FilterShape(Shape):
    """The filter of a job."""

    definition_key: str | None = Field(alias="processDefinitionKey")
    instance_id: str | None = Field(alias="processInstanceId")
    business_key: str | None
    node_id: str | None = Field(alias="taskDefinitionId")
    incident_type: IncidentType | None


class JobShape(Shape):
    """A job. ``matched`` counts its items at its creation; at least so many if ``isCapped``.

    ``done``, ``skipped`` and ``failed`` count each item once; ``reasons`` are the first hundred.
    """

    id: str
    action: BulkAction
    filter: FilterShape
    target_version: int | None
    status: BulkStatus
    matched: int
    is_capped: bool
    done: int
    skipped: int
    failed: int
    reasons: list[Reason]
    created_at: datetime
    created_by: str
    confirmed_at: datetime | None
    confirmed_by: str | None
    ended_at: datetime | None
    cancelled_by: str | None

    @classmethod
    def of(cls, job: BulkJob) -> "JobShape":
        """Return the document of ``job``."""
        return cls(
            id=job.id,
            action=job.action,
            filter=FilterShape.model_validate(job.filter, by_name=True, by_alias=False),
            target_version=job.target_version,
            status=job.status,
            matched=job.matched,
            is_capped=job.is_capped,
            done=job.counts.done,
            skipped=job.counts.skipped,
            failed=job.counts.failed,
            reasons=[Reason.model_validate(reason) for reason in job.reasons],
            created_at=job.created_at,
            created_by=job.created_by,
            confirmed_at=job.confirmed_at,
            confirmed_by=job.confirmed_by,
            ended_at=job.ended_at,
            cancelled_by=job.cancelled_by,
        )


@router.post(
    "",
    status_code=201,
    operation_id="createBulkJob",
    responses=refuses(Code.DEFINITION_NOT_FOUND),
)
async def create_job(caller: Operator, body: NewJob) -> JobShape:
    """Say how many items a job would be about; nothing is changed before it is confirmed."""
    job = await bulk.create(
        caller.services,
        body.action,
        body.filter.chosen(),
        created_by=caller.identity.actor,
        version=body.version,
    )
    caller.concerns(job_id=job.id)
    return JobShape.of(job)


@router.get("", operation_id="listBulkJobs")
async def list_jobs(caller: Viewer, limit: Limit = 20, cursor: Cursor = None) -> PageOf[JobShape]:
    """List the jobs of the last month, newest first."""
    page = await bulk.list_jobs(caller.services, limit=limit, cursor=cursor)
    return page_of(page, JobShape)


@router.get("/{job_id}", operation_id="getBulkJob", responses=refuses(Code.NOT_FOUND))
async def get_job(caller: Viewer, job_id: Id) -> JobShape:
    """Return a job, and how far it is."""
    return JobShape.of(await bulk.get(caller.services, job_id))


@router.post(
    "/{job_id}/confirm",
    operation_id="confirmBulkJob",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT),
)
async def confirm_job(caller: Operator, job_id: Id) -> JobShape:
    """Let a job run: any worker goes on with it, item by item. A repeat changes nothing."""
    return JobShape.of(await bulk.confirm(caller.services, job_id, by=caller.identity.actor))


@router.post(
    "/{job_id}/cancel",
    operation_id="cancelBulkJob",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT),
)
async def cancel_job(caller: Operator, job_id: Id) -> JobShape:
    """Let a job end after the items that are being done; what is done stays done."""
    return JobShape.of(await bulk.cancel(caller.services, job_id, by=caller.identity.actor))
