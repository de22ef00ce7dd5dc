"""Jobs that do one thing to many incidents or instances."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from kikwiflow_worker.model.runtime import ExecutableTask, IncidentType, TaskType


class BulkAction(StrEnum):
    """What a job does to each item: an incident for RETRY_INCIDENTS, else a running instance."""

    RETRY_INCIDENTS = "RETRY_INCIDENTS"
    CANCEL = "CANCEL"
    SUSPEND = "SUSPEND"
    RESUME = "RESUME"
    MIGRATE = "MIGRATE"


class BulkStatus(StrEnum):
    """PREVIEWED changes nothing until it is confirmed; DONE and CANCELLED change nothing any more."""

    PREVIEWED = "PREVIEWED"
    RUNNING = "RUNNING"
    DONE = "DONE"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkFilter:
    """Which items a job is about; a field that is None does not matter.

    Attributes:
        instance_id: For RETRY_INCIDENTS.
        business_key: For the other actions.
        node_id: Where the incident is, or where a path of the instance stands.
        incident_type: For RETRY_INCIDENTS.
    """

    definition_key: str | None = None
    instance_id: str | None = None
    business_key: str | None = None
    node_id: str | None = None
    incident_type: IncidentType | None = None


@dataclass(frozen=True, slots=True)
class BulkReason:
    """Why an item was skipped, or failed."""

    item_id: str
    message: str


@dataclass(frozen=True, slots=True)
class BulkCounts:
    """What became of the items so far: each is counted once.

    Attributes:
        done: It is now as the job wants it.
        skipped: It had ended or changed by itself, so that there was nothing to do.
        failed: It could not be done, and is as it was.
    """

    done: int = 0
    skipped: int = 0
    failed: int = 0

    def __add__(self, other: "BulkCounts") -> "BulkCounts":
        """Return the sum."""
        return BulkCounts(
            self.done + other.done, self.skipped + other.skipped, self.failed + other.failed
        )

    @property
    def total(self) -> int:
        """How many items were looked at."""
        return self.done + self.skipped + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkJob:
    """One job. What belongs to its filter is decided when it is created: what begins later is not touched.

    Attributes:
        tenant_id: The only tenant whose items it sees; None sees all.
        target_version: For MIGRATE: the version that instances go on with.
        matched: How many items there were at its creation; at least so many if ``is_capped``.
        chunk: Ids of the items that are being done now, written down before the first of them is changed.
        cursor: Where the next items are read; None before the first and after the last page.
        is_read: Whether all items have been read.
        reasons: Why items were skipped or failed, the first ``MAX_REASONS``.
    """

    id: str
    action: BulkAction
    filter: BulkFilter
    created_at: datetime
    created_by: str
    expires_at: datetime
    tenant_id: str | None = None
    target_version: int | None = None
    matched: int = 0
    is_capped: bool = False
    status: BulkStatus = BulkStatus.PREVIEWED
    confirmed_at: datetime | None = None
    confirmed_by: str | None = None
    ended_at: datetime | None = None
    cancelled_by: str | None = None
    counts: BulkCounts = field(default_factory=BulkCounts)
    reasons: tuple[BulkReason, ...] = ()
    chunk: tuple[str, ...] = ()
    cursor: str | None = None
    is_read: bool = False


MAX_REASONS = 100
"""That a job keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkProgress:
    """What one step of a job came to, and what the next one begins with.

    Attributes:
        is_last: Whether the job is done with it.
    """

    counts: BulkCounts
    reasons: tuple[BulkReason, ...]
    chunk: tuple[str, ...]
    cursor: str | None
    is_read: bool
    is_last: bool


def carrier_of(job: BulkJob, *, now: datetime) -> ExecutableTask:
    """Return the task by which any worker goes on with a job; it belongs to no instance."""
    return ExecutableTask(
        id=f"bulk-job:{job.id}",
        type=TaskType.BULK_JOB,
        node_id=job.id,
        instance_id="",
        definition_id="",
        created_at=now,
        claimable_at=now,
        retries_left=1,
        tenant_id=job.tenant_id,
    )
