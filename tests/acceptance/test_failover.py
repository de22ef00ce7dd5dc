"""Another member becomes the primary: work goes on within seconds, no worker exits, and the probes tell the truth."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.store.mongo.driver import CODEC_OPTIONS, MAJORITY_READ
from tests.support.acceptance import a_chain, deploy, figure, start, verify, wait_for_ends
from tests.support.mongo import MongoServer
from tests.support.own_mongod import OwnMongod
from tests.support.own_replica_set import OwnReplicaSet, own_replica_set
from tests.support.verifier import Expected, calls
from tests.support.workers import DEEP, Json, Site, WorkerProcess, Workers, wait_until

INSTANCES = 50
STEPS = 5

GOES_ON_WITHIN_S = 5.0
TRUTH_WITHIN_S = 2.0
ALLOWANCE_S = 0.5
"""For what looks at the probes: a poll, and two busy cores that other processes share."""

Fault = Callable[[OwnMongod], None]


@pytest.fixture(scope="module")
def replica_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnReplicaSet]:
    yield from own_replica_set(tmp_path_factory.mktemp("replica-set"))


@pytest.fixture
def workers(site: Site, replica_set: OwnReplicaSet) -> Iterator[Workers]:
    """Return a way to start workers on the replica set of this module, each test on a database of its own."""
    started = Workers(site, MongoServer(replica_set.uri), f"failover_{uuid4().hex[:8]}")
    try:
        yield started
    finally:
        started.kill_all()


def killed(primary: OwnMongod) -> None:
    assert primary.process is not None
    primary.process.kill()


def stopped(primary: OwnMongod) -> None:
    assert primary.process is not None
    primary.process.terminate()


def stepped_down(primary: OwnMongod) -> None:
    with primary.admin() as client:
        client.admin.command("replSetStepDown", 20, secondaryCatchUpPeriodSecs=5)


def frozen(primary: OwnMongod) -> None:
    assert primary.process is not None
    primary.process.send_signal(signal.SIGSTOP)


@dataclass(slots=True)
class Watch:
    """Looks at the probes of a worker all the time, in a thread of its own."""

    worker: WorkerProcess
    seen: list[tuple[float, int, int]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join(5)

    def _look(self) -> None:
        while not self._over.wait(0.05):
            live, ready = self.worker.status("/livez"), self.worker.status("/readyz")
            self.seen.append((time.monotonic(), live, ready))

    def first_after(self, at: float, ready: int) -> float:
        """Return how many seconds after ``at`` readiness was first ``ready``."""
        return next(when for when, _, found in self.seen if when >= at and found == ready) - at

    def was_always_alive(self) -> bool:
        return {live for _, live, _ in self.seen} == {200}


@pytest.mark.field_case("S-51", "S-52")
@pytest.mark.parametrize(
    "fault",
    [
        stepped_down,
        killed,
        pytest.param(frozen, marks=DEEP),
        pytest.param(stopped, marks=DEEP),
    ],
    ids=lambda fault: fault.__name__,
)
async def test_work_goes_on_within_seconds_of_a_new_primary(
    workers: Workers,
    site: Site,
    replica_set: OwnReplicaSet,
    fault: Fault,
) -> None:
    replica_set.repair()
    database = workers.database
    async with Kikwiflow.connect(replica_set.uri, database=database) as client:
        await deploy(client, "job", *a_chain(["after_20_ms"] * STEPS))
        instances = await start(client, "job", INSTANCES)
    both = [
        workers.start(name, concurrency=4, lock_seconds=10).wait_ready() for name in ("one", "two")
    ]
    old = replica_set.primary()
    assert old is not None

    with Watch(both[0]) as first, Watch(both[1]) as second:
        wait_until(lambda: len(site.effects(phase="end")) > INSTANCES, "the work is under way")
        gone_at = time.monotonic()
        fault(old)
        back_at = until_another_primary(replica_set, old)
        done = len(site.effects(phase="end"))
        with MongoClient[Json](replica_set.uri) as opened:
            stored = opened.get_database(
                database, codec_options=CODEC_OPTIONS, read_concern=MAJORITY_READ
            )
            wait_for_ends(stored, instances, within_s=60)
            codes = [worker.process.poll() for worker in both]
        wait_until(lambda: time.monotonic() > back_at + TRUTH_WITHIN_S, "readiness had its time")

    starts = [effect.at for effect in site.effects(phase="start") if effect.at > back_at]
    assert done < INSTANCES * STEPS, "the failover came under load"
    away = back_at - gone_at
    went_on = min(starts) - back_at
    ready = [watch.first_after(back_at, 200) for watch in (first, second)]
    repeated = sum(count - 1 for count in calls(site.effects()).values())
    figure(
        f"{fault.__name__}: no primary for {away:.2f} s, work went on {went_on:.2f} s and workers were ready "
        f"{max(ready):.2f} s after the new one; {repeated} calls repeated"
    )
    assert went_on < GOES_ON_WITHIN_S
    assert codes == [None, None], "no worker exits because the database is away"
    assert first.was_always_alive()
    assert second.was_always_alive()
    assert max(ready) < TRUTH_WITHIN_S + ALLOWANCE_S
    if away > TRUTH_WITHIN_S:
        for watch in (first, second):
            assert watch.first_after(gone_at, 503) < TRUTH_WITHIN_S + ALLOWANCE_S
    assert [worker.stop() for worker in both] == [0, 0]
    for worker in both:
        assert not worker.events("service.crashed")
    expected = Expected.of(*(f"STEP_{number}" for number in range(1, STEPS + 1)))
    with MongoClient[Json](replica_set.uri) as opened:
        stored = opened.get_database(
            database, codec_options=CODEC_OPTIONS, read_concern=MAJORITY_READ
        )
        assert not stored.incidents.count_documents({})
        verify(site, stored, dict.fromkeys(instances, expected))
        opened.drop_database(database)


def until_another_primary(replica_set: OwnReplicaSet, old: OwnMongod) -> float:
    """Wait until another member takes writes; return when."""
    others = [member for member in replica_set.members if member is not old]

    def is_primary(client: MongoClient[Json]) -> bool:
        try:
            return bool(client.admin.command("hello")["isWritablePrimary"])
        except PyMongoError:
            return False

    with others[0].admin() as one, others[1].admin() as two:
        wait_until(lambda: is_primary(one) or is_primary(two), "there is another primary")
        return time.monotonic()
