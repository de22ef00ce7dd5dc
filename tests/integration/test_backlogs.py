"""With any backlog in front, each command of the package examines little more than what it returns or changes.

Every method of the ports is run, so a new one needs an entry here; every field of a query is tried by itself. In the deep
run the backlog is a million tasks and as many other records.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import KikwiflowError
from kikwiflow_worker.model.capability import Capabilities, Capability, HandlerKind
from kikwiflow_worker.model.runtime import (
    Branch,
    Claim,
    IncidentStatus,
    IncidentType,
    TaskStatus,
    TopicNode,
)
from kikwiflow_worker.model.unit_of_work import RemoveTask, UnitOfWork
from kikwiflow_worker.store.external_work import Fetch
from kikwiflow_worker.store.mongo.driver import CODEC_OPTIONS
from kikwiflow_worker.store.mongo.locks import MongoLockKeeper
from kikwiflow_worker.store.mongo.queries import COUNT_CAP, DUE_CAP
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.protocol import LockKeeper, ReadStore, RuntimeStore, TaskQueue
from kikwiflow_worker.store.values import GroupedUnit
from kikwiflow_worker.store.views import (
    ExternalTaskQuery,
    IncidentQuery,
    InstanceQuery,
    TaskQuery,
    WorkerRecord,
)
from tests.support.backlog import FEW, add_the_few, fill
from tests.support.definitions import a_file, read
from tests.support.mongo import MongoServer
from tests.support.profiler import profiled
from tests.support.stores import FAR_AWAY, LOCK, LONG_AGO, Json

DEEP = os.environ.get("KIKWIFLOW_TEST_DEEP") == "1"
pytestmark = [
    pytest.mark.mongo,
    *([pytest.mark.deep, pytest.mark.timeout(1800)] if DEEP else []),
]

BACKLOG = 1_000_000 if DEEP else 20_000
PAGE = 50
SLACK = 60
"""Documents and keys that a command may examine beside those it returns or changes: its page, and where ranges begin."""

SMALL = {"process_definitions", "workers", "meta"}
"""Collections that no backlog fills."""

HANDLERS = ("load", "pack", "weigh")
CAPABILITIES = Capabilities(Capability(HandlerKind.TASK_HANDLER, name) for name in HANDLERS)


@pytest.fixture(scope="module")
def backlog(mongo_server: MongoServer) -> Iterator[Database[Json]]:
    """Return a database of this module alone with a backlog."""
    name = "kikwi_test_backlog"

    async def prepare() -> None:
        store = MongoStore.open(mongo_server.uri, name, clock=SystemClock())
        await store.prepare()
        await store.definitions.put(read(a_file()), activate=False)
        await store.close()

    with MongoClient[Json](mongo_server.uri) as client:
        client.drop_database(name)
        asyncio.run(prepare())
        database = client.get_database(name, codec_options=CODEC_OPTIONS)
        fill(database, BACKLOG)
        add_the_few(database)
        yield database
        client.drop_database(name)


@pytest.fixture
async def store(mongo_server: MongoServer, backlog: Database[Json]) -> AsyncIterator[MongoStore]:
    opened = MongoStore.open(mongo_server.uri, backlog.name, clock=SystemClock())
    await opened.ping()
    yield opened
    await opened.close()


Case = Callable[[MongoStore], Awaitable[object]]


def wasteful(entry: Json, allowed: int) -> str | None:
    """Return what is wrong with how the server ran a command, None if nothing is."""
    plan = entry["planSummary"]
    collection = entry["ns"].split(".", 1)[1]
    done = max(entry.get(name, 0) for name in ("nreturned", "nModified", "ndeleted", "nMatched", "keysDeleted"))  # fmt: skip
    docs, keys = entry.get("docsExamined", 0), entry.get("keysExamined", 0)
    problem = None
    if "COLLSCAN" in plan and collection not in SMALL:
        problem = "reads the whole collection"
    elif entry.get("hasSortStage") and docs > done + SLACK:
        problem = "sorts in memory what it does not return"
    elif docs > done + allowed:
        problem = f"examines {docs} documents for {done}"
    elif keys > 3 * done + 2 * allowed:
        problem = f"examines {keys} keys for {done}"
    return f"{collection}: {problem} ({plan}, {_command(entry)})" if problem else None


def _command(entry: Json) -> str:
    return str({k: v for k, v in entry["command"].items() if k not in {"lsid", "$clusterTime"}})[
        :400
    ]


async def waste_of(
    backlog: Database[Json], store: MongoStore, case: Case, allowed: int
) -> list[str]:
    with profiled(backlog) as entries:
        await case(store)
    return [words for entry in entries if (words := wasteful(entry, allowed)) is not None]


# --- reads

VALUES: dict[str, Any] = {
    "definition_key": ("rare", "parcel"),
    "business_key": ("rare", "order-1"),
    "tenant_id": ("rare", "tenant-1"),
    "parent_id": ("nobody", "a-parent"),
    "instance_id": ("an-instance", "instance-1"),
    "node_id": ("RARE", "TASK"),
    "handler_name": ("rare", "pack"),
    "retrying": (True,),
    "assignee": ("rare", "ann"),
    "unassigned": (True,),
    "correlation_key": ("rare", "a-key"),
    "type": tuple(IncidentType),
    "definition_ids": (("rare",), ("parcel:1",)),
}
"""For each field of a query something that few have, and something that many have."""

STATUSES: dict[type, tuple[Any, ...]] = {
    InstanceQuery: ("ACTIVE", "SUSPENDED", "CANCELLING", "COMPLETED", "CANCELLED"),
    TaskQuery: tuple(TaskStatus),
    IncidentQuery: (None, *IncidentStatus),
}


def queries(kind: type) -> Iterator[Any]:
    """Yield a query without a filter, and one for each value of each field."""
    yield kind()
    for field in fields(kind):
        if field.name == "ended":
            continue
        values = STATUSES[kind] if field.name == "status" else VALUES[field.name]
        yield from (kind(**{field.name: value}) for value in values)


def listing(list_page: str, query: Any) -> Case:
    async def read_pages(store: MongoStore) -> None:
        read_page = getattr(store.reads, list_page)
        page = await read_page(query, limit=PAGE)
        for _ in range(5):
            if page.next_cursor is None:
                return
            page = await read_page(query, limit=PAGE, cursor=page.next_cursor)

    return read_pages


INSTANCES = [
    *queries(InstanceQuery),
    *(InstanceQuery(definition_key=key, status=status) for key in ("rare", "parcel") for status in ("ACTIVE", "SUSPENDED")),
    *(InstanceQuery(ended=True, **{name: value}) for name in ("definition_key", "business_key", "tenant_id") for value in VALUES[name]),
    *(InstanceQuery(ended=True, status=status) for status in STATUSES[InstanceQuery]),
]  # fmt: skip
RECORD = WorkerRecord(
    id="w", instance_name="w", host="h", pid=1, version="1", started_at=LONG_AGO, seen_at=LONG_AGO,
    state="running", slots=1, running=0, handlers=("pack",),
)  # fmt: skip

READS: dict[str, list[Case]] = {
    "list_definitions": [
        lambda s: s.reads.list_definitions(),
        lambda s: s.reads.list_definitions(key="parcel"),
    ],
    "list_instances": [listing("list_instances", query) for query in INSTANCES],
    "list_tasks": [listing("list_tasks", query) for query in queries(TaskQuery)],
    "list_external_tasks": [
        listing("list_external_tasks", query) for query in queries(ExternalTaskQuery)
    ],
    "list_incidents": [listing("list_incidents", query) for query in queries(IncidentQuery)],
    "find_incident": [lambda s: s.reads.find_incident("few-1")],
    "find_task": [lambda s: s.reads.find_task("rare-1")],
    "find_completed_external_task": [lambda s: s.reads.find_completed_external_task("0000001")],
    "count_by_status": [
        lambda s: s.reads.count_by_status(),
        lambda s: s.reads.count_by_status(definition_key="rare"),
        lambda s: s.reads.count_by_status(definition_key="parcel"),
    ],
    "list_workers": [lambda s: s.reads.list_workers()],
    "record_worker": [lambda s: s.reads.record_worker(RECORD)],
    "measure_queue": [lambda s: s.reads.measure_queue()],
}

CAPPED = {"count_by_status": COUNT_CAP, "measure_queue": DUE_CAP}
"""Counts, which look at as much as they count, up to a cap."""


def methods_of(port: type) -> set[str]:
    return {name for name in vars(port) if not name.startswith("_")}


def test_every_read_has_a_case() -> None:
    assert READS.keys() == methods_of(ReadStore)


@pytest.mark.parametrize("method", READS)
async def test_a_read_examines_what_it_returns(
    store: MongoStore, backlog: Database[Json], method: str
) -> None:
    wasted = []
    for case in READS[method]:
        wasted += await waste_of(backlog, store, case, SLACK + CAPPED.get(method, 0))

    assert wasted == []


# --- claims, commits, and what people do

CLAIM = Claim("locked-1", "worker-1", 1)
AT_A_NODE = TopicNode("parcel", "PACK")


async def claim_some(store: MongoStore) -> None:
    """Claim often enough for each kind of turn: the oldest, each tenant, no tenant."""
    for limit in (*[1] * 12, *[16] * 8):
        claimed = await store.queue.claim_due(
            worker_id="w", lock=LOCK, capabilities=CAPABILITIES, limit=limit
        )
        assert len(claimed) == limit


async def fetch_some(store: MongoStore, **sources: Any) -> None:
    """Fetch for everybody and for a tenant, one task and several."""
    for tenant_id in (None, "tenant-1"):
        wanted = Fetch(worker_id="external/w", lock=LOCK, tenant_id=tenant_id, **sources)
        for limit in (1, 10):
            await store.external_work.fetch(wanted, limit=limit)


async def cancel_and_sweep(store: MongoStore) -> None:
    await store.runtime.cancel_instance("few-0", cancelled_by=None)


QUEUE: dict[str, Case] = {
    "claim_due": claim_some,
    "claim": lambda s: s.queue.claim("mine-1", worker_id="w", lock=LOCK),
    "release": lambda s: s.queue.release(CLAIM),
    "deliver_arrivals": lambda s: s.queue.deliver_arrivals(limit=100),
}

RUNTIME: dict[str, Case] = {
    "find_instance": lambda s: s.runtime.find_instance("few-1"),
    "find_ended_instance": lambda s: s.runtime.find_ended_instance("few-1"),
    "find_started": lambda s: s.runtime.find_started("x", tenant_id=None),
    "find_external_task": lambda s: s.runtime.find_external_task("few-1"),
    "find_waiting": lambda s: s.runtime.find_waiting(
        "a-key", tenant_id=None, taken=frozenset({"0000004"})
    ),
    "find_message": lambda s: s.runtime.find_message("few", tenant_id=None),
    "find_children": lambda s: s.runtime.find_children(Branch("a-parent", None), limit=100),
    "commit": lambda s: s.runtime.commit(UnitOfWork((), ())),
    "commit_group": lambda s: s.runtime.commit_group(
        [GroupedUnit(UnitOfWork((RemoveTask(Claim(f"locked-{n}", "worker-1", 1)),), ())) for n in (3, 4)],
        hand_on=None,
    ),
    "discard_task": lambda s: s.runtime.discard_task(CLAIM),
    "cancel_instance": cancel_and_sweep,
    "sweep_cancelled": lambda s: s.runtime.sweep_cancelled("few-1"),
    "suspend_instance": lambda s: s.runtime.suspend_instance("0000007"),
    "resume_instance": lambda s: s.runtime.resume_instance("few-1"),
    "park_task": lambda s: s.runtime.park_task(Claim("locked-2", "worker-1", 1)),
    "retry_incident": lambda s: s.runtime.retry_incident("few-0", retries=1, resolved_by=None),
    "override_task": lambda s: s.runtime.override_task(
        "mine-2", retries=2, due_at=FAR_AWAY, by=None
    ),
    "forget_instance": lambda s: s.runtime.forget_instance("few-2"),
    "migrate_instance": lambda s: s.runtime.migrate_instance(
        "few-2",
        before_id="definition-1",
        after=read(a_file()).deployed(definition_id="d", version=2),
        nodes=frozenset(),
    ),
    "assign_external_task": lambda s: s.runtime.assign_external_task(
        "few-2", assignee="bob", expected="rare"
    ),
}  # fmt: skip
ELSEWHERE = {"now"}


FETCHED: dict[str, Case] = {
    "fetch by topic": lambda s: fetch_some(s, topics=frozenset({"pack"})),
    "fetch by node": lambda s: fetch_some(s, nodes=frozenset({AT_A_NODE})),
    "fetch by both": lambda s: fetch_some(
        s, topics=frozenset({"missing"}), nodes=frozenset({AT_A_NODE})
    ),
}


def test_every_method_of_the_queue_and_the_runtime_has_a_case() -> None:
    assert QUEUE.keys() == methods_of(TaskQueue)
    assert RUNTIME.keys() == methods_of(RuntimeStore) - ELSEWHERE


@pytest.mark.parametrize("method", [*QUEUE, *RUNTIME, *FETCHED])
async def test_an_operation_examines_what_it_changes(
    store: MongoStore, backlog: Database[Json], method: str
) -> None:
    case = {**QUEUE, **RUNTIME, **FETCHED}[method]

    async def tolerant(opened: MongoStore) -> None:
        # Another case may have been faster; what the server examined is what counts.
        with suppress(KikwiflowError):
            await case(opened)

    assert await waste_of(backlog, store, tolerant, SLACK) == []


def test_locks_are_kept_without_looking_at_those_of_others(
    mongo_server: MongoServer, backlog: Database[Json]
) -> None:
    keeper = MongoLockKeeper(mongo_server.uri, backlog.name)
    calls: dict[str, Callable[[], object]] = {
        "renew": lambda: keeper.renew([CLAIM, Claim("gone", "worker-1", 1)], lock=LOCK),
        "release_unknown": lambda: keeper.release_unknown("worker-1", known=frozenset({"x"})),
        "close": keeper.close,
    }
    assert calls.keys() == methods_of(LockKeeper)

    with profiled(backlog) as entries:
        for call in calls.values():
            call()

    assert [w for entry in entries if (w := wasteful(entry, SLACK)) is not None] == []


async def test_an_inspection_looks_at_its_sample_only(
    store: MongoStore, backlog: Database[Json]
) -> None:
    with profiled(backlog) as entries:
        inspection = await store.inspect(sample=200)

    assert max(inspection.examined.values()) == 200
    assert max(entry.get("docsExamined", 0) for entry in entries) <= 500
    assert sum(entry.get("keysExamined", 0) for entry in entries) <= 20_000


async def test_those_of_a_node_are_found_behind_all_others_of_its_handler(
    store: MongoStore, backlog: Database[Json]
) -> None:
    """The server looks at what it returns, and claims it: no key of the backlog is read."""
    backlog.executable_tasks.update_many(
        {"topicNode": {"$exists": True}},
        [{"$set": {"status": "PENDING", "claimableAt": {"$subtract": ["$$NOW", 1000]}}}],
    )
    wanted = Fetch(worker_id="external/w", lock=LOCK, nodes=frozenset({AT_A_NODE}))

    with profiled(backlog) as entries:
        claimed = await store.external_work.fetch(wanted, limit=2 * FEW)

    assert {one.task.id for one in claimed} == {f"at-a-node-{n}" for n in range(FEW)}
    looks = [entry for entry in entries if "sort" in entry.get("command", {})]
    assert {name for entry in looks for name in _indexes(entry)} == {
        "topicNode: 1, claimableAt: 1",
        "tenantId: 1, topicNode: 1, priority: -1, claimableAt: 1",
    }
    for entry in looks:
        assert entry["docsExamined"] == entry["nreturned"] <= FEW
        assert entry["keysExamined"] <= FEW + 1


def _indexes(entry: Json) -> list[str]:
    return re.findall(r"IXSCAN { (.*?) }", entry["planSummary"])


async def test_what_few_have_is_found_behind_all_the_others(store: MongoStore) -> None:
    page = await store.reads.list_tasks(TaskQuery(handler_name="rare"))
    waiting = {found.handler_name for found in await store.searches.list_handler_waits()}
    counts = await store.reads.count_by_status()

    assert len(page.items) == FEW
    assert {"missing", "also_missing", "rare"} <= waiting
    assert counts["ACTIVE"] == COUNT_CAP if DEEP else counts["ACTIVE"] >= BACKLOG // 5 - FEW
