"""Putting incidents and single tasks right."""

from collections.abc import Mapping
from datetime import datetime

from kikwiflow_worker.engine.retries import attempts_allowed
from kikwiflow_worker.errors import ConflictError, NotFoundError, OperationError
from kikwiflow_worker.model.nodes import ExecutableTaskNode
from kikwiflow_worker.model.runtime import ExecutableTask, Incident
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.model.variables import normalize_all
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.values import Resolution

MAX_ATTEMPTS = 1_000_000
"""That a person may give a task at once."""


async def resolve(
    services: Services,
    incident_id: str,
    *,
    variables: Mapping[str, object],
    skip: bool,
    resolved_by: str | None,
) -> Incident:
    """Let the failed task go on, due now and with its attempts back; a new failure opens a new incident.

    Args:
        variables: Set before, in the same transaction.
        skip: Do not run its handler: the path goes on as if it had run.

    Raises:
        NotFoundError: No such incident.
        ConflictError: It is not open, or its task runs no handler that could be skipped.
        VariableError: A variable cannot be stored; nothing was changed.
    """
    check_texts(incident_id=incident_id, resolver=resolved_by)
    incident = await get_incident(services, incident_id)
    definition = await services.get_definition(incident.definition_id)
    node = definition.flow_nodes.get(incident.node_id)
    is_task = isinstance(node, ExecutableTaskNode)
    if skip and not is_task:
        raise ConflictError(
            f"incident {incident_id} is at {incident.node_id}, which runs no handler that could be skipped; "
            "change what it needs and retry"
        )
    policy = node.retry_policy if isinstance(node, ExecutableTaskNode) else None
    retries = max(1, attempts_allowed(policy, services.retry_defaults))
    resolution = Resolution(variables=normalize_all(variables), skip=skip)
    if not await services.runtime.retry_incident(
        incident_id, retries=retries, resolved_by=resolved_by, resolution=resolution
    ):
        raise ConflictError(f"incident {incident_id} is not open any more; look at it again")
    return await get_incident(services, incident_id)


async def get_incident(services: Services, incident_id: str) -> Incident:
    """Return an incident.

    Raises:
        NotFoundError: No such incident.
    """
    check_texts(incident_id=incident_id)
    incident = await services.reads.find_incident(incident_id)
    if incident is None:
        raise NotFoundError(f"no incident has the id {incident_id}")
    return incident


async def override_task(
    services: Services,
    task_id: str,
    *,
    retries: int | None,
    due_at: datetime | None,
    by: str | None,
) -> ExecutableTask:
    """Give a task other attempts or another due time; one that waits for a person waits for a worker again.

    Raises:
        NotFoundError: No such task.
        ConflictError: It runs now, or it waits for branches.
        OperationError: Nothing is to be changed, or a value makes no sense.
    """
    check_texts(task_id=task_id, resolver=by)
    if retries is None and due_at is None:
        raise OperationError("say what to change: the attempts left, the due time, or both")
    if retries is not None and not 1 <= retries <= MAX_ATTEMPTS:
        raise OperationError(f"a task has 1 to {MAX_ATTEMPTS:,} attempts, not {retries}")
    if due_at is not None and due_at.tzinfo is None:
        raise OperationError("the due time needs a time zone")
    changed = await services.runtime.override_task(task_id, retries=retries, due_at=due_at, by=by)
    task = await services.reads.find_task(task_id)
    if task is None:
        raise NotFoundError(
            f"no executable task has the id {task_id}; it is done, or the id is wrong"
        )
    if not changed:
        raise ConflictError(f"task {task_id} cannot be changed, it is {task.status}")
    return task
