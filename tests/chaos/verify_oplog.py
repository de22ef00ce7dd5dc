"""Reads the replica set's own log of what was committed, in its order, and follows every row from its birth to its end.

The server writes this log, not the engine: each commit is one entry that names all documents it inserted, changed and
removed. So what happened to a row shows even where no handler runs and no variable changes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bson.timestamp import Timestamp
from pymongo import MongoClient

from tests.chaos.load_shape import Json
from tests.chaos.verify_report import Kind, Violation

TASKS, WAITS, INSTANCES = "executable_tasks", "external_tasks", "process_instances"

_ROW = ("type", "status", "taskDefinitionId", "processInstanceId", "workerId", "lockExpiresAt")
_LINKS = ("joinTaskId", "branchId", "pendingBranchIds", "attachedToRefId")
_CHANGED = ("status", "workerId", "lockExpiresAt", "openPaths")
_NO_TOKEN = {"CANCEL_INSTANCE", "CANCEL_CHILDREN", "KEPT_MESSAGE", "BULK_JOB", "ARRIVAL"}
"""Rows of these types stand for no token of their own."""


@dataclass(slots=True)
class Row:
    """A task or external task as it is now, and what was seen of it."""

    node: str
    instance: str
    type: str
    status: str
    worker: str | None
    lock_ends: datetime | None
    join: str | None
    branch: str | None
    is_attached: bool
    pending: frozenset[str]
    arrived: set[str] = field(default_factory=set)
    releases: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """One document's part of a commit; ``op`` is ``i``, ``u`` or ``d``."""

    op: str
    collection: str
    id: str
    after: Mapping[str, Any]


@dataclass(slots=True)
class History:
    """Follows the rows of one database through the log."""

    violations: list[Violation] = field(default_factory=list)
    commits: int = 0
    claims: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    reaches_back: bool = False
    _born: set[str] = field(default_factory=set)

    def read(
        self, client: MongoClient[Json], database: str, *, until: Timestamp | None = None
    ) -> None:
        """Follow the whole log, or as far as ``until``; ``reaches_back`` says whether it begins before the database did."""
        oplog = client.get_database("local")["oplog.rs"]
        created = {"ns": f"{database}.$cmd", "o.create": TASKS}
        self.reaches_back = oplog.find_one(created, {"_id": 1}) is not None
        if self.reaches_back:
            self.follow(entries_of(client, database, until=until), database)

    def follow(self, entries: Iterable[Json], database: str) -> None:
        """Follow entries of the log, in its order."""
        parts: dict[object, list[Json]] = defaultdict(list)
        for entry in entries:
            session = (str(entry.get("lsid")), entry.get("txnNumber"))
            operations = entry["o"].get("applyOps")
            if operations is None:
                self._apply([entry], database, entry["wall"], is_commit=False)
            elif entry["o"].get("partialTxn"):
                # A large transaction is spread over several entries.
                parts[session] += operations
            else:
                whole = parts.pop(session, []) + operations
                self._apply(whole, database, entry["wall"], is_commit="txnNumber" in entry)

    def _note(self, kind: Kind, row_id: str, row: Row, words: str) -> None:
        at = f"task {row_id} ({row.type}) at node {row.node} of instance {row.instance}"
        self.violations.append(Violation(kind, f"{at} {words}"))

    def _apply(self, entries: list[Json], database: str, at: datetime, *, is_commit: bool) -> None:
        changes = list(_changes(entries, database))
        self.commits += is_commit
        instances = {change.id: change for change in changes if change.collection == INSTANCES}
        before = [self._touched(change, is_commit=is_commit) for change in changes]
        self._conserve(changes, before, instances)
        for change in changes:
            if change.collection != INSTANCES:
                self._follow(change, at)

    def _touched(self, change: Change, *, is_commit: bool) -> Row | None:
        """Return the row that a change meets; a token that is removed by nobody's commit is lost."""
        row = self.rows.get(change.id) if change.collection != INSTANCES else None
        if row and change.op == "d" and not is_commit and row.status != "ARRIVED":
            self._note(Kind.LOST, change.id, row, f"was removed while {row.status}, by no commit")
        return row

    def _conserve(
        self, changes: list[Change], before: list[Row | None], instances: Mapping[str, Change]
    ) -> None:
        """Check that each commit passes tokens on: none from nothing, none to nothing (protocol R7)."""
        sources = {row.instance for row in before if row is not None}
        sources |= {each.id for each in instances.values() if each.op == "i"}
        heirs = {each.id for each in instances.values() if each.op == "d"}
        heirs |= {each.id for each in instances.values() if "openPaths" in each.after}
        for change in changes:
            if change.op == "i" and change.collection in {TASKS, WAITS}:
                instance, kind = change.after["processInstanceId"], change.after.get("type")
                heirs.add(instance)
                if instance not in sources and kind not in _NO_TOKEN:
                    row = _row_of(change.after)
                    self._note(Kind.DOUBLED, change.id, row, "came from no task of its instance")
        for row_before, change in zip(before, changes, strict=True):
            if row_before is None or change.op != "d" or row_before.status != "LOCKED":
                continue
            is_token = row_before.type not in _NO_TOKEN and not row_before.is_attached
            if is_token and row_before.instance not in heirs:
                self._note(Kind.LOST, change.id, row_before, "was removed, and nothing follows it")

    def _follow(self, change: Change, at: datetime) -> None:
        match change.op:
            case "i":
                row = _row_of(change.after)
                if change.id in self._born:
                    self._note(Kind.DOUBLED, change.id, row, "was created a second time")
                self._born.add(change.id)
                self.rows[change.id] = row
                self._arrive(change.id, row)
            case "d":
                self.rows.pop(change.id, None)
            case _:
                self._update(change, at)

    def _update(self, change: Change, at: datetime) -> None:
        row, after = self.rows.get(change.id), change.after
        if row is None:
            return
        holder, lock_ends = row.worker, row.lock_ends
        was = row.status
        row.status = after.get("status", row.status)
        if "workerId" in after or row.status != "LOCKED":
            row.worker = after.get("workerId")
        row.lock_ends = after.get("lockExpiresAt", row.lock_ends)
        claimed = row.status == "LOCKED" and "workerId" in after
        if claimed:
            self.claims += 1
            if was == "LOCKED" and holder != row.worker and lock_ends and lock_ends > at:
                left = (lock_ends - at).total_seconds()
                words = f"was claimed by {row.worker} while {holder} held it for {left:.3f} s more"
                self._note(Kind.OTHER, change.id, row, words)
        if was == "AWAITING_BRANCHES" and row.status == "PENDING":
            self._release(change.id, row)
        if row.status == "ARRIVED" and was != "ARRIVED":
            self._arrive(change.id, row)

    def _arrive(self, row_id: str, row: Row) -> None:
        if row.status != "ARRIVED" or row.join not in self.rows or row.branch is None:
            return
        arrived = self.rows[row.join].arrived
        if row.branch in arrived:
            self._note(Kind.DOUBLED, row_id, row, f"ended branch {row.branch} a second time")
        arrived.add(row.branch)

    def _release(self, row_id: str, row: Row) -> None:
        row.releases += 1
        if row.type != "JOIN_GATEWAY":
            return
        if row.releases > 1:
            self._note(Kind.DOUBLED, row_id, row, f"was released {row.releases} times")
        early = row.pending - row.arrived
        if early:
            words = f"was released before {len(early)} of its branches, such as {min(early)}"
            self._note(Kind.DOUBLED, row_id, row, words)


def entries_of(
    client: MongoClient[Json], database: str, *, until: Timestamp | None = None
) -> Iterator[Json]:
    """Yield the entries of the server's log that are about a database's rows, oldest first."""
    names = {"$in": [f"{database}.{name}" for name in (TASKS, WAITS, INSTANCES)]}
    found: Json = {"$or": [{"ns": names}, {"o.applyOps.ns": names}]}
    if until is not None:
        found["ts"] = {"$lte": until}
    oplog = client.get_database("local")["oplog.rs"]
    yield from oplog.find(found, _fields()).sort("$natural", 1)


def _row_of(document: Mapping[str, Any]) -> Row:
    return Row(
        node=document.get("taskDefinitionId", ""),
        instance=document["processInstanceId"],
        type=document.get("type", "EXTERNAL_TASK"),
        status=document["status"],
        worker=document.get("workerId"),
        lock_ends=_aware(document.get("lockExpiresAt")),
        join=document.get("joinTaskId"),
        branch=document.get("branchId"),
        is_attached="attachedToRefId" in document,
        pending=frozenset(document.get("pendingBranchIds", ())),
    )


def _aware(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at


def _changes(entries: list[Json], database: str) -> Iterator[Change]:
    for entry in entries:
        name = entry["ns"].removeprefix(f"{database}.")
        if name not in {TASKS, WAITS, INSTANCES} or entry["op"] not in {"i", "u", "d"}:
            continue
        document: Json = entry["o"]
        if entry["op"] == "u":
            diff = document.get("diff", {})
            document = {**diff.get("i", {}), **diff.get("u", {})}
            if "lockExpiresAt" in document:
                document["lockExpiresAt"] = _aware(document["lockExpiresAt"])
            yield Change("u", name, entry["o2"]["_id"], document)
        else:
            yield Change(entry["op"], name, document["_id"], document)


def _fields() -> Json:
    document = ["_id", *_ROW, *_LINKS, "openPaths"]
    document += [f"diff.{how}.{name}" for how in ("i", "u") for name in _CHANGED]
    fields = ["wall", "lsid", "txnNumber", "ns", "op", "o2._id", "o.partialTxn"]
    fields += [f"o.{name}" for name in document]
    fields += [f"o.applyOps.{name}" for name in ("op", "ns", "o2._id")]
    fields += [f"o.applyOps.o.{name}" for name in document]
    return dict.fromkeys(fields, 1)
