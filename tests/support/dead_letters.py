"""Outbox events that a sink would not take, without a relay that tried."""

from datetime import UTC, datetime
from typing import Any

from bson.timestamp import Timestamp
from pymongo.database import Database

from kikwiflow_worker.store.relay import slice_of

REFUSAL = "RefusedError: the receiver answered 422 Unprocessable"


def a_dead_letter(
    event_id: str, instance_id: str, definition_id: str, **fields: Any
) -> dict[str, Any]:
    """Return the document of a dead letter; ``fields`` are as they are stored."""
    return {
        "_id": event_id,
        "eventType": "PROCESS_INSTANCE_FINISHED",
        "timestamp": datetime(2026, 5, 1, tzinfo=UTC),
        "processInstanceId": instance_id,
        "processDefinitionId": definition_id,
        "position": 0,
        "payload": {"processInstanceId": instance_id, "tenantId": None},
        "slice": slice_of(instance_id),
        "sequence": Timestamp(1_796_065_238, 1),
        "relayStatus": "DEAD",
        "stalled": True,
        "attempts": 10,
        "strikes": 10,
        "failedAt": datetime(2026, 5, 1, 12, tzinfo=UTC),
        "lastError": REFUSAL,
        **fields,
    }


def store_dead_letter(data: Database[dict[str, Any]], *ids: str, **fields: Any) -> str:
    """Store a dead letter, given as ``a_dead_letter`` takes it; return its id."""
    data.outbox_events.insert_one(a_dead_letter(*ids, **fields))
    return ids[0]
