"""The port of the relay: which outbox events wait to be sent, and what became of sending them.

The instances of a database are dealt into ``SLICES`` slices. One relay at a time holds a slice, for one round: it claims it
together with the events that are to be sent, sends them, and records what came of it, which gives the slice back. A relay that
dies leaves its slice to lapse; the events of its round are sent again by whoever claims it next.

Order is the database's own: ``sequence`` is its logical time at the insert, so an event that was caused by another one, or
that changed the same document later, always comes after it, whichever hosts stored them and whatever their clocks say
(ADR 0027).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol
from zlib import crc32

from kikwiflow_worker.model.variables import Value
from kikwiflow_worker.store.search import Count
from kikwiflow_worker.store.views import Page

SLICES = 16
"""How many slices the instances are dealt into: so many relays can send at the same time."""


def slice_of(instance_id: str) -> int:
    """Return the slice of an instance's events; it never changes."""
    return crc32(instance_id.encode()) % SLICES


class RelayStatus(StrEnum):
    """Where an outbox event stands on its way to the sink."""

    PENDING = "PENDING"
    """It can be sent."""
    RETRYING = "RETRYING"
    """Sending it failed; it is tried again at ``retry_at``."""
    HELD = "HELD"
    """An earlier event of its instance is retrying or dead, and order is kept."""
    DEAD = "DEAD"
    """The sink would not take it; it and what follows in its instance wait for a person."""
    RELAYED = "RELAYED"
    """The sink took it."""
    DROPPED = "DROPPED"
    """A person gave it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An outbox event as it is stored.

    Attributes:
        type: An ``EventType``, or one that only a newer release knows.
        unreadable: Why the payload, which is empty then, cannot be decrypted here.
        sequence: Its place among all events of the database, as text that sorts.
        attempts: How often sending it failed.
        strikes: How many of these count: while the sink takes nothing from anybody, none does.
        retry_at: When it is tried again.
        failed_at: When sending it last failed.
        last_error: Why.
        relayed_at: When the sink took it.
    """

    id: str
    type: str
    timestamp: datetime
    instance_id: str
    definition_id: str
    payload: Mapping[str, Value]
    unreadable: str | None = None
    sequence: str
    status: RelayStatus
    attempts: int = 0
    strikes: int = 0
    retry_at: datetime | None = None
    failed_at: datetime | None = None
    last_error: str | None = None
    relayed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedSlice:
    """One round of a relay with one slice.

    Attributes:
        epoch: Raised by each claim; a round is recorded only while it is the stored one.
        failures: How many rounds in a row sent nothing although there was something to send.
        delivered_at: When the sink last took an event of this slice.
        events: What is to be sent, those of one instance in their order.
    """

    slice: int
    owner: str
    epoch: int
    failures: int
    delivered_at: datetime | None
    events: tuple[StoredEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedEvent:
    """An event that the sink did not take.

    Attributes:
        retry_at: When to try again; None makes it a dead letter.
    """

    event: StoredEvent
    strikes: int
    error: str
    retry_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What came of one round.

    Attributes:
        delivered: What the sink took.
        failed: What it did not take, at most one of each instance. What follows in those is held by the next claim.
        failures: What the slice's count of rounds without success becomes.
        pause: How long nobody need look at the slice.
    """

    delivered: Sequence[StoredEvent]
    failed: Sequence[FailedEvent]
    failures: int = 0
    pause: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceState:
    """One slice, for people.

    Attributes:
        lag_s: The age of its oldest event that waits for nothing but to be sent or sent again; 0 if there is none.
        owner: Who holds it now.
        paused_until: When it is looked at again, if the sink took nothing from it.
        last_error: Why.
    """

    slice: int
    lag_s: float
    owner: str | None
    failures: int
    paused_until: datetime | None
    delivered_at: datetime | None
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayMeasures:
    """How far the relay is behind.

    Attributes:
        counts: How many events are in each status that waits for something; each count stops at ``cap``.
        lag_s: The age of the oldest event that waits for nothing but to be sent or sent again; 0 if there is none.
    """

    counts: dict[RelayStatus, int]
    cap: int
    lag_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events are listed."""

    status: RelayStatus = RelayStatus.DEAD
    instance_id: str | None = None


class RelayStore(Protocol):
    """What a relay needs. Needs transactions: a replica set."""

    def now(self) -> datetime:
        """Return the database's time as known here."""
        ...

    async def find_ready(self, sink: str) -> tuple[int, ...]:
        """Return the slices that have something to send to ``sink`` now, in no order."""
        ...

    async def claim(
        self, slice_number: int, *, sink: str, owner: str, lock: timedelta, limit: int
    ) -> ClaimedSlice | None:
        """Claim a slice with at most ``limit`` events to send; None if somebody holds it, it is paused, or goes elsewhere.

        One transaction, whose snapshot shows every event that one in it was caused by. Events behind one that is retrying or
        dead are held in it.
        """
        ...

    async def record(self, claimed: ClaimedSlice, result: Round) -> bool:
        """Record a round and give the slice back, in one transaction; return False, with nothing written, if it was lost."""
        ...


class RelayCare(Protocol):
    """What people need who look after the relay."""

    async def find_sink(self) -> str | None:
        """Return the name of the sink that events of this database go to; None if they are not relayed."""
        ...

    async def measure(self) -> RelayMeasures:
        """Return how far the relay is behind."""
        ...

    async def list_slices(self) -> tuple[SliceState, ...]:
        """Return all slices, in their order; none before a relay was registered."""
        ...

    async def count_events(self, query: EventQuery) -> Count:
        """Return how many events fit; a count stops at a cap."""
        ...

    async def find_event(self, event_id: str) -> StoredEvent | None:
        """Return one event of those that can be relayed."""
        ...

    async def list_events(
        self, query: EventQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[StoredEvent]:
        """Return events in their order.

        Raises:
            OperationError: The cursor is not one that a page gave.
        """
        ...

    async def resend(self, event_ids: Sequence[str]) -> int:
        """Let dead letters be tried again at once, with all their attempts; return how many were dead."""
        ...

    async def drop(self, event_id: str, *, by: str | None) -> bool:
        """Give up a dead letter, so that what follows in its instance is sent; return False if it is not dead."""
        ...


class RelaySetup(RelayCare, Protocol):
    """Besides, what lets the events of a database be relayed, and ends it: for who has the database's address."""

    async def register(self, sink: str, *, replace: bool = False) -> None:
        """Note that events of this database go to ``sink``: from now on none expires before it was relayed.

        Raises:
            ConflictError: They go to another one, and ``replace`` is not set.
            ConfigurationError: The server has no transactions.
        """
        ...

    async def retire(self) -> int:
        """Note that events are not relayed any more, and let those that wait expire; return how many."""
        ...

    async def adopt(self) -> int:
        """Take care of waiting events that a process stored which did not know of the relay; return how many."""
        ...
