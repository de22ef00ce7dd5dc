"""What workers outside this package, in any language, say about the tasks that they fetched."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kikwiflow_worker.model.runtime import Claim

EXTERNAL_WORKER_PREFIX = "external/"
"""Of the worker id of a task that is locked from outside: no worker of our own has one like it."""


class ReportKind(StrEnum):
    """What an external worker says: its task is done, it failed, or it found an error that the process knows."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    BUSINESS_ERROR = "BUSINESS_ERROR"


class ReportOutcome(StrEnum):
    """What became of the task: its path went on, it waits for another attempt, or for a person."""

    COMPLETED = "COMPLETED"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"
    INCIDENT_OPENED = "INCIDENT_OPENED"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport:
    """What was said about one claim, and what came of it; kept for a day, so that a repeat is answered as the first.

    Attributes:
        claim: Its epoch names the fetch: a later one of the same task has a report of its own.
    """

    claim: Claim
    kind: ReportKind
    outcome: ReportOutcome
    instance_id: str
    node_id: str
    tenant_id: str | None
    reported_at: datetime
