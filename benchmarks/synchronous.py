"""From start to end in one call: what the client adds to the one commit that it makes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from pymongo import AsyncMongoClient
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from benchmarks.plan import Plan, Scenario
from benchmarks.plugin import benchmark_handlers
from benchmarks.processes import synchronous
from benchmarks.report import Figure, Section
from benchmarks.site import Database, Site

Json = dict[str, Any]

_AT_ONCE = 8


async def run(site: Site, plan: Plan) -> Section:
    """Measure starts a second, in turns with bare inserts of the documents that they leave."""
    section = Section(SCENARIO.name, SCENARIO.title)
    floor, starts, commits = [], [], []
    async with (
        site.database(synchronous(), handlers=(benchmark_handlers,)) as database,
        AsyncMongoClient[Json](site.uri) as client,
    ):
        await _start(database)
        document = database.stored.process_history.find_one({})
        for _ in range(plan.rounds):
            bare = _BareInserts(client, database.name, document)
            floor.append((await _rate(bare.insert, plan))[0])
            before = _committed(site)
            rate, count = await _rate(lambda: _start(database), plan)
            starts.append(rate)
            commits.append((_committed(site) - before) / count)
    section.add(Figure(name="bare inserts of the same documents", unit="/s", samples=floor))
    section.add(Figure(name="instances", unit="/s", samples=starts, floor=floor, at_least=0.5))
    section.add(Figure(name="transactions", unit="for each instance", samples=commits, at_most=1.0))
    return section


class _BareInserts:
    """Inserts copies of an ended instance, each in a transaction of its own."""

    def __init__(self, client: AsyncMongoClient[Json], database: str, document: Json) -> None:
        self._client = client
        self._history = client[database].process_history
        self._document = document

    async def insert(self) -> None:
        document = {**self._document, "_id": str(uuid4())}
        async with (
            self._client.start_session(causal_consistency=False) as session,
            await session.start_transaction(ReadConcern("snapshot"), WriteConcern(w="majority")),
        ):
            await self._history.insert_many([document], session=session)


async def _start(database: Database) -> None:
    variables: Json = {f"v{number}": number for number in range(10)}
    instance = await database.kikwiflow.start("synchronous", "ORDER-1", variables=variables)
    if instance.ended_at is None:
        raise RuntimeError("the process did not run to its end in one go")


async def _rate(one: Callable[[], Awaitable[None]], plan: Plan) -> tuple[float, int]:
    """Return how many a second come to their end, eight at a time, and how many that were."""
    count, began = 0, time.monotonic()
    until = began + plan.window_s

    async def repeat() -> None:
        nonlocal count
        while time.monotonic() < until:
            await one()
            count += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(repeat())
    return count / (time.monotonic() - began), count


def _committed(site: Site) -> int:
    return int(site.counters()["transactions"]["totalCommitted"])


SCENARIO = Scenario(
    name="synchronous", title="Start to end of a synchronous process through the client", run=run
)
