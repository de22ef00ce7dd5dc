"""Stopping: what runs is finished, what has not started is given back, and a second signal ends it all the same."""

import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from uuid import uuid4

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

from kikwiflow_worker.client import Kikwiflow
from tests.support.acceptance import a_chain, deploy, figure, start, verify, wait_for_ends
from tests.support.verifier import Expected, calls
from tests.support.workers import Json, Site, Workers, wait_until


@pytest.mark.field_case("S-25")
async def test_the_first_signal_lets_running_handlers_finish_and_claims_nothing_more(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_gate", "at_once"]))
    worker = workers.start("worker").wait_ready()
    (instance,) = await start(client, "job")
    wait_until(lambda: site.effects(phase="start"), "the handler runs")

    worker.send(signal.SIGTERM)
    worker.wait_event("worker.draining")
    not_ready, alive = worker.status("/readyz"), worker.status("/livez")
    (late,) = await start(client, "job")
    site.open_gate("STEP_1")
    code = worker.wait_exit()

    assert (code, not_ready, alive) == (0, 503, 200)
    assert worker.events("worker.stopped", result="drained")
    rows = {row["processInstanceId"]: row for row in stored.executable_tasks.find()}
    assert {row["status"] for row in rows.values()} == {"PENDING"}
    assert rows[instance]["taskDefinitionId"] == "STEP_2"
    assert rows[late]["epoch"] == 0, "never claimed"
    verify(
        site,
        stored,
        {
            instance: Expected.of("STEP_1", rests_at=["STEP_2"]),
            late: Expected.of(rests_at=["STEP_1"]),
        },
    )


@pytest.mark.field_case("S-25", "S-28")
async def test_a_claim_whose_handler_has_not_started_is_given_back_without_an_attempt(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_gate"]))
    await deploy(client, "suspect", *a_chain(["nobody_has_this"]))
    worker = workers.start("worker").wait_ready()
    (running,) = await start(client, "job")
    wait_until(lambda: site.effects(phase="start"), "the handler runs")
    # A task that two workers died of waits, claimed, until it is alone in its process.
    (held,) = await start(client, "suspect")
    give_crashes(stored, held, handler="at_once", crashes=2)
    wait_until(lambda: row_of(stored, held)["status"] == "LOCKED", "the suspect is claimed")

    worker.send(signal.SIGTERM)
    worker.wait_event("task.released", instance_id=held)
    site.open_gate("STEP_1")
    code = worker.wait_exit()

    row = row_of(stored, held)
    assert code == 0
    assert (row["status"], row["attempts"], row["crashCount"]) == ("PENDING", 0, 2)
    assert "workerId" not in row
    verify(
        site,
        stored,
        {running: Expected.of("STEP_1"), held: Expected.of(rests_at=["STEP_1"])},
    )


@pytest.mark.field_case("S-25", "S-28")
async def test_a_signal_under_load_uses_no_attempt_repeats_no_handler_and_leaves_no_gap(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    steps = 4
    await deploy(client, "job", *a_chain(["after_20_ms"] * steps))
    instances = await start(client, "job", 100)
    # As they come: the pace of polls is the default one.
    options = {"concurrency": 4, "poll_interval_seconds": None, "poll_max_seconds": None}
    leaving, staying = [workers.start(name, **options) for name in ("leaving", "staying")]
    wait_until(
        lambda: {leaving.pid, staying.pid} <= {e.pid for e in site.effects(phase="end")[50:]},
        lambda: f"both work; {leaving.tail()}",
    )

    asked_at = time.monotonic()
    leaving.send(signal.SIGTERM)
    code = leaving.wait_exit()
    gone_after = time.monotonic() - asked_at
    wait_for_ends(stored, instances, within_s=60)

    log = site.effects()
    starts = sorted(effect.at for effect in log if effect.phase == "start")
    after = [at for at in starts if at >= asked_at - 1]
    gap = max(later - earlier for earlier, later in pairwise(after))
    figure(f"gone {gone_after:.2f} s after the signal; longest time without a start {gap:.2f} s")
    assert code == 0
    assert len([at for at in starts if at > asked_at]) > steps, "the signal came under load"
    assert max(e.at for e in log if e.pid == leaving.pid and e.phase == "start") < asked_at + 1
    assert gap < 1
    assert set(calls(log).values()) == {1}
    for worker in (leaving, staying):
        for event in ("task.retry_scheduled", "task.rescued", "lock.lost", "incident.opened"):
            assert not worker.events(event)
    expected = Expected.of(*(f"STEP_{number}" for number in range(1, steps + 1)))
    verify(site, stored, dict.fromkeys(instances, expected))


@pytest.mark.field_case("S-28")
async def test_released_work_is_taken_by_another_worker_within_a_second(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_gate"]))
    await deploy(client, "suspect", *a_chain(["at_once"]))
    leaving = workers.start("leaving", lock_seconds=10).wait_ready()
    (running,) = await start(client, "job")
    wait_until(lambda: site.effects(phase="start"), "the handler runs")
    # A task that two workers died of waits, claimed, until it is alone in its process.
    leaving.send(signal.SIGSTOP)
    (held,) = await start(client, "suspect")
    give_crashes(stored, held, handler="at_once", crashes=2)
    leaving.send(signal.SIGCONT)
    wait_until(lambda: row_of(stored, held)["status"] == "LOCKED", "the suspect is claimed")
    staying = workers.start("staying").wait_ready()

    asked_at = time.monotonic()
    leaving.send(signal.SIGTERM)
    wait_for_ends(stored, [held])
    site.open_gate("STEP_1")
    code = leaving.wait_exit()

    (taken,) = [e for e in site.effects(phase="start") if e.instance == held]
    figure(f"released work was started elsewhere {taken.at - asked_at:.2f} s after the signal")
    assert code == 0
    assert taken.pid == staying.pid
    assert taken.at - asked_at < 1
    verify(site, stored, dict.fromkeys([running, held], Expected.of("STEP_1")))


@pytest.mark.field_case("S-29")
@pytest.mark.parametrize("blocked_s", [1.5, 8], ids=["a_slow_commit", "a_commit_that_hangs"])
async def test_the_second_signal_tears_no_commit(
    workers: Workers,
    site: Site,
    client: Kikwiflow,
    stored: Database[Json],
    blocked_s: float,
) -> None:
    await deploy(client, "job", *a_chain(["at_gate", "at_once"]))
    worker = workers.start("worker", log_level="debug").wait_ready()
    (instance,) = await start(client, "job")
    wait_until(lambda: site.effects(phase="start"), "the handler runs")

    with slow_commits(stored, blocked_s) as until_one_hangs:
        site.open_gate("STEP_1")
        until_one_hangs()
        worker.send(signal.SIGTERM)
        worker.wait_event("worker.draining")
        asked_at = time.monotonic()
        worker.send(signal.SIGTERM)
        code = worker.wait_exit(within_s=8)
        lasted = time.monotonic() - asked_at
    heir = workers.start("heir")
    wait_for_ends(stored, [instance])

    figure(f"out {lasted:.2f} s after the second signal, during a commit of {blocked_s:g} s")
    assert code == 75
    assert lasted < 5
    if blocked_s < 5:
        assert worker.events("task.completed", instance_id=instance, node_id="STEP_1")
        assert [e.pid for e in site.effects(node="STEP_1", phase="start")] == [worker.pid]
    assert heir.stop() == 0
    verify(site, stored, {instance: Expected.of("STEP_1", "STEP_2")})


@pytest.mark.parametrize("event_loop", ["asyncio", "uvloop"])
async def test_the_second_signal_ends_the_worker_within_5_s_and_gives_its_tasks_back(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json], event_loop: str
) -> None:
    await deploy(client, "polite", *a_chain(["at_gate"]))
    await deploy(client, "in-thread", *a_chain(["at_gate_in_thread"]))
    worker = workers.start("worker", event_loop=event_loop).wait_ready()
    instances = [*await start(client, "polite"), *await start(client, "in-thread")]
    wait_until(lambda: len(site.effects(phase="start")) == 2, "the handlers run")

    worker.send(signal.SIGTERM)
    worker.wait_event("worker.draining")
    asked_at = time.monotonic()
    worker.send(signal.SIGTERM)
    code = worker.wait_exit(within_s=6)
    lasted = time.monotonic() - asked_at

    figure(f"out {lasted:.2f} s after the second signal")
    assert code == 75
    assert lasted < 5
    for instance in instances:
        row = row_of(stored, instance)
        assert (row["status"], row["attempts"], row["crashCount"]) == ("PENDING", 0, 0)
    verify_pending(site, stored, instances)


async def test_the_end_of_the_grace_is_a_second_signal(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["at_gate"]))
    worker = workers.start("worker", grace_seconds=0.5).wait_ready()
    (instance,) = await start(client, "job")
    wait_until(lambda: site.effects(phase="start"), "the handler runs")

    code = worker.stop()

    row = row_of(stored, instance)
    assert code == 75
    assert (row["status"], row["attempts"]) == ("PENDING", 0)
    assert not site.effects(phase="end")


@pytest.mark.field_case("S-30")
async def test_a_handler_that_blocks_the_event_loop_cannot_keep_the_worker_from_ending(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["blocks_the_loop"]))
    worker = workers.start("worker", shutdown_cancel_seconds=0.5).wait_ready()
    await start(client, "job")
    wait_until(lambda: site.effects(phase="start"), "the handler blocks the loop")

    asked_at = time.monotonic()
    worker.send(signal.SIGTERM)
    worker.send(signal.SIGQUIT)
    code = worker.wait_exit(within_s=6)

    assert code == 75
    assert time.monotonic() - asked_at < 2.5
    assert not site.effects(phase="end")


@pytest.mark.field_case("S-27")
async def test_systemd_hears_that_the_worker_is_ready_alive_and_stopping(workers: Workers) -> None:
    name = f"kikwiflow-{uuid4().hex}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(10)
        environment = {"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": "400000"}

        worker = workers.start("worker", environment=environment, grace_seconds=40)
        heard = hear_until(listener, "READY=1", times=1)
        heard += hear_until(listener, "WATCHDOG=1", times=3)
        code = worker.stop()
        # Grace, 5 s to cancel and 5 s to finish: more than the unit's TimeoutStopSec, and all that it may take.
        heard += hear_until(listener, "EXTEND_TIMEOUT_USEC=50000000", times=1)

    status = next(message for message in heard if message.startswith("STATUS="))
    assert code == 0
    assert "database reachable" in status
    assert heard.index("READY=1") < heard.index("STOPPING=1")
    assert heard.index("STOPPING=1") < heard.index("EXTEND_TIMEOUT_USEC=50000000")


def hear_until(listener: socket.socket, message: str, *, times: int) -> list[str]:
    """Return what was heard until a message came this often; the listener's time-out bounds it."""
    heard: list[str] = []
    while heard.count(message) < times:
        heard.append(listener.recv(4096).decode())
    return heard


@contextmanager
def slow_commits(stored: Database[Json], seconds: float) -> Iterator[Callable[[], None]]:
    """Let the server keep the next commit of a worker waiting; give how to wait until one does."""
    admin = stored.client.admin
    chosen = {
        "failCommands": ["commitTransaction"],
        "appName": "kikwiflow-worker",
        "blockConnection": True,
        "blockTimeMS": int(seconds * 1000),
    }
    try:
        before = admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=chosen)
    except OperationFailure as error:
        pytest.skip(f"the server injects no faults: {error.details}")

    def until_one_hangs() -> None:
        times = before["count"] + 1
        admin.command("waitForFailPoint", "failCommand", timesEntered=times, maxTimeMS=20_000)

    try:
        yield until_one_hangs
    finally:
        admin.command("configureFailPoint", "failCommand", mode="off")


def give_crashes(stored: Database[Json], instance: str, *, handler: str, crashes: int) -> None:
    """Make a task claimable that has a history of crashes, in one write."""
    update = {"$set": {"crashCount": crashes, "handlerName": handler}}
    changed = stored.executable_tasks.update_one({"processInstanceId": instance}, update)
    assert changed.modified_count == 1


def row_of(stored: Database[Json], instance: str) -> Json:
    """Return the only executable task of an instance."""
    (row,) = stored.executable_tasks.find({"processInstanceId": instance})
    return row


def verify_pending(site: Site, stored: Database[Json], instances: list[str]) -> None:
    """The instances rest where they were, and nothing of theirs was committed."""
    verify(site, stored, {each: Expected.of(rests_at=["STEP_1"]) for each in instances})
