"""The management application behind a real socket on loopback, in a thread of the test's process."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Queue

from pymongo import AsyncMongoClient

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.management.app import BASE_PATH, create_app
from kikwiflow_worker.management.authentication import OpenAuthenticator
from kikwiflow_worker.management.backend import Backend
from kikwiflow_worker.management.server import ManagementServer
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from tests.support.workers import PATIENCE_S


@dataclass(frozen=True, slots=True)
class RunningManagement:
    """Where it answers."""

    port: int

    @property
    def url(self) -> str:
        """The root of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> str:
        """The root of the API."""
        return self.url + BASE_PATH


@contextmanager
def running_management(
    uri: str, database: str, *, options: StoreOptions | None = None
) -> Iterator[RunningManagement]:
    """Serve a prepared database until the block ends."""
    started: Queue[tuple[asyncio.AbstractEventLoop, ManagementServer]] = Queue()
    thread = threading.Thread(
        target=lambda: asyncio.run(_serve(uri, database, options, started)), name="management"
    )
    thread.start()
    loop, server = started.get(timeout=PATIENCE_S)
    try:
        yield RunningManagement(server.port)
    finally:
        loop.call_soon_threadsafe(server.stop)
        thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the server did not stop"


async def _serve(
    uri: str,
    database: str,
    options: StoreOptions | None,
    started: "Queue[tuple[asyncio.AbstractEventLoop, ManagementServer]]",
) -> None:
    client: AsyncMongoClient[dict[str, object]] = AsyncMongoClient(uri)
    store = MongoStore.over(client, database, clock=SystemClock(), options=options)
    await store.ping()
    kikwiflow = Kikwiflow(store)
    backend = Backend(
        kikwiflow.services,
        kikwiflow.new_invoker,
        OpenAuthenticator(),
        kikwiflow.access,
        store.answers,
    )
    server = ManagementServer(create_app(backend), "127.0.0.1:0")
    started.put((asyncio.get_running_loop(), server))
    try:
        await server.serve()
    finally:
        kikwiflow.close()
        await client.close()
