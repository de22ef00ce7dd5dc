"""Deployed definitions: the source as text, without loss, one document per version."""

from collections.abc import Sequence
from contextlib import suppress
from uuid import NAMESPACE_OID, uuid5

from pymongo import DESCENDING
from pymongo.errors import DuplicateKeyError

from kikwiflow_worker.model.definition import DefinitionFile, ProcessDefinition, parse_definition
from kikwiflow_worker.model.variable_rules import rules_of
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, Session, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.shared_looks import SharedLooks
from kikwiflow_worker.store.mongo.transactions import Transactions
from kikwiflow_worker.store.protocol import Deployment, Startable

MAX_KEPT = 500
"""Versions kept in memory by one process."""


class _VersionTakenError(Exception):
    """Another deploy has stored this version of the key; aborts the transaction."""


class Definitions:
    """The definitions of one database."""

    def __init__(
        self, collections: Collections, transactions: Transactions, server_time: ServerTime
    ) -> None:
        self._definitions = collections.definitions
        self._transactions = transactions
        self._time = server_time
        self._known: dict[str, ProcessDefinition] = {}
        # Starts at the same time share this look; a read apiece would be a fifth of what they cost.
        self._looks = SharedLooks(self._look_up)

    async def put(self, file: DefinitionFile, *, activate: bool) -> Deployment:
        """Store a new version unless it is there; see ``DefinitionStore.put``."""
        (deployment,) = await self.put_all([file], activate=activate)
        return deployment

    async def put_all(
        self, files: Sequence[DefinitionFile], *, activate: bool
    ) -> tuple[Deployment, ...]:
        """Store all files or none; see ``DefinitionStore.put_all``."""

        async def write(session: Session) -> tuple[Deployment, ...]:
            return tuple([await self._put(file, activate, session) for file in files])

        keys = ", ".join(repr(file.key) for file in files)
        while True:
            # Another deploy took a version: look again, it may be the same content.
            with suppress(_VersionTakenError):
                return await self._transactions.run(f"deploying definition {keys}", write)

    async def _put(self, file: DefinitionFile, activate: bool, session: Session) -> Deployment:
        latest = await self._find_one({"key": file.key}, session)
        if latest and latest["checksum"] == file.checksum:
            return Deployment(decode_definition(latest), created=False, is_latest=True)
        if latest and not activate:
            same = await self._find_one({"key": file.key, "checksum": file.checksum}, session)
            if same:
                return Deployment(decode_definition(same), created=False, is_latest=False)
        version = latest["version"] + 1 if latest else 1
        document = self._encode(file, version)
        if latest and latest.get("suspended"):
            document["suspended"] = True
        try:
            await settled(self._definitions.insert_one(document, session=session))
        except DuplicateKeyError:
            raise _VersionTakenError from None
        return Deployment(decode_definition(document), created=True, is_latest=True)

    async def find(self, definition_id: str) -> ProcessDefinition | None:
        """Return one version by its id; kept in memory, since a version never changes."""
        if definition_id not in self._known:
            with translated(f"loading definition {definition_id}"):
                document = await self._find_one({"_id": definition_id})
            if document is None:
                return None
            if len(self._known) >= MAX_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[definition_id] = decode_definition(document)
        return self._known[definition_id]

    async def find_by_key(
        self, key: str, *, version: int | None = None
    ) -> ProcessDefinition | None:
        """Return the given version, or the latest."""
        found = await self.find_to_start(key, version=version)
        return found.definition if found else None

    async def find_to_start(self, key: str, *, version: int | None = None) -> Startable | None:
        """Return the given version, or the latest, with its mark; see ``DefinitionStore.find_to_start``."""
        return await self._looks.see((key, version))

    async def _look_up(self, wanted: tuple[str, int | None]) -> Startable | None:
        key, version = wanted
        found: Document = {"key": key} if version is None else {"key": key, "version": version}
        with translated(f"looking up definition {key!r}"):
            row = await settled(
                self._definitions.find_one(
                    found, {"_id": 1, "suspended": 1}, sort=[("version", DESCENDING)]
                )
            )
        definition = await self.find(row["_id"]) if row else None
        return Startable(definition, row.get("suspended", False)) if definition else None

    async def suspend(self, key: str, *, suspended: bool) -> int:
        """Mark all versions of a key."""
        change = {"$set": {"suspended": True}} if suspended else {"$unset": {"suspended": ""}}
        with translated(f"suspending definition {key!r}"):
            result = await settled(self._definitions.update_many({"key": key}, change))
        return int(result.matched_count)

    async def _find_one(self, found: Document, session: Session = None) -> Document | None:
        newest_first = [("version", DESCENDING)]
        document: Document | None = await settled(
            self._definitions.find_one(found, sort=newest_first, session=session)
        )
        return document

    def _encode(self, file: DefinitionFile, version: int) -> Document:
        return {
            "_id": str(uuid5(NAMESPACE_OID, f"{file.key}\n{version}\n{file.checksum}")),
            "key": file.key,
            "version": version,
            "checksum": file.checksum,
            "name": file.name,
            "description": file.description,
            "deployedAt": self._time.now(),
            "source": file.source,
            **_ruled(file),
        }


def _ruled(file: DefinitionFile) -> Document:
    names = sorted(rules_of(file))
    return {"ruledVariables": names} if names else {}


def decode_definition(document: Document) -> ProcessDefinition:
    """Return the deployed version of a document.

    Raises:
        DefinitionError: Its source cannot be read.
    """
    file = parse_definition(
        document["source"], name=f"{document['key']} version {document['version']}"
    ).file
    return file.deployed(definition_id=document["_id"], version=document["version"])
