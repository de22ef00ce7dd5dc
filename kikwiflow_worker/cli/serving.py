"""Wires the management application to a client; imported only where the extra ``management`` is installed."""

import asyncio
import signal

import click

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.management.app import create_app
from kikwiflow_worker.management.authentication import OpenAuthenticator
from kikwiflow_worker.management.backend import Backend
from kikwiflow_worker.management.identity import Identity
from kikwiflow_worker.management.server import ManagementServer, until_stopped
from kikwiflow_worker.operations.services import Services


async def serve_until_stopped(client: Kikwiflow, address: str) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        ConfigurationError: The address cannot be used.
    """

    def scoped(_: Identity) -> Services:
        return client.services

    backend = Backend(scoped, client.new_invoker, OpenAuthenticator())
    server = ManagementServer(create_app(backend), address)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    click.echo(f"serving on port {server.port}", err=True)
    await until_stopped(server, stopped)
