"""``serve`` and ``--management-port`` as real processes: they start, live through an outage, and stop in time."""

import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.management.app import BASE_PATH
from kikwiflow_worker.model.nodes import TOPIC
from tests.support.acceptance import a_wait_for_people, deploy
from tests.support.definitions import a_node, a_start, an_end
from tests.support.mongo import MongoServer
from tests.support.own_mongod import OwnMongod, own_mongod
from tests.support.workers import PATIENCE_S, Site, free_port, wait_until

DATABASE = "management"


@pytest.fixture
def mongod(tmp_path: Path) -> Iterator[OwnMongod]:
    yield from own_mongod(tmp_path / "server")


class Server:
    """A process that serves the API on a port of loopback."""

    def __init__(self, site: Site, *arguments: str, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.output = site.folder / f"management-{port}.log"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kikwiflow_worker", *arguments],
                env=site.environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Message]:
        """Send a request; return status 0 if nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path,
            data=data,
            headers={"Content-Type": "application/json", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, _read(answer.read()), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, _read(error.read()), error.headers
        except OSError:
            return 0, None, Message()

    def wait_for(self, path: str, status: int) -> None:
        """Wait until a path answers with a status."""
        wait_until(
            lambda: self.ask(path)[0] == status or self.process.poll() is not None,
            lambda: f"{path} answers {status}; {self.output.read_text()[-2000:]}",
        )
        assert self.process.poll() is None, self.output.read_text()

    def stop(self) -> int:
        """Ask it to stop, as an orchestrator does; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def events(self) -> list[str]:
        lines = [json.loads(line) for line in self.output.read_text().splitlines()]
        return [str(line["event"]) for line in lines]


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body


@pytest.fixture
def server(mongod: OwnMongod, site: Site) -> Iterator[Server]:
    port = free_port()
    started = Server(
        site,
        "serve",
        "--address",
        f"127.0.0.1:{port}",
        "--mongodb-uri",
        mongod.uri,
        "--mongodb-database",
        DATABASE,
        "--log-format",
        "json",
        port=port,
    )
    yield started
    started.end()


def names_of_workers(server: Server) -> list[str]:
    """Return the names that the API's list of workers shows."""
    status, page, _ = server.ask(f"{BASE_PATH}/workers")
    assert status == 200
    return [each["instanceName"] for each in page["items"]]


def stopped_while_it_answers(server: Server) -> tuple[int, list[int]]:
    """Ask a server to stop while it holds a request; return its exit code and what was answered."""
    answers: list[int] = []
    wait = {"workerId": "w", "topics": ["none"], "lockSeconds": 5, "waitSeconds": 2}

    def poll() -> None:
        answers.append(server.ask(f"{BASE_PATH}/external-work/fetch-and-lock", wait)[0])

    polling = threading.Thread(target=poll)
    polling.start()
    wait_until(lambda: names_of_workers(server) == ["w"], "the request is held")
    code = server.stop()
    polling.join(PATIENCE_S)
    return code, answers


async def counted_outside(uri: str, database: str, server: Server) -> bytes:
    """Let an external worker do a task through a server; return the server's metrics."""
    render = a_node("RENDER", "EXTERNAL_TASK", "END", extensionProperties={TOPIC: "render"})
    async with Kikwiflow.connect(uri, database=database) as client:
        await deploy(client, "invoice", a_start("RENDER"), render, an_end())
        await client.start("invoice", "INVOICE-1")
    work = f"{BASE_PATH}/external-work"
    _, fetched, _ = server.ask(f"{work}/fetch-and-lock", {"workerId": "w", "topics": ["render"]})
    (task,) = fetched["tasks"]
    done = {"workerId": "w", "epoch": task["epoch"]}
    assert server.ask(f"{work}/{task['id']}/complete", done)[0] == 200
    metrics: bytes = server.ask("/metrics")[1]
    return metrics


def assert_counted(metrics: bytes) -> None:
    assert b"kikwiflow_tasks_claimed_total 1.0" in metrics
    assert b'kikwiflow_task_attempts_total{outcome="completed"} 1.0' in metrics


async def test_a_server_lives_through_an_outage_and_stops_in_time(
    mongod: OwnMongod, server: Server
) -> None:
    server.wait_for("/readyz", 200)
    async with Kikwiflow.connect(mongod.uri, database=DATABASE) as client:
        await deploy(client, "order", a_start("CONFIRM"), *a_wait_for_people())
    assert_counted(await counted_outside(mongod.uri, DATABASE, server))
    start = {"processDefinitionKey": "order", "businessKey": "ORDER-1"}
    path = f"{BASE_PATH}/process-instances"

    mongod.stop(signal.SIGKILL)
    status, problem, headers = server.ask(path, start, **{"Idempotency-Key": "k"})
    server.wait_for("/readyz", 503)
    alive = server.ask("/livez")[0]
    mongod.start()
    server.wait_for("/readyz", 200)
    again = [server.ask(path, start, **{"Idempotency-Key": "k"}) for _ in range(2)]

    assert (status, problem["code"], headers["Retry-After"]) == (503, "STORE_UNAVAILABLE", "2")
    assert alive == 200
    assert [each[0] for each in again] == [201, 201]
    assert again[0][1]["id"] == again[1][1]["id"]
    assert stopped_while_it_answers(server) == (0, [200])
    events = server.events()
    assert {"store.unavailable", "store.recovered", "management.stopped"} <= set(events)
    assert "request.failed" not in events


async def test_a_worker_serves_beside_its_work_and_stops_as_a_whole(
    mongo_server: MongoServer, database_name: str, site: Site
) -> None:
    port, health = free_port(), free_port()
    worker = Server(
        site,
        "--instance-name",
        "one",
        "--management-port",
        str(port),
        "--health-address",
        str(health),
        "--mongodb-uri",
        mongo_server.uri,
        "--mongodb-database",
        database_name,
        "--log-format",
        "json",
        port=port,
    )
    try:
        worker.wait_for("/readyz", 200)
        # A worker notes that it is there beside its work: it may be ready a moment before.
        wait_until(lambda: names_of_workers(worker) == ["one"], "the worker is in the list")
        metrics = await counted_outside(mongo_server.uri, database_name, worker)
        code = worker.stop()
    finally:
        worker.end()

    assert_counted(metrics)
    assert b"kikwiflow_http_requests_total" in metrics
    assert b"kikwiflow_worker_up 1.0" in metrics
    assert code == 0
    assert worker.events().count("worker.stopped") == 1
