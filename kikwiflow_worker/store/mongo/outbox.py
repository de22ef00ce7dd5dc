"""Stores outbox events with the commit that caused them."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import NAMESPACE_OID, uuid5

from bson.timestamp import Timestamp

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.events import EventLevel, EventType, OutboxEvent, is_recorded
from kikwiflow_worker.model.variable_rules import (
    NOTHING_INHERITED,
    all_names,
    everybody_reads,
    mask_event,
    masked_names,
    rules_of,
)
from kikwiflow_worker.model.variables import Value
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, Session, settled
from kikwiflow_worker.store.mongo.value_codec import encode_payload
from kikwiflow_worker.store.relay import RelayStatus, slice_of

LOGICAL_TIME = Timestamp(0, 0)
"""What the server replaces, at the insert, by its logical time: unlike any host's, it never goes back behind a cause."""

FindDefinition = Callable[[str], Awaitable[ProcessDefinition | None]]


@dataclass(frozen=True, slots=True)
class OutboxOptions:
    """Which events are stored, and how long they are kept."""

    level: EventLevel = EventLevel.OFF
    retention: timedelta = timedelta(days=7)


RELAY: Document = {"_id": "relay"}
"""The document in ``meta`` that says where events are relayed to; without it they are not."""

_LOOK_S = 60.0
"""How long a process may not know that a relay was registered, or retired."""


class Outbox:
    """The outbox of one database.

    Attributes:
        is_relayed: Whether a relay sends the events: they expire some time after it did, and never before.
    """

    def __init__(
        self,
        collections: Collections,
        options: OutboxOptions,
        find_definition: FindDefinition,
        clock: Clock,
    ) -> None:
        self._meta = collections.meta
        self._clock = clock
        self._looked_at = clock.monotonic()
        self._find_definition = find_definition
        self._events = collections.outbox_events
        self._sealing = collections.sealing
        self._options = options
        self.is_relayed = False

    @property
    def retention(self) -> timedelta:
        """How long events are kept: from when they were stored, or relayed if they are."""
        return self._options.retention

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
        taken = [
            (position, event)
            for position, event in enumerate(events, start=first)
            if self.takes(event.type)
        ]
        if not taken:
            return
        if self._clock.monotonic() - self._looked_at >= _LOOK_S:
            await self.find_sink()
        ids = {event.definition_id for _, event in taken}
        definitions = {one: await self._find_definition(one) for one in ids}
        documents = [
            self._document(event, _masked(event, definitions[event.definition_id]), position)
            for position, event in taken
        ]
        await settled(self._events.insert_many(documents, session=session))

    async def find_sink(self) -> str | None:
        """Return the sink that a relay sends events to, and store events accordingly from now on."""
        self._looked_at = self._clock.monotonic()
        found = await settled(self._meta.find_one(RELAY))
        self.is_relayed = found is not None
        return str(found["sink"]) if found else None

    def _document(
        self, event: OutboxEvent, payload: Mapping[str, Value], position: int
    ) -> Document:
        expiry = {} if self.is_relayed else {"expiresAt": event.timestamp + self.retention}
        return {
            "_id": event.id,
            "eventType": event.type.value,
            "processInstanceId": event.instance_id,
            "processDefinitionId": event.definition_id,
            "timestamp": event.timestamp,
            "position": position,
            "sequence": LOGICAL_TIME,
            "slice": slice_of(event.instance_id),
            "relayStatus": RelayStatus.PENDING.value,
            "payload": encode_payload(payload, event.id, self._sealing),
            **expiry,
        }


def _masked(event: OutboxEvent, definition: ProcessDefinition | None) -> Mapping[str, Value]:
    """Return the payload without what not everybody may read: who follows the events has no role."""
    if definition is None:
        return mask_event(event.type, event.payload, all_names(event.payload))
    rules = rules_of(definition, event.inherited_rules)
    return mask_event(event.type, event.payload, masked_names(rules, everybody_reads))


def store_event(
    event: EventType,
    cause: str,
    *,
    instance_id: str,
    definition_id: str,
    at: datetime,
    payload: dict[str, Value],
    inherited_rules: Mapping[str, str] = NOTHING_INHERITED,
) -> OutboxEvent:
    """Return an event that the store itself finds; ``cause`` names what it can happen to only once."""
    return OutboxEvent(
        id=str(uuid5(NAMESPACE_OID, f"{event}:{cause}")),
        type=event,
        timestamp=at,
        instance_id=instance_id,
        definition_id=definition_id,
        payload=payload,
        inherited_rules=inherited_rules,
    )
