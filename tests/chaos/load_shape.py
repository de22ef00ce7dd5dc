"""What the handlers of an instance must have done when it has ended, as a partial order of steps.

The load makes a shape together with each definition and writes it into its ledger; the verifier holds the trail of every
instance against it. A shape says nothing about rows, joins or commits: only which steps must have been committed once
before which others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A handler that is committed exactly once.

    Attributes:
        is_quiet: It changes no variable: its outcome is proved by what comes after it.
        folds: It reads and writes the variable ``fold``, so no committed step of its path may have been missed.
    """

    node: str
    is_quiet: bool = False
    folds: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Parts of which each ends before the next one begins."""

    parts: tuple["Shape", ...]


@dataclass(frozen=True, slots=True)
class Beside:
    """Parts that all run, in any order: the branches of a split."""

    parts: tuple["Shape", ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    """Parts of which exactly one runs: the ways out of a race."""

    parts: tuple["Shape", ...]


@dataclass(frozen=True, slots=True)
class Reminded:
    """A step beside everything that follows, once for each time that a timer fired, ``most`` times at most."""

    node: str
    most: int


@dataclass(frozen=True, slots=True)
class Called:
    """``count`` children of the definition ``key``, all of which ended; ``is_doomed`` when a deadline may cancel them."""

    node: str
    key: str
    count: int
    is_doomed: bool = False


Shape: TypeAlias = Step | Row | Beside | OneOf | Reminded | Called


def encode(shape: Shape) -> Json:
    """Return the shape as JSON."""
    match shape:
        case Step(node, is_quiet, folds):
            return {"step": node, "quiet": is_quiet, "folds": folds}
        case Row(parts):
            return {"row": [encode(part) for part in parts]}
        case Beside(parts):
            return {"beside": [encode(part) for part in parts]}
        case OneOf(parts):
            return {"oneOf": [encode(part) for part in parts]}
        case Reminded(node, most):
            return {"reminded": node, "most": most}
        case Called(node, key, count, is_doomed):
            return {"called": node, "key": key, "count": count, "doomed": is_doomed}


def decode(found: Mapping[str, Any]) -> Shape:
    """Return the shape that ``encode`` was given."""
    match found:
        case {"step": node, "quiet": is_quiet, "folds": folds}:
            return Step(node, is_quiet, folds)
        case {"row": parts}:
            return Row(_all(parts))
        case {"beside": parts}:
            return Beside(_all(parts))
        case {"oneOf": parts}:
            return OneOf(_all(parts))
        case {"reminded": node, "most": most}:
            return Reminded(node, most)
        case {"called": node, "key": key, "count": count, "doomed": is_doomed}:
            return Called(node, key, count, is_doomed)
        case _:
            raise ValueError(f"{found} is no shape")


def _all(parts: Sequence[Mapping[str, Any]]) -> tuple[Shape, ...]:
    return tuple(decode(part) for part in parts)
