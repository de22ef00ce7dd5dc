"""What is wrong in the server's own log of commits is found: planted into the log of a run of hand-made commits."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.chaos.load_shape import Json
from tests.chaos.verify_oplog import INSTANCES, TASKS, WAITS, History

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def inserted(collection: str, row_id: str, **fields: Any) -> Json:
    row = {
        "_id": row_id,
        "type": "STANDARD",
        "status": "PENDING",
        "taskDefinitionId": f"NODE-{row_id}",
        "processInstanceId": "i",
    }
    chosen = {"_id": row_id, **fields} if collection == INSTANCES else {**row, **fields}
    return {"op": "i", "ns": f"db.{collection}", "o": chosen}


def updated(collection: str, row_id: str, **fields: Any) -> Json:
    return {
        "op": "u",
        "ns": f"db.{collection}",
        "o2": {"_id": row_id},
        "o": {"diff": {"u": fields}},
    }


def deleted(collection: str, row_id: str) -> Json:
    return {"op": "d", "ns": f"db.{collection}", "o": {"_id": row_id}}


def alone(change: Json, at_s: float = 0) -> Json:
    return {**change, "wall": NOON + timedelta(seconds=at_s)}


def commit(*changes: Json, at_s: float = 0) -> Json:
    operations = {"applyOps": list(changes)}
    return {"o": operations, "txnNumber": 1, "wall": NOON + timedelta(seconds=at_s)}


def claimed(row_id: str, worker: str = "w1", at_s: float = 0) -> Json:
    until = NOON + timedelta(seconds=at_s + 5)
    change = updated(TASKS, row_id, status="LOCKED", workerId=worker, lockExpiresAt=until)
    return alone(change, at_s)


BRANCHES = ("j:0", "j:1")
START, CLAIM, SPLIT, CLAIM_0, ARRIVE_0, CLAIM_1, ARRIVE_1, RELEASE, CLAIM_J, END = range(10)
LOG = [
    commit(inserted(INSTANCES, "i", openPaths=1), inserted(TASKS, "a")),
    claimed("a"),
    commit(
        deleted(TASKS, "a"),
        inserted(
            TASKS,
            "j",
            type="JOIN_GATEWAY",
            status="AWAITING_BRANCHES",
            pendingBranchIds=list(BRANCHES),
        ),
        *(inserted(TASKS, f"b{n}", joinTaskId="j", branchId=BRANCHES[n]) for n in (0, 1)),
    ),
    claimed("b0"),
    commit(updated(TASKS, "b0", status="ARRIVED")),
    claimed("b1"),
    commit(updated(TASKS, "b1", status="ARRIVED")),
    alone(updated(TASKS, "j", status="PENDING")),
    claimed("j"),
    commit(deleted(TASKS, "j"), deleted(INSTANCES, "i")),
]


def found_in(log: list[Json]) -> list[tuple[str, str]]:
    history = History()
    history.follow(log, "db")
    return [(each.kind.value, each.words) for each in history.violations]


def with_(place: int, *entries: Json) -> list[Json]:
    """Return the log with entries put in before a place."""
    return [*deepcopy(LOG[:place]), *entries, *deepcopy(LOG[place:])]


def without(place: int, change: int) -> list[Json]:
    """Return the log without one change of a commit."""
    log = deepcopy(LOG)
    del log[place]["o"]["applyOps"][change]
    return log


def test_the_log_of_a_run_is_clean_and_counted() -> None:
    history = History()
    history.follow(deepcopy(LOG), "db")

    assert (history.violations, history.commits, history.claims) == ([], 5, 4)


def test_what_is_legal_is_not_reported() -> None:
    legal = [
        alone(deleted(TASKS, "b0")),  # an arrival that was delivered
        claimed("b1", worker="w2", at_s=60),  # of a worker that died
        commit(updated(INSTANCES, "i", variables={})),
        commit(
            inserted(WAITS, "k", processInstanceId="", type="KEPT_MESSAGE", taskDefinitionId="m")
        ),
    ]

    assert found_in(with_(ARRIVE_1, *legal)) == []


@pytest.mark.parametrize(
    ("log", "kind", "words"),
    [
        (without(END, 1), "lost", "task j (JOIN_GATEWAY) at node NODE-j of instance i was removed, and nothing follows it"),
        (with_(CLAIM, alone(deleted(TASKS, "a"))), "lost", "task a (STANDARD) at node NODE-a of instance i was removed while PENDING, by no commit"),
        (with_(RELEASE, commit(inserted(TASKS, "a"), deleted(TASKS, "b0"))), "doubled", "task a (STANDARD) at node NODE-a of instance i was created a second time"),
        (with_(RELEASE, commit(inserted(TASKS, "x"))), "doubled", "task x (STANDARD) at node NODE-x of instance i came from no task of its instance"),
        (with_(CLAIM_J, alone(updated(TASKS, "j", status="AWAITING_BRANCHES")), alone(updated(TASKS, "j", status="PENDING"))), "doubled", "task j (JOIN_GATEWAY) at node NODE-j of instance i was released 2 times"),
        (with_(CLAIM_1, alone(updated(TASKS, "j", status="PENDING"))), "doubled", "task j (JOIN_GATEWAY) at node NODE-j of instance i was released before 1 of its branches, such as j:1"),
        (with_(RELEASE, commit(updated(TASKS, "b0", status="PENDING")), commit(updated(TASKS, "b0", status="ARRIVED"))), "doubled", "task b0 (STANDARD) at node NODE-b0 of instance i ended branch j:0 a second time"),
        (with_(SPLIT, claimed("a", worker="w2", at_s=1)), "other", "task a (STANDARD) at node NODE-a of instance i was claimed by w2 while w1 held it for 4.000 s more"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported(log: list[Json], kind: str, words: str) -> None:
    assert (kind, words) in found_in(log)


def test_a_transaction_over_several_entries_is_one_commit() -> None:
    log = deepcopy(LOG)
    operations = log[SPLIT]["o"]["applyOps"]
    first = {**log[SPLIT], "o": {"applyOps": operations[:2], "partialTxn": True}}
    log[SPLIT]["o"]["applyOps"] = operations[2:]
    log.insert(SPLIT, first)

    assert found_in(log) == []
