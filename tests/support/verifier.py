"""Proves from the outside that nothing was lost or doubled: the effects log against what the database holds.

The handlers of the acceptance tests count themselves in a variable named ``done NODE`` that is committed with their
outcome (``tests/support/plugin``). So a count of 1 is one committed outcome, whatever else was tried on the way. A join
that fired twice runs the node behind it twice: under a second key, and counted twice.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pymongo.database import Database

from tests.support.workers import Effect, Json

COUNTER = "done "


@dataclass(frozen=True, slots=True)
class Expected:
    """What should have become of an instance.

    Attributes:
        nodes: The nodes with a handler whose outcome was committed, each exactly once.
        rests_at: Where its tasks wait; empty means that it has ended.
    """

    nodes: frozenset[str]
    rests_at: frozenset[str] = frozenset()

    @classmethod
    def of(cls, *nodes: str, rests_at: Iterable[str] = ()) -> "Expected":
        """Return what is expected, from names."""
        return cls(frozenset(nodes), frozenset(rests_at))


@dataclass(frozen=True, slots=True)
class Row:
    """A stored task."""

    id: str
    instance: str
    node: str
    status: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What the database holds.

    Attributes:
        running: The counts of each running instance, by node.
        ended: The same of each instance in the history that completed.
        rows: Executable and external tasks.
    """

    running: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    ended: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()


def read_facts(database: Database[Json]) -> Facts:
    """Read everything that is stored."""
    rows = [
        Row(row["_id"], row["processInstanceId"], row["taskDefinitionId"], row["status"])
        for name in ("executable_tasks", "external_tasks")
        for row in database[name].find()
    ]
    return Facts(
        running={found["_id"]: _counts(found) for found in database.process_instances.find()},
        ended={
            found["_id"]: _counts(found)
            for found in database.process_history.find({"status": "COMPLETED"})
        },
        rows=tuple(rows),
    )


def violations(
    effects: Iterable[Effect], facts: Facts, started: Mapping[str, Expected]
) -> list[str]:
    """Return everything that is not as it must be, one line each; empty is the proof.

    Args:
        started: All instances that were started, by id.
    """
    log = list(effects)
    return [
        *_whereabouts(facts, started),
        *_rows(facts, started),
        *_outcomes(log, facts, started),
        *_keys(log, started),
    ]


def _whereabouts(facts: Facts, started: Mapping[str, Expected]) -> Iterator[str]:
    for instance, expected in started.items():
        is_running, has_ended = instance in facts.running, instance in facts.ended
        if is_running and has_ended:
            yield f"instance {instance} runs and has ended at once"
        elif not is_running and not has_ended:
            yield f"instance {instance} is gone without a record"
        elif expected.rests_at and has_ended:
            yield f"instance {instance} has ended; it should rest at {_names(expected.rests_at)}"
        elif is_running and not expected.rests_at:
            yield f"instance {instance} has not ended"
    for instance in (facts.running.keys() | facts.ended.keys()) - started.keys():
        yield f"instance {instance} was never started"


def _rows(facts: Facts, started: Mapping[str, Expected]) -> Iterator[str]:
    places: dict[str, set[str]] = defaultdict(set)
    for row in facts.rows:
        places[row.instance].add(row.node)
        if row.status == "LOCKED":
            yield f"task {row.id} at {row.node} of {row.instance} is still locked"
        if row.instance not in facts.running:
            yield f"task {row.id} at {row.node} outlived its instance {row.instance}"
    for instance in facts.running.keys() & started.keys():
        expected, found = started[instance].rests_at, places[instance]
        if not found:
            yield f"instance {instance} runs without a task: its token is lost"
        elif expected and found != expected:
            yield f"instance {instance} rests at {_names(found)} and not at {_names(expected)}"


def _outcomes(log: list[Effect], facts: Facts, started: Mapping[str, Expected]) -> Iterator[str]:
    finished = {(effect.instance, effect.node) for effect in log if effect.phase == "end"}
    for instance, counts in [*facts.running.items(), *facts.ended.items()]:
        expected = started[instance].nodes if instance in started else frozenset()
        for node in sorted(expected | counts.keys()):
            count = counts.get(node, 0)
            if node not in expected:
                yield f"{node} of {instance} was committed and should not have run"
            elif count != 1:
                yield f"{node} of {instance} was committed {count:g} times and not once"
            if count and (instance, node) not in finished:
                yield f"{node} of {instance} was committed and its handler never finished"


def _keys(log: list[Effect], started: Mapping[str, Expected]) -> Iterator[str]:
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    uses: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for effect in log:
        place = (effect.instance, effect.node)
        keys[place].add(effect.key)
        uses[effect.key].add(place)
    for (instance, node), found in keys.items():
        if instance not in started:
            yield f"{node} ran for {instance}, which was never started"
        if len(found) > 1:
            yield f"{node} of {instance} ran under {len(found)} idempotency keys"
    for key, places in uses.items():
        if len(places) > 1:
            yield f"idempotency key {key} was given to {len(places)} steps"


def calls(log: Iterable[Effect]) -> Counter[str]:
    """Return how often each step's handler was called, by idempotency key."""
    return Counter(effect.key for effect in log if effect.phase == "start")


def _counts(document: Json) -> dict[str, float]:
    variables = (document.get("variables") or {}).values()
    return {
        variable["name"].removeprefix(COUNTER): float(variable["value"])
        for variable in variables
        if variable["name"].startswith(COUNTER)
    }


def _names(nodes: Iterable[str]) -> str:
    return ", ".join(sorted(nodes))
