"""A run of the load that has come to its end, and what tests need to plant violations into it."""

import asyncio
import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.store.mongo.reachability import Reachability
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.chaos.verify import verify
from tests.chaos.verify_report import Report
from tests.chaos.verify_trial import drive, two_workers
from tests.support.mongo import MongoServer
from tests.support.workers import Json

NAME = f"kikwi_test_verify_{uuid4().hex[:12]}"


@dataclass(slots=True)
class Run:
    """A run that has come to its end, and a way to plant violations into it.

    Attributes:
        stored: What the run left in each collection.
        until: The place in the server's log where the run ended.
        looks: What ``kikwiflow-worker verify`` said while workers ran.
    """

    server: MongoServer
    database: Database[Json]
    folder: Path
    stored: dict[str, list[Json]]
    looks: list[Reachability]
    until: Timestamp
    lines: list[Json] = field(default_factory=list)
    ledger: list[Json] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)

    def collection(self, name: str) -> Collection[Json]:
        """Return a collection to plant something in; it is put right after the test."""
        self.touched.add(name)
        return self.database[name]

    def history(self, key: str, status: str = "COMPLETED") -> list[Json]:
        """Return the instances of a definition that have ended like this."""
        return deepcopy(
            [
                found
                for found in self.stored["process_history"]
                if found["processDefinitionKey"] == key and found["status"] == status
            ]
        )

    def replace(self, document: Json) -> None:
        """Store a changed instance."""
        self.collection("process_history").replace_one({"_id": document["_id"]}, document)

    def effects(self, instance: str, node: str, phase: str = "end") -> list[Json]:
        """Return the lines about a node."""
        wanted = {"instance": instance, "node": node, "phase": phase}
        return [line for line in self.lines if wanted.items() <= line.items()]

    def report(self) -> Report:
        """Verify what is there now."""
        effects, ledger = self.folder / "planted-effects.jsonl", self.folder / "planted.jsonl"
        for path, lines in ((effects, self.lines), (ledger, self.ledger)):
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return verify(self.server.uri, NAME, effects, ledger, until=self.until)

    def put_right(self) -> None:
        """Take back what was planted."""
        for name in self.touched:
            self.database[name].delete_many({})
            if self.stored.get(name):
                self.database[name].insert_many(self.stored[name])
        self.touched.clear()


@pytest.fixture(scope="session")
def ended_run(mongo_server: MongoServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run the load with two workers, and stop them when everything has ended."""
    folder = tmp_path_factory.mktemp("chaos")
    looks: list[Reachability] = []

    async def load() -> None:
        store = MongoStore.open(mongo_server.uri, NAME, clock=SystemClock())

        async def look() -> None:
            looks.append(await store.find_unreachable(grace=timedelta(seconds=2)))

        try:
            assert await drive(mongo_server, NAME, folder, beside=look)
        finally:
            await store.close()

    with (
        MongoClient[Json](mongo_server.uri, tz_aware=True) as client,
        two_workers(mongo_server, NAME, folder) as workers,
    ):
        asyncio.run(load())
        for worker in workers.started:
            assert worker.stop() == 0
        database = client[NAME]
        stored = {name: list(database[name].find()) for name in database.list_collection_names()}
        until = client.admin.command("ping")["operationTime"]
        yield Run(mongo_server, database, folder, stored, looks, until)
        client.drop_database(NAME)


@pytest.fixture
def run(ended_run: Run) -> Iterator[Run]:
    """Return the run as it ended."""
    lines = (ended_run.folder / "effects.jsonl").read_text().splitlines()
    ledger = (ended_run.folder / "ledger.jsonl").read_text().splitlines()
    own = replace(
        ended_run,
        lines=[json.loads(line) for line in lines],
        ledger=[json.loads(line) for line in ledger],
        touched=set(),
    )
    yield own
    own.put_right()


def trail_of(document: Json) -> list[str]:
    """Return the trail of an instance, to be changed in place."""
    trail: list[str] = document["variables"]["trail"]["value"]
    return trail


def place_of(document: Json, node: str) -> int:
    """Return where a node is on the trail."""
    return next(i for i, entry in enumerate(trail_of(document)) if entry.split()[0] == node)


def assert_found(lines: tuple[str, ...], *parts: str) -> None:
    """Fail unless one line has all these parts."""
    assert any(all(part in line for part in parts) for line in lines), lines
