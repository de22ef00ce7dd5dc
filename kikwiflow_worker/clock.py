"""Time as a dependency.

Nothing else in the package reads a clock or sleeps: it takes a ``Clock``, or an instant as an argument. This module
therefore holds the only exceptions to the lint rule that bans wall clocks.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is, and how to wait."""

    def now(self) -> datetime:
        """Return the host's wall-clock time, aware, in UTC. For people and logs only; never for a decision."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary origin; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait ``seconds`` without blocking the event loop."""
        ...


class SystemClock:
    """The clock of the host."""

    def now(self) -> datetime:
        """Return the host's time in UTC."""
        return datetime.now(UTC)  # noqa: TID251

    def monotonic(self) -> float:
        """Return the host's monotonic time in seconds."""
        return time.monotonic()  # noqa: TID251

    async def sleep(self, seconds: float) -> None:
        """Wait on the running event loop."""
        await asyncio.sleep(seconds)  # noqa: TID251
