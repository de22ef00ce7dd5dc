"""Throwing a message that nobody awaits yet."""

from datetime import timedelta

from kikwiflow_worker.engine.draft import Draft
from kikwiflow_worker.engine.time_values import delay_after
from kikwiflow_worker.engine.visits import Visit, part_id
from kikwiflow_worker.model.messages import Message, MessageStatus, keeper_of
from kikwiflow_worker.model.unit_of_work import InsertTask, RecordMessage

KEEP_FOR = "kikwiflow.keepFor"
"""The property of a thrower: an ISO-8601 duration. Without it a throw that nobody awaits fails."""

_REMEMBERED = timedelta(days=7)


def keep_message(draft: Draft, visit: Visit, key: str, keep_for: str) -> None:
    """Keep the thrower's message for whoever begins to wait within ``keep_for``.

    Raises:
        ExecutionError: ``keep_for`` is no duration.
    """
    kept_until = delay_after(keep_for, draft.now)
    message = Message(
        id=part_id(visit.id, "message"),
        key=key,
        tenant_id=draft.instance.tenant_id,
        variables={},
        status=MessageStatus.KEPT,
        created_at=draft.now,
        kept_until=kept_until,
        expires_at=max(kept_until, draft.now + _REMEMBERED),
    )
    draft.changes.append(RecordMessage(message))
    draft.changes.append(InsertTask(keeper_of(message, task_id=part_id(message.id, "keeper"))))
