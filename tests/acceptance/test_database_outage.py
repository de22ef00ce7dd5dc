"""A database that goes away stops no worker: it waits, says that it is not ready, and goes on."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo import MongoClient

from kikwiflow_worker.client import Kikwiflow
from tests.support.acceptance import a_chain, deploy, figure, start, verify, wait_for_ends
from tests.support.mongo import MongoServer
from tests.support.own_mongod import OwnMongod, own_mongod
from tests.support.verifier import Expected
from tests.support.workers import Json, Site, WorkerProcess, Workers, wait_until

INSTANCES = 60
STEPS = 4
DATABASE = "outage"

TRUTH_WITHIN_S = 2.5
"""Two seconds, and an allowance for two busy cores that other processes share."""


@pytest.fixture
def mongod(tmp_path: Path) -> Iterator[OwnMongod]:
    yield from own_mongod(tmp_path / "server")


@pytest.fixture
def outage_workers(mongod: OwnMongod, site: Site) -> Iterator[Workers]:
    """Return a way to start workers on the server that goes away."""
    started = Workers(site, MongoServer(mongod.uri), DATABASE)
    try:
        yield started
    finally:
        started.kill_all()


@pytest.mark.field_case("S-08", "S-22", "S-52")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_everything_finishes_when_the_database_is_restarted_under_load(
    mongod: OwnMongod, outage_workers: Workers, site: Site, how: signal.Signals
) -> None:
    both = [outage_workers.start(name, concurrency=8, lock_seconds=20) for name in ("one", "two")]
    for worker in both:
        worker.wait_ready()
    async with Kikwiflow.connect(mongod.uri, database=DATABASE) as client:
        await deploy(client, "job", *a_chain(["after_20_ms"] * STEPS))
        await deploy(client, "long", *a_chain(["at_gate"]))
        (long,) = await start(client, "long")
        instances = await start(client, "job", INSTANCES)
    wait_until(
        lambda: len(site.effects(phase="end")) > INSTANCES,
        lambda: f"a quarter of the work is done; {both[0].tail()}",
    )

    mongod.stop(how)
    done = len(site.effects(phase="end"))
    down_s = until_readiness_is(503, both)
    alive = [worker.status("/livez") for worker in both]
    mongod.start()
    up_s = until_readiness_is(200, both)
    site.open_gate("STEP_1")
    figure(
        f"not ready {down_s:.2f} s after the database was gone, ready {up_s:.2f} s after it was back"
    )
    with MongoClient[Json](mongod.uri) as opened:
        stored = opened[DATABASE]
        wait_for_ends(stored, [long, *instances], within_s=60)
        codes = [worker.stop() for worker in both]

        assert done < INSTANCES * STEPS, "the outage came under load"
        assert max(down_s, up_s) < TRUTH_WITHIN_S
        assert alive == [200, 200]
        assert [effect.phase for effect in site.effects() if effect.instance == long] == [
            "start",
            "end",
        ], "a lock outlives a shorter outage"
        assert codes == [0, 0]
        for worker in both:
            assert worker.events("store.unavailable")
            assert worker.events("store.recovered")
            assert not worker.events("service.crashed")
        expected = Expected.of(*(f"STEP_{number}" for number in range(1, STEPS + 1)))
        verify(site, stored, {long: Expected.of("STEP_1"), **dict.fromkeys(instances, expected)})


def until_readiness_is(status: int, workers: list[WorkerProcess]) -> float:
    """Wait until ``/readyz`` of all answers with a status; return how many seconds that took."""
    began = time.monotonic()
    for worker in workers:
        wait_until(
            lambda w=worker: w.status("/readyz") == status, f"{worker.name} answers {status}"
        )
    return time.monotonic() - began
