"""A worker that dies or freezes costs at most its lock and one poll; nobody's work is lost, none is done twice."""

import signal
import time
from datetime import UTC, datetime

import pytest
from bson import Timestamp
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from tests.support.acceptance import (
    a_chain,
    a_job,
    a_wait_for_people,
    deploy,
    figure,
    start,
    verify,
    wait_for_ends,
)
from tests.support.definitions import a_start
from tests.support.verifier import Expected, calls, read_facts
from tests.support.workers import (
    DEEP,
    LOCK_S,
    POLL_MAX_S,
    Effect,
    Json,
    Site,
    WorkerProcess,
    Workers,
    wait_until,
)

ALLOWANCE_S = 1.0
"""For what is not waiting: the claim, the call, and two busy cores that other processes share."""

LONG_AGO = datetime(2024, 5, 1, tzinfo=UTC)


async def told_lag(client: Kikwiflow, name: str) -> float:
    """Return the lag of the event loop that a worker told last, in seconds; a record replaces the one before."""
    (lag,) = (
        worker.event_loop_lag_s
        for worker in await client.reads.list_workers()
        if worker.instance_name == name
    )
    return lag or 0.0


def started_at_gate(site: Site, worker: WorkerProcess, *, node: str = "STEP_1") -> Effect:
    """Wait until a worker's handler stands at its gate; return the line it wrote."""

    def found() -> list[Effect]:
        return [e for e in site.effects(node=node, phase="start") if e.pid == worker.pid]

    wait_until(found, lambda: f"{worker.name} runs {node}; {worker.tail()}")
    return found()[0]


@pytest.mark.field_case("S-18", "S-20")
async def test_a_killed_workers_task_is_finished_within_its_lock_and_one_poll(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_gate"]))
    lock_s = 2.0
    victim = workers.start("victim", lock_seconds=lock_s).wait_ready()
    (instance,) = await start(client, "job")
    started_at_gate(site, victim)
    heir = workers.start("heir", lock_seconds=lock_s).wait_ready()

    killed_at = time.monotonic()
    victim.kill()
    taken_over = started_at_gate(site, heir)
    site.open_gate(heir.pid)
    wait_for_ends(stored, [instance])

    lasted = taken_over.at - killed_at
    figure(f"taken over after {lasted:.2f} s; lock {lock_s} s, longest poll {POLL_MAX_S} s")
    assert lasted < lock_s + POLL_MAX_S + ALLOWANCE_S
    assert heir.wait_event("task.rescued", instance_id=instance, crash_count=1)
    verify(site, stored, {instance: Expected.of("STEP_1")})


@pytest.mark.field_case("S-09")
async def test_a_frozen_worker_writes_nothing_after_it_wakes_up(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(
        client,
        "job",
        a_start("STEP_1"),
        a_job("STEP_1", "at_gate", "CONFIRM"),
        *a_wait_for_people(),
    )
    frozen = workers.start("frozen", log_level="debug").wait_ready()
    (instance,) = await start(client, "job")
    started_at_gate(site, frozen)
    heir = workers.start("heir").wait_ready()

    frozen.send(signal.SIGSTOP)
    stopped_at = time.monotonic()
    started_at_gate(site, heir)
    beginning = server_time(stored)
    site.open_gate(heir.pid)
    wait_until(lambda: stored.external_tasks.count_documents({}) == 1, "the heir commits")
    wait_until(lambda: time.monotonic() - stopped_at > 2 * LOCK_S, "twice the lock passes")
    before = everything_of(stored, instance)
    woken_at = server_time(stored)
    site.open_gate(frozen.pid)
    frozen.send(signal.SIGCONT)
    lost = frozen.wait_event("claim.lost", instance_id=instance)
    lost_at = time.monotonic()
    wait_until(lambda: time.monotonic() - lost_at > LOCK_S, "some renewals pass")

    figure(f"the woken worker found out: {lost.get('reason') or 'its commit was refused'}")
    assert writes_since(stored, beginning, before=woken_at), "the check sees the heir's writes"
    assert writes_since(stored, woken_at) == []
    assert everything_of(stored, instance) == before
    assert not frozen.events("task.completed", instance_id=instance)
    verify(site, stored, {instance: Expected.of("STEP_1", rests_at=["CONFIRM"])})
    heir.kill()
    (another,) = await start(client, "job")
    wait_until(lambda: len(site.effects(phase="end")) == 3, "the woken worker goes on working")
    assert site.effects(phase="end")[-1].instance == another


@pytest.mark.field_case("S-09")
async def test_a_frozen_worker_cannot_commit_what_another_is_working_on(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_gate"]))
    frozen = workers.start("frozen").wait_ready()
    (instance,) = await start(client, "job")
    started_at_gate(site, frozen)
    heir = workers.start("heir", log_level="debug").wait_ready()
    frozen.send(signal.SIGSTOP)
    started_at_gate(site, heir)

    site.open_gate(frozen.pid)
    frozen.send(signal.SIGCONT)
    frozen.wait_event("claim.lost", instance_id=instance)
    (row,) = stored.executable_tasks.find()
    running = read_facts(stored).running
    site.open_gate(heir.pid)
    wait_for_ends(stored, [instance])

    assert row["workerId"].startswith("heir.")
    assert (row["status"], row["epoch"], row["crashCount"]) == ("LOCKED", 2, 1)
    assert running == {instance: {}}
    assert heir.wait_event("task.completed", instance_id=instance)
    verify(site, stored, {instance: Expected.of("STEP_1")})


async def test_a_transaction_that_a_dead_worker_left_open_delays_no_other_work(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_once"]))
    (held,) = await start(client, "job")
    row = {"processInstanceId": held}
    died = {
        "status": "LOCKED",
        "workerId": "dead",
        "claimableAt": LONG_AGO,
        "lockExpiresAt": LONG_AGO,
    }
    stored.executable_tasks.update_one(row, {"$set": died, "$inc": {"epoch": 1}})

    # The server keeps the transaction of a client that is gone until its own limit, 60 s by default.
    with stored.client.start_session() as session, session.start_transaction():
        stored.executable_tasks.delete_one(row, session=session)
        workers.start("heir").wait_ready()
        (other,) = await start(client, "job")
        wait_for_ends(stored, [other], within_s=5)
        session.abort_transaction()
    wait_for_ends(stored, [held], within_s=15)

    verify(site, stored, dict.fromkeys([held, other], Expected.of("STEP_1")))


@pytest.mark.field_case("S-12", "S-16")
async def test_a_worker_restarted_under_its_old_name_recovers_its_own_tasks(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_gate", "at_once"]))
    first = workers.start("same-name").wait_ready()
    (instance,) = await start(client, "job")
    started_at_gate(site, first)

    first.kill()
    again = workers.start("same-name").wait_ready()
    site.open_gate("STEP_1")
    wait_for_ends(stored, [instance])

    assert again.stop() == 0
    assert {effect.pid for effect in site.effects(phase="end")} == {again.pid}
    verify(site, stored, {instance: Expected.of("STEP_1", "STEP_2")})


@pytest.mark.field_case("S-15")
@pytest.mark.parametrize(
    "seconds", [3, pytest.param(60, marks=[*DEEP, pytest.mark.timeout(180)])], ids=lambda s: f"{s}s"
)
async def test_a_handler_that_blocks_the_event_loop_is_named_and_every_lock_is_kept(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json], seconds: int
) -> None:
    await deploy(client, "neighbour", *a_chain(["at_gate_in_thread"]))
    await deploy(client, "job", *a_chain(["blocks_the_loop"]))
    rude = workers.start("rude", handler_block_warning_seconds=0.5).wait_ready()
    (neighbour,) = await start(client, "neighbour")
    wait_until(lambda: site.effects(phase="start"), "the neighbour runs")
    blocks = {"block_s": seconds}
    instance = (await client.start("job", "job-0", variables=blocks)).id
    wait_until(lambda: len(site.effects(phase="start")) == 2, "the handler blocks the loop")
    idle = workers.start("idle").wait_ready()
    wait_for_ends(stored, [instance], within_s=seconds + 30)
    site.open_gate("STEP_1")
    wait_for_ends(stored, [neighbour])

    (warning,) = rude.events("handler.blocked_loop")
    assert "blocks_the_loop" in warning["running"]
    assert instance in warning["running"]
    assert "acceptance_handlers.py" in warning["frame"]
    assert not idle.events("task.rescued")
    assert not rude.events("lock.lost")
    assert {effect.pid for effect in site.effects()} == {rude.pid}
    assert len(site.effects(phase="start")) == 2
    verify(site, stored, dict.fromkeys([instance, neighbour], Expected.of("STEP_1")))
    told = await told_lag(client, "rude")
    assert rude.stop() == 0
    assert max(told, await told_lag(client, "rude")) > seconds / 2


@pytest.mark.field_case("S-13")
@pytest.mark.parametrize("skew_s", [600, -600], ids=["ahead", "behind"])
async def test_a_worker_whose_clock_is_ten_minutes_off_works_normally(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json], skew_s: int
) -> None:
    await deploy(client, "job", *a_chain(["at_once", "at_gate"]))
    environment = {"KIKWIFLOW_TEST_SKEW_S": str(skew_s)}
    skewed = workers.start("skewed", environment=environment).wait_ready()
    (instance,) = await start(client, "job")
    started_at_gate(site, skewed, node="STEP_2")
    punctual = workers.start("punctual").wait_ready()

    # Longer than a lock: a clock that decided anything would have let it lapse, or never lapse.
    seen_at = time.monotonic()
    wait_until(lambda: time.monotonic() - seen_at > 1.5 * LOCK_S, "more than a lock passes")
    skewed.kill()
    started_at_gate(site, punctual, node="STEP_2")
    site.open_gate("STEP_2")
    wait_for_ends(stored, [instance])

    assert abs(skewed.wait_event("clock.skewed")["skew_s"] - skew_s) < 10
    pids = [effect.pid for effect in site.effects(node="STEP_2", phase="start")]
    assert pids == [skewed.pid, punctual.pid]
    verify(site, stored, {instance: Expected.of("STEP_1", "STEP_2")})


@pytest.mark.field_case("S-20", "S-21")
@pytest.mark.usefixtures("short_transactions")
async def test_workers_killed_under_load_lose_and_double_nothing(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    steps = 4
    await deploy(client, "job", *a_chain(["after_20_ms"] * steps))
    instances = await start(client, "job", 60)
    running = [workers.start(f"worker-{number}", concurrency=8) for number in range(2)]

    for kills in range(1, 5):
        wait_until(
            lambda done=kills * 40: len(site.effects(phase="end")) >= done,
            lambda: f"the work goes on; {running[-1].tail()}",
        )
        running.pop(0).kill()
        running.append(workers.start(f"worker-{kills + 1}", concurrency=8))
    wait_for_ends(stored, instances, within_s=60)

    repeated = sum(count - 1 for count in calls(site.effects()).values())
    figure(f"4 workers killed in {60 * steps} tasks: {repeated} calls repeated")
    assert not stored.incidents.count_documents({})
    expected = Expected.of(*(f"STEP_{number}" for number in range(1, steps + 1)))
    verify(site, stored, dict.fromkeys(instances, expected))


def everything_of(stored: Database[Json], instance: str) -> list[Json]:
    """Return all documents of an instance."""
    names = (
        "process_instances",
        "process_history",
        "executable_tasks",
        "external_tasks",
        "incidents",
    )
    mine = {"$or": [{"_id": instance}, {"processInstanceId": instance}]}
    return [found for name in names for found in stored[name].find(mine)]


def server_time(stored: Database[Json]) -> Timestamp:
    """Return the time of the last entry in the server's log of writes."""
    (last,) = stored.client.local["oplog.rs"].find().sort("$natural", -1).limit(1)
    time: Timestamp = last["ts"]
    return time


def writes_since(
    stored: Database[Json], since: Timestamp, *, before: Timestamp | None = None
) -> list[Json]:
    """Return what the server's log says was written to this database by anybody, notes of who is alive excepted."""
    period = {"$gt": since, **({"$lte": before} if before else {})}
    written = []
    for entry in stored.client.local["oplog.rs"].find({"ts": period}):
        for each in entry["o"].get("applyOps", [entry]):
            database, _, collection = each["ns"].partition(".")
            if database == stored.name and collection != "workers":
                written.append(each)
    return written
