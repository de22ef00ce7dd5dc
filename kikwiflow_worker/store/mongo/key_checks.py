"""Whether a process has the keys that the values in a database are encrypted with.

The database names the keys that any process has ever begun to encrypt with, each with a value sealed by it. So a process
without one of them, or with another key under its name, is refused at its start, before it meets a value it cannot read.
"""

from typing import Any

from kikwiflow_worker.errors import ConfigurationError, EncryptionError
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.sealing import Sealing, open_sealed

_RECORD = "encryption"
_KNOWN = "these are the keys"


async def check_keys(collections: Collections) -> None:
    """Refuse to go on without a key of the database, and note the one that this process encrypts with.

    Raises:
        ConfigurationError: A key is not here, or is another one than the database knows by its name.
    """
    sealing = collections.sealing
    with translated("checking the encryption keys"):
        noted = await _find(collections)
        _check(noted, sealing)
        if sealing is None or sealing.current is None or sealing.current in noted:
            return
        path = f"keys.{sealing.current}"
        known = {path: sealing.seal(_RECORD, sealing.current, _KNOWN)}
        meta = collections.meta
        await settled(
            meta.update_one({"_id": _RECORD}, {"$setOnInsert": {"keys": {}}}, upsert=True)
        )
        await settled(meta.update_one({"_id": _RECORD, path: {"$exists": False}}, {"$set": known}))
        # Another process may have come first, with another key.
        _check(await _find(collections), sealing)


async def keep_only(collections: Collections, key_ids: frozenset[str]) -> None:
    """Forget keys that encrypt nothing any more."""
    gone = {f"keys.{key_id}": "" for key_id in (await _find(collections)).keys() - key_ids}
    if gone:
        await settled(collections.meta.update_one({"_id": _RECORD}, {"$unset": gone}))


async def _find(collections: Collections) -> Document:
    record: Document | None = await settled(collections.meta.find_one({"_id": _RECORD}))
    return dict(record["keys"]) if record else {}


def _check(noted: Document, sealing: Sealing | None) -> None:
    for key_id, known in noted.items():
        _check_one(key_id, known, sealing)


def _check_one(key_id: str, known: Any, sealing: Sealing | None) -> None:
    try:
        open_sealed(sealing, _RECORD, key_id, known)
    except EncryptionError:
        is_there = sealing is not None and key_id in sealing.key_ids
        found = (
            "and the file has another key by that name; restore the one it was"
            if is_there
            else "which is not given here; add it to the file, or name the file"
        )
        raise ConfigurationError(
            f"variables in this database are encrypted with a key named {key_id!r}, {found} (encryption_key_file)"
        ) from None
