"""Wires the outbox relay together: as a process of its own, and beside a worker."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import uuid4

from prometheus_client import CollectorRegistry

from kikwiflow_worker import __version__
from kikwiflow_worker.cli.connection import Address, database_address, store_options
from kikwiflow_worker.clock import Clock, SystemClock
from kikwiflow_worker.errors import (
    ConfigurationError,
    KikwiflowError,
    OperationError,
    StoreUnavailableError,
)
from kikwiflow_worker.relay.delivery import DeliveryOptions
from kikwiflow_worker.relay.gauges import RelayGauges
from kikwiflow_worker.relay.relay import Relay, RelayOptions
from kikwiflow_worker.relay.sinks import Sink, load_sink
from kikwiflow_worker.settings import Settings
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.telemetry import Event, Metrics, configure_logging, emit
from kikwiflow_worker.worker.event_loop import loop_factory
from kikwiflow_worker.worker.health import HealthServer, HealthState
from kikwiflow_worker.worker.signals import install_signal_handlers
from kikwiflow_worker.worker.supervision import end, supervised

T = TypeVar("T")

_BEAT_S = 1.0
_REGISTER_AGAIN_S = 1.0
_FINISH_S = 5.0
"""Beyond the longest round, until a stop is enforced."""


class Relaying:
    """The relay that the settings ask for, over one store.

    Raises:
        ConfigurationError: No sink is named, or its options are wrong.
    """

    def __init__(self, settings: Settings, store: MongoStore, metrics: Metrics, owner: str) -> None:
        self.sink_name, sink = _sink(settings)
        delivery = DeliveryOptions(most_strikes=settings.relay_max_attempts)
        self.stop_s = delivery.longest_s + _FINISH_S
        self._grace_s = min(self.stop_s, settings.grace_seconds + settings.shutdown_cancel_seconds)
        self._care = store.relay_care
        self._clock: Clock = SystemClock()
        self._stopped_at: float | None = None
        self._beside: asyncio.Task[None] | None = None
        self.relay = Relay(
            store.relay,
            store.relay_care,
            sink,
            RelayOptions(owner=owner, sink_name=self.sink_name, delivery=delivery),
            clock=self._clock,
            metrics=metrics,
        )

    def stop(self) -> None:
        """Let what is being sent be recorded, and end; asked again, end at once: it is sent again by another relay."""
        if self._stopped_at is None:
            self._stopped_at = self._clock.monotonic()
            self.relay.stop()
        elif self._beside is not None:
            self._beside.cancel()

    async def run(self) -> None:
        """Relay until stopped, through outages of the database."""
        await supervised("relay", self.relay.run, self._clock)

    async def run_beside(self, main: Awaitable[T]) -> T:
        """Relay while ``main`` runs; return what that returns, when what was being sent has been recorded.

        That is waited for within the grace of the worker, from the first request to stop.
        """
        async with asyncio.TaskGroup() as group:
            self._beside = group.create_task(self._register_and_run())
            try:
                result: T | KikwiflowError = await main
            except KikwiflowError as error:
                result = error
            if self._stopped_at is None:
                self.stop()
            passed_s = self._clock.monotonic() - (self._stopped_at or 0.0)
            await asyncio.wait([self._beside], timeout=max(0.0, self._grace_s - passed_s))
            self._beside.cancel()
        if isinstance(result, KikwiflowError):
            raise result
        return result

    async def _register_and_run(self) -> None:
        """Register as soon as the worker has prepared the database; a worker works without a relay that may not run."""
        while self._stopped_at is None:
            try:
                await self._care.register(self.sink_name)
            except StoreUnavailableError:
                await self._clock.sleep(_REGISTER_AGAIN_S)
            except (ConfigurationError, OperationError) as error:
                emit(Event.RELAY_REFUSED, sink=self.sink_name, error=str(error))
                return
            else:
                break
        await self.run()


async def measure_beside(store: MongoStore, metrics: Metrics, main: Awaitable[T]) -> T:
    """Tell, while ``main`` runs, how far relays elsewhere are behind: it is seen also when none of them runs any more."""
    clock = SystemClock()
    gauges = RelayGauges(store.relay_care, clock=clock, metrics=metrics)
    async with asyncio.TaskGroup() as group:
        measuring = group.create_task(supervised("relay gauges", gauges.run, clock))
        try:
            result: T | KikwiflowError = await main
        except KikwiflowError as error:
            result = error
        await end([measuring])
    if isinstance(result, KikwiflowError):
        raise result
    return result


def run_relay_process(settings: Settings, *, until_idle: bool, replace_sink: bool) -> int | None:
    """Relay until SIGTERM or Ctrl-C, or until nothing can be sent; return how many events were delivered in that case.

    Raises:
        ConfigurationError: Settings, sink or server do not allow it.
        ConflictError: The events of the database go to another sink.
        StoreUnavailableError: The database does not answer.
    """
    # Standard output may be the sink; it holds events and nothing else.
    configure_logging(settings.log_level, settings.log_format, sys.stderr)
    new_loop = loop_factory(settings.event_loop)
    name = settings.instance_name or socket.gethostname()
    metrics = Metrics(CollectorRegistry(), version=__version__, instance=name)
    health = HealthState(SystemClock())
    with database_address(settings) as address:
        server = (
            HealthServer(settings.health_address, health, metrics)
            if settings.health_address
            else None
        )
        if server is not None:
            server.start()
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                return runner.run(
                    _relay(settings, address, metrics, health, name, until_idle, replace_sink)
                )
        finally:
            if server is not None:
                server.stop()


async def _relay(
    settings: Settings,
    address: Address,
    metrics: Metrics,
    health: HealthState,
    name: str,
    until_idle: bool,
    replace_sink: bool,
) -> int | None:
    store = MongoStore.open(
        address.uri, address.database, clock=SystemClock(), options=store_options(settings)
    )
    try:
        relaying = Relaying(settings, store, metrics, f"{name}.{uuid4().hex[:12]}")
        await store.prepare()
        await store.relay_care.register(relaying.sink_name, replace=replace_sink)
        install_signal_handlers(
            asyncio.get_running_loop(),
            relaying.stop,
            deadline_s=relaying.stop_s,
            cold_deadline_s=_FINISH_S,
        )
        if until_idle:
            return await relaying.relay.run_until_idle()
        await _run_watched(relaying, store.ping, health)
        return None
    finally:
        await store.close()


async def _run_watched(
    relaying: Relaying, ping: Callable[[], Awaitable[object]], health: HealthState
) -> None:
    """Run, and tell the probes about the event loop and the database."""
    clock = SystemClock()

    async def beat() -> None:
        while True:
            try:
                await ping()
            except StoreUnavailableError:
                health.set_store_reachable(is_reachable=False)
            else:
                health.set_store_reachable(is_reachable=True)
            health.beat()
            health.progress()
            await clock.sleep(_BEAT_S)

    health.set_started()
    emit(Event.RELAY_STARTED, sink=relaying.sink_name)
    async with asyncio.TaskGroup() as group:
        beating = group.create_task(beat())
        await relaying.run()
        beating.cancel()


def _sink(settings: Settings) -> tuple[str, Sink]:
    if settings.relay_sink is None:
        raise ConfigurationError(
            "the relay needs a sink: give --relay-sink webhook, kafka, stdout or one of your own, and --relay-options"
        )
    pairs = [option.split("=", 1) for option in settings.relay_options]
    return settings.relay_sink, load_sink(
        settings.relay_sink, {name: value.strip() for name, value in pairs}
    )
