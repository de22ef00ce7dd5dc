"""Senseless command lines against a real database: what is refused has changed nothing, and says why.

``KIKWIFLOW_TEST_DEEP=1`` runs 20,000 of them.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from pymongo import MongoClient
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from tests.support.bad_input import SECRET, command_lines, leaf_commands
from tests.support.cli import CommandLine, Json, restored_logging
from tests.support.definitions import a_file, a_node, a_start, an_end
from tests.support.mongo import MongoServer
from tests.support.stores import leaking_driver

__all__ = ["leaking_driver", "restored_logging"]

DEEP = os.environ.get("KIKWIFLOW_TEST_DEEP") == "1"
pytestmark = [
    pytest.mark.usefixtures("restored_logging", "leaking_driver"),
    *([pytest.mark.deep, pytest.mark.timeout(7200)] if DEEP else []),
]

EXIT_CODES = {0, 1, 2, 69, 78}

# These do one thing after another and say which of them failed, or write a record of their own.
MAY_CHANGE_AND_FAIL = {("incidents", "retry"), ("definitions", "migrate"), ("doctor",)}


@pytest.fixture
def stored(mongo_uri: str, database_name: str) -> Iterator[Database[Json]]:
    with MongoClient[Json](mongo_uri) as client:
        yield client[database_name]


@pytest.fixture
def known(mongo_server: MongoServer, database_name: str) -> tuple[str, ...]:
    """Return ids and keys of what is stored: an instance that waits for a person, and one for a message."""

    async def prepare() -> tuple[str, ...]:
        async with Kikwiflow.connect(mongo_server.uri, database=database_name) as client:
            wait = a_node("WAIT", "EXTERNAL_TASK", "END")
            file = a_file(a_start("WAIT"), wait, an_end(), key="order")
            await client.deploy(json.dumps(file))
            instance = await client.start("order", "ORDER-1", variables={"a": 1})
            (task,) = (await client.list_external_tasks()).items
            return "order", instance.id, task.id

    return asyncio.run(prepare())


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    contents = {
        "good.kikwi": json.dumps(a_file()).encode(),
        "bad.kikwi": b'{"key": 7, "flowNodes": []}',
        "vars.json": b'{"a": 1, "a.b": {"$gt": ""}}',
        "huge.json": b'{"b": ' + b"9" * 5000 + b"}",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: str(tmp_path / name) for name in contents}


def test_a_refused_command_says_why_and_has_changed_nothing(
    mongo_server: MongoServer,
    database_name: str,
    stored: Database[Json],
    known: tuple[str, ...],
    files: dict[str, str],
) -> None:
    command_line = CommandLine(
        KIKWIFLOW_MONGODB_URI=mongo_server.uri, KIKWIFLOW_MONGODB_DATABASE=database_name
    )

    @settings(
        max_examples=20_000 if DEEP else 60,
        deadline=None,
        derandomize=not DEEP,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(line=command_lines(files, known))
    def check(line: list[str]) -> None:
        before = contents(stored)
        result = command_line.run(*line)

        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        assert result.exit_code in EXIT_CODES, result.output
        assert "--debug" in line or "Traceback" not in result.output
        assert "unexpected" not in result.output.replace("unexpected extra argument", "")
        if result.exit_code:
            assert result.output.strip()
            if not any(tuple(line[: len(path)]) == path for path in MAY_CHANGE_AND_FAIL):
                assert contents(stored) == before

    check()


def test_of_several_files_with_a_bad_one_none_is_deployed(
    mongo_server: MongoServer, database_name: str, stored: Database[Json], files: dict[str, str]
) -> None:
    command_line = CommandLine(
        KIKWIFLOW_MONGODB_URI=mongo_server.uri, KIKWIFLOW_MONGODB_DATABASE=database_name
    )

    result = command_line.run("deploy", files["good.kikwi"], files["bad.kikwi"])

    assert result.exit_code == 1
    assert "nothing was deployed" in result.stderr
    assert stored.process_definitions.count_documents({}) == 0


def test_a_deploy_that_the_database_refuses_half_way_leaves_none(
    mongo_server: MongoServer, database_name: str, stored: Database[Json], tmp_path: Path
) -> None:
    """The second document breaks a rule of the collection, as it would when the disk is full or a role is missing."""
    paths = []
    for key in ("one", "two"):
        path = tmp_path / f"{key}.kikwi"
        path.write_text(json.dumps(a_file(key=key)))
        paths.append(str(path))
    command_line = CommandLine(
        KIKWIFLOW_MONGODB_URI=mongo_server.uri, KIKWIFLOW_MONGODB_DATABASE=database_name
    )
    assert command_line.run("definitions", "list").exit_code == 0
    stored.command("collMod", "process_definitions", validator={"key": {"$ne": "two"}})

    refused = command_line.run("deploy", *paths)
    after = stored.process_definitions.count_documents({})
    stored.command("collMod", "process_definitions", validator={})
    taken = command_line.run("deploy", *paths)

    assert refused.exit_code == 1
    assert "deploying definition 'one', 'two' failed" in refused.stderr
    assert after == 0
    assert taken.exit_code == 0
    assert stored.process_definitions.count_documents({}) == 2


URIS = {
    "plain": f"mongodb://user:{SECRET}@127.0.0.1:1/?serverSelectionTimeoutMS=1",
    "escaped": "mongodb://user:%733cr3t%40x@127.0.0.1:1/?serverSelectionTimeoutMS=1",
    "unescaped": f"mongodb://user:{SECRET}@x/y@127.0.0.1:1/?serverSelectionTimeoutMS=1",
    "port": f"mongodb://user:{SECRET}@127.0.0.1:99999/",
    "no host": f"mongodb://user:{SECRET}@",
    "no scheme": f"user:{SECRET}@127.0.0.1",
    "token": f"mongodb://user:{SECRET}@127.0.0.1:1/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:{SECRET}&serverSelectionTimeoutMS=1",
    "key password": f"mongodb://127.0.0.1:1/?tls=true&tlsCertificateKeyFile=/nowhere&tlsCertificateKeyFilePassword={SECRET}",
    "unknown option": f"mongodb://127.0.0.1:1/?ssl_pem_passphrase={SECRET}&serverSelectionTimeoutMS=1",
}
PLACES = ("flag", "environment", "file", "configuration")


@pytest.mark.filterwarnings(
    # The driver leaves sockets behind of a server that is not there.
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
@pytest.mark.parametrize("form", URIS)
def test_no_command_shows_the_password_of_a_uri_of_any_form(form: str, tmp_path: Path) -> None:
    uri_file, config = tmp_path / "uri", tmp_path / "worker.toml"
    uri_file.write_text(URIS[form])
    config.write_text(f"mongodb_uri = {json.dumps(URIS[form])}")
    given_by: dict[str, tuple[list[str], dict[str, str]]] = {
        "flag": ([f"--mongodb-uri={URIS[form]}"], {}),
        "environment": ([], {"KIKWIFLOW_MONGODB_URI": URIS[form]}),
        "file": ([], {"KIKWIFLOW_MONGODB_URI_FILE": str(uri_file)}),
        "configuration": ([f"--config={config}"], {}),
    }
    lines = [[*path, *required(path)] for path, _ in leaf_commands()]
    lines += [["--print-config"], ["--instance-name", "w", "--check-config"]]
    for number, line in enumerate(lines):
        options, environ = given_by[PLACES[number % len(PLACES)]]
        debug = ["--debug"] if number % 2 else []

        result = CommandLine(**environ).run(*options, *debug, *line)

        assert result.exit_code in EXIT_CODES, (line, result.output)
        for secret in (SECRET, "%733cr3t", "3cr3t"):
            assert secret not in result.output, (line, result.output)


def required(path: tuple[str, ...]) -> list[str]:
    """Return arguments with which a command gets as far as the database."""
    command = dict(leaf_commands())[path]
    given: list[str] = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            given.append(__file__ if parameter.name == "files" else "x")
        elif parameter.required:
            given += [parameter.opts[0], "x"]
    extra = {("instances", "set"): ["--var", "a=1"], ("tasks", "override"): ["--retries", "1"]}
    return given + extra.get(path, [])


def contents(stored: Database[Json]) -> dict[str, list[Json]]:
    """Return everything that is stored."""
    return {name: list(stored[name].find().sort("_id", 1)) for name in sorted(stored.list_collection_names())}  # fmt: skip
