"""Putting incidents right."""

from kikwiflow_worker.engine.retries import attempts_allowed
from kikwiflow_worker.errors import ConflictError, NotFoundError
from kikwiflow_worker.model.nodes import ExecutableTaskNode
from kikwiflow_worker.model.runtime import Incident
from kikwiflow_worker.operations.services import Services


async def retry(services: Services, incident_id: str, *, resolved_by: str | None) -> Incident:
    """Give the failed task its attempts back, due now, and resolve the incident; a new failure opens a new one.

    Raises:
        NotFoundError: No such incident.
        ConflictError: It is not open.
    """
    incident = await get_incident(services, incident_id)
    definition = await services.get_definition(incident.definition_id)
    node = definition.flow_nodes.get(incident.node_id)
    policy = node.retry_policy if isinstance(node, ExecutableTaskNode) else None
    retries = max(1, attempts_allowed(policy, services.retry_defaults))
    if not await services.runtime.retry_incident(
        incident_id, retries=retries, resolved_by=resolved_by
    ):
        raise ConflictError(f"incident {incident_id} is not open any more; look at it again")
    return await get_incident(services, incident_id)


async def get_incident(services: Services, incident_id: str) -> Incident:
    """Return an incident.

    Raises:
        NotFoundError: No such incident.
    """
    incident = await services.reads.find_incident(incident_id)
    if incident is None:
        raise NotFoundError(f"no incident has the id {incident_id}")
    return incident
