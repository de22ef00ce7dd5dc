"""What faults are done to, and what is written down about each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.chaos.cluster import Cluster
from tests.chaos.fleet import Fleet
from tests.chaos.schedule import Fault, Kind, Track


@dataclass(slots=True, kw_only=True)
class Record:
    """What became of one fault. Times are monotonic seconds, the same clock for all processes of the host.

    Attributes:
        hits: What it hit: commands, processes; 0 if it came to nothing, and then it does not count.
        pids: The workers that it killed, froze or stopped.
        away_from: Since when the database took no writes because of it; None if it may have gone on.
        same_again: When the primary that was away could go on as such, unless another was elected meanwhile.
        note: What was measured or went wrong.
    """

    number: int
    kind: Kind
    track: Track
    planned_s: float
    began: float
    ended: float = 0.0
    hits: int = 0
    pids: list[int] = field(default_factory=list)
    away_from: float | None = None
    same_again: float | None = None
    note: str = ""
    broken: str = ""

    @property
    def counts(self) -> bool:
        """Whether it came to anything."""
        return self.hits > 0


@dataclass(frozen=True, slots=True)
class Field:
    """What faults are done to."""

    cluster: Cluster
    fleet: Fleet
    pause: Callable[[float], object]


Action: TypeAlias = Callable[[Field, Fault, Record], None]
"""Does the damage, repairs it after its time, and fills in the record."""
