"""How many tasks run at once, and one of them alone when it must be."""

import asyncio
from collections.abc import Callable


class Slots:
    """A fixed number of slots. Use it on one event loop."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._used = 0
        self._changed = asyncio.Event()

    @property
    def used(self) -> int:
        """How many are taken."""
        return self._used

    @property
    def free(self) -> int:
        """How many can be taken now."""
        return self.count - self._used

    def take(self) -> None:
        """Take a slot; one must be free."""
        if self.free <= 0:
            raise RuntimeError("no slot is free; claim only when one is")
        self._used += 1

    def give_back(self) -> None:
        """Give a slot back."""
        self._used -= 1
        self._changed.set()

    def poke(self) -> None:
        """Let every ``wait_until`` look again."""
        self._changed.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds; it is looked at whenever a slot is given back, and after ``poke``."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()
