"""Real worker processes, a real client and a look behind their back, on one database per test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.store.mongo.driver import CODEC_OPTIONS, MAJORITY_READ
from tests.support.mongo import MongoServer
from tests.support.workers import Json, handler_packages, site, workers

__all__ = ["handler_packages", "site", "workers"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder, and give it the time that processes need."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.acceptance)
            item.add_marker(pytest.mark.mongo)
            item.add_marker(pytest.mark.timeout(120))


@pytest.fixture
async def client(mongo_server: MongoServer, database_name: str) -> AsyncIterator[Kikwiflow]:
    """Return a client that has no handlers: all work is left to the workers."""
    async with Kikwiflow.connect(mongo_server.uri, database=database_name) as connected:
        yield connected


@pytest.fixture
def stored(mongo_server: MongoServer, database_name: str) -> Iterator[Database[Json]]:
    """Return the database itself, to look behind the workers' back."""
    with MongoClient[Json](mongo_server.uri) as opened:
        # Majority reads, as the client's: what is seen here, the client sees too.
        yield opened.get_database(
            database_name, codec_options=CODEC_OPTIONS, read_concern=MAJORITY_READ
        )


@pytest.fixture
def short_transactions(stored: Database[Json]) -> Iterator[None]:
    """Let the server abort after 2 s what a killed worker was just committing.

    Until then nobody can take over those rows; all others are not concerned.
    """
    name = "transactionLifetimeLimitSeconds"
    admin = stored.client.admin
    before = admin.command({"getParameter": 1, name: 1})[name]
    admin.command("setParameter", 1, **{name: 2})
    yield
    admin.command("setParameter", 1, **{name: before})
