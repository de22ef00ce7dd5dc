"""Stores outbox events with the commit that caused them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import NAMESPACE_OID, uuid5

from kikwiflow_worker.model.events import EventLevel, EventType, OutboxEvent, is_recorded
from kikwiflow_worker.model.variables import Value
from kikwiflow_worker.store.mongo.codec import encode_value
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, Session, settled


@dataclass(frozen=True, slots=True)
class OutboxOptions:
    """Which events are stored, and how long they are kept."""

    level: EventLevel = EventLevel.OFF
    retention: timedelta = timedelta(days=7)


class Outbox:
    """The outbox of one database."""

    def __init__(self, collections: Collections, options: OutboxOptions) -> None:
        self._events = collections.outbox_events
        self._options = options

    @property
    def is_on(self) -> bool:
        """Whether any events are stored; if not, none need be put together."""
        return self._options.level is not EventLevel.OFF

    def takes(self, event: EventType) -> bool:
        """Return whether events of this type are stored."""
        return is_recorded(event, self._options.level)

    async def store(
        self, events: Iterable[OutboxEvent], *, first: int = 0, session: Session = None
    ) -> None:
        """Store events in their order; those of types that are not stored are left out.

        Args:
            first: The position of the first one among those of its commit.
        """
        documents = [
            self._document(event, position)
            for position, event in enumerate(events, start=first)
            if self.takes(event.type)
        ]
        if documents:
            await settled(self._events.insert_many(documents, session=session))

    def _document(self, event: OutboxEvent, position: int) -> Document:
        return {
            "_id": event.id,
            "eventType": event.type.value,
            "processInstanceId": event.instance_id,
            "processDefinitionId": event.definition_id,
            "timestamp": event.timestamp,
            "position": position,
            "relayStatus": "PENDING",
            "payload": {name: encode_value(value) for name, value in event.payload.items()},
            "expiresAt": event.timestamp + self._options.retention,
        }


def store_event(
    event: EventType,
    cause: str,
    *,
    instance_id: str,
    definition_id: str,
    at: datetime,
    payload: dict[str, Value],
) -> OutboxEvent:
    """Return an event that the store itself finds; ``cause`` names what it can happen to only once."""
    return OutboxEvent(
        id=str(uuid5(NAMESPACE_OID, f"{event}:{cause}")),
        type=event,
        timestamp=at,
        instance_id=instance_id,
        definition_id=definition_id,
        payload=payload,
    )
