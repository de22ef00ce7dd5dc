"""Brings all that is sealed to the present key: after encryption was switched on or off, or a key rotated.

Workers may run meanwhile. A value is replaced only where it still is what was read, so a newer one is never overwritten:
it is looked at again. Where an interrupted run had come to is noted, and the next run with the same key goes on there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo import UpdateOne

from kikwiflow_worker.errors import ConfigurationError, EncryptionError
from kikwiflow_worker.store.keys import PLAIN
from kikwiflow_worker.store.mongo.collections import COLLECTION_NAMES, Collections
from kikwiflow_worker.store.mongo.driver import Collection, Document, fetched, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.key_checks import keep_only
from kikwiflow_worker.store.mongo.sealing import Sealing, key_of, open_sealed
from kikwiflow_worker.store.mongo.value_places import PLACES, Place

_POSITION = "reencryption"


@dataclass(slots=True, kw_only=True)
class Reencrypted:
    """What a run came to, so far.

    Attributes:
        collection: The stored name of the one that was last looked at.
        examined: Documents looked at.
        changed: Values that were rewritten.
        unreadable: Values left as they are, since their key is not here; ``unreadable_keys`` names those.
    """

    collection: str = ""
    examined: int = 0
    changed: int = 0
    unreadable: int = 0
    unreadable_keys: set[str] = field(default_factory=set)


async def reencrypt(
    collections: Collections, *, batch: int, progressed: Callable[[Reencrypted], None]
) -> Reencrypted:
    """Rewrite all values that are not as the present key would have them.

    Args:
        batch: Documents that are read at a time, and between two notes of the position.
        progressed: Is told after each batch.

    Raises:
        ConfigurationError: There are no keys.
    """
    sealing = collections.sealing
    if sealing is None:
        raise ConfigurationError(
            "no encryption keys are given; give --encryption-key-file, with the line 'plain' first to store values plain"
        )
    run = _Run(collections, sealing, progressed)
    with translated("encrypting stored values anew"):
        await run.go(batch)
    return run.done


class _Run:
    def __init__(
        self,
        collections: Collections,
        sealing: Sealing,
        progressed: Callable[[Reencrypted], None],
    ) -> None:
        self._collections = collections
        self._sealing = sealing
        self._progressed = progressed
        self.done = Reencrypted()

    async def go(self, batch: int) -> None:
        target = self._sealing.current or PLAIN
        begun = await self._find_position(target)
        names = list(PLACES)
        for name in names[names.index(begun["collection"]) :] if begun else names:
            after = begun["after"] if begun and begun["collection"] == name else None
            await self._go_through(name, after, target, batch)
        await settled(self._collections.meta.delete_one({"_id": _POSITION}))
        current = {self._sealing.current} if self._sealing.current else set()
        await keep_only(self._collections, frozenset(current | self.done.unreadable_keys))

    async def _find_position(self, target: str) -> Document | None:
        found = {"_id": _POSITION, "target": target}
        position: Document | None = await settled(self._collections.meta.find_one(found))
        return position

    async def _go_through(self, name: str, after: Any, target: str, batch: int) -> None:
        collection: Collection = getattr(self._collections, name)
        self.done.collection = COLLECTION_NAMES[name]
        while True:
            found: Document = {} if after is None else {"_id": {"$gt": after}}
            documents = await fetched(collection.find(found).sort("_id", 1), batch)
            if not documents:
                return
            await self._rewrite(collection, PLACES[name], documents)
            after = documents[-1]["_id"]
            note = {"target": target, "collection": name, "after": after}
            await settled(
                self._collections.meta.update_one({"_id": _POSITION}, {"$set": note}, upsert=True)
            )
            self._progressed(self.done)

    async def _rewrite(
        self,
        collection: Collection,
        places_in: Callable[[Document], Iterator[Place]],
        documents: Sequence[Document],
    ) -> None:
        """Rewrite the values of a batch; those that changed meanwhile are looked at again."""
        self.done.examined += len(documents)
        ids = [document["_id"] for document in documents]
        left: set[tuple[str, str]] = set()
        while True:
            writes = [
                UpdateOne({"_id": place.document_id, place.within: {"$eq": place.as_read}}, update)
                for document in documents
                for place in places_in(document)
                if (update := self._update(place, left)) is not None
            ]
            if not writes:
                break
            written = await settled(collection.bulk_write(writes, ordered=False))
            self.done.changed += written.matched_count
            if written.matched_count == len(writes):
                break
            documents = await fetched(collection.find({"_id": {"$in": ids}}), len(ids))
        self.done.unreadable += len(left)

    def _update(self, place: Place, left: set[tuple[str, str]]) -> Document | None:
        """Return the update of one value; None if it is as it should be, or cannot be read and is left."""
        if self._sealing.is_current(place.stored):
            return None
        try:
            plain = open_sealed(self._sealing, place.owner, place.name, place.stored)
        except EncryptionError:
            left.add((place.owner, place.path))
            self.done.unreadable_keys.add(key_of(place.stored))
            return None
        return {"$set": {place.path: self._sealing.seal(place.owner, place.name, plain)}}
