"""`kikwiflow-worker verify`: each kind of row that nobody can reach, planted, and nothing else reported."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.messages import Message, MessageStatus, keeper_of
from kikwiflow_worker.model.nodes import MatchPolicy
from kikwiflow_worker.model.runtime import (
    Attachment,
    Branch,
    ExternalTaskStatus,
    ExternalTaskType,
    HostKind,
    InstanceStatus,
    Loop,
    Parent,
    ProcessInstance,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.store.mongo.codec import (
    encode_external_task,
    encode_incident,
    encode_instance,
    encode_message,
    encode_task,
)
from kikwiflow_worker.store.mongo.driver import CODEC_OPTIONS
from kikwiflow_worker.store.mongo.reachability_rules import Trouble
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.mongo.writes import children_canceller
from tests.support.cli import CommandLine, restored_logging
from tests.support.mongo import MongoServer
from tests.support.stores import (
    FAR_AWAY,
    LONG_AGO,
    Json,
    a_branch_task,
    a_join,
    a_task,
    an_external_task,
    an_incident,
    an_instance,
)

__all__ = ["restored_logging"]

pytestmark = [pytest.mark.mongo, pytest.mark.usefixtures("restored_logging")]

ROOT = an_instance(id="root")
SUSPENDED = an_instance(id="suspended", status=InstanceStatus.SUSPENDED)
CALLER = a_task(
    id="caller",
    instance_id="root",
    type=TaskType.CALL_ACTIVITY_COORDINATOR,
    status=TaskStatus.AWAITING_BRANCHES,
    claimable_at=None,
    pending_branch_ids=("caller:0",),
    loop=Loop(0),
)
STARTER = a_task(
    id="starter",
    instance_id="root",
    type=TaskType.CALL_ACTIVITY_STARTER,
    status=TaskStatus.STARTED,
    claimable_at=None,
    branch=Branch("caller:0", "caller"),
)
CHILD = an_instance(id="child", parent=Parent("root", "caller", "caller:0", "starter", 1))
JOIN = a_join("b1", "b2", id="join", instance_id="root")
HOST = an_external_task(id="host", instance_id="root", branch=Branch("b2", "join"))
FAILED = a_task(id="failed", instance_id="root", status=TaskStatus.ERROR, claimable_at=None)
MESSAGE = Message(
    id="m",
    key="order-7",
    tenant_id=None,
    variables={},
    status=MessageStatus.KEPT,
    created_at=LONG_AGO,
    kept_until=FAR_AWAY,
    expires_at=FAR_AWAY,
)
GROUP = an_external_task(
    id="group",
    instance_id="root",
    type=ExternalTaskType.GROUP,
    match_policy=MatchPolicy.ALL,
    pending_keys=("k1", "k2"),
    total_keys=3,
)


def a_key(key: str, **fields: object) -> Json:
    kinds: Json = {"type": ExternalTaskType.GROUP_KEY, "group_id": "group", "correlation_key": key}
    task = an_external_task(**{"id": key, "instance_id": "root", **kinds, **fields})
    return encode_external_task(task)


NAME = f"kikwi_test_reach_{uuid4().hex[:12]}"
"""One database for all tests here: making its collections takes longer than a test."""


@pytest.fixture(scope="module")
def made_once(mongo_server: MongoServer) -> Iterator[Database[Json]]:
    with MongoClient[Json](mongo_server.uri) as client:
        yield client.get_database(NAME, codec_options=CODEC_OPTIONS)
        client.drop_database(NAME)


@pytest.fixture
def database(made_once: Database[Json]) -> Database[Json]:
    for name in made_once.list_collection_names():
        made_once[name].delete_many({})
    return made_once


@pytest.fixture
async def store(mongo_server: MongoServer) -> AsyncIterator[MongoStore]:
    opened = MongoStore.open(mongo_server.uri, NAME, clock=SystemClock())
    yield opened
    await opened.close()


@pytest.fixture
def healthy(database: Database[Json]) -> Database[Json]:
    """Return a database with a row of every kind in each state that is legal."""
    timer = Attachment("host", "HOST", HostKind.EXTERNAL_TASK)
    lapsed_long_ago = {"claimable_at": FAR_AWAY, "lock_expires_at": FAR_AWAY, "worker_id": "w"}
    tasks = [
        CALLER,
        STARTER,
        JOIN,
        FAILED,
        a_branch_task(JOIN, "b1", id="in-branch"),
        a_branch_task(JOIN, "b0", id="came", status=TaskStatus.ARRIVED, claimable_at=FAR_AWAY),
        a_task(id="timer", instance_id="root", attached_to=timer, branch=Branch("b2", "join")),
        a_task(id="locked", instance_id="root", status=TaskStatus.LOCKED, **lapsed_long_ago),
        a_task(id="path", instance_id="root", branch=Branch("side", None)),
        a_task(id="in-child", instance_id="child"),
        keeper_of(MESSAGE, task_id="keeper"),
        children_canceller(Branch("children", "gone"), "definition-1", LONG_AGO),
    ]
    parked = a_task(id="parked", instance_id="suspended", claimable_at=None)
    database.executable_tasks.insert_many(
        [*map(encode_task, tasks), {**encode_task(parked), "isParked": True}]
    )
    matched = a_key("k3", status=ExternalTaskStatus.CORRELATED)
    waits = [HOST, GROUP]
    database.external_tasks.insert_many(
        [*map(encode_external_task, waits), a_key("k1"), a_key("k2"), matched]
    )
    database.process_instances.insert_many(map(encode_instance, [ROOT, SUSPENDED, CHILD]))
    database.incidents.insert_one(encode_incident(an_incident(FAILED, id="incident")))
    given_up = replace(MESSAGE, id="late", kept_until=LONG_AGO)
    database.messages.insert_many(map(encode_message, [MESSAGE, given_up]))
    return database


async def found_in(store: MongoStore, *, grace_s: float = 0) -> dict[tuple[str, str], str]:
    found = await store.find_unreachable(grace=timedelta(seconds=grace_s))
    return {(each.id, each.trouble): each.words for each in found.found}


async def test_what_is_legal_is_not_reported(store: MongoStore, healthy: Database[Json]) -> None:
    assert await found_in(store) == {}


def orphaned_child() -> ProcessInstance:
    return an_instance(id="orphan", parent=Parent("root", "gone-caller", "x:0", "gone-starter", 1))


PLANTED: dict[str, tuple[str, Json | None, Json | None, dict[tuple[str, Trouble], str]]] = {
    # name: collection, what is removed or changed, how it is changed, what must be reported
    "instance of a task is gone": (
        "process_instances",
        {"_id": "child"},
        None,
        {
            ("in-child", Trouble.LEFT_BEHIND): "its instance child does not run",
            ("starter", Trouble.STRANDED): "the child that it started does not run",
        },
    ),
    "successor is gone": (
        "executable_tasks",
        {"_id": "in-child"},
        None,
        {("child", Trouble.STRANDED): "no row carries it on"},
    ),
    "branch is gone": (
        "executable_tasks",
        {"_id": "in-branch"},
        None,
        {
            (
                "join",
                Trouble.STRANDED,
            ): "it waits for 1 of 2 branches that no row carries, such as b1"
        },
    ),
    "join is gone": (
        "executable_tasks",
        {"_id": "join"},
        None,
        {
            (row, Trouble.LEFT_BEHIND): "its join join is not there"
            for row in ("in-branch", "came", "timer", "host")
        },
    ),
    "join was released and not made due": (
        "executable_tasks",
        {"_id": "join"},
        {"$unset": {"pendingBranchIds": ""}},
        {
            ("join", Trouble.STRANDED): "it waits for no branch, and was not released",
            **{
                (row, Trouble.TWICE): f"its join join does not wait for its branch {branch}"
                for row, branch in (("in-branch", "b1"), ("timer", "b2"), ("host", "b2"))
            },
        },
    ),
    "branch runs on after it arrived": (
        "executable_tasks",
        {"_id": "came"},
        {"$set": {"status": "PENDING"}},
        {("came", Trouble.TWICE): "its join join does not wait for its branch b0"},
    ),
    "arrival that nobody delivers": (
        "executable_tasks",
        {"_id": "came"},
        {"$set": {"claimableAt": LONG_AGO}},
        {("came", Trouble.CLAIM): "its branch has ended, and nobody has told its join"},
    ),
    "arrival that nobody can find": (
        "executable_tasks",
        {"_id": "came"},
        {"$unset": {"claimableAt": ""}},
        {("came", Trouble.NOT_CLAIMABLE): "it waits for a worker, and none can find it"},
    ),
    "host is gone": (
        "external_tasks",
        {"_id": "host"},
        None,
        {("timer", Trouble.LEFT_BEHIND): "its host host is not there"},
    ),
    "claim left behind": (
        "executable_tasks",
        {"_id": "locked"},
        {"$set": {"claimableAt": LONG_AGO, "lockExpiresAt": LONG_AGO}},
        {
            (
                "locked",
                Trouble.CLAIM,
            ): "w held it until 2024-05-01 12:00:00 UTC, and no worker has taken it over"
        },
    ),
    "claim without an end": (
        "executable_tasks",
        {"_id": "locked"},
        {"$unset": {"claimableAt": "", "lockExpiresAt": ""}},
        {("locked", Trouble.NOT_CLAIMABLE): "it is locked, and nobody can take it over"},
    ),
    "task that nobody can claim": (
        "executable_tasks",
        {"_id": "path"},
        {"$unset": {"claimableAt": ""}},
        {("path", Trouble.NOT_CLAIMABLE): "it waits for a worker, and none can find it"},
    ),
    "parked after its instance was resumed": (
        "process_instances",
        {"_id": "suspended"},
        {"$set": {"status": "ACTIVE"}},
        {("parked", Trouble.NOT_CLAIMABLE): "it waits for a worker, and none can find it"},
    ),
    "starter is gone": (
        "executable_tasks",
        {"_id": "starter"},
        None,
        {
            (
                "caller",
                Trouble.STRANDED,
            ): "it waits for 1 of 1 branches that no row carries, such as caller:0",
            ("child", Trouble.LEFT_BEHIND): "its parent root does not wait for it any more",
        },
    ),
    "incident is gone": (
        "incidents",
        {"_id": "incident"},
        None,
        {("failed", Trouble.STRANDED): "it waits for a person, and has no open incident"},
    ),
    "failed task is gone": (
        "executable_tasks",
        {"_id": "failed"},
        None,
        {("incident", Trouble.LEFT_BEHIND): "its task failed does not wait for a person"},
    ),
    "key of a group is gone": (
        "external_tasks",
        {"_id": "k2"},
        None,
        {("group", Trouble.STRANDED): "it waits for 1 keys that nothing can match"},
    ),
    "group waits for nothing": (
        "external_tasks",
        {"_id": "group"},
        {"$unset": {"pendingCorrelationKeys": ""}},
        {("group", Trouble.STRANDED): "it waits for no key"},
    ),
    "group is gone": (
        "external_tasks",
        {"_id": "group"},
        None,
        {
            (key, Trouble.LEFT_BEHIND): "its group group is not there"
            for key in ("k1", "k2", "k3")
        },
    ),
    "task of a kept message is gone": (
        "executable_tasks",
        {"_id": "keeper"},
        None,
        {("\nm", Trouble.MESSAGE): "it is kept, and no task delivers it"},
    ),
    "kept message is gone": (
        "messages",
        {"_id": "\nm"},
        None,
        {
            (
                "keeper",
                Trouble.LEFT_BEHIND,
            ): "its message is not kept any more, and it was not removed"
        },
    ),
    "paths are miscounted": (
        "process_instances",
        {"_id": "root"},
        {"$set": {"openPaths": 0}},
        {("root", Trouble.STRANDED): "it counts 0 open paths and has not ended"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
async def test_what_nobody_can_reach_is_reported(
    store: MongoStore, healthy: Database[Json], name: str
) -> None:
    collection, chosen, change, expected = PLANTED[name]
    if change is None:
        assert healthy[collection].delete_one(chosen or {}).deleted_count == 1
    else:
        assert healthy[collection].update_one(chosen or {}, change).modified_count == 1

    assert await found_in(store) == expected


async def test_an_instance_that_runs_and_has_ended_is_reported(
    store: MongoStore, healthy: Database[Json]
) -> None:
    healthy.process_history.insert_one(encode_instance(ROOT))

    assert await found_in(store) == {("root", Trouble.TWICE): "it runs, and is in the history"}


async def test_children_whose_cancellation_is_due_are_not_reported(
    store: MongoStore, healthy: Database[Json]
) -> None:
    healthy.process_instances.insert_one(encode_instance(orphaned_child()))
    healthy.executable_tasks.insert_one(encode_task(a_task(id="busy", instance_id="orphan")))
    before = await found_in(store)
    canceller = children_canceller(Branch("children", "gone-caller"), "definition-1", LONG_AGO)
    healthy.executable_tasks.insert_one(encode_task(canceller))

    assert list(before) == [("orphan", Trouble.LEFT_BEHIND)]
    assert await found_in(store) == {}


async def test_what_heals_within_the_grace_is_not_reported(
    store: MongoStore, healthy: Database[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look meets a commit halfway: the row that it inserts is not there yet."""
    row = healthy.executable_tasks.find_one_and_delete({"_id": "in-child"})
    assert row is not None
    paused: list[float] = []

    async def heal(self: SystemClock, seconds: float) -> None:
        paused.append(seconds)
        healthy.executable_tasks.insert_one(row)

    monkeypatch.setattr(SystemClock, "sleep", heal)

    assert await found_in(store, grace_s=30) == {}
    assert paused == [30]


def test_the_command_lists_what_is_wrong_and_what_to_do(
    mongo_server: MongoServer, healthy: Database[Json]
) -> None:
    command = CommandLine(KIKWIFLOW_MONGODB_URI=mongo_server.uri, KIKWIFLOW_MONGODB_DATABASE=NAME)
    well = command.run("verify", "--grace", "0")
    before = {name: healthy[name].count_documents({}) for name in healthy.list_collection_names()}
    healthy.executable_tasks.delete_one({"_id": "in-branch"})

    ill = command.run("verify", "--grace", "0")

    assert (well.exit_code, ill.exit_code) == (0, 1), well.output
    assert "everything can be reached: 13 executable_tasks, 5 external_tasks" in well.output
    assert "it waits for 1 of 2 branches that no row carries, such as b1" in ill.output
    assert "1 stranded: these wait for what never comes: cancel the instance" in ill.output
    after = {name: healthy[name].count_documents({}) for name in healthy.list_collection_names()}
    assert after == {**before, "executable_tasks": before["executable_tasks"] - 1}
