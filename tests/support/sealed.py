"""A store that encrypts every value of a variable, and every text that may quote one; import its fixtures into a test module."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from kikwiflow_worker.client import Handlers, Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.operations.execution import execute_task
from kikwiflow_worker.store.keys import KeyRing
from kikwiflow_worker.store.mongo.driver import Client
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from tests.support.mongo import MongoServer
from tests.support.stores import Json, claim_next

KEY, OLD_KEY = bytes(range(32)), bytes(range(1, 33))
RING = KeyRing({"2026-11": KEY, "2026-05": OLD_KEY}, current="2026-11")
OLD_RING = KeyRing({"2026-05": OLD_KEY}, current="2026-05")
MARKER = "MARKER-7f3a"
"""A value that must not be found in what is stored."""


def store_with(client: Client, data: Database[Json], keys: KeyRing | None) -> MongoStore:
    """Return a store on the database of ``data`` that has these keys."""
    options = StoreOptions(retention=timedelta(days=1), keys=keys)
    return MongoStore.over(client, data.name, clock=SystemClock(), options=options)


@asynccontextmanager
async def running(store: MongoStore, *, handlers: Handlers = ()) -> AsyncIterator[Kikwiflow]:
    """Give a client of the store."""
    await store.ping()
    kikwiflow = Kikwiflow(store, handlers=handlers)
    try:
        yield kikwiflow
    finally:
        kikwiflow.close()


async def work(store: MongoStore, kikwiflow: Kikwiflow) -> None:
    """Do what is due, as a worker with the client's handlers would."""
    invoker = kikwiflow.new_invoker()
    while due := await claim_next(store, invoker.capabilities):
        await execute_task(kikwiflow.services, invoker, due, store.runtime.commit)


def stored_bytes(data: Database[Json]) -> str:
    """Return all that is stored, as text in which a plain value could be found."""
    return "\n".join(repr(list(data[name].find())) for name in data.list_collection_names())


@pytest.fixture(autouse=True)
def no_noted_keys(data: Database[Json]) -> Iterator[None]:
    """Forget the keys that a test notes: the others share the database, whose meta is kept."""
    yield
    data.meta.delete_many({"_id": {"$in": ["encryption", "reencryption"]}})


@pytest.fixture
async def client(mongo_server: MongoServer) -> AsyncIterator[Client]:
    """Return an application's own client."""
    opened: Client = AsyncMongoClient(mongo_server.uri)
    yield opened
    await opened.close()


@pytest.fixture
async def store(client: Client, data: Database[Json]) -> MongoStore:
    """Return a store that encrypts."""
    opened = store_with(client, data, RING)
    await opened.ping()
    return opened
