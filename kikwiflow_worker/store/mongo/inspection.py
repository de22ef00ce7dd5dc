"""Looks at a database without changing it: schema version, indexes, documents that cannot be read, rows left behind.

Workers may run meanwhile. What looks left behind is looked at a second time, since a commit may lie between two reads.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kikwiflow_worker.errors import KikwiflowError
from kikwiflow_worker.model.runtime import IncidentStatus
from kikwiflow_worker.store.mongo.codec import (
    decode_external_task,
    decode_incident,
    decode_instance,
    decode_message,
    decode_task,
)
from kikwiflow_worker.store.mongo.collections import (
    COLLECTION_NAMES,
    INDEXES,
    Collections,
    Index,
    find_schema_version,
)
from kikwiflow_worker.store.mongo.definitions import decode_definition
from kikwiflow_worker.store.mongo.driver import Collection, Document, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.reachability_rules import OWNERLESS
from kikwiflow_worker.store.mongo.sealing import Sealing, open_sealed
from kikwiflow_worker.store.mongo.value_places import PLACES, Place

LISTED = 10
"""How many findings of one kind are named; the others are counted."""

_BATCH = 1000
MAX_TIME_MS = 5_000
"""Of one read."""

_OPTIONS = ("unique", "partialFilterExpression", "expireAfterSeconds")


def _decoders(sealing: Sealing | None) -> Mapping[str, Callable[[Document], object]]:
    return {
        "definitions": decode_definition,
        "instances": partial(decode_instance, sealing=sealing),
        "tasks": partial(decode_task, sealing=sealing),
        "external_tasks": decode_external_task,
        "incidents": partial(decode_incident, sealing=sealing),
        "history": partial(decode_instance, sealing=sealing),
        "messages": partial(decode_message, sealing=sealing),
    }


@dataclass(frozen=True, slots=True)
class _Reference:
    """A field that names a document which must be there, in one of the collections ``targets``.

    Attributes:
        only: Which rows must name one, by ``field`` and ``fields``.
    """

    collection: str
    field: str
    targets: tuple[str, ...]
    words: str
    only: Callable[[Document], bool] = lambda _: True
    fields: tuple[str, ...] = ()

    def concerns(self, row: Document) -> bool:
        """Return whether the row must name a document."""
        return row.get(self.field) is not None and self.only(row)


_HOSTS = ("tasks", "external_tasks")


def _is_of_instance(row: Document) -> bool:
    return row.get("type") not in OWNERLESS


_REFERENCES = (
    _Reference(
        "tasks",
        "processInstanceId",
        ("instances",),
        "instance",
        only=_is_of_instance,
        fields=("type",),
    ),
    _Reference("external_tasks", "processInstanceId", ("instances",), "instance"),
    _Reference("tasks", "attachedToRefId", _HOSTS, "host"),
    _Reference("external_tasks", "attachedToRefId", _HOSTS, "host"),
    # A task that cancels children names the call activity that they had.
    _Reference("tasks", "joinTaskId", ("tasks",), "join", only=_is_of_instance, fields=("type",)),
    _Reference("external_tasks", "joinTaskId", ("tasks",), "join"),
    _Reference("external_tasks", "coordinatorTaskId", ("external_tasks",), "group"),
    _Reference(
        "incidents",
        "executionId",
        ("tasks",),
        "task",
        only=lambda row: row.get("status") == IncidentStatus.OPEN.value,
        fields=("status",),
    ),
)


@dataclass(slots=True)
class Findings:
    """Findings of one kind: how many there are, and the first ones in words."""

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, words: str) -> None:
        """Note one."""
        self.count += 1
        if len(self.named) < LISTED:
            self.named.append(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was found in a database.

    Attributes:
        version: Of the schema; None if no release has prepared the database.
        missing_indexes: Indexes of ours that are not there, as ``executable_tasks.claim``.
        changed_indexes: Indexes of ours that have other keys or options.
        examined: How many documents were read, by stored collection name.
        unreadable: Documents that this release cannot read.
        orphans: Rows that name a document which is not there.
        stranded: Running instances that no row carries on.
    """

    version: int | None
    missing_indexes: tuple[str, ...]
    changed_indexes: tuple[str, ...]
    examined: Mapping[str, int]
    unreadable: Findings
    orphans: Findings
    stranded: Findings


async def inspect(collections: Collections, *, sample: int) -> Inspection:
    """Look at everything, at most ``sample`` documents of each collection; changes nothing.

    Ids are as good as random, so the first ones by id are a fair sample.
    """
    with translated("inspecting the database"):
        version = await find_schema_version(collections)
        missing, changed = await compare_indexes(collections)
        examined: dict[str, int] = {}
        unreadable, orphans, stranded = Findings(), Findings(), Findings()
        for name, decode in _decoders(collections.sealing).items():
            examined[COLLECTION_NAMES[name]] = await _read_all(
                collections, name, decode, unreadable, sample
            )
        for reference in _REFERENCES:
            await _find_orphans(collections, reference, orphans, sample)
        await _find_stranded(collections, stranded, sample)
    return Inspection(
        version=version,
        missing_indexes=tuple(f"{COLLECTION_NAMES[each.collection]}.{each.name}" for each in missing),
        changed_indexes=tuple(f"{COLLECTION_NAMES[each.collection]}.{each.name}" for each in changed),
        examined=examined,
        unreadable=unreadable,
        orphans=orphans,
        stranded=stranded,
    )  # fmt: skip


async def compare_indexes(collections: Collections) -> tuple[list[Index], list[Index]]:
    """Return the indexes of ours that are missing, and those that have other keys or options."""
    missing, changed = [], []
    for name in COLLECTION_NAMES:
        wanted = [index for index in INDEXES if index.collection == name]
        found = await settled(getattr(collections, name).index_information()) if wanted else {}
        missing += [index for index in wanted if index.name not in found]
        changed += [
            index
            for index in wanted
            if index.name in found and not _is_as_wanted(index, found[index.name])
        ]
    return missing, changed


def _is_as_wanted(index: Index, found: Mapping[str, Any]) -> bool:
    keys = [(name, int(direction)) for name, direction in found["key"]]
    return keys == list(index.keys) and all(
        found.get(option) == index.options.get(option) for option in _OPTIONS
    )


async def _read_all(
    collections: Collections,
    name: str,
    decode: Callable[[Document], object],
    unreadable: Findings,
    sample: int,
) -> int:
    examined = 0
    collection: Collection = getattr(collections, name)
    places_in = PLACES.get(name, _no_places)
    async for batch in batches(collection, {}, None, sample):
        for document in batch:
            examined += 1
            try:
                decode(document)
                # Decoding puts off what cannot be decrypted until somebody asks for it.
                for place in places_in(document):
                    open_sealed(collections.sealing, place.owner, place.name, place.stored)
            except (KikwiflowError, KeyError, TypeError, ValueError, AttributeError) as error:
                reason = f"{type(error).__name__}: {error}"
                unreadable.add(f"{collection.name} {document['_id']}: {reason}")
    return examined


def _no_places(_: Document) -> Iterator[Place]:
    return iter(())


async def _find_orphans(
    collections: Collections, reference: _Reference, orphans: Findings, sample: int
) -> None:
    rows: Collection = getattr(collections, reference.collection)
    targets: list[Collection] = [getattr(collections, name) for name in reference.targets]
    fields = dict.fromkeys((reference.field, *reference.fields), 1)
    async for batch in batches(rows, {}, fields, sample):
        named = {row["_id"]: row[reference.field] for row in batch if reference.concerns(row)}
        there = await _existing(targets, named.values())
        suspects = [row_id for row_id, target in named.items() if target not in there]
        # A row that is still there, and was there before its target was looked for, has lost it.
        still = rows.find({"_id": {"$in": suspects}}, fields).max_time_ms(MAX_TIME_MS)
        for row in filter(reference.concerns, await still.to_list(None) if suspects else []):
            target = named[row["_id"]]
            orphans.add(f"{rows.name} {row['_id']}: its {reference.words} {target} is not there")


async def _find_stranded(collections: Collections, stranded: Findings, sample: int) -> None:
    rows = [collections.tasks, collections.external_tasks]
    async for batch in batches(collections.instances, {}, {"_id": 1}, sample):
        suspects = [document["_id"] for document in batch]
        # A path may move from one collection to the other between two reads, hardly twice.
        for _ in range(2):
            suspects = await _without_rows(rows, suspects)
        still = collections.instances.find({"_id": {"$in": suspects}}, {"_id": 1})
        for document in await still.max_time_ms(MAX_TIME_MS).to_list(None) if suspects else []:
            stranded.add(f"{collections.instances.name} {document['_id']}: no row carries it on")


async def _without_rows(rows: Sequence[Collection], instance_ids: list[str]) -> list[str]:
    carried: set[object] = set()
    for collection in rows:
        found = {"processInstanceId": {"$in": instance_ids}}
        carried.update(await settled(collection.distinct("processInstanceId", found)))
    return [instance_id for instance_id in instance_ids if instance_id not in carried]


async def _existing(targets: Sequence[Collection], ids: Iterable[object]) -> set[object]:
    wanted = {"_id": {"$in": list(set(ids))}}
    there: set[object] = set()
    for collection in targets:
        found = collection.find(wanted, {"_id": 1}).max_time_ms(MAX_TIME_MS)
        there.update(row["_id"] for row in await found.to_list(None))
    return there


async def batches(
    collection: Collection,
    only: Mapping[str, Any],
    fields: Document | None = None,
    sample: int | None = None,
) -> AsyncIterator[list[Document]]:
    """Yield documents by id, all of them or the first ``sample``, in batches that each are one bounded query."""
    last: str | None = None
    left = sample
    while left is None or left > 0:
        found = dict(only) if last is None else {**only, "_id": {"$gt": last}}
        cursor = collection.find(found, fields).sort("_id", 1).max_time_ms(MAX_TIME_MS)
        size = _BATCH if left is None else min(left, _BATCH)
        batch = await cursor.limit(size).to_list(size)
        if batch:
            yield batch
        if len(batch) < size:
            return
        left = None if left is None else left - size
        last = batch[-1]["_id"]
