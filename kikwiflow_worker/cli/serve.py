"""Serving the HTTP API and the dashboard."""

import click

from kikwiflow_worker.cli.options import SectionCommand, connection_options
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.errors import ConfigurationError


@click.command(
    cls=SectionCommand,
    epilog="""\b
Examples:
  kikwiflow-worker serve --mongodb-uri 'mongodb://db/?replicaSet=rs0'
  kikwiflow-worker serve --address 127.0.0.1:8090 --embedded
""",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    default="127.0.0.1:8090",
    show_default=True,
    help="Where to listen.",
)
@connection_options
@click.pass_context
def serve(context: click.Context, *, address: str) -> None:
    """Serve the HTTP API and the dashboard until it is stopped.

    Needs the extra: pip install 'kikwiflow-worker[management]'.
    """
    try:
        from kikwiflow_worker.cli.serving import serve_until_stopped  # noqa: PLC0415 - needs the extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the HTTP API needs the package {error.name}: pip install 'kikwiflow-worker[management]'"
        ) from error

    async def action(client: Kikwiflow) -> None:
        await serve_until_stopped(client, address)

    with_client(context, action)
