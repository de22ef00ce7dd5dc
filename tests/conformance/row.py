"""What a row of the suite says: a case of the reference, what happens in it, and what must come of it."""

from dataclasses import dataclass
from typing import Protocol

from tests.conformance.bench import Bench
from tests.conformance.setup import Setup


class Step(Protocol):
    """Something that is done, or that must be true then; ``steps`` and ``looks`` have them all."""

    async def take(self, bench: Bench) -> None:
        """Do it, or look whether it is true."""
        ...


@dataclass(frozen=True, slots=True)
class Difference:
    """Where we differ from the reference on purpose."""

    ours: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Setup):
    """One case.

    Attributes:
        id: The section of the reference and the number of the case in it.
        case: What happens, in words.
        reference: What comes of it there.
        mongodb_only: Whether it is about what transactions decide, or about stored events: it is not run in memory.
    """

    id: str
    case: str
    reference: str
    steps: tuple[Step, ...]
    differs: Difference | None = None
    mongodb_only: bool = False

    @property
    def has_java(self) -> bool:
        """Whether the Java engine has a fixture for it."""
        return all(fixture.java for fixture in self.fixtures)
