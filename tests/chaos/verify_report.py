"""What the verifier finds: violations in words, and what it counted."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What is wrong."""

    LOST = "lost"
    DOUBLED = "doubled"
    STUCK = "stuck"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is not as it must be, naming instance, node and task or key."""

    kind: Kind
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found, and how much was looked at.

    Attributes:
        lost: One line each: where, what was expected, what is there.
        doubled: The same.
        stuck: What did not end, is still locked, cannot be reached, or outlived its instance.
        other: Order, variables, keys, and what nobody asked for.
        tasks: Steps of handlers whose outcome was committed, and external tasks that were completed or correlated.
        instances: Instances that have ended, children included.
        handler_calls: Calls that began.
        handler_repeats: Calls beyond the first of a step that did not fail on purpose: allowed (design I4), counted.
        incidents: Incidents that people had to put right, by type.
        commits: Transactions that were followed in the server's log; 0 if it does not reach back to the beginning.
    """

    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    stuck: tuple[str, ...]
    other: tuple[str, ...]
    tasks: int
    instances: int
    handler_calls: int
    handler_repeats: int
    incidents: dict[str, int]
    commits: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.doubled or self.stuck or self.other)


def in_words(violations: Iterable[Violation], kind: Kind) -> tuple[str, ...]:
    """Return those of one kind."""
    return tuple(found.words for found in violations if found.kind is kind)
