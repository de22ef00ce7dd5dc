"""Fixtures for tests on a real replica set; ``tests/conftest.py`` offers them to every test."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from pymongo import MongoClient

from kikwiflow_worker.embedded import EmbeddedMongo, find_mongod
from kikwiflow_worker.errors import ConfigurationError

SERVER_VARIABLE = "KIKWIFLOW_TEST_MONGO_URI"


@dataclass(frozen=True, slots=True)
class MongoServer:
    """A replica set that tests may use; ``uri`` names no database."""

    uri: str

    def uri_of(self, database: str) -> str:
        """Return the connection string with a database in it."""
        return urlsplit(self.uri)._replace(path=f"/{database}").geturl()


@pytest.fixture(scope="session")
def mongo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoServer]:
    """Return the server named by ``KIKWIFLOW_TEST_MONGO_URI``, or one of our own with fault injection."""
    given = os.environ.get(SERVER_VARIABLE)
    if given:
        yield MongoServer(given)
        return
    try:
        mongod = find_mongod()
    except ConfigurationError as error:
        pytest.skip(f"{error}; or name a replica set in {SERVER_VARIABLE}")
    directory = tmp_path_factory.mktemp("mongo")
    with EmbeddedMongo.acquire(directory, mongod=mongod, test_commands=True) as server:
        yield MongoServer(server.uri)
    shutil.rmtree(directory)


@pytest.fixture
def database_name(mongo_server: MongoServer) -> Iterator[str]:
    """Return the name of a database of this test alone, dropped afterwards."""
    name = f"kikwi_test_{uuid4().hex[:12]}"

    yield name

    with MongoClient[dict[str, object]](mongo_server.uri) as client:
        # A database goes with its last collection; dropping it as a whole always takes the server 100 ms.
        for collection in client[name].list_collection_names():
            client[name].drop_collection(collection)


@pytest.fixture
def mongo_uri(mongo_server: MongoServer, database_name: str) -> str:
    """Return the connection string of the database of this test."""
    return mongo_server.uri_of(database_name)
