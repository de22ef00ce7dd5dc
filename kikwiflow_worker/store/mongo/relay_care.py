"""Setting up the relay of a database, and looking after it."""

from collections.abc import Sequence
from datetime import datetime

from bson.timestamp import Timestamp
from pymongo import UpdateOne

from kikwiflow_worker.errors import ConfigurationError, ConflictError, OperationError
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, Session, fetched, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.outbox import RELAY, Outbox
from kikwiflow_worker.store.mongo.relay_documents import (
    ALL_SLICES,
    UNHELD,
    WAITING,
    decode_event,
    held_of,
    owner_of_slice,
    parse_sequence,
)
from kikwiflow_worker.store.mongo.sealing import Sealing, find_text
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.transactions import Transactions
from kikwiflow_worker.store.relay import (
    SLICES,
    EventQuery,
    RelayMeasures,
    RelayStatus,
    SliceState,
    StoredEvent,
    slice_of,
)
from kikwiflow_worker.store.search import COUNT_CAP, Count
from kikwiflow_worker.store.views import Page

_SENDABLE = [RelayStatus.PENDING.value, RelayStatus.RETRYING.value]
_STALLED = frozenset({RelayStatus.RETRYING, RelayStatus.HELD, RelayStatus.DEAD})
_BATCH = 500
_MAX_PAGE = 500
_MAX_TIME_MS = 10_000


class MongoRelayCare:
    """The relay of one database; the contract is that of ``RelaySetup``."""

    def __init__(
        self,
        collections: Collections,
        outbox: Outbox,
        transactions: Transactions,
        server_time: ServerTime,
    ) -> None:
        self._events = collections.outbox_events
        self._sealing = collections.sealing
        self._slices = collections.outbox_slices
        self._meta = collections.meta
        self._outbox = outbox
        self._transactions = transactions
        self._time = server_time

    async def find_sink(self) -> str | None:
        """Return the name of the sink that events go to, and let this process store events accordingly."""
        with translated("looking for the relay"):
            return await self._outbox.find_sink()

    async def register(self, sink: str, *, replace: bool = False) -> None:
        """Note that events go to ``sink``; see ``RelaySetup.register``."""
        if not self._transactions.enabled:
            raise ConfigurationError(
                "the relay needs transactions to keep events in order; start MongoDB as a replica set "
                "(one node is enough)"
            )
        with translated("registering the relay"):
            await settled(
                self._meta.update_one(RELAY, {"$setOnInsert": {"sink": sink}}, upsert=True)
            )
            known = await self.find_sink()
            if known != sink and not replace:
                raise ConflictError(
                    f"events of this database go to sink {known!r}, and each event goes to one sink only; stop those "
                    f"relays, then give --replace-sink to send what waits to {sink!r}"
                )
            await settled(self._meta.update_one(RELAY, {"$set": {"sink": sink}}))
            fresh = {"epoch": 0, "failures": 0, "claimableAt": self._time.now()}
            for number in range(SLICES):
                update = {"$setOnInsert": fresh, "$set": {"sink": sink}}
                await settled(self._slices.update_one({"_id": number}, update, upsert=True))
        await self.adopt()

    async def retire(self) -> int:
        """Note that events are not relayed any more, and let those that wait expire; return how many."""
        with translated("retiring the relay"):
            await settled(self._meta.delete_one(RELAY))
            await settled(self._slices.delete_many({}))
            self._outbox.is_relayed = False
            expiry = {"expiresAt": self._time.now() + self._outbox.retention}
            found = {"relayStatus": {"$in": [status.value for status in WAITING]}}
            result = await settled(self._events.update_many(found, {"$set": expiry}))
        return int(result.matched_count)

    async def adopt(self) -> int:
        """Take care of waiting events that a process stored which did not know of the relay; return how many."""
        with translated("adopting events"):
            count = await self._deal_into_slices()
            kept = await settled(
                self._events.update_many(
                    {
                        "relayStatus": {"$in": [status.value for status in WAITING]},
                        "expiresAt": {"$exists": True},
                    },
                    {"$unset": {"expiresAt": ""}},
                )
            )
        return count + int(kept.modified_count)

    async def _deal_into_slices(self) -> int:
        """Give events of releases without a relay what it needs, in the order that their timestamps say."""
        count = 0
        while True:
            found = {"relayStatus": RelayStatus.PENDING.value, "slice": None}
            batch = await fetched(self._events.find(found), _BATCH)
            if not batch:
                return count
            operations = [
                UpdateOne(
                    {"_id": row["_id"], "slice": None},
                    {
                        "$set": {
                            "slice": slice_of(str(row.get("processInstanceId"))),
                            "sequence": _sequence_of(row),
                        }
                    },
                )
                for row in batch
            ]
            await settled(self._events.bulk_write(operations))
            count += len(batch)

    async def measure(self) -> RelayMeasures:
        """Return how far the relay is behind."""
        with translated("measuring the relay"):
            counts = {
                status: await settled(
                    self._events.count_documents({"relayStatus": status.value}, limit=COUNT_CAP)
                )
                for status in WAITING
            }
            lag_s = await self._measure_lag(ALL_SLICES)
        return RelayMeasures(counts=counts, cap=COUNT_CAP, lag_s=lag_s)

    async def _measure_lag(self, slices: object) -> float:
        """Return the age of the oldest event of some slices that waits for nothing but to be sent."""
        found = {"relayStatus": {"$in": _SENDABLE}, "slice": slices}
        oldest = await settled(
            self._events.find_one(found, {"timestamp": 1}, sort=[("sequence", 1)])
        )
        lag = (self._time.now() - oldest["timestamp"]).total_seconds() if oldest else 0.0
        return max(0.0, lag)

    async def list_slices(self) -> tuple[SliceState, ...]:
        """Return all slices, in their order; none before a relay was registered."""
        with translated("listing slices"):
            rows = await self._slices.find({}).sort("_id", 1).to_list(SLICES)
            lags = [await self._measure_lag(row["_id"]) for row in rows]
        now = self._time.now()
        return tuple(
            _slice_state(row, lag_s, now, self._sealing)
            for row, lag_s in zip(rows, lags, strict=True)
        )

    async def count_events(self, query: EventQuery) -> Count:
        """Return how many events fit, up to a cap."""
        found, index = _found(query)
        with translated("counting events"):
            count = await settled(
                self._events.count_documents(
                    found, limit=COUNT_CAP + 1, maxTimeMS=_MAX_TIME_MS, hint=index
                )
            )
        return Count(min(count, COUNT_CAP), is_capped=count > COUNT_CAP)

    async def find_event(self, event_id: str) -> StoredEvent | None:
        """Return one event of those that can be relayed."""
        check_texts(event_id=event_id)
        found = {"_id": event_id, "slice": ALL_SLICES}
        with translated("looking up an event"):
            row = await settled(self._events.find_one(found, max_time_ms=_MAX_TIME_MS))
        return decode_event(row, self._sealing) if row else None

    async def list_events(
        self, query: EventQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[StoredEvent]:
        """Return events in their order; see ``RelayCare.list_events``."""
        limit = max(1, min(limit, _MAX_PAGE))
        found, index = _found(query)
        wanted = {"$and": [found, _after(cursor)]} if cursor else found
        with translated("listing events"):
            rows = self._events.find(wanted, max_time_ms=_MAX_TIME_MS, hint=index)
            documents = await fetched(rows.sort([("sequence", 1), ("_id", 1)]), limit + 1)
        events = tuple(decode_event(one, self._sealing) for one in documents[:limit])
        more = len(documents) > limit
        return Page(events, f"{events[-1].sequence}_{events[-1].id}" if more else None)

    async def resend(self, event_ids: Sequence[str]) -> int:
        """Let dead letters be tried again at once, with all their attempts; return how many were dead."""
        found = {"_id": {"$in": list(event_ids)}, "relayStatus": RelayStatus.DEAD.value}
        again = {
            "relayStatus": RelayStatus.RETRYING.value,
            "retryAt": self._time.now(),
            "strikes": 0,
        }
        with translated("sending events again"):
            result = await settled(self._events.update_many(found, {"$set": again}))
        return int(result.modified_count)

    async def drop(self, event_id: str, *, by: str | None) -> bool:
        """Give up a dead letter, so that what follows in its instance is sent; return False if it is not dead."""
        check_texts(event_id=event_id, by=by)

        async def give_up(session: Session) -> bool:
            now = self._time.now()
            dropped = {
                "relayStatus": RelayStatus.DROPPED.value,
                "droppedAt": now,
                "droppedBy": by,
                "expiresAt": now + self._outbox.retention,
            }
            event = await settled(
                self._events.find_one_and_update(
                    {"_id": event_id, "relayStatus": RelayStatus.DEAD.value},
                    {"$set": dropped, "$unset": {"stalled": ""}},
                    session=session,
                )
            )
            if event is None:
                return False
            # Written by every round too: so none that began before holds something that nothing is in the way of.
            touched = {"$inc": {"fence": 1}}
            of_slice = {"_id": event["slice"]}
            await settled(self._slices.update_one(of_slice, touched, session=session))
            freed = held_of([event["processInstanceId"]])
            await settled(self._events.update_many(freed, UNHELD, session=session))
            return True

        return await self._transactions.run(f"dropping event {event_id}", give_up)


def _sequence_of(row: Document) -> Timestamp:
    """Return a logical time that stands for an event's timestamp, before all that the server gives from now on."""
    at: datetime = row["timestamp"]
    order = at.microsecond // 1000 * 1000 + min(int(row.get("position", 0)), 999)
    return Timestamp(int(at.timestamp()), order)


def _found(query: EventQuery) -> tuple[Document, str]:
    """Return the filter of a query, and the index by which one of an instance reads the events of no other."""
    check_texts(instance_id=query.instance_id)
    found: Document = {"relayStatus": query.status.value, "slice": ALL_SLICES}
    if query.instance_id is None:
        return found, "relay_order"
    found["processInstanceId"] = query.instance_id
    if query.status in _STALLED:
        return {**found, "stalled": True}, "stalled"
    return found, "instance_order"


def _slice_state(row: Document, lag_s: float, now: datetime, sealing: Sealing | None) -> SliceState:
    is_paused = row["failures"] > 0 and "owner" not in row and row["claimableAt"] > now
    return SliceState(
        slice=row["_id"],
        lag_s=lag_s,
        owner=row.get("owner") if row["claimableAt"] > now else None,
        failures=row["failures"],
        paused_until=row["claimableAt"] if is_paused else None,
        delivered_at=row.get("deliveredAt"),
        last_error=find_text(sealing, owner_of_slice(row["_id"]), "lastError", row),
    )


def _after(cursor: str) -> Document:
    try:
        text, _, last_id = cursor.partition("_")
        sequence = parse_sequence(text)
        check_texts(id=last_id)
    except (ValueError, TypeError) as error:
        raise OperationError(
            "the cursor is not one that a page gave; start again without it"
        ) from error
    either = [{"sequence": {"$gt": sequence}}, {"sequence": sequence, "_id": {"$gt": last_id}}]
    return {"sequence": {"$gte": sequence}, "$or": either}
