"""How an outbox event is stored while it is relayed: what filters and updates of the relay have in common."""

from collections.abc import Mapping
from typing import Any

from bson.timestamp import Timestamp

from kikwiflow_worker.errors import EncryptionError
from kikwiflow_worker.model.variables import Value
from kikwiflow_worker.store.mongo.driver import Document
from kikwiflow_worker.store.mongo.sealing import Sealing, find_text
from kikwiflow_worker.store.mongo.value_codec import decode_payload
from kikwiflow_worker.store.relay import SLICES, RelayStatus, StoredEvent

ALL_SLICES = {"$in": list(range(SLICES))}
"""Named one by one, so that the index gives the order over all slices."""

WAITING = (RelayStatus.PENDING, RelayStatus.RETRYING, RelayStatus.HELD, RelayStatus.DEAD)
"""Of an event that was not sent and not given up; it does not expire while a relay is registered."""

BLOCKING = [RelayStatus.RETRYING.value, RelayStatus.DEAD.value]
"""Of an event that what follows in its instance waits for."""

UNHELD: Document = {
    "$set": {"relayStatus": RelayStatus.PENDING.value},
    "$unset": {"stalled": ""},
}
"""The update of events that nothing is in the way of any more."""

HELD: Document = {
    "$set": {"relayStatus": RelayStatus.HELD.value, "stalled": True},
    "$unset": {"expiresAt": ""},
}
"""The update of events that must wait for an earlier one."""


def held_of(instance_ids: list[str]) -> Document:
    """Return the filter of what is held in these instances."""
    return {
        "processInstanceId": {"$in": instance_ids},
        "relayStatus": RelayStatus.HELD.value,
        "stalled": True,
    }


def decode_event(row: Mapping[str, Any], sealing: Sealing | None = None) -> StoredEvent:
    """Return the event of a document; one whose payload cannot be opened says so, and stands in nobody's way."""
    payload: Mapping[str, Value] = {}
    unreadable: str | None = None
    try:
        payload = decode_payload(row["payload"], row["_id"], sealing)
    except EncryptionError as error:
        unreadable = str(error)
    return StoredEvent(
        id=row["_id"],
        type=row["eventType"],
        timestamp=row["timestamp"],
        instance_id=row["processInstanceId"],
        definition_id=row["processDefinitionId"],
        payload=payload,
        unreadable=unreadable,
        sequence=sequence_text(row["sequence"]),
        status=RelayStatus(row["relayStatus"]),
        attempts=row.get("attempts", 0),
        strikes=row.get("strikes", 0),
        retry_at=row.get("retryAt"),
        failed_at=row.get("failedAt"),
        last_error=find_text(sealing, row["_id"], "lastError", row),
        relayed_at=row.get("relayedAt"),
    )


def owner_of_slice(number: int) -> str:
    """Return what the texts of a slice are bound to; its id is a number."""
    return f"slice {number}"


def sequence_text(sequence: Timestamp) -> str:
    """Return a logical time as text that sorts as it does."""
    return f"{sequence.time:010d}.{sequence.inc:010d}"


def parse_sequence(text: str) -> Timestamp:
    """Return the logical time of ``sequence_text``.

    Raises:
        ValueError: It is none.
    """
    time, _, inc = text.partition(".")
    return Timestamp(int(time), int(inc))
