"""What tests of the relay share: a sink that remembers, and events stored as commits store them."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pymongo import AsyncMongoClient
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.events import EventLevel, EventType, OutboxEvent
from kikwiflow_worker.relay.delivery import DeliveryOptions
from kikwiflow_worker.relay.message import Message
from kikwiflow_worker.relay.relay import Relay, RelayOptions
from kikwiflow_worker.relay.sinks import Sink
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import open_database
from kikwiflow_worker.store.mongo.outbox import Outbox, OutboxOptions
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from kikwiflow_worker.telemetry import Metrics
from tests.support.mongo import MongoServer
from tests.support.stores import Json

SINK = "list"
OPTIONS = OutboxOptions(EventLevel.FULL)


class ListSink:
    """Keeps what it takes, in order; ``refuses`` decides what it does not take, by raising."""

    def __init__(self, refuses: Callable[[Message], Awaitable[None]] | None = None) -> None:
        self.taken: list[Message] = []
        self.refuses = refuses

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def deliver(self, message: Message) -> None:
        """Take it, unless ``refuses`` raises."""
        await asyncio.sleep(0)
        if self.refuses is not None:
            await self.refuses(message)
        self.taken.append(message)

    def of(self, instance_id: str) -> list[str]:
        """Return the ids taken of an instance, each when it came first."""
        return list(dict.fromkeys(m.id for m in self.taken if m.instance_id == instance_id))


class RelayBench:
    """A database with an outbox that is relayed."""

    def __init__(self, uri: str, database: str) -> None:
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri, tz_aware=True)
        self.store = MongoStore.over(
            self.client, database, clock=SystemClock(), options=StoreOptions(outbox=OPTIONS)
        )
        self.collections = Collections.of(open_database(self.client, database))
        self.outbox = Outbox(self.collections, OPTIONS, no_definition, SystemClock())
        self.events = self.collections.outbox_events
        self.metrics = Metrics(CollectorRegistry(), version="1", instance="relay")

    async def put(self, *ids: str, instance: str = "I-1", session: Any = None) -> None:
        """Store events as one commit does."""
        await self.outbox.store([an_event(one, instance) for one in ids], session=session)

    def relay(
        self, sink: Sink, *, owner: str = "relay-1", clock: Any = None, **options: Any
    ) -> Relay:
        """Return a relay; ``options`` are those of ``DeliveryOptions``."""
        return Relay(
            self.store.relay,
            self.store.relay_care,
            sink,
            RelayOptions(owner=owner, sink_name=SINK, delivery=DeliveryOptions(**options)),
            clock=clock or SystemClock(),
            metrics=self.metrics,
            jitter=random.Random(7),
        )

    async def statuses(self) -> dict[str, str]:
        """Return the status of each event by its id."""
        rows = await self.events.find({}, {"relayStatus": 1}).to_list(None)
        return {row["_id"]: row["relayStatus"] for row in rows}

    async def make_due(self) -> None:
        """Let everything that waits for a time be due: no test waits."""
        past = datetime(2020, 1, 1, tzinfo=UTC)
        await self.events.update_many({"retryAt": {"$exists": True}}, {"$set": {"retryAt": past}})
        await self.collections.outbox_slices.update_many({}, {"$set": {"claimableAt": past}})


def an_event(event_id: str, instance: str) -> OutboxEvent:
    """Return an event whose timestamp is always the same: nothing may depend on it."""
    return OutboxEvent(
        id=event_id,
        type=EventType.FLOW_NODE_FINISHED,
        timestamp=datetime(2026, 5, 1, tzinfo=UTC),
        instance_id=instance,
        definition_id="D-1",
        payload={"processInstanceId": instance, "tenantId": "acme", "actorId": None},
    )


@pytest.fixture
async def bench(mongo_server: MongoServer, data: Database[Json]) -> AsyncIterator[RelayBench]:
    """Return the prepared database, with a relay registered while the test lasts."""
    bench = RelayBench(mongo_server.uri, data.name)
    await bench.store.ping()
    await bench.store.relay_care.register(SINK)
    await bench.outbox.find_sink()

    yield bench

    await bench.store.relay_care.retire()
    await bench.client.close()


class HandClock:
    """A clock that a test moves; to sleep on it ends what runs."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime:
        """Return an instant that means nothing."""
        return datetime(2026, 5, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        """Return what the test says."""
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        """End what runs."""
        raise asyncio.CancelledError

    async def run_until_it_sleeps(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run something that goes on for ever, once."""
        with suppress(asyncio.CancelledError):
            await run()


async def no_definition(_: str) -> ProcessDefinition | None:
    """Find none: everything is masked that could be a variable."""
    return None
