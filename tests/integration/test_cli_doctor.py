"""The doctor on the command line: what it finds in a real database, and what it makes of it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import CommandLine, restored_logging
from tests.support.own_mongod import own_mongod
from tests.support.scenes import (
    FAILING,
    HANDLER,
    BehindTheScenes,
    kikwi,
    scenes,
    started,
)

__all__ = ["kikwi", "restored_logging", "scenes"]

pytestmark = [pytest.mark.mongo, pytest.mark.usefixtures("restored_logging")]


def verdicts(kikwi: CommandLine) -> tuple[int, dict[str, str]]:
    result = kikwi.run("doctor", "--json")
    items = json.loads(result.stdout)["items"]
    return result.exit_code, {item["check"]: item["verdict"] for item in items}


def test_the_doctor_knows_topics_that_are_fetched(
    kikwi: CommandLine, scenes: BehindTheScenes
) -> None:
    started(kikwi, FAILING)
    scenes.record_worker("another_handler")
    scenes.record_fetch(HANDLER, "red")
    exit_code, found = verdicts(kikwi)
    assert (exit_code, found["waiting tasks"]) == (1, "fail"), "it fetches those of its tenant only"

    scenes.record_fetch(HANDLER)
    exit_code, found = verdicts(kikwi)

    assert (exit_code, set(found.values())) == (0, {"ok"})
    assert "external workers that fetch tasks: 2" in kikwi.run("doctor").stdout


def test_the_doctor_misses_a_worker_of_our_own_where_only_external_ones_live(
    kikwi: CommandLine, scenes: BehindTheScenes
) -> None:
    started(kikwi, FAILING)
    scenes.record_fetch(HANDLER)

    exit_code, found = verdicts(kikwi)

    assert exit_code == 1
    assert (found["workers"], found["waiting tasks"]) == ("fail", "ok")


def test_the_doctor_only_warns_of_a_new_database(kikwi: CommandLine) -> None:
    exit_code, found = verdicts(kikwi)

    assert exit_code == 0
    assert (found["replica set"], found["schema"], found["transaction"]) == ("ok", "ok", "ok")
    assert (found["definitions"], found["workers"]) == ("warn", "warn")


def test_the_doctor_finds_work_that_no_live_worker_can_do(
    kikwi: CommandLine, scenes: BehindTheScenes
) -> None:
    started(kikwi, FAILING)
    scenes.record_worker("another_handler")

    exit_code, found = verdicts(kikwi)

    assert exit_code == 1
    assert (found["workers"], found["waiting tasks"]) == ("ok", "fail")
    assert HANDLER in kikwi.run("doctor").stdout


def test_the_doctor_is_content_with_a_worker_that_can_do_the_work(
    kikwi: CommandLine, scenes: BehindTheScenes
) -> None:
    started(kikwi, FAILING)
    scenes.record_worker(HANDLER)

    exit_code, found = verdicts(kikwi)

    assert exit_code == 0
    assert set(found.values()) == {"ok"}


def test_the_doctor_warns_of_open_incidents(kikwi: CommandLine, scenes: BehindTheScenes) -> None:
    started(kikwi, FAILING)
    scenes.fail_task()

    exit_code, found = verdicts(kikwi)

    assert exit_code == 0
    assert found["incidents"] == "warn"


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[CommandLine]:
    for server in own_mongod(tmp_path / "server", replica_set=None):
        yield CommandLine(KIKWIFLOW_MONGODB_URI=server.uri)


def test_a_standalone_server_is_refused_until_it_is_allowed(standalone: CommandLine) -> None:
    refused = standalone.run("definitions", "list")
    exit_code, found = verdicts(standalone)
    allowed = standalone.run("--allow-standalone", "doctor", "--json")

    assert refused.exit_code == 78
    assert "--allow-standalone" in refused.stderr
    assert (exit_code, found["replica set"], found["schema"]) == (1, "fail", "skip")
    assert allowed.exit_code == 0
    verdict = {item["check"]: item["verdict"] for item in json.loads(allowed.stdout)["items"]}
    assert (verdict["replica set"], verdict["transaction"]) == ("warn", "ok")
