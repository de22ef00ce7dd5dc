"""Stores for the rows of the suite, and asserts that say what differs."""

from collections.abc import AsyncIterator

import pytest
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.store.mongo.in_memory import InMemoryStore
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from kikwiflow_worker.testing import ManualClock
from tests.support.mongo import MongoServer
from tests.support.stores import Json, data, prepared_database

pytest.register_assert_rewrite(
    "tests.conformance.looks", "tests.conformance.steps", "tests.conformance.bench"
)

__all__ = ["data", "prepared_database"]


@pytest.fixture
async def mongo_store(mongo_server: MongoServer, data: Database[Json]) -> AsyncIterator[MongoStore]:
    """Return a store on a real replica set."""
    options = StoreOptions(outbox=OutboxOptions(EventLevel.FULL))
    store = MongoStore.open(mongo_server.uri, data.name, clock=SystemClock(), options=options)
    await store.ping()

    yield store

    await store.close()


@pytest.fixture
def memory_store() -> MongoStore:
    """Return the store of the in-memory harness."""
    return InMemoryStore(ManualClock())
