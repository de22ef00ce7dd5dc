"""Bulk jobs on the command line."""

import pytest
from pymongo.database import Database

from tests.support.cli import CommandLine, restored_logging
from tests.support.definitions import PROCESS_FOLDER
from tests.support.mongo import MongoServer
from tests.support.stores import Json, data, prepared_database

__all__ = ["data", "prepared_database", "restored_logging"]

pytestmark = [pytest.mark.mongo, pytest.mark.usefixtures("restored_logging")]

KEY = "own-external-task"


@pytest.fixture
def kikwi(mongo_server: MongoServer, data: Database[Json]) -> CommandLine:
    uri = mongo_server.uri
    line = CommandLine(KIKWIFLOW_MONGODB_URI=uri, KIKWIFLOW_MONGODB_DATABASE=data.name)
    line.json("deploy", str(PROCESS_FOLDER / f"{KEY}.kikwi"))
    line.json("start", KEY, "--business-key", "ORDER-1")
    return line


def test_a_job_is_asked_for_started_shown_and_cancelled(
    kikwi: CommandLine, data: Database[Json]
) -> None:
    refused = kikwi.run("bulk", "start", "cancel", "--definition", KEY, stdin="n\n")
    assert refused.exit_code == 1
    assert "cancel: 1 instance now; do it?" in refused.stderr
    assert data.executable_tasks.count_documents({}) == 0

    job = kikwi.json("bulk", "start", "suspend", "--definition", KEY, "--by", "ana", "--yes")
    shown = kikwi.run("bulk", "show", job["id"])
    listed = kikwi.run("bulk", "list")
    cancelled = kikwi.run("bulk", "cancel", job["id"])

    assert (job["status"], job["matched"], job["confirmed_by"]) == ("RUNNING", 1, "ana")
    assert "any worker goes on with it" in shown.stdout
    assert job["id"] in listed.stdout
    assert f"bulk job {job['id']} is cancelled" in cancelled.stdout
    statuses = [each["status"] for each in kikwi.json("bulk", "list")["items"]]
    assert statuses == ["CANCELLED", "PREVIEWED"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["start", "migrate", "--yes"], "MIGRATE needs the key of a definition"),
        (["start", "cancel", "--instance", "x", "--yes"], "CANCEL is about instances"),
        (["show", "nothing"], "no bulk job has the id nothing"),
        (["cancel", "nothing"], "no bulk job has the id nothing"),
    ],
)
def test_what_cannot_be_done_is_said(
    kikwi: CommandLine, arguments: list[str], message: str
) -> None:
    result = kikwi.run("bulk", *arguments)

    assert result.exit_code == 1
    assert message in result.stderr
