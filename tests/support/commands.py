"""Counting the commands that a client sends: what CI asserts instead of seconds."""

from collections.abc import Iterator
from contextlib import contextmanager

from pymongo.monitoring import CommandListener, CommandStartedEvent

_OF_THE_DRIVER = {"hello", "ismaster", "endSessions", "killCursors", "saslStart", "saslContinue"}


class CommandCounter(CommandListener):
    """Notes the commands that are sent while ``counting``, by their names, in order."""

    def __init__(self) -> None:
        self._sent: list[str] | None = None

    @contextmanager
    def counting(self) -> Iterator[list[str]]:
        """Give a list that grows while the block lasts."""
        self._sent = []
        try:
            yield self._sent
        finally:
            self._sent = None

    def started(self, event: CommandStartedEvent) -> None:
        """Note a command; an update or delete of many statements is one."""
        if self._sent is not None and event.command_name not in _OF_THE_DRIVER:
            self._sent.append(event.command_name)

    def succeeded(self, event: object) -> None:
        """Ignore it."""

    def failed(self, event: object) -> None:
        """Ignore it."""


class AttemptCounter:
    """Counts transactions and those that the database made repeat."""

    def __init__(self) -> None:
        self.attempts = 0
        self.conflicts = 0

    def transaction_attempted(self) -> None:
        """Count one."""
        self.attempts += 1

    def transaction_conflicted(self) -> None:
        """Count one that is repeated."""
        self.conflicts += 1
