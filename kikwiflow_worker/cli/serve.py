"""Serving the HTTP API and the dashboard."""

import click

from kikwiflow_worker.cli.options import (
    MANAGEMENT,
    SectionCommand,
    connection_options,
    invocation,
    settings_options,
)
from kikwiflow_worker.errors import ConfigurationError

_PROCESS = (
    "default_max_retries",
    "default_retry_interval",
    "event_loop",
    "events",
    "events_ttl_days",
    "history_ttl_days",
    "log_level",
    "log_format",
)
"""Settings of a worker that a server has too: give both the same, but for the event loop and the log."""


@click.command(
    cls=SectionCommand,
    epilog="""\b
Examples:
  kikwiflow-worker serve --mongodb-uri 'mongodb://db/?replicaSet=rs0'
  kikwiflow-worker serve --address 127.0.0.1:8090 --embedded
  kikwiflow-worker serve --address 0.0.0.0:8090 --authentication tokens
""",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    default="127.0.0.1:8090",
    show_default=True,
    help="Where to listen.",
)
@settings_options((*MANAGEMENT, *_PROCESS))
@connection_options
@click.pass_context
def serve(context: click.Context, *, address: str) -> None:
    """Serve the HTTP API and the dashboard until it is stopped.

    Without --authentication everybody who reaches it is an administrator, so it then listens on this host only.

    Needs the extra: pip install 'kikwiflow-worker[management]'.
    """
    try:
        from kikwiflow_worker.cli import serving  # noqa: PLC0415 - needs the extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the HTTP API needs the package {error.name}: pip install 'kikwiflow-worker[management]'"
        ) from error

    serving.run_server_process(invocation(context).settings(), address)
