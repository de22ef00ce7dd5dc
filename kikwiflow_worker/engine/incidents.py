"""Incidents: failures that wait for a person."""

from datetime import datetime

from kikwiflow_worker.engine.effects import Failure
from kikwiflow_worker.model.incidents import incident_for
from kikwiflow_worker.model.runtime import ClaimedTask, ExecutableTask, Incident, IncidentType
from kikwiflow_worker.model.unit_of_work import FailTask, OpenIncident, UnitOfWork


def incident_of(
    task: ExecutableTask, incident_type: IncidentType, failure: Failure, *, now: datetime
) -> Incident:
    """Return the incident of a task that failed."""
    return incident_for(
        task,
        incident_type,
        message=f"{failure.error_type}: {failure.message}",
        stack_trace=failure.stack_trace,
        now=now,
    )


def give_up(
    claimed: ClaimedTask,
    incident_type: IncidentType,
    failure: Failure,
    *,
    now: datetime,
    attempts: int,
) -> UnitOfWork:
    """Return the unit that leaves a claimed task to a person."""
    guard = FailTask(claim=claimed.claim, attempts=attempts, error=failure.message)
    return UnitOfWork(
        (guard,), (OpenIncident(incident_of(claimed.task, incident_type, failure, now=now)),)
    )
