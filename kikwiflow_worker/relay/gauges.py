"""Tells how far the relay of a database is behind, wherever it runs, and also when it runs nowhere."""

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.store.relay import RelayCare
from kikwiflow_worker.telemetry import Metrics

MEASURE_S = 15.0
"""Between two measures."""


class RelayGauges:
    """The gauges of the relay."""

    def __init__(self, care: RelayCare, *, clock: Clock, metrics: Metrics) -> None:
        self._care = care
        self._clock = clock
        self._metrics = metrics

    async def run(self) -> None:
        """Refresh them for ever, while events of the database are relayed; a database that is away is asked again."""
        while True:
            try:
                if await self._care.find_sink() is not None:
                    await self.refresh()
            except StoreUnavailableError:
                pass  # whoever watches the database says so
            await self._clock.sleep(MEASURE_S)

    async def refresh(self) -> None:
        """Measure once."""
        measures = await self._care.measure()
        for status, count in measures.counts.items():
            self._metrics.relay_waiting.labels(status=status.value.lower()).set(count)
        self._metrics.relay_lag.set(measures.lag_s)
