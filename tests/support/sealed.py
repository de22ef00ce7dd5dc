"""A store that encrypts every value of a variable; import the fixtures ``client`` and ``store`` into a test module."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.store.keys import KeyRing
from kikwiflow_worker.store.mongo.driver import Client
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from tests.support.mongo import MongoServer
from tests.support.stores import Json

KEY, OLD_KEY = bytes(range(32)), bytes(range(1, 33))
RING = KeyRing({"2026-11": KEY, "2026-05": OLD_KEY}, current="2026-11")
OLD_RING = KeyRing({"2026-05": OLD_KEY}, current="2026-05")


def store_with(client: Client, data: Database[Json], keys: KeyRing | None) -> MongoStore:
    """Return a store on the database of ``data`` that has these keys."""
    options = StoreOptions(retention=timedelta(days=1), keys=keys)
    return MongoStore.over(client, data.name, clock=SystemClock(), options=options)


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
