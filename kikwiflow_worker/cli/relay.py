"""Running the outbox relay as a process of its own."""

import click

from kikwiflow_worker.cli.options import (
    RELAY,
    SectionCommand,
    connection_options,
    invocation,
    settings_options,
)
from kikwiflow_worker.cli.relaying import run_relay_process

_PROCESS = (
    "instance_name",
    "health_address",
    "event_loop",
    "events_ttl_days",
    "log_level",
    "log_format",
)
"""Settings of a worker that a relay has too."""


@click.command(
    cls=SectionCommand,
    epilog="""\b
Examples:
  kikwiflow-worker relay --relay-sink webhook --relay-options url=https://shop.example/events,secret_file=/run/secrets/hook
  kikwiflow-worker relay --relay-sink kafka --relay-options bootstrap_servers=kafka:9092,topic=orders
  kikwiflow-worker relay --relay-sink stdout --until-idle
""",
)
@click.option(
    "--until-idle", is_flag=True, help="Send what can be sent now, and stop, instead of going on."
)
@click.option(
    "--replace-sink",
    is_flag=True,
    help="Send what waits to this sink, although the events went to another one before.",
)
@settings_options((*RELAY, *_PROCESS))
@connection_options
@click.pass_context
def relay(context: click.Context, *, until_idle: bool, replace_sink: bool) -> None:
    """Send outbox events to a sink, at least once and in the order of each instance.

    Runs until SIGTERM or Ctrl-C. As many may run as you like, beside workers with --relay too.
    """
    delivered = run_relay_process(
        invocation(context).settings(), until_idle=until_idle, replace_sink=replace_sink
    )
    if delivered is not None:
        click.echo(f"{delivered} delivered", err=True)
