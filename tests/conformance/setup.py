"""What rows are about: definitions under two sets of names, and what handlers do.

Rows are written with the names of our own process files. ``Fixture`` says what the same parts are called in the
fixture of the Java engine, so that one row runs on both.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.conformance.topology import paired_nodes
from tests.support.conformance import FIXTURE_FOLDER
from tests.support.definitions import PROCESS_FOLDER, Json


@dataclass(frozen=True, slots=True)
class Fixture:
    """One topology, as our own file and as the Java engine's.

    Attributes:
        own: The key of our file.
        java: The key of the Java engine's file; empty if only we have it.
        names: Our name of a handler, variable, key or code, and the Java engine's; ``{}`` in both stands for any text.
            Nodes are paired by walking both files.
        invalid: Whether no deploy may accept it.
        content: The definition itself, for what is too small for a file.
    """

    own: str
    java: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    invalid: bool = False
    content: Json | None = None

    @property
    def own_path(self) -> Path:
        """Where our file is."""
        folder = PROCESS_FOLDER / "invalid" if self.invalid else PROCESS_FOLDER
        return folder / f"{self.own}.kikwi"

    @property
    def java_path(self) -> Path:
        """Where the Java engine's file is, or would be."""
        return FIXTURE_FOLDER / f"{self.java}.json"


class Names:
    """Translates between our names and those of the files that are used."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._pairs = tuple(pairs)

    @classmethod
    def of(cls, fixtures: Iterable[Fixture], *, java: bool) -> "Names":
        """Return the names of some fixtures; they must not contradict each other."""
        if not java:
            return cls(())
        pairs: list[tuple[str, str]] = []
        for fixture in fixtures:
            own, other = (
                json.loads(path.read_bytes()) for path in (fixture.own_path, fixture.java_path)
            )
            nodes = paired_nodes(own, other)
            pairs += [(fixture.own, fixture.java), *fixture.names.items(), *nodes.items()]
        return cls(pairs)

    def theirs(self, text: str) -> str:
        """Return what the file calls ``text``."""
        return _translated(text, self._pairs)

    def ours(self, text: str) -> str:
        """Return what a row calls ``text``."""
        return _translated(text, ((theirs, ours) for ours, theirs in self._pairs))

    def value(self, value: object) -> object:
        """Return a variable's value with every text in it as the file has it."""
        match value:
            case str():
                return self.theirs(value)
            case list():
                return [self.value(element) for element in value]
            case _:
                return value

    def variables(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return variables as the file has them."""
        return {self.theirs(name): self.value(value) for name, value in values.items()}


def _translated(text: str, pairs: Iterable[tuple[str, str]]) -> str:
    for known, wanted in pairs:
        if known == text:
            return wanted
        head, hole, tail = known.partition("{}")
        fits = text.startswith(head) and text.endswith(tail) and len(text) > len(head) + len(tail)
        if hole and fits:
            return wanted.replace("{}", text[len(head) : len(text) - len(tail)])
    return text


@dataclass(frozen=True, slots=True)
class Sets:
    """The handler sets variables."""

    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Fails:
    """The handler fails technically, the first times it is called or until ``Heal``."""

    times: int = 1_000_000
    message: str = "no connection"


@dataclass(frozen=True, slots=True)
class Throws:
    """The handler raises a business error, until ``Heal``."""

    code: str


@dataclass(frozen=True, slots=True)
class Answers:
    """The answer provider answers."""

    answer: str | None


@dataclass(frozen=True, slots=True)
class Gives:
    """The provider gives correlation keys, each with a label."""

    items: tuple[tuple[str, str], ...]


Behaviour: TypeAlias = Sets | Fails | Throws | Answers | Gives


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a row begins with.

    Attributes:
        fixtures: The definitions; the first is the one that is started.
        handlers: What handlers and providers do; a task handler that is not named does nothing.
        missing: Handlers that nobody has.
        max_retries: Attempts of tasks without a policy of their own.
    """

    fixtures: tuple[Fixture, ...]
    handlers: Mapping[str, Behaviour] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    max_retries: int = 3
