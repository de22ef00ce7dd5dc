"""Claiming and completing external tasks."""

from collections.abc import Mapping

from kikwiflow_worker.engine.messages import Delivery, Receiver, end_wait
from kikwiflow_worker.errors import ClaimLostError, ConflictError, KikwiflowError, NotFoundError
from kikwiflow_worker.model.runtime import (
    ExternalTask,
    ExternalTaskType,
    InstanceStatus,
    ProcessInstance,
)
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.model.variables import normalize_all
from kikwiflow_worker.operations.instances import (
    MAX_RACES,
    instance_after,
    refuse_suspended,
    too_many_races,
)
from kikwiflow_worker.operations.services import Invoker, Services, drive
from kikwiflow_worker.operations.spans import sending


async def complete(
    services: Services,
    invoker: Invoker,
    task_id: str,
    *,
    variables: Mapping[str, object],
    completed_by: str | None,
) -> ProcessInstance:
    """Complete an external task with ``variables`` and go on until the path rests; return the instance then.

    Raises:
        ConflictError: It is completed already, or somebody else was faster.
        NotFoundError: No such task, or its instance was cancelled.
        VariableError: A variable cannot be stored; nothing was changed.
        StepFailedError: A node after it failed; the task stays open.
    """
    check_texts(external_task_id=task_id, completer=completed_by)
    delivery = Delivery(variables=normalize_all(variables), actor=completed_by)
    for _ in range(MAX_RACES):
        receiver = await _receiver(services, task_id)
        with sending(services, "complete", receiver.task):
            segment = end_wait(receiver, delivery, services.surroundings(invoker.capabilities))
            result = await drive(services, segment, invoker)
            try:
                committed = await services.commit(result.unit, cause=receiver.task.traceparent)
            except ClaimLostError:
                continue  # it is gone, or its instance was moved to another version meanwhile
        return await instance_after(services, committed, receiver.instance.id)
    raise too_many_races(f"completion of external task {task_id}")


async def _receiver(services: Services, task_id: str) -> Receiver:
    task = await services.runtime.find_external_task(task_id)
    instance = await services.runtime.find_instance(task.instance_id) if task else None
    if task is None or instance is None or instance.status is InstanceStatus.CANCELLING:
        raise await _gone(services, task_id)
    if task.type in {ExternalTaskType.GROUP, ExternalTaskType.GROUP_KEY}:
        raise ConflictError(
            f"external task {task_id} waits for correlation keys; correlate them instead of completing it"
        )
    refuse_suspended(instance)
    definition = await services.get_definition(task.definition_id)
    return Receiver(definition=definition, instance=instance, task=task)


async def claim(services: Services, task_id: str, *, assignee: str) -> ExternalTask:
    """Make ``assignee`` the one who works on the task; again for the same assignee is no error.

    Raises:
        ConflictError: Somebody else has it.
        NotFoundError: No such task.
    """
    return await _assign(services, task_id, assignee=assignee, expected=None)


async def unclaim(services: Services, task_id: str, *, assignee: str | None = None) -> ExternalTask:
    """Give the task back; with ``assignee``, only if it is that one's.

    Raises:
        ConflictError: Somebody else has it.
        NotFoundError: No such task.
    """
    check_texts(external_task_id=task_id, assignee=assignee)
    task = await services.runtime.find_external_task(task_id)
    if task is None:
        raise await _gone(services, task_id)
    if task.assignee is None:
        return task
    if assignee is not None and task.assignee != assignee:
        raise ConflictError(
            f"external task {task_id} is claimed by {task.assignee}, not by {assignee}"
        )
    return await _assign(services, task_id, assignee=None, expected=task.assignee)


async def _assign(
    services: Services, task_id: str, *, assignee: str | None, expected: str | None
) -> ExternalTask:
    check_texts(external_task_id=task_id, assignee=assignee)
    changed = await services.runtime.assign_external_task(
        task_id, assignee=assignee, expected=expected
    )
    task = await services.runtime.find_external_task(task_id)
    if task is None:
        raise await _gone(services, task_id)
    if not changed and task.assignee != assignee:
        raise ConflictError(
            f"external task {task_id} is claimed by {task.assignee or 'nobody'}; ask them to unclaim it"
        )
    return task


async def _gone(services: Services, task_id: str) -> KikwiflowError:
    """Say why a task is not open, from what the majority knows (protocol R14)."""
    done = await services.reads.find_completed_external_task(task_id)
    if done is not None:
        by = f" by {done.completed_by}" if done.completed_by else ""
        return ConflictError(
            f"external task {task_id} was completed already at {done.completed_at.isoformat()}{by}"
        )
    return NotFoundError(
        f"no open external task has the id {task_id}; its instance was cancelled, or the id is wrong"
    )
