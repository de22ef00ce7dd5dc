"""How the rules of validation report what they find."""

from collections.abc import Iterable, Iterator

from kikwiflow_worker.errors import ExecutionError, Problem
from kikwiflow_worker.model.file_problems import closest
from kikwiflow_worker.model.json_source import json_path

_GUESSES = 50


def at(node_id: str, *parts: str | int) -> str:
    """Return the path of a node, or of one of its values."""
    return json_path(("flowNodes", node_id, *parts))


def error(path: str, message: str, hint: str) -> Problem:
    """Return a finding that prevents a deploy."""
    return Problem(path, message, hint)


def warning(path: str, message: str, hint: str) -> Problem:
    """Return a finding that the author should look at."""
    return Problem(path, message, hint, is_error=False)


def unreadable(path: str, text: str, reason: ExecutionError) -> Problem:
    """Return the finding about a time value; the reason says what it is and, after a semicolon, what to write."""
    what, _, hint = str(reason).partition("; ")
    return error(path, f"{text!r} cannot be used: {what}", hint)


class Suggestions:
    """Guesses what an unknown key was meant to be.

    Each guess compares the key with all others, so a file that is wrong throughout gets the first ones only.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._words = tuple(words)
        self._left = _GUESSES

    def of(self, word: str) -> str:
        """Return "did you mean" with the closest key, or the advice to write one."""
        self._left -= 1
        guess = closest(word, self._words) if self._left >= 0 else None
        return f"did you mean {guess!r}?" if guess else "write the key of an entry of flowNodes"


def is_blank(text: str | None) -> bool:
    """Return whether a text is missing, empty or white space."""
    return text is None or not text.strip()


def needed(node_id: str, field: str, value: str | None) -> Iterator[Problem]:
    """Yield an error if a field that the node's type needs is missing or blank."""
    if is_blank(value):
        yield error(at(node_id, field), "is missing or blank", "write a value")
