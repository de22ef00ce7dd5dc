"""Listing, showing and retrying incidents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import click

from kikwiflow_worker.cli.definitions import suggest_key
from kikwiflow_worker.cli.errors import report_error
from kikwiflow_worker.cli.options import SectionGroup, connection_options, json_option, page_options
from kikwiflow_worker.cli.output import (
    clean,
    exactly,
    first_line,
    print_fields,
    print_heading,
    print_json,
    print_json_items,
    print_table,
    when,
)
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.cli.variables import read_variables, variable_options
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.errors import DefinitionNotFoundError, KikwiflowError, OperationError
from kikwiflow_worker.model.runtime import Incident, IncidentStatus, IncidentType
from kikwiflow_worker.operations.paging import every
from kikwiflow_worker.store.views import IncidentQuery, Page

_ALL = "ALL"

_Decorated = TypeVar("_Decorated", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class _Filter:
    """Which incidents a command is about."""

    instance: str | None
    definition: str | None
    node: str | None
    incident_type: str | None

    @property
    def is_given(self) -> bool:
        return any((self.instance, self.definition, self.node, self.incident_type))

    async def query(self, client: Kikwiflow, status: IncidentStatus | None) -> IncidentQuery:
        ids = None
        if self.definition is not None:
            versions = await client.reads.list_definitions(key=self.definition)
            ids = tuple(version.id for version in versions)
            if not ids:
                suggestion = await suggest_key(client, self.definition)
                raise DefinitionNotFoundError(
                    f"no definition has the key {self.definition!r}{suggestion}"
                )
        return IncidentQuery(
            instance_id=self.instance,
            status=status,
            type=IncidentType(self.incident_type) if self.incident_type else None,
            node_id=self.node,
            definition_ids=ids,
        )


def filter_options(command: _Decorated) -> _Decorated:
    """Add ``--instance``, ``--definition``, ``--node`` and ``--type``."""
    for option in (
        click.option(
            "--type",
            "incident_type",
            type=click.Choice([each.value for each in IncidentType], case_sensitive=False),
            help="Only incidents of this type.",
        ),
        click.option("--node", metavar="ID", help="Only incidents at this node."),
        click.option(
            "--definition", metavar="KEY", help="Only incidents of this definition, all versions."
        ),
        click.option("--instance", metavar="ID", help="Only incidents of this instance."),
    ):
        command = option(command)
    return command


@click.group(cls=SectionGroup)
def incidents() -> None:
    """List, show and retry incidents, the failures that wait for a person."""


@incidents.command(
    name="list",
    epilog="""\b
Examples:
  kikwiflow-worker incidents list
  kikwiflow-worker incidents list --status ALL --instance ID --json
""",
)
@filter_options
@click.option(
    "--status",
    type=click.Choice([*(each.value for each in IncidentStatus), _ALL], case_sensitive=False),
    default=IncidentStatus.OPEN.value,
    show_default=True,
    help="RESOLVED were retried, CLOSED ended with their instance.",
)
@page_options
@json_option
@connection_options
@click.pass_context
def list_incidents(
    context: click.Context,
    *,
    instance: str | None,
    definition: str | None,
    node: str | None,
    incident_type: str | None,
    status: str,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List incidents, newest first."""
    chosen = _Filter(instance, definition, node, incident_type)
    only = None if status == _ALL else IncidentStatus(status)

    async def action(client: Kikwiflow) -> tuple[Page[Incident], datetime]:
        query = await chosen.query(client, only)
        page = await client.list_incidents(query, limit=limit, cursor=cursor)
        return page, client.services.runtime.now()

    page, now = with_client(context, action)
    if as_json:
        print_json_items(page.items, page.next_cursor)
        return
    print_table(
        ("ID", "STATUS", "OPENED", "NODE"),
        [
            (each.id, each.status.value, when(each.created_at, now), each.node_id)
            for each in page.items
        ],
        details=[first_line(each.message) for each in page.items],
        empty="no incidents" if status == _ALL else f"no incidents that are {status}",
        next_cursor=page.next_cursor,
    )


@incidents.command(name="show")
@click.argument("incident_id", metavar="ID")
@json_option
@connection_options
@click.pass_context
def show_incident(context: click.Context, *, incident_id: str, as_json: bool) -> None:
    """Show one incident: what failed, where, and the traceback of the handler."""

    async def action(client: Kikwiflow) -> tuple[Incident, datetime]:
        return await client.get_incident(incident_id), client.services.runtime.now()

    incident, now = with_client(context, action)
    if as_json:
        print_json(incident)
        return
    print_fields(
        {
            "id": incident.id,
            "status": incident.status.value,
            "type": incident.type.value,
            "opened": exactly(incident.created_at, now),
            "resolved": exactly(incident.resolved_at, now),
            "resolved by": incident.resolved_by,
            "node": incident.node_id,
            "instance": incident.instance_id,
            "task": incident.task_id,
            "definition": incident.definition_id,
            "tenant": incident.tenant_id,
            "message": incident.message,
        }
    )
    if incident.stack_trace:
        print_heading("traceback")
        click.echo(clean(incident.stack_trace.rstrip()))
    if incident.status is IncidentStatus.OPEN:
        click.echo(f"\nwhen the cause is mended: kikwiflow-worker incidents retry {incident.id}")


async def _open_ids(client: Kikwiflow, chosen: _Filter) -> tuple[str, ...]:
    """Return the ids of all open incidents, read to the end before the first is changed."""
    query = await chosen.query(client, IncidentStatus.OPEN)
    return tuple([incident.id async for incident in every(client.list_incidents, query)])


@incidents.command(
    name="retry",
    epilog="""\b
Examples:
  kikwiflow-worker incidents retry ID --by ana
  kikwiflow-worker incidents retry ID --var amount=150
  kikwiflow-worker incidents retry --all
  kikwiflow-worker incidents retry --all --definition order --node CHARGE --yes
""",
)
@click.argument("incident_ids", metavar="[ID]...", nargs=-1)
@variable_options
@click.option(
    "--skip", is_flag=True, help="Do not run the handlers: the paths go on as if they had run."
)
@click.option("--all", "all_open", is_flag=True, help="Retry all open incidents that match.")
@filter_options
@click.option("--yes", is_flag=True, help="With --all: do not ask before it is done.")
@click.option("--by", metavar="NAME", help="Who retries it, for the record.")
@json_option
@connection_options
@click.pass_context
def retry(
    context: click.Context,
    *,
    incident_ids: Sequence[str],
    pairs: Sequence[str],
    vars_file: Path | None,
    skip: bool,
    all_open: bool,
    instance: str | None,
    definition: str | None,
    node: str | None,
    incident_type: str | None,
    yes: bool,
    by: str | None,
    as_json: bool,
) -> None:
    """Give the failed tasks their attempts back, due now, and resolve the incidents.

    Each is retried on its own; exits with 1 if one could not be. A new failure opens a new incident. Variables given are
    set in the same transaction. --all says how many there are and asks first; interrupted, repeat it: what is resolved is
    not retried again.
    """
    chosen = _Filter(instance, definition, node, incident_type)
    if all_open == bool(incident_ids):
        raise click.UsageError("give the ids of incidents, or --all")
    if not all_open and (chosen.is_given or yes):
        raise click.UsageError("filters and --yes belong to --all")
    variables = read_variables(pairs, vars_file)
    if all_open:
        incident_ids = with_client(context, lambda client: _open_ids(client, chosen))
        if incident_ids and not yes:
            click.confirm(f"retry {len(incident_ids)} open incidents?", abort=True, err=True)

    async def action(client: Kikwiflow) -> tuple[list[Incident], list[KikwiflowError]]:
        done: list[Incident] = []
        failed: list[KikwiflowError] = []
        for incident_id in incident_ids:
            try:
                incident = await client.retry_incident(
                    incident_id, variables=variables, skip=skip, resolved_by=by
                )
                done.append(incident)
            except OperationError as error:
                failed.append(error)
        return done, failed

    done, failed = with_client(context, action)
    if as_json:
        print_json_items(done)
    else:
        for incident in done:
            click.echo(f"incident {incident.id} is resolved; task {incident.task_id} is due now")
    for error in failed:
        report_error(error)
    if failed:
        context.exit(1)
