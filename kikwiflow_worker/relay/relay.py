"""The relay: as long as it runs, it looks for slices of the outbox that have something to send, and sends it.

Relays are equal and do not know each other, like workers: each claims a slice for one round. The poll is the truth.
"""

import asyncio
import random
from dataclasses import dataclass, field
from datetime import timedelta

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.relay.delivery import Delivery, DeliveryOptions
from kikwiflow_worker.relay.gauges import MEASURE_S, RelayGauges
from kikwiflow_worker.relay.sinks import Sink
from kikwiflow_worker.store.relay import (
    ClaimedSlice,
    RelaySetup,
    RelayStore,
    Round,
)
from kikwiflow_worker.telemetry import Event, Metrics, emit

_SLICES_AT_ONCE = 4
_SLACK_S = 10.0
"""Of a slice's lock beyond the longest round, for claiming and recording."""

_ADOPT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """How a relay behaves.

    Attributes:
        owner: Who this relay is: another name in each process.
        sink_name: The sink that events must be meant for.
        round_size: Events of one round, at most. So many are sent again if the relay dies in it.
        poll_s: Between two looks while nothing is to be sent.
    """

    owner: str
    sink_name: str
    round_size: int = 200
    poll_s: float = 1.0
    delivery: DeliveryOptions = field(default_factory=DeliveryOptions)

    @property
    def lock(self) -> timedelta:
        """How long a slice is held unless its round is recorded: after that others send its events again."""
        return timedelta(seconds=self.delivery.longest_s + _SLACK_S)


class Relay:
    """Sends the events of one database to one sink."""

    def __init__(
        self,
        store: RelayStore,
        care: RelaySetup,
        sink: Sink,
        options: RelayOptions,
        *,
        clock: Clock,
        metrics: Metrics,
        jitter: random.Random | None = None,
    ) -> None:
        self._store = store
        self._care = care
        self._sink = sink
        self._options = options
        self._clock = clock
        self._metrics = metrics
        self._gauges = RelayGauges(care, clock=clock, metrics=metrics)
        self._jitter = jitter or random.Random()
        self._delivery = Delivery(
            sink,
            options.delivery,
            clock=clock,
            jitter=self._jitter,
            may_go_on=lambda: not self._is_stopping,
        )
        self._is_stopping = False
        self._is_stalled = False
        self._measured_at = self._adopted_at = clock.monotonic() - _ADOPT_S

    def stop(self) -> None:
        """Begin nothing more; ``run`` returns when what is being sent has been recorded."""
        self._is_stopping = True

    async def run(self) -> None:
        """Send until told to stop. Cancelled in the middle of a round, its events are sent again after the lock's end.

        Raises:
            StoreUnavailableError: The database does not answer; it can be run again.
        """
        try:
            await self._sink.open()
            while not self._is_stopping:
                await self._look_after()
                if not await self.send_ready():
                    await self._clock.sleep(self._options.poll_s * (0.5 + self._jitter.random()))
        finally:
            await self._sink.close()

    async def run_until_idle(self) -> int:
        """Send until nothing can be sent now; return how many events were delivered."""
        delivered = 0
        try:
            await self._sink.open()
            while not self._is_stopping and (rounds := await self.send_ready()):
                delivered += sum(len(one.delivered) for one in rounds)
        finally:
            await self._sink.close()
        return delivered

    async def send_ready(self) -> list[Round]:
        """Send one round of each of a few slices that have something to send; return what came of them."""
        ready = list(await self._store.find_ready(self._options.sink_name))
        self._jitter.shuffle(ready)
        sending = [self._send_slice(number) for number in ready[:_SLICES_AT_ONCE]]
        results = await asyncio.gather(*sending, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [one for one in results if isinstance(one, Round)]

    async def _send_slice(self, number: int) -> Round | None:
        options = self._options
        claimed = await self._store.claim(
            number,
            sink=options.sink_name,
            owner=options.owner,
            lock=options.lock,
            limit=options.round_size,
        )
        if claimed is None:
            return None
        result = await self._delivery.send(claimed, self._store.now())
        if await self._store.record(claimed, result):
            self._report(claimed, result)
        else:
            emit(Event.RELAY_SLICE_LOST, slice=number, delivered=len(result.delivered))
        return result

    def _report(self, claimed: ClaimedSlice, result: Round) -> None:
        dead = [one for one in result.failed if one.retry_at is None]
        counted = self._metrics.relay_events
        counted.labels(outcome="delivered").inc(len(result.delivered))
        counted.labels(outcome="failed").inc(len(result.failed) - len(dead))
        counted.labels(outcome="dead").inc(len(dead))
        for one in dead:
            emit(
                Event.RELAY_DEAD_LETTERED,
                event_id=one.event.id,
                event_type=one.event.type,
                instance_id=one.event.instance_id,
                attempt=one.event.attempts + 1,
                error=one.error,
            )
        if result.failures and result.failed and not self._is_stalled:
            self._is_stalled = True
            emit(
                Event.RELAY_STALLED,
                sink=self._options.sink_name,
                slice=claimed.slice,
                error=result.failed[-1].error,
            )
        elif result.delivered and self._is_stalled:
            self._is_stalled = False
            emit(Event.RELAY_RECOVERED, sink=self._options.sink_name)

    async def _look_after(self) -> None:
        now = self._clock.monotonic()
        if now - self._adopted_at >= _ADOPT_S:
            await self._care.adopt()
            self._adopted_at = now
        if now - self._measured_at >= MEASURE_S:
            await self._gauges.refresh()
            self._measured_at = now
