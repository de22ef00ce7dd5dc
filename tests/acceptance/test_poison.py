"""A task that kills its worker is given up after three deaths, and nothing else suffers from it."""

from collections.abc import Callable

import pytest
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from tests.support.acceptance import a_chain, deploy, figure, start, verify, wait_for_ends
from tests.support.verifier import Expected
from tests.support.workers import Json, Site, WorkerProcess, Workers, wait_until


@pytest.mark.field_case("S-44")
@pytest.mark.usefixtures("short_transactions")
async def test_a_task_that_kills_three_workers_becomes_an_incident_while_other_work_goes_on(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "poison", *a_chain(["kills_its_process"]))
    await deploy(client, "job", *a_chain(["after_20_ms"] * 3))
    (poison,) = await start(client, "poison")
    innocent = await start(client, "job", 40)

    restarts = restart_until(
        workers, lambda: stored.incidents.count_documents({"processInstanceId": poison}) == 1
    )
    wait_for_ends(stored, innocent)

    (incident,) = stored.incidents.find()
    figure(f"workers that died: {restarts}")
    assert (incident["type"], incident["processInstanceId"]) == ("WORKER_LOST", poison)
    deaths = [e for e in site.effects(phase="start") if e.instance == poison]
    assert len(deaths) == restarts == 3
    started = dict.fromkeys(innocent, Expected.of("STEP_1", "STEP_2", "STEP_3"))
    verify(site, stored, {poison: Expected.of(rests_at=["STEP_1"]), **started})


def restart_until(workers: Workers, is_over: Callable[[], object]) -> int:
    """Keep one worker running, as a service manager would; return how often it died."""
    worker: WorkerProcess = workers.start("worker-0")
    deaths = 0

    def look() -> bool:
        nonlocal worker, deaths
        if worker.process.poll() is not None:
            assert worker.process.returncode == 9, worker.tail()
            deaths += 1
            worker = workers.start(f"worker-{deaths}")
        return bool(is_over())

    wait_until(look, "the incident is open", within_s=60)
    return deaths
