"""The application on a port of loopback, and a reader of its server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.management.app import BASE_PATH
from kikwiflow_worker.management.feeds import Feeds
from kikwiflow_worker.management.server import ManagementServer
from kikwiflow_worker.store.mongo.store import StoreOptions
from tests.support.management import Managed, manage
from tests.support.mongo import MongoServer

PATIENCE_S = 10
SPEED = 20


class FastClock(SystemClock):
    """A clock on which time passes twenty times as fast."""

    def monotonic(self) -> float:
        return SPEED * super().monotonic()

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / SPEED)


@dataclass(slots=True)
class Message:
    """One server-sent event."""

    event: str
    id: str
    data: Any


@dataclass(slots=True)
class Reader:
    """A client of one stream."""

    response: httpx.Response
    lines: AsyncIterator[str]

    async def next(self) -> Message | None:
        """Return the next message; None if the stream has ended."""
        async with asyncio.timeout(PATIENCE_S):
            fields: dict[str, str] = {}
            async for line in self.lines:
                if not line and "data" in fields:
                    data = json.loads(fields["data"])
                    return Message(fields["event"], fields["id"], data)
                name, _, value = line.partition(": ")
                fields[name] = value
            return None

    async def until(self, event: str, is_it: Callable[[Any], bool] = lambda _data: True) -> Message:
        """Return the next message of one name whose data it is: a look that a change falls into tells half of it."""
        while message := await self.next():
            if message.event == event and is_it(message.data):
                return message
        raise AssertionError(f"the stream ended without {event!r}")

    async def rest(self) -> list[Message]:
        """Return all messages up to the end."""
        found = []
        while message := await self.next():
            found.append(message)
        return found


@dataclass(slots=True)
class Served:
    """The application on a port of loopback."""

    managed: Managed
    http: httpx.AsyncClient
    feeds: Feeds
    server: ManagementServer
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def follow(self, path: str, **headers: str) -> AsyncIterator[Reader]:
        """Read a stream in the block."""
        async with self.http.stream("GET", f"{path}", headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield Reader(response, response.aiter_lines())

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(0.02)


@asynccontextmanager
async def serve(
    mongo_server: MongoServer, data: Database[dict[str, Any]], options: StoreOptions | None = None
) -> AsyncIterator[Served]:
    """Serve a prepared database in the block; its feeds look twenty times as often as they are told to."""
    async with manage(mongo_server.uri, data, options=options) as managed:
        managed.app.state.feeds = Feeds(FastClock())
        server = ManagementServer(managed.app, "127.0.0.1:0")
        base_url = f"http://127.0.0.1:{server.port}{BASE_PATH}"
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve())
            async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as http:
                yield Served(managed, http, managed.app.state.feeds, server)
            server.stop()
