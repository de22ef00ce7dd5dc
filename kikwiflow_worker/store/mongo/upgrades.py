"""Brings a database that an older release wrote to the present schema, version by version.

A step is a pure function for each kind of document that the version changed. It returns the document as the version
stores it, and a document that is like that already unchanged: so an interrupted upgrade is begun again and goes on where
it was, and two at once do no harm. The version is noted after the last document of a step.

Workers of the older release should be stopped first: what they write afterwards is not upgraded. Documents that change
while they are upgraded are read again, so that nothing is overwritten.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kikwiflow_worker.store.mongo.collections import (
    COLLECTION_NAMES,
    SCHEMA_VERSION,
    Collections,
    ensure_schema,
    find_schema_version,
    newer_schema,
)
from kikwiflow_worker.store.mongo.driver import Collection, Document, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.inspection import compare_indexes

DocumentUpgrade = Callable[[Document], Document]

_BATCH = 500


@dataclass(frozen=True, slots=True)
class Step:
    """What one schema version changed.

    Attributes:
        version: The version that documents have after it.
        documents: For each collection, by its field in ``Collections``, the function for its documents.
    """

    version: int
    documents: Mapping[str, DocumentUpgrade]


STEPS: tuple[Step, ...] = ()
"""In order, one for each version after the first; a version that changed indexes only has a step without functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """What an upgrade came to.

    Attributes:
        before: The version that was found; None for a database that no release had prepared.
        documents: How many were changed, by stored collection name.
        indexes: Those that were made, or made anew.
    """

    before: int | None
    after: int
    documents: Mapping[str, int]
    indexes: tuple[str, ...]


async def upgrade_schema(
    collections: Collections, *, steps: Sequence[Step] = STEPS, newest: int = SCHEMA_VERSION
) -> Upgraded:
    """Run the steps that are missing, then make the indexes as this release needs them. Can be repeated at any time.

    An index of ours that has other options is dropped and made anew; indexes of others are left alone.

    Raises:
        SchemaMismatchError: A newer release wrote the database, or another index stands in the way of one of ours.
    """
    changed: dict[str, int] = {}
    with translated("upgrading the database"):
        before = await find_schema_version(collections)
        if before is not None and before > newest:
            raise newer_schema(before, newest)
        for step in steps:
            if before is not None and step.version > before:
                for name, upgrade in step.documents.items():
                    count = await _upgrade_all(getattr(collections, name), upgrade)
                    stored = COLLECTION_NAMES[name]
                    changed[stored] = changed.get(stored, 0) + count
                await _note(collections, step.version)
        missing, outdated = await compare_indexes(collections)
        for index in outdated:
            await settled(getattr(collections, index.collection).drop_index(index.name))
    await ensure_schema(collections, newest=newest)
    return Upgraded(
        before=before,
        after=newest,
        documents=changed,
        indexes=tuple(
            f"{COLLECTION_NAMES[index.collection]}.{index.name}" for index in (*missing, *outdated)
        ),
    )


async def _note(collections: Collections, version: int) -> None:
    """Note that a version is reached, unless another upgrade is further already."""
    older = {"_id": "schema", "version": {"$lt": version}}
    await settled(collections.meta.update_one(older, {"$set": {"version": version}}))


async def _upgrade_all(collection: Collection, upgrade: DocumentUpgrade) -> int:
    count = 0
    last: str | None = None
    while True:
        found: Document = {} if last is None else {"_id": {"$gt": last}}
        batch = await collection.find(found).sort("_id", 1).limit(_BATCH).to_list(_BATCH)
        for document in batch:
            count += await _upgrade_one(collection, document, upgrade)
        if len(batch) < _BATCH:
            return count
        last = batch[-1]["_id"]


async def _upgrade_one(
    collection: Collection, document: Document | None, upgrade: DocumentUpgrade
) -> bool:
    """Write the fields that changed, if they still are what the change was computed from; else look again."""
    while document is not None:
        upgraded = upgrade(document)
        names = sorted(
            name
            for name in document.keys() | upgraded.keys()
            if name not in document or name not in upgraded or document[name] != upgraded[name]
        )
        if not names:
            return False
        as_read = {
            name: {"$eq": document[name]} if name in document else {"$exists": False}
            for name in names
        }
        written = await settled(
            collection.update_one({"_id": document["_id"], **as_read}, _update(names, upgraded))
        )
        if written.matched_count:
            return True
        document = await settled(collection.find_one({"_id": document["_id"]}))
    return False


def _update(names: Sequence[str], upgraded: Document) -> Document:
    update: Document = {}
    given = {name: upgraded[name] for name in names if name in upgraded}
    gone = {name: "" for name in names if name not in upgraded}
    if given:
        update["$set"] = given
    if gone:
        update["$unset"] = gone
    return update
