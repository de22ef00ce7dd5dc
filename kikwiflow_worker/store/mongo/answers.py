"""Remembered answers: one document for each key, made before its request is carried out."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from pymongo.errors import DuplicateKeyError

from kikwiflow_worker.store.answers import (
    REMEMBERED,
    Answer,
    InProgress,
    OfAnotherRequest,
    Reservation,
    Reserved,
)
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.sealing import Sealing, open_sealed
from kikwiflow_worker.store.mongo.server_time import ServerTime

LARGEST_REMEMBERED = 12 * 1024 * 1024
"""Bytes of an answer; of a larger one only its status is repeated, since a document of MongoDB may have 16 MB."""

BODY = "body"
_MAX_TIME_MS = 5_000


class Answers:
    """The answers of one database."""

    def __init__(self, collections: Collections, server_time: ServerTime) -> None:
        self._answers = collections.answers
        self._sealing = collections.sealing
        self._time = server_time

    async def reserve(self, key: str, *, fingerprint: str, hold: timedelta) -> Reservation:
        """Reserve a key; see ``AnswerStore.reserve``."""
        token = str(uuid4())
        now = self._time.now()
        fields = {"token": token, "heldUntil": now + hold}
        document = {
            "_id": key,
            "fingerprint": fingerprint,
            "expiresAt": now + REMEMBERED,
            **fields,
        }
        with translated("reserving an idempotency key"):
            try:
                await settled(self._answers.insert_one(document))
            except DuplicateKeyError:
                return await self._take_over(key, fingerprint, fields)
        return Reserved(token)

    async def _take_over(self, key: str, fingerprint: str, fields: Document) -> Reservation:
        """Return what the key is used for; take it if its holder has died, in one step with the look at it."""
        lapsed = {
            "_id": key,
            "fingerprint": fingerprint,
            "status": {"$exists": False},
            "heldUntil": {"$lte": self._time.now()},
        }
        taken = await settled(self._answers.update_one(lapsed, {"$set": fields}))
        if taken.matched_count:
            return Reserved(fields["token"])
        found = await settled(self._answers.find_one({"_id": key}, max_time_ms=_MAX_TIME_MS))
        if found is None:
            return InProgress()  # released this instant: the repeat is told to come again
        if found["fingerprint"] != fingerprint:
            return OfAnotherRequest()
        return decode_answer(found, self._sealing) if "status" in found else InProgress()

    async def record(self, key: str, *, token: str, answer: Answer) -> None:
        """Remember an answer; see ``AnswerStore.record``."""
        is_kept = len(answer.body) <= LARGEST_REMEMBERED
        fields = {
            "status": answer.status,
            "headers": dict(answer.headers) if is_kept else {},
            "body": self._sealed(key, answer.body) if is_kept else b"",
        }
        with translated("remembering an answer"):
            await settled(self._answers.update_one({"_id": key, "token": token}, {"$set": fields}))

    def _sealed(self, key: str, body: bytes) -> Any:
        return self._sealing.seal(key, BODY, body) if self._sealing else body

    async def release(self, key: str, *, token: str) -> None:
        """Forget a reservation; see ``AnswerStore.release``."""
        with translated("releasing an idempotency key"):
            await settled(
                self._answers.delete_one({"_id": key, "token": token, "status": {"$exists": False}})
            )


def decode_answer(document: Document, sealing: Sealing | None = None) -> Answer:
    """Return the answer of a document that holds one."""
    body = open_sealed(sealing, document["_id"], BODY, document["body"])
    return Answer(status=document["status"], headers=document["headers"], body=bytes(body))
