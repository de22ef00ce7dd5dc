"""Proves from the outside that nothing was lost, doubled or left stuck: ``python -m tests.chaos.verify --help``.

It compares records that were written independently of each other:

- **the effects log**: handlers write to a file, in one write each, when a call begins and ends;
- **the database**: each handler appends its node, idempotency key and call to the instance's variable ``trail``, which is
  committed together with the outcome of its step. All entries of an instance are writes of one document, so the order of
  the trail is the order of the commits, whatever clocks say; a step whose outcome was committed twice is on it twice,
  one that was never committed is not on it. ``total`` and ``fold`` are changed in the same commit;
- **the ledger**: what the load asked for, and what it was promised.

Why that is a proof. The load makes a *shape* with each definition: which handlers must be committed once, in which order,
which of them beside each other, and which instead of each other (``load_shape``). It knows no rows and no joins. Tokens
show in what they do next: behind every split, join, timer, message, person and call activity comes a handler, so a token
that is lost leaves a step out, one that is doubled runs what follows twice, a join that fires early puts its handler before
those of its branches (on the trail, and on the host's monotonic clock), and one that fires twice puts it on the trail twice.
A *quiet* handler changes no variable, so that commits without variables are tested as well: it is proved by one key in the
effects log and by what comes after it. ``fold`` depends on the order of all steps before, ``total`` on their number: both are
worked out again from the trail. An external task is completed by whom the variable says, which must be the one who was
promised it; a message is in the variables of exactly one instance.

A fourth record is the **server's own log** of commits (``verify_oplog``), as long as it reaches back to the beginning. It follows
every row: none is created twice, none comes from nothing or goes to nothing, none is removed but by a commit; a join is
released once, after every branch has ended once; nobody claims what somebody else still holds. That holds for commits of
quiet steps, timers and joins too.

What nobody can reach does not show on a trail; for that it asks ``kikwiflow-worker verify``, and at the end of a run
nothing at all may be left in the active collections but messages that wait for nobody any more.

Handler calls beyond the first of a step are legal (at least once, design I4): they are counted.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bson.timestamp import Timestamp
from pymongo import MongoClient

from tests.chaos.load_shape import Json
from tests.chaos.verify_effects import read_effects
from tests.chaos.verify_instances import Instances
from tests.chaos.verify_ledger import read_promises
from tests.chaos.verify_oplog import History
from tests.chaos.verify_people import People
from tests.chaos.verify_report import Kind, Report, Violation, in_words
from tests.chaos.verify_rows import find_leftovers, find_unreachable

_LISTED = 50


def verify(
    uri: str, database: str, effects: Path, ledger: Path, *, until: Timestamp | None = None
) -> Report:
    """Compare what handlers did, what the database holds and what was promised; the load must have come to its end.

    Args:
        effects: The effects log, or a folder with several.
        until: How far the server's log is followed; to its end without it.
    """
    logs = sorted(effects.glob("*.jsonl")) if effects.is_dir() else [effects]
    done, promises = read_effects(logs), read_promises(ledger)
    instances, history = Instances(promises, done), History()
    with MongoClient[Json](uri, tz_aware=True) as client:
        found = client[database]
        instances.check(found)
        history.read(client, database, until=until)
        people = People(found, promises, instances)
        violations = [
            *instances.violations,
            *(Violation(Kind.OTHER, words) for words in done.unfit),
            *people.violations(),
            *history.violations,
            *find_leftovers(found),
        ]
    with ThreadPoolExecutor(1) as pool:
        violations += pool.submit(asyncio.run, find_unreachable(uri, database)).result()
    unique = list(dict.fromkeys(violations))
    return Report(
        lost=in_words(unique, Kind.LOST),
        doubled=in_words(unique, Kind.DOUBLED),
        stuck=in_words(unique, Kind.STUCK),
        other=in_words(unique, Kind.OTHER),
        tasks=instances.committed + people.completed,
        instances=instances.ended,
        handler_calls=done.calls,
        handler_repeats=done.repeats,
        incidents=promises.incident_types,
        commits=history.commits,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was found; return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.verify", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--uri", required=True)
    parser.add_argument("--database", required=True)
    parser.add_argument("--effects", required=True, type=Path, help="a file, or a folder of them")
    parser.add_argument("--ledger", required=True, type=Path)
    given = parser.parse_args(arguments)
    report = verify(given.uri, given.database, given.effects, given.ledger)
    sys.stdout.write("\n".join(lines_of(report)) + "\n")
    return 0 if report.is_clean else 1


def lines_of(report: Report) -> list[str]:
    """Return the report in lines, the first violations of each kind in words."""
    lines = [
        f"instances ended    {report.instances}",
        f"tasks committed    {report.tasks}",
        f"handler calls      {report.handler_calls}",
        f"handler repeats    {report.handler_repeats}",
        f"commits followed   {report.commits or 'none: the server has forgotten the first ones'}",
        f"incidents          {report.incidents or 'none'}",
    ]
    for kind in Kind:
        found = getattr(report, kind.value)
        lines.append(f"{kind.value:<19}{len(found)}")
        lines += [f"  {words}" for words in found[:_LISTED]]
        if len(found) > _LISTED:
            lines.append(f"  and {len(found) - _LISTED} more")
    return lines


if __name__ == "__main__":
    sys.exit(main())
