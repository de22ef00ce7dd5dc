"""Wires the management application to a client; imported only where the extra ``management`` is installed."""

import asyncio
import signal

import click

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.management.app import create_app
from kikwiflow_worker.management.backend import Backend
from kikwiflow_worker.management.security.json_web_tokens import JwtOptions
from kikwiflow_worker.management.security.options import AuthenticationOptions
from kikwiflow_worker.management.server import ManagementServer, until_stopped
from kikwiflow_worker.settings import Settings


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


async def serve_until_stopped(
    client: Kikwiflow, address: str, options: AuthenticationOptions
) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        ConfigurationError: The address cannot be used, or not without authentication.
    """
    options.check(address)
    authenticator = options.authenticator(
        client.access, now=client.services.runtime.now, clock=SystemClock()
    )
    backend = Backend(
        client.services, client.new_invoker, authenticator, client.access, client.answers
    )
    server = ManagementServer(create_app(backend, hosts=options.hosts()), address)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    click.echo(f"serving on port {server.port}", err=True)
    await until_stopped(server, stopped)
