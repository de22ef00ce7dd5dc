"""What a sink is given of an event."""

import json
from dataclasses import dataclass

from kikwiflow_worker.errors import EncryptionError
from kikwiflow_worker.model.plain_json import iso, to_json
from kikwiflow_worker.store.relay import StoredEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """An event on its way out.

    Attributes:
        id: The same for each delivery of the event: by it a repeated one is known.
        instance_id: Events of one instance come in their order; a key for sinks that have partitions.
        body: The event as JSON, in UTF-8.
    """

    id: str
    type: str
    instance_id: str
    tenant_id: str | None
    body: bytes


def message_of(event: StoredEvent) -> Message:
    """Return the message of an event. What a definition masks is masked already where the event is stored.

    Raises:
        EncryptionError: This process has not the key of the event's values.
    """
    if event.unreadable is not None:
        raise EncryptionError(event.unreadable)
    payload = event.payload
    tenant = payload.get("tenantId")
    content = {
        "id": event.id,
        "eventType": event.type,
        "processInstanceId": event.instance_id,
        "processDefinitionId": event.definition_id,
        "tenantId": tenant,
        "actorId": payload.get("actorId"),
        "timestamp": iso(event.timestamp),
        "sequence": event.sequence,
        "payload": to_json(payload),
    }
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Message(
        id=event.id,
        type=event.type,
        instance_id=event.instance_id,
        tenant_id=tenant if isinstance(tenant, str) else None,
        body=text.encode(errors="backslashreplace"),
    )
