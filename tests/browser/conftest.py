"""One browser for all tests of the dashboard, and the application on a port of loopback."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest_asyncio
from playwright.async_api import Browser
from pymongo.database import Database

from kikwiflow_worker.management.server import ManagementServer
from tests.support.browser import open_browser
from tests.support.management import Managed, manage
from tests.support.mongo import MongoServer
from tests.support.stores import Json, data, prepared_database

__all__ = ["data", "prepared_database"]


@dataclass(frozen=True, slots=True)
class Served:
    """The application with its database, and its address."""

    managed: Managed
    url: str


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Return a browser; it is stopped at the end of the run."""
    async with open_browser() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def served(mongo_server: MongoServer, data: Database[Json]) -> AsyncIterator[Served]:
    """Serve the application over the prepared database, open to everybody."""
    async with manage(mongo_server.uri, data) as managed:
        server = ManagementServer(managed.app, "127.0.0.1:0")
        serving = asyncio.ensure_future(server.serve())
        yield Served(managed, f"http://127.0.0.1:{server.port}")
        server.stop()
        await serving
