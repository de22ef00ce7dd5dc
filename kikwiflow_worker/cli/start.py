"""Starting process instances."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from kikwiflow_worker.cli.definitions import suggest_key
from kikwiflow_worker.cli.options import (
    Seconds,
    SectionCommand,
    connection_options,
    json_option,
)
from kikwiflow_worker.cli.overview import Overview, look_at, print_overview
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.cli.variables import read_variables, variable_options
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.errors import DefinitionNotFoundError, OperationError, StoreError


@click.command(
    cls=SectionCommand,
    epilog="""\b
Examples:
  kikwiflow-worker start order --business-key ORDER-1 --var amount=120 --var vip=true
  kikwiflow-worker start order --business-key ORDER-2 --vars-file order.json --wait 30
""",
)
@click.argument("key", metavar="KEY")
@click.option("--business-key", metavar="TEXT", required=True, help="What the instance is about.")
@variable_options
@click.option(
    "--version", metavar="N", type=click.IntRange(1), help="Of the definition.  [default: latest]"
)
@click.option("--tenant", metavar="NAME", help="The tenant that it belongs to.")
@click.option(
    "--idempotency-key",
    metavar="TEXT",
    help="A second start with the same one returns the first instance.",
)
@click.option(
    "--priority",
    metavar="N",
    type=click.IntRange(0, 9),
    default=5,
    show_default=True,
    help="0 (last) to 9 (first).",
)
@click.option("--by", metavar="NAME", help="Who starts it, for the record.")
@click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=Seconds(0),
    help="Wait this long for its end; exit with 1 if it has not ended by then.",
)
@json_option
@connection_options
@click.pass_context
def start(
    context: click.Context,
    *,
    key: str,
    business_key: str,
    pairs: Sequence[str],
    vars_file: Path | None,
    version: int | None,
    tenant: str | None,
    idempotency_key: str | None,
    priority: int,
    by: str | None,
    wait_s: float | None,
    as_json: bool,
) -> None:
    """Start an instance of the definition KEY, and show it.

    What needs a handler is left to the workers.
    """
    variables = read_variables(pairs, vars_file)

    async def action(client: Kikwiflow) -> tuple[Overview, OperationError | None]:
        try:
            instance = await client.start(
                key,
                business_key,
                variables=variables,
                version=version,
                tenant_id=tenant,
                started_by=by,
                idempotency_key=idempotency_key,
                priority=priority,
            )
        except DefinitionNotFoundError as error:
            raise await _with_suggestion(client, key, error) from error
        late = None if wait_s is None else await _wait(client, instance.id, wait_s)
        return await look_at(client, instance.id), late

    overview, late = with_client(context, action)
    print_overview(overview, as_json=as_json)
    if late is not None:
        raise late


async def _wait(client: Kikwiflow, instance_id: str, wait_s: float) -> OperationError | None:
    """Wait for the end; return the error that says that it did not come in time."""
    try:
        await client.wait_for_end(instance_id, timeout_s=wait_s)
    except OperationError as error:
        return error
    except (asyncio.CancelledError, StoreError):
        click.echo(f"instance {instance_id} was started; its end was not waited for", err=True)
        raise
    return None


async def _with_suggestion(
    client: Kikwiflow, key: str, error: DefinitionNotFoundError
) -> DefinitionNotFoundError:
    if await client.reads.list_definitions(key=key):
        return DefinitionNotFoundError(f"{error}: kikwiflow-worker definitions list {key}")
    return DefinitionNotFoundError(f"{error}{await suggest_key(client, key)}")
