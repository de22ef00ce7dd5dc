"""Incidents: failures that wait for a person."""

from datetime import datetime
from uuid import NAMESPACE_OID, uuid5

from kikwiflow_worker.engine.effects import Failure
from kikwiflow_worker.model.runtime import ClaimedTask, ExecutableTask, Incident, IncidentType
from kikwiflow_worker.model.unit_of_work import FailTask, OpenIncident, UnitOfWork


def incident_of(
    task: ExecutableTask, incident_type: IncidentType, failure: Failure, *, now: datetime
) -> Incident:
    """Return the incident of a task; its id is derived, so that a repeated commit finds it already there."""
    return Incident(
        id=str(uuid5(NAMESPACE_OID, f"incident:{task.id}:{task.epoch}")),
        type=incident_type,
        message=f"{failure.error_type}: {failure.message}",
        stack_trace=failure.stack_trace,
        instance_id=task.instance_id,
        definition_id=task.definition_id,
        task_id=task.id,
        node_id=task.node_id,
        created_at=now,
        tenant_id=task.tenant_id,
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
