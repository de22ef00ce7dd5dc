"""A worker and every command log in with the least roles and over TLS, and say in one message what keeps them out."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from tests.support.acceptance import a_chain, deploy, start, wait_for_ends
from tests.support.cli import CommandLine, restored_logging
from tests.support.mongo import MongoServer
from tests.support.secure_mongod import (
    LEAST_ACTIONS,
    PASSWORD,
    WORKER,
    SecureMongod,
    secure_mongod,
)
from tests.support.stores import leaking_driver
from tests.support.workers import Json, Site, WorkerProcess, Workers, wait_until

__all__ = ["leaking_driver", "restored_logging"]

pytestmark = pytest.mark.usefixtures("restored_logging", "leaking_driver")

BAD_CONFIGURATION = 78
UNAVAILABLE = 69
DATABASE = "billing"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureMongod]:
    for server in secure_mongod(tmp_path_factory.mktemp("secure") / "site"):
        server.grant(WORKER, DATABASE, LEAST_ACTIONS)
        yield server
    with warnings.catch_warnings():  # of the driver's, what only the end of an event loop sets free
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def secure_workers(site: Site, secure: SecureMongod) -> Iterator[Workers]:
    started = Workers(site, MongoServer(secure.uri()), DATABASE)
    try:
        yield started
    finally:
        started.kill_all()


@pytest.fixture
async def secure_client(secure: SecureMongod) -> AsyncIterator[Kikwiflow]:
    async with Kikwiflow.connect(secure.uri(), database=DATABASE) as connected:
        yield connected


@pytest.fixture
def stored_there(secure: SecureMongod) -> Iterator[Database[Json]]:
    with secure.root() as client:
        yield client[DATABASE]


def refusals(secure: SecureMongod) -> dict[str, tuple[str, str]]:
    """Return for each way of being kept out a URI, and what the message must say."""
    paths = secure.certificates.path
    x509 = {"authMechanism": "MONGODB-X509", "authSource": "$external"}
    return {
        "wrong password": (secure.uri(password="wr0ng"), "check the user, its password"),
        "unknown user": (secure.uri(user="nobody"), "check the user, its password"),
        "another CA": (secure.uri(tlsCAFile=paths("other-ca")), "check tlsCAFile"),
        "another host": (
            secure.uri(host="localhost", replicaSet=None, directConnection="true"),
            "the host name",
        ),
        "missing CA file": (secure.uri(tlsCAFile="/nowhere.pem"), "check tlsCAFile"),
        "missing client file": (
            secure.uri(tlsCertificateKeyFile="/nowhere.pem"),
            "tlsCertificateKeyFile",
        ),
        "unknown subject": (
            secure.uri(user="CN=stranger", password=None, tlsCertificateKeyFile=paths("client"), **x509),
            "certificate (code",
        ),
    }  # fmt: skip


LONG_AGO = datetime(2024, 5, 1, 12, tzinfo=UTC)
REFUSALS = (
    "wrong password",
    "unknown user",
    "another CA",
    "another host",
    "missing CA file",
    "missing client file",
    "unknown subject",
)


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_command_that_is_kept_out_says_why_and_exits_with_78(
    secure: SecureMongod, reason: str
) -> None:
    uri, words = refusals(secure)[reason]

    result = CommandLine(KIKWIFLOW_MONGODB_URI=uri).run("instances", "list")

    assert result.exit_code == BAD_CONFIGURATION, result.output
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not leaks(result.output)


@pytest.mark.parametrize("reason", ["no TLS", "expired certificate"])
def test_a_client_whose_connections_are_closed_is_told_why_that_may_be(
    secure: SecureMongod, reason: str
) -> None:
    """MongoDB says nothing before it closes; so it may be an outage, and a worker waits for it at its start."""
    expired = secure.uri(tlsCertificateKeyFile=secure.certificates.path("expired"))
    uri = secure.uri(tls=None, tlsCAFile=None) if reason == "no TLS" else expired

    result = CommandLine(KIKWIFLOW_MONGODB_URI=uri).run("instances", "list")

    assert result.exit_code == UNAVAILABLE
    assert "closes connections at once" in result.stderr
    assert "tls=true" in result.stderr
    assert not leaks(result.output)


@pytest.mark.parametrize("reason", ["wrong password", "another CA"])
def test_a_worker_that_is_kept_out_says_why_and_ends_its_start_at_once(
    secure: SecureMongod, secure_workers: Workers, reason: str
) -> None:
    uri, words = refusals(secure)[reason]
    worker = secure_workers.start("worker", mongodb_uri=uri)

    code = worker.wait_exit(within_s=15)

    assert code == BAD_CONFIGURATION
    output = worker.output.read_text()
    assert words in output
    assert "Traceback" not in output
    assert not leaks(output)


async def test_a_worker_does_all_its_work_with_the_least_roles(
    secure_workers: Workers, secure_client: Kikwiflow, stored_there: Database[Json]
) -> None:
    key = f"job-{uuid4().hex[:6]}"
    await deploy(secure_client, key, *a_chain(["at_once", "at_once"]))
    worker = secure_workers.start("worker").wait_ready()

    instances = await start(secure_client, key, 3)
    wait_for_ends(stored_there, instances)

    assert worker.stop() == 0
    assert troubles(worker) == []
    assert not leaks(worker.output.read_text())
    assert not leaks(str(list(stored_there.workers.find())))


@pytest.mark.parametrize("missing", LEAST_ACTIONS)
def test_without_one_of_the_roles_a_worker_says_that_a_role_is_missing(
    secure: SecureMongod, secure_workers: Workers, missing: str
) -> None:
    database, user = f"lacks_{missing}", f"without {missing}"
    secure.grant(user, database, [action for action in LEAST_ACTIONS if action != missing])
    environ = {"KIKWIFLOW_MONGODB_URI": secure.uri(user=user), "KIKWIFLOW_MONGODB_DATABASE": database}  # fmt: skip
    definition = Path(__file__).parents[1] / "support" / "processes" / "own-call-and-recall.kikwi"
    command_line = CommandLine(**environ)

    outcomes = [
        command_line.run("deploy", str(definition)),
        command_line.run("definitions", "suspend", "own-call-and-recall"),
        command_line.run("store", "check"),
        command_line.run("doctor"),
    ]

    refused = [result.output for result in outcomes if result.exit_code]
    if missing == "remove":  # only what ends a task removes anything
        refused = [a_refused_worker(secure, secure_workers, user, database)]
    assert refused
    for output in refused:
        assert "the user lacks a role" in output
        assert "Traceback" not in output


def a_refused_worker(secure: SecureMongod, workers: Workers, user: str, database: str) -> str:
    """Let a worker meet a task that it may not remove; return what it says."""
    with secure.root() as client:
        client[database].executable_tasks.insert_one(
            {
                "_id": "task-1", "type": "STANDARD", "status": "PENDING", "taskDefinitionId": "TASK",
                "processInstanceId": "gone", "processDefinitionId": "gone",
                "createdAt": LONG_AGO, "claimableAt": LONG_AGO, "epoch": 0, "crashCount": 0,
            }
        )  # fmt: skip
    worker = workers.start("worker", mongodb_uri=secure.uri(user=user), mongodb_database=database)
    worker.wait_event("store.unavailable")
    assert worker.stop() == 0
    return worker.output.read_text()


async def test_mutual_tls_logs_in_with_a_certificate_instead_of_a_password(
    secure: SecureMongod, secure_workers: Workers, secure_client: Kikwiflow, stored_there: Database[Json]
) -> None:  # fmt: skip
    subject = "CN=client,OU=workers,O=kikwiflow tests"
    with secure.root() as client:
        client["$external"].command("createUser", subject, roles=[{"role": "readWrite", "db": DATABASE}])  # fmt: skip
    uri = secure.uri(
        user=subject,
        password=None,
        authMechanism="MONGODB-X509",
        authSource="$external",
        tlsCertificateKeyFile=secure.certificates.path("client"),
    )
    key = f"job-{uuid4().hex[:6]}"
    await deploy(secure_client, key, *a_chain(["at_once"]))
    worker = secure_workers.start("worker", mongodb_uri=uri).wait_ready()

    wait_for_ends(stored_there, await start(secure_client, key))

    command_line = CommandLine(KIKWIFLOW_MONGODB_URI=uri, KIKWIFLOW_MONGODB_DATABASE=DATABASE)
    shown = await asyncio.to_thread(command_line.run, "workers")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert worker.stop() == 0
    assert troubles(worker) == []


@pytest.mark.parametrize("change", ["password", "certificate"])
async def test_a_running_worker_outlives_a_login_that_is_refused_for_a_while(
    secure: SecureMongod,
    secure_workers: Workers,
    secure_client: Kikwiflow,
    stored_there: Database[Json],
    site: Site,
    change: str,
) -> None:
    key, another = f"held-{change}", f"later-{change}"
    await deploy(secure_client, key, *a_chain(["at_gate"]))
    await deploy(secure_client, another, *a_chain(["at_once"]))
    worker = secure_workers.start("worker", lock_seconds=5).wait_ready()
    (held,) = await start(secure_client, key)
    wait_until(lambda: site.effects(phase="start", node="STEP_1"), "the handler runs")
    (later,) = await start(secure_client, another)
    wait_for_ends(stored_there, [later])

    if change == "password":
        secure.set_password(WORKER, "an0ther")
        secure.restart()
    else:
        secure.restart(presenting="impostor")
    wait_until(lambda: remedies(worker), lambda: f"it says what to check; {worker.tail()}")
    wait_until(lambda: worker.status("/readyz") == 503, "it is not ready")
    site.open_gate("STEP_1")
    wait_until(lambda: site.effects(phase="end", node="STEP_1"), "the handler ends")
    told = len(remedies(worker))
    wait_until(lambda: len(remedies(worker)) >= told + 2, "it goes on asking")
    alive = worker.status("/livez"), worker.process.poll()
    if change == "password":
        secure.set_password(WORKER, PASSWORD)
    else:
        secure.restart(presenting="server")
    wait_for_ends(stored_there, [held])
    worker.wait_event("store.recovered")

    assert alive == (200, None)
    doing = {line.get("doing") for line in remedies(worker)}
    assert {"renewing locks", None} <= doing  # the connection of the locks, and that of all else
    assert worker.events("task.rescued") == []
    assert [effect.phase for effect in site.effects(node="STEP_1") if effect.instance == held] == [
        "start",
        "end",
    ]
    assert worker.stop() == 0
    output = worker.output.read_text()
    assert "Traceback" not in output
    assert not leaks(output)


def remedies(worker: WorkerProcess) -> list[Json]:
    """Return the lines that say what a person must put right."""
    return [line for line in worker.events("store.unavailable") if "; check " in line["error"]]


def troubles(worker: WorkerProcess) -> list[Json]:
    """Return what a worker logged above information."""
    return [line for line in worker.events() if line.get("level") in {"warning", "error"}]


def leaks(text: str) -> list[str]:
    """Return the passwords that a text shows, as they are or escaped."""
    return [secret for secret in ("p@ss/w0rd", "s3cr3t", "wr0ng", "an0ther") if secret in text]
