"""What all searches share: definitions by name, pages of rows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

from kikwiflow_worker.store.mongo.codec import decode_incident, decode_instance, decode_row
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import BY_ID, Collection, Document, fetched
from kikwiflow_worker.store.mongo.keyset import Order, decode_cursor, encode_cursor
from kikwiflow_worker.store.mongo.places import MAX_LOOKS, NODE_WAY, find_places
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.ways import Condition, Wanted, Way, among, choose, one_of
from kikwiflow_worker.store.mongo.windows import MAX_TIME_MS, Look, Window, every, read_page
from kikwiflow_worker.store.search import EXAMINED_PER_ROW
from kikwiflow_worker.store.views import Page

T = TypeVar("T")

MAX_PAGE = 100

Place: TypeAlias = tuple[tuple[str, ...] | None, str | None]
"""The versions, and the node, that are asked for; None where they do not matter."""

NOWHERE: Place = (None, None)


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways into a collection: those that find few rows, and those for when nothing better is known.

    Between them comes the one by version and node. The last one always leads.
    """

    strong: tuple[Way, ...]
    weak: tuple[Way, ...]


class Placed(Protocol):
    """A query that asks for versions and a node."""

    @property
    def definition_ids(self) -> tuple[str, ...]:
        """The versions; empty for all."""
        ...

    @property
    def definition_keys(self) -> tuple[str, ...]:
        """Their keys; empty for all."""
        ...

    @property
    def node_id(self) -> str | None:
        """The node; None for all."""
        ...


class SearchBase:
    """One database, and what people look for in it."""

    def __init__(self, collections: Collections, server_time: ServerTime) -> None:
        self._collections = collections
        self._time = server_time
        self._instance = partial(decode_instance, sealing=collections.sealing)
        self._row = partial(decode_row, sealing=collections.sealing)
        self._incident = partial(decode_incident, sealing=collections.sealing)

    async def _place(self, query: Placed) -> Place:
        return await self._versions(query.definition_ids, query.definition_keys), query.node_id

    async def _versions(self, ids: Sequence[str], keys: Sequence[str]) -> tuple[str, ...] | None:
        """Return the ids of the versions that are asked for; None if they do not matter."""
        if not keys:
            return tuple(ids) or None
        wanted = {name: condition.wanted for name, condition in among(key=keys, _id=ids).items()}
        rows = self._collections.definitions.find(wanted, {"_id": 1}, max_time_ms=MAX_TIME_MS)
        return tuple(row["_id"] for row in await rows.to_list(None))

    async def _keys_of(self, ids: Iterable[str]) -> tuple[str, ...]:
        wanted = {name: condition.wanted for name, condition in among(_id=ids).items()}
        rows = self._collections.definitions.find(wanted, {"key": 1}, max_time_ms=MAX_TIME_MS)
        return tuple(sorted({row["key"] for row in await rows.to_list(None)}))

    async def _looks(
        self, collection: Collection, order: Order, ways: "Ways", wanted: Wanted, place: Place
    ) -> tuple[Look, ...]:
        """Return the looks that find rows of some versions and at a node, if they are given."""
        versions, node_id = place
        if versions == ():
            return ()
        everything = wanted.also(place_conditions(place))
        for way in ways.strong:
            if way.leads_to(everything):
                return (way.look(collection, order, everything),)
        if place != NOWHERE:
            places = (await find_places(collection, versions, node_id)).conditions()
            if len(places) <= MAX_LOOKS:
                return tuple(NODE_WAY.look(collection, order, wanted.also(each)) for each in places)
        return (choose(ways.weak, everything).look(collection, order, everything),)

    async def _page(
        self,
        looks: Sequence[Look],
        decode: Callable[[Document], T],
        limit: int,
        cursor: str | None,
    ) -> Page[T]:
        limit = max(1, min(limit, MAX_PAGE))
        after = decode_cursor(cursor) if cursor else None
        window = await read_page(looks, after=after, limit=limit, budget=limit * EXAMINED_PER_ROW)
        return page_of(window, tuple(map(decode, window.rows)))

    async def _page_behind(
        self, looks: Sequence[Look], behind: "Behind[T]", limit: int, cursor: str | None
    ) -> Page[T]:
        """Return a page of documents that rows name, in the order of the rows; each once on a page."""
        limit = max(1, min(limit, MAX_PAGE))
        after = decode_cursor(cursor) if cursor else None
        # Each row of the page may cost half as many rows that name one, and as many documents that are named.
        most = limit * (EXAMINED_PER_ROW // 2) if behind.found else limit
        window = await read_page(looks, after=after, limit=most, budget=most)
        ids = list(dict.fromkeys(row[behind.named_by] for row in window.rows))
        wanted = every({"_id": {"$in": ids}}, behind.found)
        documents = behind.collection.find(wanted, max_time_ms=MAX_TIME_MS, hint=BY_ID)
        there = {document["_id"]: document for document in await fetched(documents, most)}
        shown: dict[str, T] = {}
        for row in window.rows:
            name = row[behind.named_by]
            if name in there and name not in shown:
                shown[name] = behind.decode(there[name])
            if len(shown) == limit:
                return page_of(Window((), looks[0].order.position_of(row)), tuple(shown.values()))
        return page_of(window, tuple(shown.values()))


@dataclass(frozen=True, slots=True)
class Behind(Generic[T]):
    """The documents that rows name.

    Attributes:
        named_by: The field of a row that holds the document's id.
        found: What the documents must be.
    """

    named_by: str
    collection: Collection
    found: Document
    decode: Callable[[Document], T]


def page_of(window: Window, items: tuple[T, ...]) -> Page[T]:
    """Return a page that goes on where ``window`` ended."""
    return Page(items, encode_cursor(window.reached) if window.reached else None)


def place_conditions(place: Place) -> dict[str, Condition]:
    """Return the conditions to be there."""
    versions, node_id = place
    conditions: dict[str, Condition] = {}
    if versions:
        conditions["processDefinitionId"] = one_of(versions)
    if node_id is not None:
        conditions["taskDefinitionId"] = Condition(node_id)
    return conditions
