"""An arena for races: two connections to one database, and the score at the end of the run."""

import os
import re
from collections.abc import AsyncIterator

import pytest
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.registry import registry_of
from tests.support.mongo import MongoServer
from tests.support.race_sides import Side, work
from tests.support.races import Arena
from tests.support.stores import Json, data, prepared_database

__all__ = ["arena", "data", "prepared_database", "races"]

RACES_VARIABLE = "KIKWIFLOW_TEST_RACES"
FEW = 60
MANY = int(os.environ.get(RACES_VARIABLE, "0"))

SCORES = pytest.StashKey[list[str]]()


@pytest.fixture(
    params=[
        pytest.param(FEW, id="few"),
        pytest.param(
            MANY,
            id="many",
            marks=[
                pytest.mark.deep,
                pytest.mark.timeout(600),
                pytest.mark.skipif(not MANY, reason=f"{RACES_VARIABLE} does not say how many"),
            ],
        ),
    ]
)
def races(request: pytest.FixtureRequest) -> int:
    """Return how many races of a kind to run."""
    return int(request.param)


@pytest.fixture
async def arena(
    request: pytest.FixtureRequest, mongo_server: MongoServer, data: Database[Json]
) -> AsyncIterator[Arena]:
    """Return an arena on the prepared database."""
    handlers = HandlerRuntime(registry_of([work]), threads=4)
    stores = [
        MongoStore.open(mongo_server.uri, data.name, clock=SystemClock()) for _ in ("left", "right")
    ]
    for store in stores:
        await store.ping()
    left, right = (Side(store, Kikwiflow(store), handlers) for store in stores)
    opened = Arena(_name_of(request.node.name), left, right, data)

    yield opened

    for side in opened.sides:
        side.client.close()
        await side.store.close()
    handlers.close()
    left_wins, right_wins = opened.wins
    scores = request.config.stash.setdefault(SCORES, [])
    scores.append(f"{left_wins:5} : {right_wins:<5} {opened.name}")


def _name_of(test: str) -> str:
    """Return the sentence that a test's name is, with its own parameter."""
    words = re.sub(r"\[(few|many)(-(\w+))?\]", r" \3", test.removeprefix("test_"))
    return words.replace("_", " ").strip()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show how often each side won."""
    scores = config.stash.get(SCORES, [])
    if scores:
        terminalreporter.section("races: how often each side won")
        for score in sorted(scores, key=lambda line: line[14:]):
            terminalreporter.write_line(score)
