"""The commands with a file of keys, over a real replica set."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo.database import Database

from tests.support.cli import CommandLine, restored_logging
from tests.support.definitions import own_process
from tests.support.mongo import MongoServer
from tests.support.stores import Json

__all__ = ["restored_logging"]

pytestmark = [pytest.mark.mongo, pytest.mark.usefixtures("restored_logging")]

OLD, NEW = (base64.b64encode(bytes([byte]) * 32).decode() for byte in (1, 2))


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def commands(mongo_server: MongoServer, data: Database[Json], keys: Path) -> Iterator[CommandLine]:
    yield CommandLine(
        KIKWIFLOW_MONGODB_URI=mongo_server.uri,
        KIKWIFLOW_MONGODB_DATABASE=data.name,
        KIKWIFLOW_ENCRYPTION_KEY_FILE=str(keys),
    )
    data.meta.delete_many({"_id": {"$in": ["encryption", "reencryption"]}})


def test_a_key_is_learned_used_changed_and_given_up(
    commands: CommandLine, data: Database[Json], keys: Path, tmp_path: Path
) -> None:
    process = tmp_path / "process.kikwi"
    process.write_text(own_process("own-call-and-recall").source)

    def stored() -> str:
        (row,) = data.process_instances.find({"businessKey": "B-1"})
        return repr(row["variables"]["name"]["value"])

    def shown() -> str:
        listed = commands.json("instances", "list")["items"]
        (one,) = (each for each in listed if each["business_key"] == "B-1")
        return str(commands.json("instances", "show", one["id"])["variables"]["name"])

    keys.write_text(f"plain\nold {OLD}\n")
    assert commands.run("deploy", str(process)).exit_code == 0
    started = commands.run(
        "start", "own-call-and-recall", "--business-key", "B-1", "--var", "name=Ana"
    )
    assert started.exit_code == 0, started.stderr
    assert stored() == "'Ana'"

    keys.write_text(f"old {OLD}\n")
    done = commands.run("store", "reencrypt")
    assert done.exit_code == 0, done.stderr
    assert "values rewritten" in done.stdout
    assert "process_instances:" in done.stderr
    assert "Ana" not in stored()
    assert shown() == "Ana"

    keys.write_text(f"new {NEW}\nold {OLD}\n")
    assert commands.json("store", "reencrypt")["unreadable"] == 0
    keys.write_text(f"new {NEW}\n")
    assert shown() == "Ana"

    keys.write_text(f"plain\nnew {NEW}\n")
    assert commands.run("store", "reencrypt").exit_code == 0
    assert stored() == "'Ana'"


def test_without_the_key_no_command_starts_and_no_key_is_shown(
    commands: CommandLine, keys: Path
) -> None:
    keys.write_text(f"old {OLD}\n")
    assert commands.run("workers").exit_code == 0

    keys.write_text(f"new {NEW}\n")
    missing = commands.run("workers")
    keys.write_text(f"old {NEW}\n")
    wrong = commands.run("workers")
    keys.write_text(f"old {NEW[:8]}\n")
    broken = commands.run("workers")
    keys.unlink()
    gone = commands.run("workers")

    assert {each.exit_code for each in (missing, wrong, broken, gone)} == {78}
    assert "named 'old', which is not given here" in missing.stderr
    assert "the file has another key by that name" in wrong.stderr
    assert "line 1 of the encryption keys" in broken.stderr
    assert "cannot be read" in gone.stderr
    assert NEW[:8] not in missing.stderr + wrong.stderr + broken.stderr


def test_reencrypt_says_what_it_needs(mongo_server: MongoServer, data: Database[Json]) -> None:
    commands = CommandLine(
        KIKWIFLOW_MONGODB_URI=mongo_server.uri, KIKWIFLOW_MONGODB_DATABASE=data.name
    )

    refused = commands.run("store", "reencrypt")

    assert refused.exit_code == 78
    assert "give --encryption-key-file" in refused.stderr
