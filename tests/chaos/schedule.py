"""Which faults come when: a pure function of the seed."""

import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class Track(StrEnum):
    """Faults of one track come one after another; those of different tracks overlap."""

    WORKER = "worker"
    SERVER = "server"
    COMMAND = "command"


class Kind(StrEnum):
    """What is done."""

    WORKER_KILLED = "worker killed, restarted under its name"
    WORKER_FROZEN = "worker frozen for longer than its lock"
    WORKER_DRAINED = "worker stopped and replaced"
    WORKER_STOPPED_TWICE = "worker stopped with two signals"
    WORKER_AHEAD = "worker restarted with its clock 10 min ahead"
    WORKER_BEHIND = "worker restarted with its clock 10 min behind"
    NAMESAKE = "two workers of one name"
    ROLLING_RESTART = "rolling restart, handlers missing from one worker"

    PRIMARY_STEPS_DOWN = "primary steps down"
    PRIMARY_KILLED = "primary killed and restarted"
    PRIMARY_STOPPED = "primary stopped and restarted"
    PRIMARY_FROZEN = "primary frozen"
    SECONDARY_KILLED = "secondary killed and restarted"
    ALL_DOWN = "all members killed for 30 s"
    NETWORK_REFUSES = "network: primary cut off"
    NETWORK_HOLDS = "network: half open, delivered late"
    NETWORK_ONE_WAY = "network: replies lost"
    NETWORK_SLOW = "network: slow"
    NETWORK_RESETS = "network: connections reset"

    COMMIT_REPLY_LOST = "commit carried out, reply lost"
    CLAIM_REPLY_LOST = "claim carried out, reply lost"
    UPDATE_REPLY_LOST = "update carried out, reply lost"
    COMMIT_CONNECTION_CLOSED = "commit not carried out, connection closed"
    COMMIT_NOT_CONFIRMED = "commit carried out, write concern failed"
    WRITE_CONFLICT = "write conflict in a transaction"
    INTERRUPTED = "commands interrupted by a shutdown"
    CLAIM_NOT_CONFIRMED = "claim carried out, write concern failed"
    UPDATE_NOT_CONFIRMED = "update carried out, write concern failed"


@dataclass(frozen=True, slots=True)
class Rule:
    """How often a kind comes, and how long it lasts.

    Attributes:
        weight: Its share among the kinds of its track.
        shortest_s: Least time from the damage to its repair.
        longest_s: Longest time from the damage to its repair.
    """

    track: Track
    weight: int
    shortest_s: float = 0.0
    longest_s: float = 0.0


RULES: dict[Kind, Rule] = {
    Kind.WORKER_KILLED: Rule(Track.WORKER, 10),
    Kind.WORKER_FROZEN: Rule(Track.WORKER, 2, 6, 8),
    Kind.WORKER_DRAINED: Rule(Track.WORKER, 4),
    Kind.WORKER_STOPPED_TWICE: Rule(Track.WORKER, 2, 0, 0.3),
    Kind.WORKER_AHEAD: Rule(Track.WORKER, 2),
    Kind.WORKER_BEHIND: Rule(Track.WORKER, 2),
    Kind.NAMESAKE: Rule(Track.WORKER, 2, 3, 6),
    Kind.ROLLING_RESTART: Rule(Track.WORKER, 1, 1, 2),
    Kind.PRIMARY_STEPS_DOWN: Rule(Track.SERVER, 24),
    Kind.PRIMARY_KILLED: Rule(Track.SERVER, 12, 0, 8),
    Kind.PRIMARY_STOPPED: Rule(Track.SERVER, 12, 0, 4),
    Kind.PRIMARY_FROZEN: Rule(Track.SERVER, 6, 7, 12),
    Kind.SECONDARY_KILLED: Rule(Track.SERVER, 12, 0, 4),
    Kind.ALL_DOWN: Rule(Track.SERVER, 1, 30, 30),
    Kind.NETWORK_REFUSES: Rule(Track.SERVER, 12, 1, 9),
    Kind.NETWORK_HOLDS: Rule(Track.SERVER, 8, 1, 12),
    Kind.NETWORK_ONE_WAY: Rule(Track.SERVER, 8, 1, 9),
    Kind.NETWORK_SLOW: Rule(Track.SERVER, 8, 2, 5),
    Kind.NETWORK_RESETS: Rule(Track.SERVER, 24),
    Kind.COMMIT_REPLY_LOST: Rule(Track.COMMAND, 5),
    Kind.CLAIM_REPLY_LOST: Rule(Track.COMMAND, 4),
    Kind.UPDATE_REPLY_LOST: Rule(Track.COMMAND, 2),
    Kind.COMMIT_CONNECTION_CLOSED: Rule(Track.COMMAND, 3),
    Kind.COMMIT_NOT_CONFIRMED: Rule(Track.COMMAND, 3),
    Kind.WRITE_CONFLICT: Rule(Track.COMMAND, 4),
    Kind.INTERRUPTED: Rule(Track.COMMAND, 3),
    Kind.CLAIM_NOT_CONFIRMED: Rule(Track.COMMAND, 3),
    Kind.UPDATE_NOT_CONFIRMED: Rule(Track.COMMAND, 2),
}

SHARES = {Track.WORKER: 0.3, Track.SERVER: 0.15, Track.COMMAND: 0.55}
"""How many of the faults belong to each track."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a schedule.

    Attributes:
        number: Counts through all tracks, from 1.
        at_s: Seconds from the beginning of the run; later if the fault before it in its track takes longer.
        target: Which worker or secondary it hits, modulo how many there are.
        lasts_s: Seconds from the damage to its repair.
        times: How many commands it hits, where it hits commands.
    """

    number: int
    at_s: float
    kind: Kind
    target: int
    lasts_s: float
    times: int

    @property
    def track(self) -> Track:
        """Faults of one track come one after another."""
        return RULES[self.kind].track


def plan(seed: int, *, faults: int, seconds: float) -> tuple[Fault, ...]:
    """Return the schedule of a seed, in order of time.

    Every kind of a track comes before one comes for the second time, so that short runs are mixed as well.

    Args:
        faults: How many in all.
        seconds: Over what time they are spread.
    """
    chance = random.Random(seed)
    drawn = [
        fault
        for track, count in _shares(faults).items()
        for fault in _draw(chance, track, count, seconds)
    ]
    drawn.sort(key=lambda each: each[0])
    return tuple(
        Fault(number, at_s, kind, chance.randrange(1_000), _lasts(chance, kind), _times(chance))
        for number, (at_s, kind) in enumerate(drawn, 1)
    )


def _shares(faults: int) -> dict[Track, int]:
    counts = {track: int(faults * share) for track, share in SHARES.items()}
    counts[Track.COMMAND] += faults - sum(counts.values())
    return counts


def _draw(
    chance: random.Random, track: Track, count: int, seconds: float
) -> list[tuple[float, Kind]]:
    rules = {kind: rule for kind, rule in RULES.items() if rule.track is track}
    kinds = chance.sample(list(rules), len(rules))
    more = max(0, count - len(kinds))
    kinds += chance.choices(list(rules), [rule.weight for rule in rules.values()], k=more)
    step = seconds / max(1, count)
    return [
        (round((place + chance.random()) * step, 2), kind)
        for place, kind in enumerate(kinds[:count])
    ]


def _lasts(chance: random.Random, kind: Kind) -> float:
    rule = RULES[kind]
    return round(chance.uniform(rule.shortest_s, rule.longest_s), 2)


def _times(chance: random.Random) -> int:
    return chance.choice([1, 1, 1, 2, 3, 5])


def count_by_kind(faults: tuple[Fault, ...]) -> Counter[Kind]:
    """Return how often each kind comes."""
    return Counter(fault.kind for fault in faults)
