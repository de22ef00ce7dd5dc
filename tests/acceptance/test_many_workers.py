"""Many workers, one outcome per task."""

import time

import pytest
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from tests.support.acceptance import (
    a_chain,
    a_fan_out,
    deploy,
    figure,
    start,
    verify,
    wait_for_ends,
)
from tests.support.verifier import Expected, calls
from tests.support.workers import Json, Site, Workers

INSTANCES = 500
STEPS = 4
BRANCHES = 64


async def test_two_workers_commit_each_of_2000_tasks_once(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_once"] * STEPS))
    options = {"concurrency": 32, "lock_seconds": 10, "log_level": "warning"}
    both = [workers.start(name, **options) for name in ("one", "two")]
    for worker in both:
        worker.wait_ready()

    began = time.monotonic()
    instances = await start(client, "job", INSTANCES)
    wait_for_ends(stored, instances, within_s=90)

    log = site.effects()
    first, last = min(effect.at for effect in log), max(effect.at for effect in log)
    rate = INSTANCES * STEPS / (last - first)
    shares = {worker.name: sum(e.pid == worker.pid for e in log) // 2 for worker in both}
    figure(
        f"{INSTANCES * STEPS} tasks in {last - first:.1f} s, {rate:.0f}/s; calls {shares}; "
        f"{time.monotonic() - began:.1f} s with their starts"
    )
    assert all(shares.values()), "both took part"
    assert set(calls(log).values()) == {1}
    verify(site, stored, dict.fromkeys(instances, Expected.of(*(f"STEP_{n}" for n in range(1, 5)))))


@pytest.mark.field_case("S-66", "S-68")
async def test_a_fan_out_of_64_on_two_workers_joins_once_with_every_branchs_variable(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    branches = [f"BRANCH_{number}" for number in range(1, BRANCHES + 1)]
    await deploy(
        client, "fan-out", *a_fan_out([(node, "at_once") for node in branches], after="at_once")
    )
    for name in ("one", "two"):
        workers.start(name, concurrency=16, lock_seconds=10).wait_ready()

    (instance,) = await start(client, "fan-out")
    wait_for_ends(stored, [instance], within_s=60)

    ended = await client.get_instance(instance)
    log = site.effects()
    lasted = max(effect.at for effect in log) - min(effect.at for effect in log)
    figure(f"{BRANCHES} branches and their join in {lasted:.2f} s")
    assert {f"done {node}" for node in (*branches, "AFTER")} == set(ended.variables)
    assert len(site.effects(node="AFTER", phase="start")) == 1
    verify(site, stored, {instance: Expected.of(*branches, "AFTER")})
