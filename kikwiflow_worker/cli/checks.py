"""What ``doctor`` looks at, and what it says about it."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import uuid4

from kikwiflow_worker.cli.output import when
from kikwiflow_worker.cli.workers import is_alive
from kikwiflow_worker.errors import KikwiflowError, StoreRefusedError, StoreUnavailableError
from kikwiflow_worker.model.unit_of_work import ReserveStartKey, UnitOfWork
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from kikwiflow_worker.store.views import WorkerRecord

_SKEW_S = 1.0
"""Above this a worker warns too."""

_TRANSACTION_LIFETIME_S = 30
"""About a lock: more would let a crash cost more than it must. Ours take milliseconds."""

_SERVERS = {13: "5.0", 17: "6.0", 21: "7.0", 25: "8.0", 27: "8.2"}
"""The release that first spoke a wire version."""


class Verdict(StrEnum):
    """What a check came to."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        remedy: What to do next; None if there is nothing to do.
    """

    check: str
    verdict: Verdict
    message: str
    remedy: str | None = None


def failed(check: str, error: KikwiflowError) -> Finding:
    """Return the finding for a check that ended with one of our errors; most say what to do themselves."""
    remedy = (
        "check that MongoDB runs there, and the address: kikwiflow-worker --print-config"
        if isinstance(error, StoreUnavailableError) and not isinstance(error, StoreRefusedError)
        else None
    )
    return Finding(check, Verdict.FAIL, str(error), remedy)


async def examine_server(store: MongoStore, options: StoreOptions) -> AsyncIterator[Finding]:
    """Check what a worker needs from a server, in this order; end after the first that makes the others senseless."""
    try:
        hello = await store.ping()
    except KikwiflowError as error:
        yield failed("database", error)
        return
    yield Finding(
        "database",
        Verdict.OK,
        f"the primary is {hello.get('me') or 'reachable'}",
    )
    for finding in (_version(hello), _replica_set(hello, options)):
        yield finding
        if finding.verdict is Verdict.FAIL:
            return
    try:
        await store.prepare()
    except KikwiflowError as error:
        yield failed("schema", error)
        return
    yield Finding("schema", Verdict.OK, "collections and indexes are complete")
    yield await _write(store, options)
    yield await _open_transactions(store)
    yield _clock(store)


async def examine_work(store: MongoStore) -> AsyncIterator[Finding]:
    """Check whether the work that waits is being done."""
    now = store.runtime.now()
    queue = await store.reads.measure_queue()
    records = await store.reads.list_workers()
    alive = [worker for worker in records if is_alive(worker, now)]
    yield await _definitions(store)
    yield _workers(alive, due=queue.due)
    yield await _waiting(store, now)
    if queue.open_incidents:
        yield Finding(
            "incidents",
            Verdict.WARN,
            f"{queue.open_incidents} open, each waits for a person",
            "kikwiflow-worker incidents list",
        )
    else:
        yield Finding("incidents", Verdict.OK, "none are open")


def _version(hello: Mapping[str, object]) -> Finding:
    spoken = hello.get("maxWireVersion")
    wire = spoken if isinstance(spoken, int) else 0
    known = [version for version in _SERVERS if version <= wire]
    if not known:
        return Finding("version", Verdict.FAIL, "MongoDB is too old", "use MongoDB 5.0 or newer")
    return Finding("version", Verdict.OK, f"MongoDB {_SERVERS[max(known)]} or newer")


def _replica_set(hello: Mapping[str, object], options: StoreOptions) -> Finding:
    if "setName" in hello:
        return Finding("replica set", Verdict.OK, f"member of {hello['setName']}")
    if hello.get("msg") == "isdbgrid":
        return Finding("replica set", Verdict.OK, "sharded cluster")
    return Finding(
        "replica set",
        Verdict.WARN if options.allow_standalone else Verdict.FAIL,
        "a standalone server, which has no transactions: a crash can repeat a step",
        "start it as mongod --replSet NAME and run rs.initiate(), or give --allow-standalone for experiments",
    )


async def _write(store: MongoStore, options: StoreOptions) -> Finding:
    """Commit a record that has expired already, so that the server removes it within a minute."""
    expired = store.runtime.now() - options.retention
    key = f"doctor-{uuid4()}"
    try:
        await store.runtime.commit(UnitOfWork((), (ReserveStartKey(key, key, None, expired),)))
    except KikwiflowError as error:
        return failed("transaction", error)
    return Finding("transaction", Verdict.OK, "a write was acknowledged by the majority")


async def _open_transactions(store: MongoStore) -> Finding:
    """A worker that dies inside a transaction keeps its rows locked until the server aborts it."""
    check, lifetime = "open transactions", await store.transaction_lifetime_s()
    if lifetime is None:
        return Finding(check, Verdict.SKIP, "the server does not tell this user its limit")
    message = f"one left open by a dead worker is aborted after {lifetime} s"
    if lifetime <= _TRANSACTION_LIFETIME_S:
        return Finding(check, Verdict.OK, message)
    return Finding(
        check,
        Verdict.WARN,
        f"{message}; its tasks wait so long, others go on",
        f"start mongod with --setParameter transactionLifetimeLimitSeconds={_TRANSACTION_LIFETIME_S}",
    )


def _clock(store: MongoStore) -> Finding:
    skew = store.skew_s()
    if abs(skew) <= _SKEW_S:
        return Finding("clock", Verdict.OK, f"within {_SKEW_S:g} s of the database's")
    direction = "ahead of" if skew > 0 else "behind"
    return Finding(
        "clock",
        Verdict.WARN,
        f"this host is {abs(skew):.1f} s {direction} the database, whose clock decides what is due",
        "synchronise both hosts with NTP",
    )


async def _definitions(store: MongoStore) -> Finding:
    count = len(await store.reads.list_definitions())
    if not count:
        return Finding(
            "definitions", Verdict.WARN, "none are deployed", "kikwiflow-worker deploy FILE"
        )
    return Finding("definitions", Verdict.OK, f"{count} deployed")


def _workers(alive: list[WorkerRecord], *, due: int) -> Finding:
    """External workers count apart: without one of our own no timer fires and no step of the engine runs."""
    ours = [worker for worker in alive if not worker.is_external]
    external = len(alive) - len(ours)
    besides = f"; external workers that fetch tasks: {external}" if external else ""
    if ours:
        busy = sum(worker.running for worker in ours)
        slots = sum(worker.slots for worker in ours)
        message = f"{len(ours)} alive, {busy} of {slots} slots busy{besides}"
        return Finding("workers", Verdict.OK, message)
    missing = f"none is alive, and work is due: {due}" if due else "none is alive"
    return Finding(
        "workers",
        Verdict.FAIL if due else Verdict.WARN,
        missing + besides,
        "kikwiflow-worker --instance-name NAME",
    )


async def _waiting(store: MongoStore, now: datetime) -> Finding:
    waiting = [each for each in await store.searches.list_handler_waits() if not each.is_served]
    if not waiting:
        return Finding("waiting tasks", Verdict.OK, "no due task needs a handler that is missing")
    listed = "\n".join(
        f"{each.handler_name}: {each.waiting} due, the oldest since {when(each.oldest, now)}"
        for each in waiting
    )
    return Finding(
        "waiting tasks",
        Verdict.FAIL,
        f"due tasks need handlers that no live worker has, or topics that nobody fetches:\n{listed}",
        "install the distribution that offers them on a worker and restart it, or start the program that fetches them",
    )
