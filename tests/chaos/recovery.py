"""Recovery times, worked out afterwards from the handlers' effects log and the servers' own log of writes."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bson import Timestamp
from pymongo import MongoClient

from tests.chaos.faults import Record
from tests.chaos.fleet import LOCK_S, POLL_MAX_S
from tests.chaos.probes import Outage, Wait
from tests.chaos.schedule import Kind, Track

ALLOWANCE_S = 1.0
"""For what is not waiting: the claim, the call, and cores that other processes share."""

TAKE_OVER_S = LOCK_S + POLL_MAX_S + ALLOWANCE_S
FAILOVER_S = 5.0
LONGEST_ELECTION_S = 15.0
"""From the loss of a primary to the next one, when a vote is repeated."""

_HELD_TO_DEATH = {Kind.WORKER_KILLED, Kind.WORKER_FROZEN}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long work stood still because of one fault.

    Attributes:
        seconds: The longest of its tasks; infinite if none went on.
        bound_s: What is allowed; None if another fault stood in the way.
    """

    number: int
    kind: Kind
    seconds: float
    bound_s: float | None

    @property
    def is_late(self) -> bool:
        """Whether it took longer than it may."""
        return self.bound_s is not None and self.seconds > self.bound_s


@dataclass(frozen=True, slots=True)
class Election:
    """A member became primary.

    Attributes:
        at: When it began to take writes, in monotonic seconds.
        commits_after_s: Seconds until a worker's next commit; infinite if there was none.
    """

    at: float
    commits_after_s: float


def take_overs(records: Iterable[Record], effects: Path, waits: Sequence[Wait]) -> list[Recovery]:
    """Return for each worker killed or frozen how long its running tasks waited until another ran them.

    Faults whose worker held nothing at that moment are left out. One during which a server was damaged has no bound.

    Args:
        waits: How long due work waited for a free worker: a task whose lock has lapsed takes its turn among it.
    """
    known = list(records)
    struck = {
        pid: record for record in known if record.kind in _HELD_TO_DEATH for pid in record.pids
    }
    servers = [record for record in known if record.track is Track.SERVER and record.counts]
    worst = _taken_over_after(struck, effects)
    by_number = {record.number: record for record in struck.values()}
    return [
        _take_over(by_number[number], seconds, servers, waits)
        for number, seconds in sorted(worst.items())
    ]


def _taken_over_after(struck: Mapping[int, Record], effects: Path) -> Mapping[int, float]:
    worst: dict[int, float] = {}
    held: dict[str, tuple[int, float]] = {}
    for line in _lines(effects):
        key, pid, at = line["key"], line["pid"], line["at"]
        record = struck.get(pid)
        if line["phase"] == "raised":
            # An attempt that failed on purpose is not taken over: it is due again after its interval.
            held.pop(key, None)
        elif record is not None and at < record.began:
            held[key] = (pid, record.began)
        elif key in held and line["phase"] == "start" and pid != held[key][0]:
            victim, since = held.pop(key)
            number = struck[victim].number
            worst[number] = max(worst.get(number, 0.0), at - since)
        elif key in held and pid == held[key][0]:
            del held[key]
    return worst


def _take_over(
    record: Record, seconds: float, servers: Sequence[Record], waits: Sequence[Wait]
) -> Recovery:
    if not _is_alone(record, servers, seconds):
        return Recovery(record.number, record.kind, seconds, None)
    lapsed, resumed = record.began + LOCK_S, record.began + seconds
    queue_s = max((wait.seconds for wait in waits if lapsed - 1.0 < wait.at < resumed), default=0.0)
    return Recovery(record.number, record.kind, seconds, TAKE_OVER_S + queue_s)


def _is_alone(record: Record, servers: Sequence[Record], seconds: float) -> bool:
    until = record.began + min(seconds, TAKE_OVER_S)
    return not any(s.began < until and s.ended > record.began - 1.0 for s in servers)


def _lines(effects: Path) -> Iterator[Json]:
    with effects.open("rb") as log:
        for line in log:
            if line.endswith(b"\n"):
                yield json.loads(line)


def elections(primary: MongoClient[Json], database: str, *, wall_offset_s: float) -> list[Election]:
    """Return all elections that the primary's log knows, in order.

    Args:
        wall_offset_s: What to take from the wall clock to get monotonic seconds.
    """
    log = primary.local["oplog.rs"]
    commit = {
        "op": "c",
        "o.applyOps": {
            "$elemMatch": {"op": {"$in": ["d", "u"]}, "ns": f"{database}.executable_tasks"}
        },
    }
    found = []
    for entry in log.find({"op": "n", "o.msg": "new primary"}).sort("$natural", 1):
        since: datetime = entry["wall"].replace(tzinfo=UTC)
        after: Json = {"ts": {"$gte": Timestamp(entry["ts"].time, entry["ts"].inc)}, **commit}
        next_commit = log.find_one(after, {"wall": 1}, sort=[("$natural", 1)])
        seconds = (
            (next_commit["wall"].replace(tzinfo=UTC) - since).total_seconds()
            if next_commit
            else float("inf")
        )
        found.append(Election(since.timestamp() - wall_offset_s, seconds))
    return found


def failovers(records: Iterable[Record], found: Sequence[Election]) -> list[Recovery]:
    """Return how long after each election the work went on; one that was followed by another in that time has no bound."""
    servers = [record for record in records if record.track is Track.SERVER and record.counts]
    recoveries = []
    for number, election in enumerate(found):
        cause = next((s for s in servers if s.began <= election.at <= s.ended + 1.0), None)
        if cause is None:
            continue
        until = election.at + FAILOVER_S
        is_last = number + 1 == len(found) or found[number + 1].at > until
        undisturbed = not any(
            s.began < until and s.ended > election.at for s in servers if s is not cause
        )
        recoveries.append(
            Recovery(
                cause.number,
                cause.kind,
                election.commits_after_s,
                FAILOVER_S if is_last and undisturbed else None,
            )
        )
    return recoveries


def outages(records: Iterable[Record], found: Sequence[Election]) -> list[Outage]:
    """Return when the database took no writes: from the loss of the primary until there is one, another or the same."""
    servers = [record for record in records if record.track is Track.SERVER and record.counts]
    gone = []
    for record in sorted(servers, key=lambda each: each.began):
        if record.away_from is None:
            continue
        ends = [each.at for each in found if record.away_from < each.at <= record.ended]
        if record.same_again is not None:
            ends.append(record.same_again)
        if ends:
            gone.append(
                Outage(record.away_from, min(ends), _steady_until(min(ends), servers, found))
            )
    return gone


def _steady_until(back_at: float, servers: Sequence[Record], found: Sequence[Election]) -> float:
    """Return until when the database is known to have been there; before an election there is a time without a primary."""
    damaged = [record.began for record in servers if record.began > back_at]
    unsteady = [each.at - LONGEST_ELECTION_S for each in found if each.at > back_at]
    return max(back_at, min([*damaged, *unsteady], default=float("inf")))


def worst_by_kind(recoveries: Iterable[Recovery]) -> dict[str, float]:
    """Return the longest recovery of each kind of fault."""
    worst: dict[str, float] = {}
    for each in recoveries:
        worst[each.kind] = max(worst.get(each.kind, 0.0), round(each.seconds, 2))
    return worst
