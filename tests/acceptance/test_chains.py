"""Tasks that are handed on: a worker goes on along a path without claiming, and what may interrupt it still does."""

import signal
import time
import urllib.request

import pytest
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from tests.support.acceptance import a_chain, a_job, deploy, figure, start, verify, wait_for_ends
from tests.support.definitions import a_start
from tests.support.verifier import Expected, calls
from tests.support.workers import (
    POLL_MAX_S,
    Json,
    Site,
    WorkerProcess,
    Workers,
    wait_until,
)

STEPS = 40
NODES = [f"STEP_{number}" for number in range(1, STEPS + 1)]
ALLOWANCE_S = 2.0
"""For what is not waiting, on two busy cores."""


def claims_of(worker: WorkerProcess) -> float:
    """Return how many tasks a worker has claimed; what was handed on is not among them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return next(
        float(line.split()[1]) for line in lines if line.startswith("kikwiflow_tasks_claimed_total")
    )


@pytest.mark.parametrize("hand_on", [True, False])
async def test_a_worker_goes_on_along_a_path_without_claiming(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json], hand_on: bool
) -> None:
    await deploy(client, "job", *a_chain(["at_once"] * STEPS))
    environment = {"KIKWIFLOW_HAND_ON": str(hand_on)}
    worker = workers.start("worker", lock_seconds=10, environment=environment).wait_ready()
    instances = await start(client, "job", 5)
    wait_for_ends(stored, instances)

    claims = claims_of(worker)
    figure(f"{claims:.0f} claims for {5 * STEPS} tasks")
    assert claims < 5 * 5 if hand_on else claims == 5 * STEPS
    verify(site, stored, dict.fromkeys(instances, Expected.of(*NODES)))


async def test_a_stop_signal_while_chains_run_loses_nothing(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_once"] * STEPS))
    first = workers.start("first", lock_seconds=30, concurrency=16).wait_ready()
    instances = await start(client, "job", 40)
    wait_until(lambda: len(site.effects(phase="end")) > 100, "chains run")

    code = first.stop()
    done = len(site.effects(phase="end"))
    left = [(row["status"], row["crashCount"]) for row in stored.executable_tasks.find()]
    workers.start("second", lock_seconds=30, concurrency=16)
    wait_for_ends(stored, instances)

    figure(f"stopped after {done} of {40 * STEPS} tasks, {len(left)} rows left")
    assert code == 0
    assert set(left) == {("PENDING", 0)}, "given back, or never claimed"
    assert set(calls(site.effects()).values()) == {1}, "no handler ran twice"
    verify(site, stored, dict.fromkeys(instances, Expected.of(*NODES)))


@pytest.mark.usefixtures("short_transactions")
async def test_a_worker_that_is_killed_in_its_chains_costs_its_lock_and_one_poll(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    lock_s = 2.0
    await deploy(client, "job", *a_chain(["after_20_ms"] * STEPS))
    victim = workers.start("victim", lock_seconds=lock_s, concurrency=8).wait_ready()
    instances = await start(client, "job", 8)
    wait_until(lambda: len(site.effects(phase="end")) > 40, "chains run")

    victim.kill()
    killed_at = time.monotonic()
    heir = workers.start("heir", lock_seconds=lock_s, concurrency=8).wait_ready()
    wait_until(
        lambda: len({e.instance for e in site.effects() if e.pid == heir.pid}) == len(instances),
        "all chains go on",
    )
    went_on = [
        min(e.at for e in site.effects() if e.pid == heir.pid and e.instance == each)
        for each in instances
    ]
    wait_for_ends(stored, instances)

    slowest = max(went_on) - killed_at
    figure(f"all chains go on after {slowest:.2f} s; lock {lock_s} s")
    assert slowest < lock_s + POLL_MAX_S + ALLOWANCE_S
    verify(site, stored, dict.fromkeys(instances, Expected.of(*NODES)))


async def test_suspending_takes_hold_of_a_chain_within_one_step(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["after_20_ms"] * STEPS))
    workers.start("worker", lock_seconds=10).wait_ready()
    (instance,) = await start(client, "job")
    wait_until(lambda: len(site.effects(phase="end")) > 3, "the chain runs")

    await client.suspend(instance)
    suspended_at = time.monotonic()
    wait_until(lambda: time.monotonic() - suspended_at > 0.5, "a few steps could have run")
    late = [e for e in site.effects(phase="start") if e.at > suspended_at]
    await client.resume(instance)
    wait_for_ends(stored, [instance])

    assert len(late) <= 1
    verify(site, stored, {instance: Expected.of(*NODES)})


async def test_cancelling_takes_hold_of_a_chain_within_one_step(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["after_20_ms"] * STEPS))
    workers.start("worker", lock_seconds=10).wait_ready()
    (instance,) = await start(client, "job")
    wait_until(lambda: len(site.effects(phase="end")) > 3, "the chain runs")

    await client.cancel(instance)
    cancelled_at = time.monotonic()
    wait_until(lambda: time.monotonic() - cancelled_at > 0.5, "a few steps could have run")

    assert len([e for e in site.effects(phase="start") if e.at > cancelled_at]) <= 1
    assert stored.executable_tasks.count_documents({}) == 0
    assert (await client.get_instance(instance)).status == "CANCELLED"


async def test_an_idle_worker_hears_of_work_long_before_its_next_poll(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_once"]))
    worker = workers.start("worker", poll_interval_seconds=60, poll_max_seconds=60).wait_ready()
    lasted = []
    for _ in range(5):
        began = time.monotonic()
        started = await start(client, "job")
        wait_for_ends(stored, started, within_s=20)
        lasted.append(max(e.at for e in site.effects(phase="start")) - began)

    figure(f"picked up after {[round(each * 1000) for each in lasted]} ms; poll every 60 s")
    assert claims_of(worker) == 5
    assert sorted(lasted)[2] < ALLOWANCE_S


async def test_a_path_that_never_ends_leaves_room_for_others(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    endless = [a_start("A"), a_job("A", "at_once", "B"), a_job("B", "at_once", "A")]
    await deploy(client, "endless", *endless)
    await deploy(client, "job", *a_chain(["at_once"]))
    worker = workers.start("worker", lock_seconds=10, concurrency=1).wait_ready()
    await start(client, "endless", 3)
    wait_until(lambda: len(site.effects(phase="end")) > 20, "the loops run")

    began = time.monotonic()
    others = await start(client, "job", 3)
    wait_for_ends(stored, others, within_s=15)

    lasted = time.monotonic() - began
    figure(f"three tasks beside three endless loops, on one slot: {lasted:.2f} s")
    loops = {e.instance for e in site.effects(phase="end") if e.at > began} - set(others)
    assert len(loops) == 3, "the loops take turns as well"
    worker.send(signal.SIGTERM)
    assert worker.wait_exit() == 0
