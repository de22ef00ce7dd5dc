"""The verifier finds every kind of violation, planted after a real small run; the untouched run has none."""

import asyncio
import json
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.messages import Message, MessageStatus
from kikwiflow_worker.model.runtime import Branch, TaskStatus, TaskType
from kikwiflow_worker.store.mongo.codec import (
    encode_external_task,
    encode_incident,
    encode_message,
    encode_task,
)
from kikwiflow_worker.store.mongo.reachability import Reachability
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.chaos.verify import lines_of, main, verify
from tests.chaos.verify_report import Report
from tests.chaos.verify_trial import PROCESSES, drive, two_workers
from tests.support.mongo import MongoServer
from tests.support.stores import FAR_AWAY, LONG_AGO, a_task, an_external_task, an_incident
from tests.support.workers import Json

pytestmark = [pytest.mark.mongo, pytest.mark.acceptance, pytest.mark.timeout(120)]

NAME = f"kikwi_test_verify_{uuid4().hex[:12]}"


@dataclass(slots=True)
class Run:
    """A run that has come to its end, and a way to plant violations into it.

    Attributes:
        stored: What the run left in each collection.
        until: The place in the server's log where the run ended.
        looks: What ``kikwiflow-worker verify`` said while workers ran.
    """

    server: MongoServer
    database: Database[Json]
    folder: Path
    stored: dict[str, list[Json]]
    looks: list[Reachability]
    until: Timestamp
    lines: list[Json] = field(default_factory=list)
    ledger: list[Json] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)

    def collection(self, name: str) -> Collection[Json]:
        """Return a collection to plant something in; it is put right after the test."""
        self.touched.add(name)
        return self.database[name]

    def history(self, key: str, status: str = "COMPLETED") -> list[Json]:
        """Return the instances of a definition that have ended like this."""
        return deepcopy(
            [
                found
                for found in self.stored["process_history"]
                if found["processDefinitionKey"] == key and found["status"] == status
            ]
        )

    def replace(self, document: Json) -> None:
        """Store a changed instance."""
        self.collection("process_history").replace_one({"_id": document["_id"]}, document)

    def effects(self, instance: str, node: str, phase: str = "end") -> list[Json]:
        """Return the lines about a node."""
        wanted = {"instance": instance, "node": node, "phase": phase}
        return [line for line in self.lines if wanted.items() <= line.items()]

    def report(self) -> Report:
        """Verify what is there now."""
        effects, ledger = self.folder / "planted-effects.jsonl", self.folder / "planted.jsonl"
        for path, lines in ((effects, self.lines), (ledger, self.ledger)):
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return verify(self.server.uri, NAME, effects, ledger, until=self.until)

    def put_right(self) -> None:
        """Take back what was planted."""
        for name in self.touched:
            self.database[name].delete_many({})
            if self.stored.get(name):
                self.database[name].insert_many(self.stored[name])
        self.touched.clear()


@pytest.fixture(scope="module")
def ended_run(mongo_server: MongoServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run the load with two workers, and stop them when everything has ended."""
    folder = tmp_path_factory.mktemp("chaos")
    looks: list[Reachability] = []

    async def load() -> None:
        store = MongoStore.open(mongo_server.uri, NAME, clock=SystemClock())

        async def look() -> None:
            looks.append(await store.find_unreachable(grace=timedelta(seconds=2)))

        try:
            assert await drive(mongo_server, NAME, folder, beside=look)
        finally:
            await store.close()

    with (
        MongoClient[Json](mongo_server.uri, tz_aware=True) as client,
        two_workers(mongo_server, NAME, folder) as workers,
    ):
        asyncio.run(load())
        for worker in workers.started:
            assert worker.stop() == 0
        database = client[NAME]
        stored = {name: list(database[name].find()) for name in database.list_collection_names()}
        until = client.admin.command("ping")["operationTime"]
        yield Run(mongo_server, database, folder, stored, looks, until)
        client.drop_database(NAME)


@pytest.fixture
def run(ended_run: Run) -> Iterator[Run]:
    """Return the run as it ended."""
    lines = (ended_run.folder / "effects.jsonl").read_text().splitlines()
    ledger = (ended_run.folder / "ledger.jsonl").read_text().splitlines()
    own = replace(
        ended_run,
        lines=[json.loads(line) for line in lines],
        ledger=[json.loads(line) for line in ledger],
        touched=set(),
    )
    yield own
    own.put_right()


def trail_of(document: Json) -> list[str]:
    """Return the trail of an instance, to be changed in place."""
    trail: list[str] = document["variables"]["trail"]["value"]
    return trail


def place_of(document: Json, node: str) -> int:
    """Return where a node is on the trail."""
    return next(i for i, entry in enumerate(trail_of(document)) if entry.split()[0] == node)


def assert_found(lines: tuple[str, ...], *parts: str) -> None:
    """Fail unless one line has all these parts."""
    assert any(all(part in line for part in parts) for line in lines), lines


# --- the untouched run


def test_an_untouched_run_is_clean(run: Run) -> None:
    report = run.report()

    assert report.is_clean, lines_of(report)
    assert report.handler_calls == len([line for line in run.lines if line["phase"] == "start"])
    assert report.handler_repeats == 0
    assert report.instances == len(run.stored["process_history"]) > 10
    assert report.tasks > 150
    assert report.commits > 100
    for _, each in PROCESSES:
        assert run.history(each.key), f"no instance of {each.key} came to its end"
    assert any(found["status"] == "CANCELLED" for found in run.stored["process_history"])


def test_workers_at_work_leave_nothing_that_nobody_can_reach(run: Run) -> None:
    """What is legal in passing was looked at while it passed."""
    assert len(run.looks) > 2
    assert sum(sum(look.examined.values()) for look in run.looks) > 50
    assert [each for look in run.looks for each in look.found] == []


def test_a_handler_repeat_is_counted_and_no_violation(run: Run) -> None:
    """Its worker was killed after the call began; another worker called it again."""
    first = next(line for line in run.lines if line["phase"] == "start")
    run.lines.insert(0, {**first, "call": "killed", "at": first["at"] - 1})

    report = run.report()

    assert (report.is_clean, report.handler_repeats) == (True, 1), lines_of(report)


def test_the_command_fails_with_what_is_wrong(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.chaos.verify.verify", partial(verify, until=run.until))
    given = ["--uri", run.server.uri, "--database", NAME, "--effects"]
    given += [str(run.folder / "effects.jsonl"), "--ledger", str(run.folder / "ledger.jsonl")]
    assert main(given) == 0
    capsys.readouterr()
    (lost, *_) = run.history("work")
    run.collection("process_history").delete_one({"_id": lost["_id"]})

    assert main(given) == 1
    assert re.search(rf"lost +\d+\n +instance {lost['_id']}", capsys.readouterr().out)


# --- steps


def test_a_step_that_was_never_committed(run: Run) -> None:
    document = run.history("work")[0]
    node, _, _ = trail_of(document).pop(0).split()
    run.replace(document)

    report = run.report()

    assert_found(
        report.lost, node, document["_id"], "was never committed, though its handler ended"
    )
    assert_found(report.other, document["_id"], "variable total")
    assert_found(report.other, document["_id"], "variable fold")


def test_a_quiet_step_that_nobody_ran(run: Run) -> None:
    document = run.history("work")[0]
    nodes = {entry.split()[0] for entry in trail_of(document)}
    node = next(
        line["node"]
        for line in run.lines
        if line["instance"] == document["_id"] and line["node"] not in nodes
    )
    run.lines = [line for line in run.lines if not run_of(line, document, node, "end")]

    assert_found(run.report().lost, node, document["_id"], "its handler never ended")


def run_of(line: Json, document: Json, node: str, phase: str) -> bool:
    """Return whether a line of the effects log is about this."""
    return {"instance": document["_id"], "node": node, "phase": phase}.items() <= line.items()


def test_a_step_that_was_committed_twice_under_one_key(run: Run) -> None:
    document = run.history("work")[0]
    node, key, _ = trail_of(document)[1].split()
    trail_of(document).append(trail_of(document)[1])
    run.replace(document)

    assert_found(run.report().doubled, node, document["_id"], key, "committed 2 times")


def test_a_join_that_fired_twice_runs_what_follows_under_a_second_key(run: Run) -> None:
    document = run.history("work")[0]
    node = behind_the_join()
    again = {"key": "second-key", "call": "second-call"}
    for phase in ("start", "end"):
        run.lines.append({**run.effects(document["_id"], node, phase)[0], **again})
    trail_of(document).append(f"{node} second-key second-call")
    run.replace(document)

    report = run.report()

    assert_found(report.doubled, node, document["_id"], "ran under 2 idempotency keys")
    assert_found(report.doubled, node, document["_id"], "committed 2 times")


def behind_the_join() -> str:
    """Return the handler behind the split of ``work`` that has four handlers as its branches."""
    file = PROCESSES[0][1].file["flowNodes"]
    split = next(n for n in file.values() if n["type"] == "PARALLEL_GATEWAY" and is_flat(file, n))
    join = file[split["targetJoinId"]]
    target: str = join["outgoing"][0]["targetNodeId"]
    return target


def is_flat(file: Json, split: Json) -> bool:
    """Return whether four handlers follow a split."""
    kinds = [file[flow["targetNodeId"]]["type"] for flow in split["outgoing"]]
    return kinds == ["EXECUTABLE_TASK"] * 4


def test_a_join_that_fired_early(run: Run) -> None:
    document = run.history("work")[0]
    node = behind_the_join()
    trail = trail_of(document)
    at = place_of(document, node)
    trail[at - 1], trail[at] = trail[at], trail[at - 1]
    run.replace(document)
    before = trail[at].split()[0]

    assert_found(run.report().other, node, before, document["_id"], "was committed before")


def test_a_join_that_fired_while_a_branch_still_ran(run: Run) -> None:
    document = run.history("work")[0]
    node = behind_the_join()
    (started,) = run.effects(document["_id"], node, "start")
    started["at"] -= 5

    assert_found(run.report().other, node, document["_id"], "began", "had ended, which comes first")


def test_two_steps_in_the_wrong_order(run: Run) -> None:
    document = run.history("work")[0]
    trail = trail_of(document)
    trail[0], trail[1] = trail[1], trail[0]
    run.replace(document)
    first, second = trail[0].split()[0], trail[1].split()[0]

    report = run.report()

    assert_found(report.other, first, second, document["_id"], "was committed before")
    assert_found(report.other, document["_id"], "variable fold")


@pytest.mark.parametrize("name", ["total", "fold"])
def test_a_variable_that_no_step_gave(run: Run, name: str) -> None:
    document = run.history("work")[0]
    document["variables"][name]["value"] += 1
    run.replace(document)

    assert_found(run.report().other, f"variable {name}", document["_id"])


def test_an_outcome_without_an_effect(run: Run) -> None:
    document = run.history("work")[0]
    node, key, called = trail_of(document)[0].split()
    run.lines = [line for line in run.lines if (line["call"], line["phase"]) != (called, "end")]

    assert_found(run.report().other, node, key, document["_id"], called, "which never ended")


def test_an_effect_without_an_outcome(run: Run) -> None:
    """A second call under another key that ended, and nothing came of it."""
    document = run.history("work")[0]
    node, _, _ = trail_of(document)[0].split()
    for phase in ("start", "end"):
        run.lines.append({**run.effects(document["_id"], node, phase)[0], "key": "lost"})

    report = run.report()

    assert_found(report.doubled, node, document["_id"], "2 idempotency keys")
    assert_found(report.lost, node, "lost", document["_id"], "committed under another key")


def test_a_key_that_two_steps_were_given(run: Run) -> None:
    document = run.history("work")[0]
    first, second = trail_of(document)[0].split(), trail_of(document)[1].split()
    for phase in ("start", "end"):
        run.effects(document["_id"], second[0], phase)[0]["key"] = first[1]

    assert_found(run.report().other, first[1], second[0], first[0], document["_id"])


def test_both_ways_out_of_a_race(run: Run) -> None:
    document = run.history("people")[0]
    ways = PROCESSES[1][1].file["flowNodes"]
    event = next(n for n in ways.values() if n["type"] == "BOUNDARY_INTERRUPTIVE_CATCH_EVENT")
    host = ways[event["attachedToRef"]]
    both = [each["outgoing"][0]["targetNodeId"] for each in (host, event)]
    on_trail = {entry.split()[0] for entry in trail_of(document)}
    (taken,), (other,) = set(both) & on_trail, set(both) - on_trail
    for phase in ("start", "end"):
        line = run.effects(document["_id"], taken, phase)[0]
        run.lines.append({**line, "key": "other", "node": other, "call": "other"})
    trail_of(document).insert(place_of(document, taken), f"{other} other other")
    run.replace(document)

    assert_found(run.report().doubled, taken, other, document["_id"], "only one can")


def test_a_handler_of_the_way_that_was_not_taken(run: Run) -> None:
    document = run.history("people")[0]
    nodes = PROCESSES[1][1].file["flowNodes"]
    event = next(n for n in nodes.values() if n["type"] == "BOUNDARY_INTERRUPTIVE_CATCH_EVENT")
    both = {
        nodes[event["attachedToRef"]]["outgoing"][0]["targetNodeId"],
        event["outgoing"][0]["targetNodeId"],
    }
    on_trail = {entry.split()[0] for entry in trail_of(document)}
    (taken,), (other,) = both & on_trail, both - on_trail
    line = run.effects(document["_id"], taken, "start")[0]
    run.lines.append({**line, "key": "other", "node": other, "call": "other"})

    assert_found(run.report().other, other, document["_id"], "was not the way taken")


def test_a_timer_that_fired_too_often(run: Run) -> None:
    document = run.history("people")[0]
    reminder = next(
        n for n in PROCESSES[1][1].file["flowNodes"].values() if "NON_INTERRUPTIVE" in n["type"]
    )
    node = reminder["outgoing"][0]["targetNodeId"]
    trail_of(document).extend(f"{node} key-{index} call" for index in range(3))
    run.replace(document)

    assert_found(run.report().doubled, node, document["_id"], "its timer fires 2 times")


# --- instances


def test_a_start_that_was_lost(run: Run) -> None:
    (lost, *_) = run.history("people")
    run.collection("process_history").delete_one({"_id": lost["_id"]})

    report = run.report()

    assert_found(report.lost, lost["_id"], lost["businessKey"], "was promised")
    assert_found(report.lost, lost["_id"], "is in no collection")


def test_a_start_that_was_doubled(run: Run) -> None:
    (document, *_) = run.history("work")
    run.collection("process_history").insert_one({**document, "_id": "twin"})

    assert_found(run.report().doubled, document["businessKey"], document["_id"], "twin")


def test_a_start_that_nobody_asked_for(run: Run) -> None:
    (document, *_) = run.history("work")
    stranger = {**document, "_id": "stranger", "businessKey": "work/999"}
    run.collection("process_history").insert_one(stranger)

    assert_found(run.report().other, "stranger", "work/999", "never asked for")


def test_an_instance_that_was_cancelled_by_nobody(run: Run) -> None:
    (document, *_) = run.history("work")
    run.replace({**document, "status": "CANCELLED"})

    assert_found(run.report().lost, document["_id"], "nobody asked for that")


def test_an_instance_that_has_not_ended(run: Run) -> None:
    (document, *_) = run.history("work")
    document["status"] = "ACTIVE"
    run.collection("process_history").delete_one({"_id": document["_id"]})
    run.collection("process_instances").insert_one({**document, "openPaths": 1})

    report = run.report()

    assert_found(report.stuck, document["_id"], "has not ended", "no task at all")
    assert_found(report.stuck, document["_id"], "no row carries it on")


def test_an_instance_that_runs_and_has_ended(run: Run) -> None:
    (document, *_) = run.history("work")
    run.collection("process_instances").insert_one({**document, "openPaths": 1})

    assert_found(run.report().doubled, document["_id"], "runs and has ended at once")


def test_a_child_that_is_missing(run: Run) -> None:
    child, parent = a_child_of_three(run)
    run.collection("process_history").delete_one({"_id": child["_id"]})

    assert_found(run.report().lost, parent, "has 2 completed children, not 3")


def test_a_child_that_was_started_twice(run: Run) -> None:
    child, parent = a_child_of_three(run)
    run.collection("process_history").insert_one({**child, "_id": "twin"})

    report = run.report()

    assert_found(report.doubled, parent, "has 4 completed children, not 3")
    assert_found(report.doubled, "twin", child["_id"], child["starterTaskId"])


def test_a_child_that_lost_its_last_step(run: Run) -> None:
    child, _ = a_child_of_three(run)
    node, _, _ = trail_of(child).pop().split()
    run.replace(child)

    assert_found(run.report().lost, node, child["_id"], "was never committed")


def a_child_of_three(run: Run) -> tuple[Json, str]:
    """Return a child of a call activity with three of them, and its parent's id."""
    parents = {document["_id"] for document in run.history("calls")}
    for called in PROCESSES[3][1].children:
        children = [c for c in run.history(called.key) if c["parentInstanceId"] in parents]
        of_one = [c for c in children if c["parentInstanceId"] == children[0]["parentInstanceId"]]
        if len(of_one) == 3:
            return of_one[0], of_one[0]["parentInstanceId"]
    raise AssertionError("no call activity had three children")


# --- people and messages


def a_completion(run: Run) -> Json:
    """Return what was promised about an external task of an instance that came to its end."""
    whole = {document["_id"] for document in run.history("people")}
    return next(
        line
        for line in run.ledger
        if line["op"] == "completed" and line["answer"] == "done" and line["instance"] in whole
    )


def test_a_completion_that_was_lost(run: Run) -> None:
    done = a_completion(run)
    run.collection("completed_external_tasks").delete_one({"_id": done["task"]})

    assert_found(run.report().lost, done["task"], done["node"], done["instance"], "no record")


def test_a_completion_that_two_were_promised(run: Run) -> None:
    done = a_completion(run)
    run.ledger.append({**done, "by": "eve"})

    assert_found(run.report().doubled, done["task"], done["node"], done["instance"], "by eve")


def test_a_completion_whose_variables_are_of_somebody_else(run: Run) -> None:
    done = a_completion(run)
    (document,) = [found for found in run.history("people") if found["_id"] == done["instance"]]
    document["variables"][f"by {done['node']}"]["value"] = "eve"
    run.replace(document)

    assert_found(run.report().other, done["task"], done["node"], "its variable says eve")


def a_message(run: Run) -> tuple[Json, str, str]:
    """Return an instance that took a message, the variable that says so, and the message."""
    for document in run.history("notes"):
        for name, variable in document["variables"].items():
            if name.startswith("msg "):
                return document, name, variable["value"]
    raise AssertionError("no message was taken")


def test_a_message_that_was_lost(run: Run) -> None:
    document, name, sent = a_message(run)
    del document["variables"][name]
    run.replace(document)

    assert_found(run.report().lost, repr(sent), "no instance took it")


def test_a_message_that_two_instances_took(run: Run) -> None:
    _, name, sent = a_message(run)
    (other, *_) = run.history("work")
    other["variables"][name] = {"name": name, "value": sent}
    run.replace(other)

    assert_found(run.report().doubled, repr(sent), "2 instances took it")


def test_an_incident_that_nobody_planned(run: Run) -> None:
    found = {"incident": "i-1", "type": "FAILED_JOB", "instance": "x", "node": "N", "message": "no"}
    run.ledger.append({"op": "incident", **found})

    assert_found(run.report().other, "i-1", "FAILED_JOB", "node N of instance x")


# --- rows

AT = {"node_id": "NODE", "instance_id": "nowhere"}
STARTER = {
    "type": TaskType.CALL_ACTIVITY_STARTER,
    "status": TaskStatus.STARTED,
    "branch": Branch("gone:0", "gone"),
    "claimable_at": None,
}
LEFT: dict[str, tuple[str, Json, str]] = {
    "task": ("executable_tasks", encode_task(a_task(id="left", **AT)), "STANDARD, PENDING"),
    "locked": (
        "executable_tasks",
        encode_task(
            a_task(
                id="left",
                **AT,
                status=TaskStatus.LOCKED,
                worker_id="worker-9",
                lock_expires_at=LONG_AGO,
            )
        ),
        "locked by worker-9",
    ),
    "arrived": (
        "executable_tasks",
        encode_task(
            a_task(id="left", **AT, status=TaskStatus.ARRIVED, branch=Branch("j:0", "gone"))
        ),
        "STANDARD, ARRIVED",
    ),
    "join": (
        "executable_tasks",
        encode_task(
            a_task(
                id="left",
                **AT,
                type=TaskType.JOIN_GATEWAY,
                status=TaskStatus.AWAITING_BRANCHES,
                claimable_at=None,
                pending_branch_ids=("left:0",),
            )
        ),
        "AWAITING_BRANCHES",
    ),
    "starter": ("executable_tasks", encode_task(a_task(id="left", **AT, **STARTER)), "STARTED"),
    "external": ("external_tasks", encode_external_task(an_external_task(id="left", **AT)), "left"),
    "incident": (
        "incidents",
        encode_incident(an_incident(a_task(id="left", **AT), node_id="NODE")),
        "is open",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LEFT)
def test_a_row_that_is_left(run: Run, kind: str) -> None:
    name, document, words = LEFT[kind]
    run.collection(name).insert_one(dict(document))

    report = run.report()

    assert_found(report.stuck, "left", "NODE", "nowhere", words)
    assert (report.lost, report.doubled, report.other) == ((), (), ())


def test_a_kept_message_that_nobody_delivers(run: Run) -> None:
    kept = Message(
        id="alone",
        key="k",
        tenant_id=None,
        variables={},
        status=MessageStatus.KEPT,
        created_at=LONG_AGO,
        kept_until=FAR_AWAY,
        expires_at=FAR_AWAY,
    )
    run.collection("messages").insert_one(encode_message(kept))

    assert_found(run.report().stuck, "messages", "alone", "no task delivers it")
