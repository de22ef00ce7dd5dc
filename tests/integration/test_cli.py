import json
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.cli import CommandLine, restored_logging
from tests.support.definitions import a_file, a_start, an_end
from tests.support.scenes import (
    EXTERNAL,
    FAILING,
    HANDLER,
    WAITING,
    BehindTheScenes,
    kikwi,
    process_file,
    scenes,
    started,
)
from tests.support.stores import WORKER

__all__ = ["kikwi", "restored_logging", "scenes"]

pytestmark = [pytest.mark.mongo, pytest.mark.usefixtures("restored_logging")]

NOBODY = "00000000-0000-0000-0000-000000000000"


def waiting_task(kikwi: CommandLine) -> str:
    """Start an instance that waits at an external task; return the task's id."""
    task_id: str = started(kikwi)["external_tasks"][0]["id"]
    return task_id


def test_a_deployed_definition_is_listed(kikwi: CommandLine) -> None:
    first = kikwi.run("deploy", process_file(WAITING), process_file(FAILING))
    again = kikwi.json("deploy", process_file(WAITING))

    assert first.exit_code == 0
    assert "deployed" in first.stdout
    assert (again["items"][0]["version"], again["items"][0]["created"]) == (1, False)
    listed = kikwi.json("definitions", "list")["items"]
    assert [item["key"] for item in listed] == [WAITING, FAILING]
    assert datetime.fromisoformat(listed[0]["deployed_at"]).tzinfo is not None


def test_older_content_becomes_the_latest_when_asked_for(
    kikwi: CommandLine, tmp_path: Path
) -> None:
    changed = tmp_path / "changed.kikwi"
    changed.write_text(Path(process_file(WAITING)).read_text().replace("handed over", "gone"))
    kikwi.json("deploy", process_file(WAITING))
    kikwi.json("deploy", str(changed))

    left = kikwi.run("deploy", process_file(WAITING))
    activated = kikwi.json("deploy", process_file(WAITING), "--activate")

    assert "--activate makes this one the latest" in left.stdout
    assert activated["items"][0]["is_latest"] is True


def test_one_invalid_file_keeps_all_from_being_deployed(kikwi: CommandLine, tmp_path: Path) -> None:
    invalid = tmp_path / "invalid.kikwi"
    invalid.write_text("{}")

    result = kikwi.run("deploy", process_file(WAITING), str(invalid))

    assert result.exit_code == 1
    assert kikwi.json("definitions", "list")["items"] == []


@pytest.mark.parametrize("command", [["definitions", "list"], ["start", "--business-key", "A"]])
def test_an_unknown_key_gets_a_suggestion(kikwi: CommandLine, command: list[str]) -> None:
    kikwi.json("deploy", process_file(WAITING))

    result = kikwi.run(*command, "own-extrenal-task")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert f"did you mean '{WAITING}'?" in result.stderr


def test_an_unknown_version_points_to_the_list(kikwi: CommandLine) -> None:
    kikwi.json("deploy", process_file(WAITING))

    result = kikwi.run("start", WAITING, "--business-key", "A", "--version", "7")

    assert result.exit_code == 1
    assert f"kikwiflow-worker definitions list {WAITING}" in result.stderr


def test_variables_are_json_or_text_and_the_command_line_wins_over_the_file(
    kikwi: CommandLine,
) -> None:
    kikwi.json("deploy", process_file(WAITING))

    result = kikwi.run(
        "start", WAITING, "--business-key", "A", "--vars-file", "-", "--json",
        "--var", "amount=120", "--var", "zip=01234", "--var", 'who="7"', "--var", "note=a=b",
        stdin='{"amount": 1, "vip": true}',
    )  # fmt: skip

    assert json.loads(result.stdout)["variables"] == {
        "amount": 120, "vip": True, "zip": "01234", "who": "7", "note": "a=b",
    }  # fmt: skip


def test_a_repeated_start_shows_the_first_instance(kikwi: CommandLine) -> None:
    first = started(kikwi, WAITING, "--idempotency-key", "K")
    second = started(kikwi, WAITING, "--idempotency-key", "K")

    assert first["id"] == second["id"]


def test_waiting_in_vain_shows_the_instance_and_exits_with_1(kikwi: CommandLine) -> None:
    kikwi.json("deploy", process_file(WAITING))

    result = kikwi.run("start", WAITING, "--business-key", "A", "--wait", "0.1", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["status"] == "ACTIVE"
    assert "it is at CONFIRM" in result.stderr


def test_waiting_for_the_end_shows_the_ended_instance(kikwi: CommandLine, tmp_path: Path) -> None:
    short = tmp_path / "short.kikwi"
    short.write_text(json.dumps(a_file(a_start("END"), an_end())))
    kikwi.json("deploy", str(short))

    instance = kikwi.json("start", "parcel", "--business-key", "A", "--wait", "5")

    assert instance["status"] == "COMPLETED"
    assert instance["ended_at"] is not None


def test_an_instance_is_shown_with_its_variables_and_where_it_rests(kikwi: CommandLine) -> None:
    instance = started(kikwi, WAITING, "--var", "amount=120")

    result = kikwi.run("instances", "show", instance["id"])

    assert result.exit_code == 0
    assert "amount  120" in result.stdout
    assert instance["external_tasks"][0]["id"] in result.stdout


def test_lists_leave_variables_out(kikwi: CommandLine) -> None:
    started(kikwi, WAITING, "--var", "secret=hush")

    result = kikwi.run("instances", "list", "--json")

    assert "hush" not in result.stdout


def test_pages_follow_one_another(kikwi: CommandLine) -> None:
    kikwi.json("deploy", process_file(WAITING))
    made = {
        kikwi.json("start", WAITING, "--business-key", str(number))["id"] for number in range(3)
    }

    first = kikwi.json("instances", "list", "--limit", "2")
    second = kikwi.json("instances", "list", "--limit", "2", "--cursor", first["next_cursor"])

    assert {item["id"] for item in first["items"] + second["items"]} == made
    assert second["next_cursor"] is None
    table = kikwi.run("instances", "list", "--limit", "2")
    assert f"--cursor {first['next_cursor']}" in table.stdout


def test_a_made_up_cursor_is_refused(kikwi: CommandLine) -> None:
    result = kikwi.run("instances", "list", "--cursor", "nonsense")

    assert result.exit_code == 1
    assert result.stderr.startswith("error: the cursor")


def test_instances_are_filtered(kikwi: CommandLine) -> None:
    instance = started(kikwi, WAITING, "--tenant", "acme")

    for option, value in (
        ("--definition", WAITING),
        ("--business-key", "ORDER-1"),
        ("--tenant", "acme"),
        ("--status", "active"),
    ):
        hit = kikwi.json("instances", "list", option, value)["items"]
        assert [item["id"] for item in hit] == [instance["id"]]
    assert kikwi.json("instances", "list", "--tenant", "other")["items"] == []
    assert kikwi.run("instances", "list", "--ended").stdout == "no ended instances match\n"


def test_variables_of_a_running_instance_are_set_and_unset(kikwi: CommandLine) -> None:
    instance = started(kikwi, WAITING, "--var", "old=1")

    changed = kikwi.json("instances", "set", instance["id"], "--var", "new=2", "--unset", "old")

    assert changed["variables"] == {"new": 2}


def test_a_cancelled_instance_cannot_be_cancelled_again(kikwi: CommandLine) -> None:
    instance = started(kikwi)

    first = kikwi.run("instances", "cancel", instance["id"], "--by", "ana")
    second = kikwi.run("instances", "cancel", instance["id"])

    assert (first.exit_code, second.exit_code) == (0, 1)
    assert "CANCELLED" in second.stderr
    ended = kikwi.json("instances", "list", "--status", "CANCELLED")["items"]
    assert [item["id"] for item in ended] == [instance["id"]]


def test_an_external_task_belongs_to_who_claimed_it(kikwi: CommandLine) -> None:
    task_id = waiting_task(kikwi)

    first = kikwi.run("external", "claim", task_id, "--by", "ana")
    rival = kikwi.run("external", "claim", task_id, "--by", "bob")

    assert (first.exit_code, rival.exit_code) == (0, 1)
    assert "is claimed by ana" in rival.stderr
    assert kikwi.json("external", "list", "--unassigned")["items"] == []
    given_back = kikwi.json("external", "unclaim", task_id, "--by", "ana")
    assert given_back["assignee"] is None
    assert task_id in kikwi.run("external", "list").stdout


def test_completing_twice_is_a_conflict(kikwi: CommandLine) -> None:
    task_id = waiting_task(kikwi)

    first = kikwi.run("external", "complete", task_id, "--var", "approved=true", "--by", "ana")
    second = kikwi.run("external", "complete", task_id, "--by", "bob")

    assert first.exit_code == 0
    assert "is COMPLETED" in first.stdout
    assert second.exit_code == 1
    assert "was completed already" in second.stderr
    assert "by ana" in second.stderr
    (ended,) = kikwi.json("instances", "list", "--ended")["items"]
    shown = kikwi.json("instances", "show", ended["id"])
    assert shown["variables"] == {"approved": True}


def test_a_held_task_names_its_holder(kikwi: CommandLine, scenes: BehindTheScenes) -> None:
    started(kikwi, FAILING)
    task_id = scenes.hold_task()

    listed = kikwi.run("tasks", "list", "--status", "LOCKED")
    shown = kikwi.run("tasks", "show", task_id)

    assert f"held by {WORKER}, its lock ends in" in listed.stdout
    assert WORKER in shown.stdout
    assert "lock ends" in shown.stdout


@pytest.mark.field_case("S-84")
def test_a_task_that_is_retried_names_error_and_time(
    kikwi: CommandLine, scenes: BehindTheScenes
) -> None:
    started(kikwi, FAILING)
    task_id = scenes.retry_later()

    listed = kikwi.run("tasks", "list", "--retrying", "--handler", HANDLER)
    shown = kikwi.json("tasks", "show", task_id)

    assert "the scales are busy" in listed.stdout
    assert "in 2h" in listed.stdout or "in 179m" in listed.stdout
    assert (shown["attempts"], shown["error"]) == (1, "the scales are busy")


def test_an_incident_is_listed_shown_and_retried(
    kikwi: CommandLine, scenes: BehindTheScenes
) -> None:
    instance = started(kikwi, FAILING)
    incident_id = scenes.fail_task()

    listed = kikwi.run("incidents", "list", "--instance", instance["id"])
    shown = kikwi.run("incidents", "show", incident_id)
    as_json = kikwi.json("incidents", "show", incident_id)
    whole = kikwi.run("instances", "show", instance["id"])
    retried = kikwi.json("incidents", "retry", incident_id, "--by", "ana")

    assert incident_id in listed.stdout
    assert (as_json["id"], as_json["status"]) == (incident_id, "OPEN")
    assert incident_id in whole.stdout
    assert "the scales are broken" in listed.stdout
    assert "in weigh_parcel" in shown.stdout
    assert f"incidents retry {incident_id}" in shown.stdout
    assert (retried["items"][0]["status"], retried["items"][0]["resolved_by"]) == (
        "RESOLVED",
        "ana",
    )
    assert kikwi.json("tasks", "list", "--status", "PENDING")["items"][0]["attempts"] == 0


def test_what_can_be_retried_is_retried_beside_what_cannot(
    kikwi: CommandLine, scenes: BehindTheScenes
) -> None:
    started(kikwi, FAILING)
    incident_id = scenes.fail_task()

    result = kikwi.run("incidents", "retry", NOBODY, incident_id)

    assert result.exit_code == 1
    assert f"incident {incident_id} is resolved" in result.stdout
    assert result.stderr == f"error: no incident has the id {NOBODY}\n"


@pytest.mark.parametrize(
    "command",
    [
        ["instances", "show"],
        ["instances", "cancel"],
        ["tasks", "show"],
        ["incidents", "show"],
        ["external", "complete"],
        ["external", "unclaim"],
    ],
    ids=" ".join,
)
def test_an_unknown_id_is_one_message(kikwi: CommandLine, command: list[str]) -> None:
    result = kikwi.run(*command, NOBODY)

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: no ")
    assert NOBODY in result.stderr


def test_a_live_worker_is_listed(kikwi: CommandLine, scenes: BehindTheScenes) -> None:
    kikwi.json("definitions", "list")
    scenes.record_worker(HANDLER)

    (worker,) = kikwi.json("workers")["items"]

    assert (worker["id"], worker["is_alive"], worker["running"]) == (WORKER, True, 2)
    assert worker["event_loop_lag_s"] == 0.25
    table = kikwi.run("workers").stdout
    assert "alive" in table
    assert "0.250" in table


def test_an_external_worker_is_listed(kikwi: CommandLine, scenes: BehindTheScenes) -> None:
    kikwi.json("definitions", "list")
    scenes.record_fetch(HANDLER, "red")

    (worker,) = kikwi.json("workers")["items"]

    assert (worker["id"], worker["is_alive"], worker["handlers"]) == (EXTERNAL, True, [HANDLER])
    assert (worker["is_external"], worker["tenant_id"]) == (True, "red")
    table = kikwi.run("workers", COLUMNS="200").stdout
    assert "external, tenant red" in table
    assert "0/0" not in table
