"""Incidents: failures that wait for a person."""

from datetime import datetime
from uuid import NAMESPACE_OID, uuid5

from kikwiflow_worker.model.runtime import ExecutableTask, Incident, IncidentType


def incident_for(
    task: ExecutableTask,
    incident_type: IncidentType,
    *,
    message: str,
    now: datetime,
    stack_trace: str = "",
) -> Incident:
    """Return the incident of a task; its id is derived, so that a repeated commit finds it already there."""
    return Incident(
        id=str(uuid5(NAMESPACE_OID, f"incident:{task.id}:{task.epoch}")),
        type=incident_type,
        message=message,
        stack_trace=stack_trace,
        instance_id=task.instance_id,
        definition_id=task.definition_id,
        task_id=task.id,
        node_id=task.node_id,
        created_at=now,
        tenant_id=task.tenant_id,
    )
