"""Runs a worker as this process: puts all its parts together."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from prometheus_client import CollectorRegistry

from kikwiflow_worker import __version__
from kikwiflow_worker.cli.connection import Address, database_address, store_options
from kikwiflow_worker.cli.relaying import Relaying, measure_beside
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.engine.retries import RetryDefaults
from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.settings import Settings
from kikwiflow_worker.store.mongo.locks import MongoLockKeeper
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.telemetry import Event, Metrics, configure_logging, emit
from kikwiflow_worker.tracing.export import tracing_to
from kikwiflow_worker.tracing.protocol import Tracing
from kikwiflow_worker.worker.daemon import StopResult, Surroundings, Worker, WorkerOptions
from kikwiflow_worker.worker.event_loop import loop_factory
from kikwiflow_worker.worker.health import HealthServer, HealthState
from kikwiflow_worker.worker.registry import HandlerRegistry, load_registry
from kikwiflow_worker.worker.signals import exit_now, install_signal_handlers
from kikwiflow_worker.worker.systemd import Notifier

if TYPE_CHECKING:
    from kikwiflow_worker.cli.serving import ManagementBeside


def run_worker_process(settings: Settings) -> None:
    """Run a worker until it is asked to stop, and end the process with its exit code.

    Raises:
        ConfigurationError: Settings, handlers or server do not allow a start.
        StoreUnavailableError: The database did not answer within the start-up time-out.
    """
    # What a sink writes to standard output is read by a program.
    is_taken = settings.relay and settings.relay_sink == "stdout"
    stream = sys.stderr if is_taken else sys.stdout
    configure_logging(settings.log_level, settings.log_format, stream)
    options = _options(settings)
    new_loop = loop_factory(settings.event_loop)
    registry = load_registry(settings.handlers)
    _announce(registry)
    collectors = CollectorRegistry()
    metrics = Metrics(collectors, version=__version__, instance=options.instance_name)
    health = HealthState(SystemClock())
    metrics.up.set_function(lambda: health.last_readiness().is_ok)
    with database_address(settings) as address:
        server = (
            HealthServer(settings.health_address, health, metrics)
            if settings.health_address
            else None
        )
        if server is not None:
            server.start()
        try:
            with (
                tracing_to(
                    settings.traces,
                    service="kikwiflow-worker",
                    instance=options.instance_name,
                    version=__version__,
                ) as tracing,
                asyncio.Runner(loop_factory=new_loop) as runner,
            ):
                parts = _Parts(registry, health, metrics, collectors, tracing)
                result = runner.run(_run(settings, options, address, parts))
        finally:
            if server is not None:
                server.stop()
    exit_now(result.value)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is made before the event loop runs."""

    registry: HandlerRegistry
    health: HealthState
    metrics: Metrics
    collectors: CollectorRegistry
    tracing: Tracing


async def _run(
    settings: Settings, options: WorkerOptions, address: Address, parts: _Parts
) -> StopResult:
    clock = SystemClock()
    metrics = parts.metrics
    store = MongoStore.open(
        address.uri,
        address.database,
        clock=clock,
        options=store_options(settings),
        observer=_TransactionMetrics(metrics),
    )
    services = Services.over(
        store,
        new_id=lambda: str(uuid4()),
        event_level=settings.events,
        tracing=parts.tracing,
        retry_defaults=RetryDefaults(
            max_retries=settings.default_max_retries, interval=settings.default_retry_interval
        ),
        steps=metrics.steps,
    )
    worker = Worker(
        options,
        store,
        services,
        MongoLockKeeper(address.uri, address.database),
        parts.registry,
        Surroundings(
            clock=clock,
            metrics=metrics,
            health=parts.health,
            notifier=Notifier.from_environment(os.environ),
        ),
    )
    relaying = Relaying(settings, store, metrics, options.worker_id) if settings.relay else None

    management = _management(settings, store, services, parts)

    def request_stop() -> None:
        worker.request_stop()
        if management is not None:
            management.stop()
        if relaying is not None:
            relaying.stop()

    install_signal_handlers(
        asyncio.get_running_loop(),
        request_stop,
        deadline_s=options.stop_s,
        cold_deadline_s=options.cold_stop_s,
    )
    try:
        running: Coroutine[Any, Any, StopResult] = worker.run()
        if relaying is not None:
            running = relaying.run_beside(running)
        elif settings.events is not EventLevel.OFF:
            running = measure_beside(store, metrics, running)
        if management is not None:
            return await management.serve_beside(running)
        return await running
    finally:
        await store.close()


def _management(
    settings: Settings, store: MongoStore, services: Services, parts: _Parts
) -> "ManagementBeside | None":
    """Return the server of the HTTP API, which listens already, if the settings want one."""
    if settings.management_port is None:
        return None
    try:
        from kikwiflow_worker.cli.serving import ManagementBeside  # noqa: PLC0415 - needs the extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"management_port needs the package {error.name}: pip install 'kikwiflow-worker[management]'"
        ) from error
    return ManagementBeside(settings, store, services, parts.health, parts.collectors)


class _TransactionMetrics:
    """Counts transactions."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def transaction_attempted(self) -> None:
        self._metrics.txn_attempts.inc()

    def transaction_conflicted(self) -> None:
        self._metrics.txn_conflicts.inc()
        emit(Event.COMMIT_CONFLICTED)


def _options(settings: Settings) -> WorkerOptions:
    if settings.instance_name is None:
        raise ConfigurationError(
            "a worker needs a name: give --instance-name NAME or KIKWIFLOW_INSTANCE_NAME"
        )
    return WorkerOptions(
        instance_name=settings.instance_name,
        worker_id=f"{settings.instance_name}.{uuid4().hex[:12]}",
        version=__version__,
        concurrency=settings.concurrency,
        lock_s=settings.lock_seconds,
        poll_interval_s=settings.poll_interval_seconds,
        poll_max_s=settings.poll_max_seconds,
        change_streams=settings.change_streams,
        claim_batch_size=settings.claim_batch_size,
        commit_group_size=settings.commit_group_size,
        hand_on=settings.hand_on,
        grace_s=settings.grace_seconds,
        cancel_s=settings.shutdown_cancel_seconds,
        startup_timeout_s=settings.startup_timeout_seconds,
        handler_block_warning_s=settings.handler_block_warning_seconds,
    )


def _announce(registry: HandlerRegistry) -> None:
    for handler in registry:
        emit(
            Event.HANDLER_LOADED,
            kind=handler.capability.kind.value,
            handler=handler.capability.name,
            origin=handler.origin,
        )
