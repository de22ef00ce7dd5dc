"""Correlating messages with the instances that wait for their key."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import click

from kikwiflow_worker.cli.options import Seconds, SectionGroup, connection_options, json_option
from kikwiflow_worker.cli.output import print_json
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.cli.variables import read_variables, variable_options
from kikwiflow_worker.operations.correlation import LONGEST_KEEP


@click.group(cls=SectionGroup)
def messages() -> None:
    """Correlate messages from outside with the instances that wait for their key."""


@messages.command(
    name="correlate",
    epilog="""\b
Examples:
  kikwiflow-worker external list --key payment:ORDER-1
  kikwiflow-worker messages correlate payment:ORDER-1 --var amount=120 --by payments
""",
)
@click.argument("key", metavar="KEY")
@variable_options
@click.option("--tenant", metavar="NAME", help="The tenant whose instance waits; none by default.")
@click.option("--by", metavar="NAME", help="Who sends the message, for the record.")
@click.option(
    "--message-id",
    metavar="ID",
    help="The sender's own id of the message; a second message with it changes nothing.",
)
@click.option(
    "--keep-for",
    metavar="SECONDS",
    type=Seconds(0, LONGEST_KEEP.total_seconds(), min_open=True),
    help="Keep the message so long if nobody waits for its key yet.",
)
@json_option
@connection_options
@click.pass_context
def correlate(
    context: click.Context,
    *,
    key: str,
    pairs: Sequence[str],
    vars_file: Path | None,
    tenant: str | None,
    by: str | None,
    message_id: str | None,
    keep_for: float | None,
    as_json: bool,
) -> None:
    """Give a message to the instance that has waited longest for KEY, and let it go on.

    The variables given are set in the same transaction. It is an error (exit 1) if nobody waits for the key, unless
    the message is to be kept.
    """
    variables = read_variables(pairs, vars_file)
    found = with_client(
        context,
        lambda client: client.correlate(
            key,
            variables,
            tenant_id=tenant,
            actor=by,
            message_id=message_id,
            keep_for=timedelta(seconds=keep_for) if keep_for is not None else None,
        ),
    )
    if as_json:
        print_json(found)
    elif found.instance is not None:
        click.echo(f"correlated {key}; instance {found.instance.id} is {found.instance.status}")
    else:
        click.echo(f"message for {key}: {found.outcome}")
