"""Wires the management application to a database; imported only where the extra ``management`` is installed."""

import asyncio
import sys
from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar

from prometheus_client import CollectorRegistry

from kikwiflow_worker.cli.connection import Address, database_address, store_options
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.engine.retries import RetryDefaults
from kikwiflow_worker.errors import ConfigurationError, KikwiflowError
from kikwiflow_worker.management.app import create_app, description
from kikwiflow_worker.management.backend import Backend
from kikwiflow_worker.management.probes import DatabaseWatch, Probes
from kikwiflow_worker.management.security.json_web_tokens import JwtOptions
from kikwiflow_worker.management.security.options import AuthenticationOptions
from kikwiflow_worker.management.server import DRAIN_S, ManagementServer
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.settings import Settings
from kikwiflow_worker.step_metrics import StepMetrics
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.telemetry import Event, configure_logging, emit
from kikwiflow_worker.worker.event_loop import loop_factory
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.health import HealthState
from kikwiflow_worker.worker.registry import HandlerRegistry
from kikwiflow_worker.worker.signals import install_signal_handlers
from kikwiflow_worker.worker.supervision import supervised

T = TypeVar("T")

_FINISH_S = 5.0
"""Beyond the requests, for closing the connections."""


def authentication_options(settings: Settings) -> AuthenticationOptions:
    """Return how callers prove who they are, by the settings.

    Raises:
        ConfigurationError: What JWTs need is missing.
    """
    chosen = settings.authentication
    return AuthenticationOptions(
        tokens="tokens" in chosen, jwt=_jwt_options(settings) if "jwt" in chosen else None
    )


def _jwt_options(settings: Settings) -> JwtOptions:
    needed = {
        "jwt_issuer": settings.jwt_issuer,
        "jwt_audience": settings.jwt_audience,
        "jwt_jwks_url": settings.jwt_jwks_url,
    }
    missing = [name for name, value in needed.items() if not value]
    if missing:
        raise ConfigurationError(f"authentication by jwt needs {' and '.join(missing)}; set them")
    return JwtOptions(
        issuer=settings.jwt_issuer or "",
        audience=settings.jwt_audience or "",
        jwks_url=settings.jwt_jwks_url or "",
        algorithms=settings.jwt_algorithms,
        leeway_s=settings.jwt_leeway_seconds,
        actor_claim=settings.jwt_actor_claim,
        roles_claim=settings.jwt_roles_claim,
        role_prefix=settings.jwt_role_prefix,
        tenant_claim=settings.jwt_tenant_claim,
    )


def run_server_process(settings: Settings, address: str) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        ConfigurationError: The settings or the server's set-up do not allow it, or the address cannot be used.
        StoreUnavailableError: The database does not answer at the start; later outages are waited out.
    """
    authentication_options(settings).check(address)
    configure_logging(settings.log_level, settings.log_format, sys.stdout)
    new_loop = loop_factory(settings.event_loop)
    with database_address(settings) as database, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(settings, database, address))


async def _serve(settings: Settings, database: Address, address: str) -> None:
    clock = SystemClock()
    store = MongoStore.open(
        database.uri, database.database, clock=clock, options=store_options(settings)
    )
    defaults = RetryDefaults(
        max_retries=settings.default_max_retries, interval=settings.default_retry_interval
    )
    client = Kikwiflow(store, retry_defaults=defaults, clock=clock)
    watch = DatabaseWatch(store.ping, clock)
    try:
        await store.prepare()
        probes = Probes(readiness=watch.readiness, registry=CollectorRegistry())
        services = replace(client.services, steps=StepMetrics(probes.registry))
        server = new_server(settings, store, services, address, probes)
        install_signal_handlers(
            asyncio.get_running_loop(),
            server.stop,
            deadline_s=DRAIN_S + _FINISH_S,
            cold_deadline_s=_FINISH_S,
        )
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch.run())
            await _run(server)
            watching.cancel()
    finally:
        client.close()
        await store.close()


def new_server(
    settings: Settings,
    store: MongoStore,
    services: Services,
    address: str,
    probes: Probes,
) -> ManagementServer:
    """Return a server over a store; it listens already, and answers when it is run.

    Raises:
        ConfigurationError: The address cannot be used, or not without authentication.
    """
    options = authentication_options(settings)
    options.check(address)
    clock = SystemClock()
    authenticator = options.authenticator(store.access, now=store.runtime.now, clock=clock)
    handlers = HandlerRuntime(HandlerRegistry(), threads=1)
    backend = Backend(services, handlers.invoker, authenticator, store.access, store.answers)
    description()  # made before the event loop serves anybody: it takes a good part of a second
    app = create_app(backend, hosts=options.hosts(), probes=probes, clock=clock)
    return ManagementServer(app, address)


class ManagementBeside:
    """The server of a worker, whose probes are the worker's own; it listens as soon as it is made.

    Raises:
        ConfigurationError: The address cannot be used, or not without authentication.
    """

    def __init__(
        self,
        settings: Settings,
        store: MongoStore,
        services: Services,
        health: HealthState,
        registry: CollectorRegistry,
    ) -> None:
        async def liveness() -> tuple[str, ...]:
            return health.liveness().reasons

        async def readiness() -> tuple[str, ...]:
            return health.readiness().reasons

        probes = Probes(liveness=liveness, readiness=readiness, registry=registry)
        address = settings.management_port or ""
        self._server = new_server(settings, store, services, address, probes)

    def stop(self) -> None:
        """Take no more requests."""
        self._server.stop()

    async def serve_beside(self, main: Awaitable[T]) -> T:
        """Serve while ``main`` runs, and return what that returns; a worker does not end with its server."""
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(
                supervised("management", lambda: _run(self._server), SystemClock())
            )
            try:
                result: T | KikwiflowError = await main
            except KikwiflowError as error:
                result = error
            self.stop()
            await asyncio.wait([serving], timeout=DRAIN_S)
            serving.cancel()
        if isinstance(result, KikwiflowError):
            raise result
        return result


async def _run(server: ManagementServer) -> None:
    emit(Event.MANAGEMENT_STARTED, port=server.port)
    await server.serve()
    emit(Event.MANAGEMENT_STOPPED)
