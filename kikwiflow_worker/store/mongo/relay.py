"""Rounds of the relay: claiming a slice with what is to be sent, and recording what came of it (ADR 0027).

Every change of an event that waits is made in a transaction that also writes the document of its slice: so a relay that lost
its slice changes nothing, and what a person changes is never decided on beside it (protocol R1).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, Session, fetched, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.outbox import Outbox
from kikwiflow_worker.store.mongo.relay_documents import (
    BLOCKING,
    HELD,
    UNHELD,
    decode_event,
    held_of,
    owner_of_slice,
)
from kikwiflow_worker.store.mongo.sealing import seal_text
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.transactions import Transactions
from kikwiflow_worker.store.relay import (
    ClaimedSlice,
    FailedEvent,
    RelayStatus,
    Round,
    StoredEvent,
)

_RETRIES_SHARE = 4
"""One of so many places of a round may be taken by events that failed before."""

_CLAIMABLE = {"$expr": {"$lte": ["$claimableAt", "$$NOW"]}}


class MongoRelay:
    """The outbox of one database, for relays; the contract is that of ``RelayStore``."""

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
        self._outbox = outbox
        self._transactions = transactions
        self._time = server_time

    def now(self) -> datetime:
        """Return the database's time as known here."""
        return self._time.now()

    async def find_ready(self, sink: str) -> tuple[int, ...]:
        """Return the slices that have something to send to ``sink`` now, in no order."""
        some = {"$gte": 0}
        with translated("looking for events to relay"):
            fresh = {"relayStatus": RelayStatus.PENDING.value, "slice": some}
            due = {"slice": some, "retryAt": {"$lte": self._time.now()}}
            ready = {
                *await settled(self._events.distinct("slice", fresh)),
                *await settled(self._events.distinct("slice", due)),
            }
            if not ready:
                return ()
            free = {"_id": {"$in": sorted(ready)}, "sink": sink, **_CLAIMABLE}
            rows = await self._slices.find(free, {"_id": 1}).to_list(None)
        return tuple(row["_id"] for row in rows)

    async def claim(
        self, slice_number: int, *, sink: str, owner: str, lock: timedelta, limit: int
    ) -> ClaimedSlice | None:
        """Claim a slice with at most ``limit`` events to send; see ``RelayStore.claim``."""

        async def take(session: Session) -> ClaimedSlice | None:
            ends = {"$add": ["$$NOW", round(lock.total_seconds() * 1000)]}
            taken = {
                "owner": {"$literal": owner},
                "claimableAt": ends,
                "epoch": {"$add": ["$epoch", 1]},
            }
            row = await settled(
                self._slices.find_one_and_update(
                    {"_id": slice_number, "sink": sink, **_CLAIMABLE},
                    [{"$set": taken}],
                    return_document=True,
                    session=session,
                )
            )
            if row is None:
                return None
            now = row["claimableAt"] - lock
            events = await self._take_events(slice_number, now, limit, session)
            return ClaimedSlice(
                slice=slice_number,
                owner=owner,
                epoch=row["epoch"],
                failures=row["failures"],
                delivered_at=row.get("deliveredAt"),
                events=tuple(decode_event(event, self._sealing) for event in events),
            )

        return await self._transactions.run(f"claiming slice {slice_number} of the outbox", take)

    async def _take_events(
        self, slice_number: int, now: datetime, limit: int, session: Session
    ) -> list[Document]:
        """Return what is due again and what is new, without what is behind something; that is held."""
        most = max(1, limit // _RETRIES_SHARE)
        due = await fetched(
            self._events.find(
                {"slice": slice_number, "retryAt": {"$lte": now}}, session=session
            ).sort("retryAt", 1),
            most,
        )
        fresh = await fetched(
            self._events.find(
                {"relayStatus": RelayStatus.PENDING.value, "slice": slice_number}, session=session
            ).sort("sequence", 1),
            max(1, limit - len(due)),
        )
        blocked = await self._find_blocked([one["processInstanceId"] for one in fresh], session)
        behind = [one["_id"] for one in fresh if one["processInstanceId"] in blocked]
        if behind:
            found = {"_id": {"$in": behind}}
            await settled(self._events.update_many(found, HELD, session=session))
        return [*due, *(one for one in fresh if one["processInstanceId"] not in blocked)]

    async def _find_blocked(self, instance_ids: list[str], session: Session) -> set[str]:
        if not instance_ids:
            return set()
        found = {
            "processInstanceId": {"$in": sorted(set(instance_ids))},
            "relayStatus": {"$in": BLOCKING},
            "stalled": True,
        }
        rows = self._events.find(found, {"processInstanceId": 1}, session=session)
        return {row["processInstanceId"] for row in await rows.to_list(None)}

    async def record(self, claimed: ClaimedSlice, result: Round) -> bool:
        """Record a round and give the slice back; see ``RelayStore.record``."""

        async def write(session: Session) -> bool:
            now = self._time.now()
            if not await self._give_back(claimed, result, now, session):
                return False
            await self._record_delivered(result.delivered, now, session)
            for failed in result.failed:
                await self._record_failed(failed, now, session)
            return True

        return await self._transactions.run(
            f"recording a round of slice {claimed.slice} of the outbox", write
        )

    async def _give_back(
        self, claimed: ClaimedSlice, result: Round, now: datetime, session: Session
    ) -> bool:
        free_at = {"$add": ["$$NOW", round(result.pause.total_seconds() * 1000)]}
        changed: Document = {"claimableAt": free_at, "failures": result.failures}
        if result.delivered:
            changed["deliveredAt"] = now
        if result.failures and result.failed:
            owner, error = owner_of_slice(claimed.slice), result.failed[-1].error
            sealed = seal_text(self._sealing, owner, "lastError", error)
            changed["lastError"] = {"$literal": sealed}
        gone = ["owner"] if result.failures else ["owner", "lastError"]
        written = await settled(
            self._slices.update_one(
                {"_id": claimed.slice, "owner": claimed.owner, "epoch": claimed.epoch},
                [{"$set": changed}, {"$unset": gone}],
                session=session,
            )
        )
        return bool(written.matched_count == 1)

    async def _record_delivered(
        self, delivered: Sequence[StoredEvent], now: datetime, session: Session
    ) -> None:
        if not delivered:
            return
        relayed = {
            "$set": {
                "relayStatus": RelayStatus.RELAYED.value,
                "relayedAt": now,
                "expiresAt": now + self._outbox.retention,
            },
            "$unset": {"stalled": "", "retryAt": ""},
        }
        ids = {"_id": {"$in": [one.id for one in delivered]}}
        await settled(self._events.update_many(ids, relayed, session=session))
        freed = sorted({one.instance_id for one in delivered if one.attempts})
        if freed:
            await settled(self._events.update_many(held_of(freed), UNHELD, session=session))

    async def _record_failed(self, failed: FailedEvent, now: datetime, session: Session) -> None:
        is_dead = failed.retry_at is None
        status = RelayStatus.DEAD if is_dead else RelayStatus.RETRYING
        fields: Document = {
            "relayStatus": status.value,
            "stalled": True,
            "attempts": failed.event.attempts + 1,
            "strikes": failed.strikes,
            "failedAt": now,
            "lastError": seal_text(self._sealing, failed.event.id, "lastError", failed.error),
        }
        gone = {"expiresAt": ""}
        if is_dead:
            gone["retryAt"] = ""
        else:
            fields["retryAt"] = failed.retry_at
        update = {"$set": fields, "$unset": gone}
        await settled(self._events.update_one({"_id": failed.event.id}, update, session=session))
