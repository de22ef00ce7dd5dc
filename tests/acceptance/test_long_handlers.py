"""Handlers that take longer than a lock, a drain or their instance."""

import signal
import time

import pytest
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from tests.support.acceptance import a_chain, deploy, figure, start, verify, wait_for_ends
from tests.support.verifier import Expected
from tests.support.workers import LOCK_S, Json, Site, Workers, wait_until


@pytest.mark.field_case("S-01", "S-06", "S-10", "S-12")
async def test_a_handler_of_five_locks_runs_once_on_three_workers_though_its_own_drains(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_gate"]))
    leaving = workers.start("same-name").wait_ready()
    (instance,) = await start(client, "job")
    wait_until(lambda: site.effects(phase="start"), "the handler runs")
    began = time.monotonic()
    others = [workers.start(name).wait_ready() for name in ("same-name", "another")]

    wait_until(lambda: time.monotonic() - began > 2 * LOCK_S, "two locks pass")
    leaving.send(signal.SIGTERM)
    wait_until(lambda: time.monotonic() - began > 5 * LOCK_S, "five locks pass")
    site.open_gate("STEP_1")
    code = leaving.wait_exit()
    wait_for_ends(stored, [instance])

    assert code == 0
    assert {effect.pid for effect in site.effects()} == {leaving.pid}
    assert len(site.effects(phase="start")) == 1
    assert not any(worker.events("task.rescued") for worker in others)
    verify(site, stored, {instance: Expected.of("STEP_1")})


@pytest.mark.field_case("S-88")
async def test_the_slot_of_a_cancelled_instance_is_free_within_a_lock(
    workers: Workers, client: Kikwiflow, stored: Database[Json], site: Site
) -> None:
    await deploy(client, "polite", *a_chain(["at_gate"]))
    await deploy(client, "in-thread", *a_chain(["at_gate_in_thread"]))
    await deploy(client, "job", *a_chain(["at_once"]))
    worker = workers.start("worker", concurrency=2).wait_ready()
    stuck = [*await start(client, "polite"), *await start(client, "in-thread")]
    wait_until(lambda: len(site.effects(phase="start")) == 2, "both slots are taken")
    waiting = await start(client, "job", 4)

    began = time.monotonic()
    for instance in stuck:
        await client.cancel(instance)
    wait_for_ends(stored, waiting, within_s=10)
    lasted = time.monotonic() - began

    figure(f"other work was done {lasted:.2f} s after the cancel; lock {LOCK_S} s")
    assert lasted < LOCK_S + 1
    assert {row["status"] for row in stored.process_history.find({"_id": {"$in": stuck}})} == {
        "CANCELLED"
    }
    assert worker.stop() == 0
    assert worker.events("worker.stopped", result="drained")


@pytest.mark.field_case("S-25")
async def test_an_instance_can_be_cancelled_while_its_worker_drains(
    workers: Workers, client: Kikwiflow, site: Site
) -> None:
    await deploy(client, "job", *a_chain(["at_gate"]))
    worker = workers.start("worker").wait_ready()
    (instance,) = await start(client, "job")
    wait_until(lambda: site.effects(phase="start"), "the handler runs")

    worker.send(signal.SIGTERM)
    worker.wait_event("worker.draining")
    await client.cancel(instance)
    code = worker.wait_exit(within_s=10)

    assert code == 0
    assert worker.events("worker.stopped", result="drained")
    assert not site.effects(phase="end")
