"""Wires the management application to a client; imported only where the extra ``management`` is installed."""

import asyncio
import signal

import click

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.management.app import create_app
from kikwiflow_worker.management.authentication import OpenAuthenticator
from kikwiflow_worker.management.backend import Backend
from kikwiflow_worker.management.server import ManagementServer, until_stopped


async def serve_until_stopped(client: Kikwiflow, address: str) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        ConfigurationError: The address cannot be used.
    """
    backend = Backend(client.services, client.new_invoker, OpenAuthenticator(), client.access)
    server = ManagementServer(create_app(backend), address)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    click.echo(f"serving on port {server.port}", err=True)
    await until_stopped(server, stopped)
