"""Commands for messages, suspension, boundary events, call activities and many incidents."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.runtime import Parent
from kikwiflow_worker.model.unit_of_work import FailTask, InsertInstance, OpenIncident
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.views import TaskQuery
from tests.support.cli import CommandLine, Json, restored_logging
from tests.support.definitions import PROCESS_FOLDER
from tests.support.stores import an_incident, an_instance, claim, commit

__all__ = ["restored_logging"]

pytestmark = [pytest.mark.mongo, pytest.mark.usefixtures("restored_logging")]


@pytest.fixture
def kikwi(mongo_uri: str, database_name: str) -> CommandLine:
    return CommandLine(KIKWIFLOW_MONGODB_URI=mongo_uri, KIKWIFLOW_MONGODB_DATABASE=database_name)


def started(kikwi: CommandLine, key: str, *more: str) -> Json:
    kikwi.json("deploy", str(PROCESS_FOLDER / f"{key}.kikwi"))
    return kikwi.json("start", key, "--business-key", "ORDER-1", *more)


def behind_the_scenes(kikwi: CommandLine, act: Callable[[MongoStore], Awaitable[None]]) -> None:
    """Do something to the database of a test."""
    uri, name = (kikwi.environ[f"KIKWIFLOW_MONGODB_{each}"] for each in ("URI", "DATABASE"))

    async def run() -> None:
        store = MongoStore.open(uri, name, clock=SystemClock())
        try:
            await store.ping()
            await act(store)
        finally:
            await store.close()

    asyncio.run(run())


# --- messages


def test_a_message_ends_the_wait_for_its_key(kikwi: CommandLine) -> None:
    started(kikwi, "own-wait-payment", "--var", "order=7")
    (waiting,) = kikwi.json("external", "list", "--key", "order-7-paid")["items"]

    result = kikwi.run(
        "messages", "correlate", "order-7-paid", "--var", "amount=120", "--by", "payments"
    )

    assert waiting["type"] == "EVENT_CATCHER_STANDALONE"
    assert result.exit_code == 0
    assert "is COMPLETED" in result.stdout
    (ended,) = kikwi.json("instances", "list", "--ended")["items"]
    assert kikwi.json("instances", "show", ended["id"])["variables"]["amount"] == 120


def test_a_message_of_another_tenant_ends_no_wait(kikwi: CommandLine) -> None:
    started(kikwi, "own-wait-payment", "--var", "order=7", "--tenant", "acme")

    other = kikwi.run("messages", "correlate", "order-7-paid", "--tenant", "other")
    right = kikwi.json("messages", "correlate", "order-7-paid", "--tenant", "acme")

    assert other.exit_code == 1
    assert "nobody waits for the correlation key 'order-7-paid'" in other.stderr
    assert (right["outcome"], right["instance"]["status"]) == ("delivered", "COMPLETED")


def test_a_message_is_kept_once_until_somebody_waits(kikwi: CommandLine) -> None:
    kept = kikwi.json("messages", "correlate", "k", "--message-id", "M-1", "--keep-for", "60")
    again = kikwi.run("messages", "correlate", "k", "--message-id", "M-1", "--keep-for", "60")

    assert (kept["outcome"], kept["instance"]) == ("kept", None)
    assert again.stdout == "message for k: known\n"


def test_the_list_of_waits_shows_what_each_waits_for(kikwi: CommandLine) -> None:
    started(kikwi, "own-wait-all", "--var", 'items=["a", "b"]')
    kikwi.json("messages", "correlate", "item-a-ready")

    listed = kikwi.run("external", "list", COLUMNS="200").stdout
    filtered = kikwi.json("external", "list", "--key", "item-b-ready")["items"]

    lines = {line for line in listed.splitlines() if "WAIT_ITEMS" in line}
    assert len(lines) == 3
    assert any("group " in line and "1 of 2 keys" in line for line in lines)
    assert any("group key, matched" in line and "item-a-ready" in line for line in lines)
    assert [item["correlation_key"] for item in filtered] == ["item-b-ready"]


# --- suspension


def test_a_suspended_instance_waits_until_it_is_resumed(kikwi: CommandLine) -> None:
    instance = started(kikwi, "own-external-task")
    task_id = instance["external_tasks"][0]["id"]

    suspended = kikwi.json("instances", "suspend", instance["id"])
    again = kikwi.run("instances", "suspend", instance["id"])
    refused = kikwi.run("external", "complete", task_id)
    resumed = kikwi.run("instances", "resume", instance["id"])
    completed = kikwi.run("external", "complete", task_id)

    assert suspended["status"] == "SUSPENDED"
    assert (again.exit_code, refused.exit_code) == (1, 1)
    assert "resume it first" in refused.stderr
    assert resumed.stdout == f"resumed instance {instance['id']}\n"
    assert completed.exit_code == 0


def test_variables_are_unset_by_name(kikwi: CommandLine) -> None:
    instance = started(kikwi, "own-external-task", "--var", "a=1", "--var", "b=2", "--var", "c=3")

    changed = kikwi.json("instances", "unset", instance["id"], "a", "b", "nothing")

    assert changed["variables"] == {"c": 3}


# --- where things hang


def test_what_is_attached_names_its_host_and_its_cycle(kikwi: CommandLine) -> None:
    instance = started(kikwi, "own-timer-events")

    listed = kikwi.run("tasks", "list", COLUMNS="200").stdout
    overview = kikwi.run("instances", "show", instance["id"], COLUMNS="200").stdout
    reminder = next(task for task in instance["tasks"] if task["node_id"] == "REMIND")
    shown = kikwi.run("tasks", "show", reminder["id"]).stdout

    for text in (listed, overview):
        assert "REMIND (on WAIT, cycle 1)" in text
        assert "DEADLINE (on WAIT)" in text
    assert "boundary catch" in overview
    assert "recall-waiting" in overview
    assert f"WAIT, task {reminder['attached_to']['host_id']}" in shown.replace("\n", " ")


def test_an_instance_is_shown_with_its_parent_and_its_children(kikwi: CommandLine) -> None:
    parent = started(kikwi, "own-external-task")
    origin = Parent(parent["id"], "coordinator", "branch", "starter", 1)
    child = an_instance(parent=origin, business_key="ORDER-1#0")

    async def act(store: MongoStore) -> None:
        await commit(store, InsertInstance(child))

    behind_the_scenes(kikwi, act)

    above = kikwi.json("instances", "show", parent["id"])
    below = kikwi.json("instances", "show", child.id)

    assert [each["id"] for each in above["children"]] == [child.id]
    assert "running children" in kikwi.run("instances", "show", parent["id"]).stdout
    assert below["parent"]["instance_id"] == parent["id"]
    assert parent["id"] in kikwi.run("instances", "show", child.id).stdout


# --- many incidents


def fail_all(kikwi: CommandLine) -> None:
    async def act(store: MongoStore) -> None:
        for task in (await store.reads.list_tasks(TaskQuery())).items:
            incident = an_incident(task)
            guard = FailTask(claim=await claim(store, task), attempts=2, error=incident.message)
            await commit(store, OpenIncident(incident), guards=(guard,))

    behind_the_scenes(kikwi, act)


@pytest.mark.field_case("S-47")
def test_all_incidents_are_retried_after_a_look_at_their_number(kikwi: CommandLine) -> None:
    started(kikwi, "own-retryable-task")
    started(kikwi, "own-retryable-task")
    fail_all(kikwi)

    refused = kikwi.run("incidents", "retry", "--all", stdin="n\n")
    still_open = kikwi.json("incidents", "list")["items"]
    done = kikwi.run("incidents", "retry", "--all", stdin="y\n")

    assert refused.exit_code == 1
    assert "retry 2 open incidents?" in refused.stderr
    assert len(still_open) == 2
    assert done.exit_code == 0
    assert kikwi.json("incidents", "list")["items"] == []


def test_only_the_incidents_of_one_instance_are_retried(kikwi: CommandLine) -> None:
    first = started(kikwi, "own-retryable-task")
    second = started(kikwi, "own-retryable-task")
    fail_all(kikwi)

    retried = kikwi.json("incidents", "retry", "--all", "--instance", first["id"], "--yes")

    assert [item["instance_id"] for item in retried["items"]] == [first["id"]]
    (left,) = kikwi.json("incidents", "list")["items"]
    assert left["instance_id"] == second["id"]


@pytest.mark.field_case("S-47", "S-85")
@pytest.mark.parametrize(
    ("chosen", "other"),
    [
        (["--definition", "own-retryable-task"], ["--definition", "own-executable-task"]),
        (["--node", "WEIGH"], ["--node", "SHIP"]),
        (["--type", "FAILED_JOB"], ["--type", "WORKER_LOST"]),
    ],
    ids=["definition", "node", "type"],
)
def test_the_incidents_of_a_filter_are_counted_and_retried_and_no_others(
    kikwi: CommandLine, chosen: list[str], other: list[str]
) -> None:
    started(kikwi, "own-retryable-task")
    kikwi.json("deploy", str(PROCESS_FOLDER / "own-executable-task.kikwi"))
    fail_all(kikwi)

    counted = kikwi.run("incidents", "retry", "--all", *chosen, stdin="n\n")
    nothing = kikwi.json("incidents", "retry", "--all", "--yes", *other)
    done = kikwi.json("incidents", "retry", "--all", "--yes", *chosen)
    repeated = kikwi.json("incidents", "retry", "--all", "--yes", *chosen)

    assert "retry 1 open incidents?" in counted.stderr
    assert (nothing["items"], len(done["items"]), repeated["items"]) == ([], 1, [])


def test_a_filter_by_a_definition_that_is_not_there_says_so(kikwi: CommandLine) -> None:
    started(kikwi, "own-retryable-task")

    result = kikwi.run("incidents", "list", "--definition", "own-retryable-tusk")

    assert result.exit_code == 1
    assert "did you mean 'own-retryable-task'?" in result.stderr


def test_an_incident_is_resolved_with_a_variable_or_by_going_past_it(kikwi: CommandLine) -> None:
    instance = started(kikwi, "own-retryable-task")
    fail_all(kikwi)
    (incident,) = kikwi.json("incidents", "list")["items"]

    kikwi.json("incidents", "retry", incident["id"], "--var", "amount=150", "--skip")

    shown = kikwi.json("instances", "show", instance["id"])
    assert shown["variables"]["amount"] == 150
    assert shown["tasks"][0]["is_skipped"] is True


# --- handlers at deploy


def test_a_definition_without_its_handler_is_refused_on_demand(kikwi: CommandLine) -> None:
    file = str(PROCESS_FOLDER / "own-retryable-task.kikwi")

    strict = kikwi.run("deploy", file, "--check-handlers")
    validated = kikwi.run("validate", file, "--check-handlers")
    lenient = kikwi.run("deploy", file)

    assert (strict.exit_code, validated.exit_code, lenient.exit_code) == (1, 1, 0)
    assert "no task handler 'weigh_parcel' is installed here" in strict.stderr


# --- what is stored


def checks(kikwi: CommandLine) -> dict[str, Json]:
    result = kikwi.run("store", "check", "--json")
    items: list[Json] = json.loads(result.stdout)["items"]
    assert result.exit_code == int(any(item["verdict"] == "fail" for item in items))
    return {item["check"]: item for item in items}


def test_a_check_of_a_new_database_prepares_nothing(kikwi: CommandLine) -> None:
    before = checks(kikwi)
    again = checks(kikwi)

    assert before == again
    assert before["schema"]["verdict"] == "warn"
    assert "store upgrade" in before["schema"]["remedy"]


def test_an_upgrade_prepares_a_new_database(kikwi: CommandLine) -> None:
    result = kikwi.run("store", "upgrade")

    assert result.exit_code == 0
    assert result.stdout.startswith("schema: a new database -> version ")
    assert {item["verdict"] for item in checks(kikwi).values()} == {"ok"}
    assert "none, all were there" in kikwi.run("store", "upgrade").stdout


@pytest.mark.parametrize(
    "key",
    ["own-timer-events", "own-wait-all", "own-wait-any", "own-parallel-join", "own-call-each"],
)
def test_a_database_with_waiting_instances_is_in_order(kikwi: CommandLine, key: str) -> None:
    lists = ('items=["a", "b"]', 'carriers=["a", "b"]', 'parcels=["a", "b"]')
    started(kikwi, key, *(word for each in lists for word in ("--var", each)))

    assert {item["verdict"] for item in checks(kikwi).values()} == {"ok"}


# --- other versions, other times


def another_version(tmp_path: Path, key: str, old: str, new: str) -> str:
    file = tmp_path / f"{key}.kikwi"
    file.write_text((PROCESS_FOLDER / f"{key}.kikwi").read_text().replace(old, new))
    return str(file)


def test_an_instance_is_moved_to_another_version_after_a_look(
    kikwi: CommandLine, tmp_path: Path
) -> None:
    instance = started(kikwi, "own-external-task")
    kikwi.json("deploy", another_version(tmp_path, "own-external-task", "handed over", "gone"))

    dry = kikwi.run("instances", "migrate", instance["id"], "--dry-run")
    moved = kikwi.json("instances", "migrate", instance["id"])

    assert dry.stdout.endswith("can be moved from version 1 to 2\n")
    assert moved["migrated"] is True
    assert kikwi.json("instances", "show", instance["id"])["definition_version"] == 2


def test_an_instance_that_rests_at_a_missing_node_is_not_moved(
    kikwi: CommandLine, tmp_path: Path
) -> None:
    instance = started(kikwi, "own-external-task")
    kikwi.json("deploy", another_version(tmp_path, "own-external-task", "CONFIRM", "AGREE"))

    result = kikwi.run("instances", "migrate", instance["id"])

    assert result.exit_code == 1
    assert "it rests at CONFIRM, which version 2 does not have" in result.stderr


def test_all_instances_of_a_definition_are_moved_with_a_verdict_for_each(
    kikwi: CommandLine, tmp_path: Path
) -> None:
    instance = started(kikwi, "own-external-task")
    kikwi.json("deploy", another_version(tmp_path, "own-external-task", "handed over", "gone"))

    dry = kikwi.run("definitions", "migrate", "own-external-task", "--dry-run")
    moved = kikwi.run("definitions", "migrate", "own-external-task")
    again = kikwi.run("definitions", "migrate", "own-external-task")
    kikwi.json("deploy", another_version(tmp_path, "own-external-task", "CONFIRM", "AGREE"))
    refused = kikwi.run("definitions", "migrate", "own-external-task")

    assert [instance["id"], "1", "2", "can", "be", "moved"] in map(
        str.split, dry.stdout.splitlines()
    )
    assert [instance["id"], "1", "2", "moved"] in map(str.split, moved.stdout.splitlines())
    assert again.stdout == "no running instance of own-external-task has another version\n"
    assert refused.exit_code == 1
    assert "    it rests at CONFIRM, which version 3 does not have" in refused.stdout.splitlines()


def test_a_deleted_instance_leaves_no_record(kikwi: CommandLine) -> None:
    instance = started(kikwi, "own-external-task")

    kept = kikwi.run("instances", "delete", instance["id"], stdin="n\n")
    gone = kikwi.run("instances", "delete", instance["id"], "--yes")

    assert (kept.exit_code, gone.exit_code) == (1, 0)
    assert kikwi.run("instances", "show", instance["id"]).exit_code == 1
    assert kikwi.json("instances", "list", "--ended")["items"] == []


def test_a_timer_is_put_off(kikwi: CommandLine) -> None:
    instance = started(kikwi, "own-timer-static")
    task_id = instance["tasks"][0]["id"]

    result = kikwi.run("tasks", "override", task_id, "--due", "P30D")
    wrong = kikwi.run("tasks", "override", task_id, "--due", "soon")

    assert result.exit_code == 0
    assert "(in 29d)" in result.stdout or "(in 30d)" in result.stdout
    assert wrong.exit_code == 1
    assert wrong.stderr.startswith("error: ")


def test_a_failed_task_gets_other_attempts(kikwi: CommandLine) -> None:
    started(kikwi, "own-retryable-task")
    fail_all(kikwi)
    (failed,) = kikwi.json("tasks", "list")["items"]

    task = kikwi.json("tasks", "override", failed["id"], "--retries", "7")

    assert (task["status"], task["retries_left"]) == ("PENDING", 7)
    assert kikwi.json("incidents", "list")["items"] == []


def test_nothing_starts_while_a_definition_is_suspended(kikwi: CommandLine) -> None:
    started(kikwi, "own-external-task")

    suspended = kikwi.run("definitions", "suspend", "own-external-task")
    (listed,) = kikwi.json("definitions", "list")["items"]
    refused = kikwi.run("start", "own-external-task", "--business-key", "B")
    resumed = kikwi.json("definitions", "resume", "own-external-task")
    accepted = kikwi.run("start", "own-external-task", "--business-key", "B")

    assert suspended.stdout == "suspended definition own-external-task and 1 running instances\n"
    assert listed["is_suspended"] is True
    assert (refused.exit_code, accepted.exit_code) == (1, 0)
    assert resumed == {"key": "own-external-task", "instances": 1}
