"""Messages that are kept until somebody waits for them, and the ids of those that were delivered."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kikwiflow_worker.model.runtime import ExecutableTask, TaskType
from kikwiflow_worker.model.variables import Variables


class MessageStatus(StrEnum):
    """KEPT waits for a receiver; DELIVERED is remembered, so that the same message is not delivered again."""

    KEPT = "KEPT"
    DELIVERED = "DELIVERED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message from outside, or from a thrower.

    Attributes:
        id: The sender's own, in its tenant; a second message with it changes nothing.
        kept_until: A kept message is given up then.
        expires_at: Its id is forgotten then.
    """

    id: str
    key: str
    tenant_id: str | None
    variables: Variables
    status: MessageStatus
    created_at: datetime
    kept_until: datetime
    expires_at: datetime


def keeper_of(message: Message, *, task_id: str, definition_id: str = "") -> ExecutableTask:
    """Return the task by which any worker tries again to deliver a kept message; it belongs to no instance."""
    return ExecutableTask(
        id=task_id,
        type=TaskType.KEPT_MESSAGE,
        node_id=message.id,
        instance_id="",
        definition_id=definition_id,
        created_at=message.created_at,
        claimable_at=message.created_at,
        retries_left=1,
        tenant_id=message.tenant_id,
    )
