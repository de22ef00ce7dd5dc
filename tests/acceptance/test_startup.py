"""A worker that cannot start says why in one message, and its exit code says whom to ask."""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from tests.support.acceptance import a_chain, deploy, start, verify, wait_for_ends
from tests.support.own_mongod import OwnMongod, own_mongod
from tests.support.verifier import Expected
from tests.support.workers import (
    Json,
    Site,
    WorkerProcess,
    Workers,
    free_port,
    install,
    wait_until,
)

BAD_CONFIGURATION = 78
UNAVAILABLE = 69


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[OwnMongod]:
    yield from own_mongod(tmp_path / "server", replica_set=None)


def test_without_a_database_it_says_how_to_name_one(workers: Workers) -> None:
    worker = workers.start("worker", mongodb_uri=None)

    code = worker.wait_exit()

    assert code == BAD_CONFIGURATION
    assert "--mongodb-uri" in only_message(worker)


@pytest.mark.field_case("S-56")
def test_a_server_without_transactions_is_refused(workers: Workers, standalone: OwnMongod) -> None:
    worker = workers.start("worker", mongodb_uri=standalone.uri)

    code = worker.wait_exit()

    assert code == BAD_CONFIGURATION
    assert "replica set" in only_message(worker)


def test_a_server_that_does_not_answer_ends_the_start_after_its_time_out(workers: Workers) -> None:
    nowhere = f"mongodb://127.0.0.1:{free_port()}/?replicaSet=rs0&serverSelectionTimeoutMS=300"
    worker = workers.start("worker", mongodb_uri=nowhere, startup_timeout_seconds=2)
    wait_until(lambda: worker.status("/livez"), "the probes are answered")
    began = time.monotonic()
    probes = worker.status("/livez"), worker.status("/readyz")

    code = worker.wait_exit(within_s=10)

    assert code == UNAVAILABLE
    assert 1 < time.monotonic() - began < 4
    assert probes == (200, 503)
    assert "not available within 2 s" in only_message(worker)


def test_a_handler_module_that_cannot_be_imported_is_named_with_its_distribution(
    workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start(
        "worker", handlers=None, environment=a_broken_distribution(workers.site, tmp_path)
    )

    code = worker.wait_exit()

    message = only_message(worker)
    assert code == BAD_CONFIGURATION
    assert "broken_handlers" in message
    assert "parcel-steps 1.0" in message
    assert "no_such_library" in message


@pytest.mark.field_case("S-46")
async def test_a_task_that_nobody_can_run_waits_and_is_shown(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "strange", *a_chain(["nobody_has_this"]))
    await deploy(client, "job", *a_chain(["at_once"]))
    workers.start("worker").wait_ready()

    (strange,) = await start(client, "strange")
    (ordinary,) = await start(client, "job")
    wait_for_ends(stored, [ordinary])

    (waiting,) = await client.services.searches.list_handler_waits()
    (row,) = stored.executable_tasks.find()
    assert (waiting.handler_name, waiting.waiting.value) == ("nobody_has_this", 1)
    assert (row["status"], row["epoch"], row["attempts"]) == ("PENDING", 0, 0)
    verify(
        site,
        stored,
        {strange: Expected.of(rests_at=["STEP_1"]), ordinary: Expected.of("STEP_1")},
    )


async def test_a_client_without_handlers_starts_what_a_worker_completes(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_once", "at_once"]))
    workers.start("worker").wait_ready()

    instance = await client.start("job", "JOB-1", variables={"weight": 3})
    ended = await client.wait_for_end(instance.id, timeout_s=20)

    assert instance.ended_at is None
    assert ended.variables == {"weight": 3, "done STEP_1": 1, "done STEP_2": 1}
    verify(site, stored, {instance.id: Expected.of("STEP_1", "STEP_2")})


async def test_people_see_which_workers_are_alive(workers: Workers, client: Kikwiflow) -> None:
    worker = workers.start("parcel-worker").wait_ready()

    wait_until(lambda: worker.status("/metrics") == 200, "the metrics are served")
    deadline = time.monotonic() + 10
    found = await client.reads.list_workers()
    while not found and time.monotonic() < deadline:
        found = await client.reads.list_workers()

    (record,) = found
    assert (record.instance_name, record.pid, record.state) == (
        "parcel-worker",
        worker.pid,
        "running",
    )
    assert "at_gate" in record.handlers


def a_broken_distribution(site: Site, folder: Path) -> Mapping[str, str]:
    """Install handlers whose module fails on import; return the environment that has them."""
    module = folder / "source" / "broken_handlers.py"
    module.parent.mkdir()
    module.write_text("import no_such_library\n")
    packages = folder / "packages"
    packages.mkdir()
    install(packages, module, "parcel-steps")
    path = site.environment()["PYTHONPATH"]
    return {"PYTHONPATH": os.pathsep.join([str(packages), path])}


def only_message(worker: WorkerProcess) -> str:
    """Return what it said on its way out: one message, and no traceback."""
    text = worker.output.read_text()
    assert "Traceback" not in text
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, text
    return text[text.index("error: ") :]
