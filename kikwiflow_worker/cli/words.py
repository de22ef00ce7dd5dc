"""Words for what a task is and where it stands, the same in every table."""

from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    ExternalTaskStatus,
    ExternalTaskType,
    TaskType,
)

_EXTERNAL_TYPES = {
    ExternalTaskType.TASK: "task",
    ExternalTaskType.CATCHER: "catcher",
    ExternalTaskType.GROUP: "group",
    ExternalTaskType.GROUP_KEY: "group key",
    ExternalTaskType.BOUNDARY_CATCH: "boundary catch",
}


def place_of(task: ExecutableTask) -> str:
    """Return the node of a task, with its host, its cycle or its element where it has one."""
    notes: list[str] = []
    if task.attached_to is not None:
        notes.append(f"on {task.attached_to.host_node_id}")
    if task.occurrence is not None and task.type is TaskType.NON_INTERRUPTIVE_TIMER:
        notes.append(f"cycle {task.occurrence}")
    if task.loop is not None and task.loop.element:
        notes.append(f"element {task.loop.index}")
    return f"{task.node_id} ({', '.join(notes)})" if notes else task.node_id


def external_type(task: ExternalTask) -> str:
    """Return what an external task waits for, and whether its key has come while others of its group have not."""
    matched = ", matched" if task.status is ExternalTaskStatus.CORRELATED else ""
    return _EXTERNAL_TYPES[task.type] + matched


def label_of(task: ExternalTask) -> str | None:
    """Return what people call an external task: the label of its key, or the name of its node."""
    return task.display_name or task.name


def key_of(task: ExternalTask) -> str | None:
    """Return what a message must carry to end the wait; for a group, how many keys have come."""
    if task.type is ExternalTaskType.GROUP and task.total_keys is not None:
        return f"{task.total_keys - len(task.pending_keys)} of {task.total_keys} keys"
    return task.correlation_key
