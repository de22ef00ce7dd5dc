"""The verifier finds broken promises and rows that are left, planted after a real small run."""

import pytest

from kikwiflow_worker.model.messages import Message, MessageStatus
from kikwiflow_worker.model.runtime import Branch, TaskStatus, TaskType
from kikwiflow_worker.store.mongo.codec import (
    encode_external_task,
    encode_incident,
    encode_message,
    encode_task,
)
from tests.chaos.verify_planting import Run, assert_found
from tests.support.stores import FAR_AWAY, LONG_AGO, a_task, an_external_task, an_incident
from tests.support.workers import Json

pytestmark = [pytest.mark.mongo, pytest.mark.acceptance, pytest.mark.timeout(120)]

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
