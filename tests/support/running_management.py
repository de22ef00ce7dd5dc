"""The management application behind a real socket on loopback, in a thread of the test's process."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pymongo import AsyncMongoClient

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.management.app import BASE_PATH, create_app
from kikwiflow_worker.management.authentication import OpenAuthenticator
from kikwiflow_worker.management.backend import Backend
from kikwiflow_worker.management.server import ManagementServer, until_stopped
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
    """Serve a database that is prepared until the block ends."""
    ready = threading.Event()
    running = _Running()
    thread = threading.Thread(
        target=lambda: asyncio.run(_serve(uri, database, options, running, ready)),
        name="management",
    )
    thread.start()
    try:
        assert ready.wait(PATIENCE_S), "the server did not start"
        yield RunningManagement(running.port)
    finally:
        running.stop()
        thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the server did not stop"


@dataclass(slots=True)
class _Running:
    port: int = 0
    loop: asyncio.AbstractEventLoop | None = None
    stopped: asyncio.Event | None = None

    def stop(self) -> None:
        if self.loop is not None and self.stopped is not None:
            self.loop.call_soon_threadsafe(self.stopped.set)


async def _serve(
    uri: str,
    database: str,
    options: StoreOptions | None,
    running: _Running,
    ready: threading.Event,
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
        kikwiflow.answers,
    )
    server = ManagementServer(create_app(backend), "127.0.0.1:0")
    running.port, running.loop, running.stopped = (
        server.port,
        asyncio.get_running_loop(),
        asyncio.Event(),
    )
    ready.set()
    try:
        await until_stopped(server, running.stopped)
    finally:
        kikwiflow.close()
        await client.close()
