"""Stopping: what runs is finished, what has not started is given back, and a second signal ends it all the same."""

import signal
import socket
import time
from uuid import uuid4

import pytest
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from tests.support.acceptance import a_chain, deploy, figure, start, verify
from tests.support.verifier import Expected
from tests.support.workers import Json, Site, Workers, wait_until


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


async def test_a_handler_that_blocks_the_event_loop_cannot_keep_the_worker_from_ending(
    workers: Workers, site: Site, client: Kikwiflow, stored: Database[Json]
) -> None:
    await deploy(client, "job", *a_chain(["blocks_the_loop_for_3_s"]))
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


async def test_systemd_hears_that_the_worker_is_ready_alive_and_stopping(workers: Workers) -> None:
    name = f"kikwiflow-{uuid4().hex}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(10)
        environment = {"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": "400000"}

        worker = workers.start("worker", environment=environment)
        heard = hear_until(listener, "READY=1", times=1)
        heard += hear_until(listener, "WATCHDOG=1", times=3)
        code = worker.stop()
        heard += hear_until(listener, "STOPPING=1", times=1)

    status = next(message for message in heard if message.startswith("STATUS="))
    assert code == 0
    assert "database reachable" in status
    assert heard.index("READY=1") < heard.index("STOPPING=1")


def hear_until(listener: socket.socket, message: str, *, times: int) -> list[str]:
    """Return what was heard until a message came this often; the listener's time-out bounds it."""
    heard: list[str] = []
    while heard.count(message) < times:
        heard.append(listener.recv(4096).decode())
    return heard


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
