"""Wakes an idle acquirer when another process has made work claimable. It only saves waiting: the poll is the truth."""

from contextlib import aclosing

from kikwiflow_worker.acquirer.acquirer import Acquirer
from kikwiflow_worker.acquirer.pacing import Pacing
from kikwiflow_worker.clock import Clock
from kikwiflow_worker.store.protocol import WakeUps

_BUSY_S = 2.0
"""A worker that is busy for longer stops listening: hints about work that it finds anyway cost time for each task."""


class WakeUpWatch:
    """Listens while the acquirer idles, and pokes it."""

    def __init__(self, wake_ups: WakeUps, acquirer: Acquirer, pacing: Pacing, clock: Clock) -> None:
        self._wake_ups = wake_ups
        self._acquirer = acquirer
        self._pacing = pacing
        self._clock = clock

    async def run(self) -> None:
        """Listen until cancelled, or until it turns out that the server gives no hints."""
        while True:
            await self._acquirer.wait_idle()
            if not await self._listen():
                return

    async def _listen(self) -> bool:
        """Pass hints on until the worker is busy; return False if there are none to be had."""
        async with aclosing(self._wake_ups.watch()) as hints:
            async for _ in hints:
                if self._acquirer.busy_s > _BUSY_S:
                    return True
                await self._clock.sleep(self._pacing.next_hint_pause_s())
                self._acquirer.wake()
        return False
