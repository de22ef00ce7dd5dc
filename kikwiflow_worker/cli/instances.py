"""Listing, showing, changing, suspending, moving and ending process instances."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from kikwiflow_worker.cli.options import (
    SectionGroup,
    connection_options,
    json_option,
    page_options,
    target_version_option,
)
from kikwiflow_worker.cli.output import (
    print_json,
    print_json_items,
    print_table,
    record_of,
    when,
)
from kikwiflow_worker.cli.overview import Overview, look_at, print_overview
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.cli.variables import read_variables, variable_options
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.model.runtime import (
    InstanceStatus,
    ProcessInstance,
)
from kikwiflow_worker.store.views import InstanceQuery, Page


@click.group(cls=SectionGroup)
def instances() -> None:
    """List, show, change, suspend, resume, migrate, cancel and delete process instances."""


@instances.command(
    name="list",
    epilog="""\b
Examples:
  kikwiflow-worker instances list --definition order
  kikwiflow-worker instances list --ended --status CANCELLED --json
""",
)
@click.option("--definition", metavar="KEY", help="Only instances of this definition.")
@click.option("--business-key", metavar="TEXT", help="Only instances with this business key.")
@click.option("--tenant", metavar="NAME", help="Only instances of this tenant.")
@click.option(
    "--status",
    type=click.Choice([each.value for each in InstanceStatus], case_sensitive=False),
    help="Only instances with this status; the last two are ended ones.",
)
@click.option("--ended", is_flag=True, help="List ended instances instead of running ones.")
@page_options
@json_option
@connection_options
@click.pass_context
def list_instances(
    context: click.Context,
    *,
    definition: str | None,
    business_key: str | None,
    tenant: str | None,
    status: str | None,
    ended: bool,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List running or ended instances, newest first; without their variables."""
    query = InstanceQuery(
        ended=ended or status in (InstanceStatus.COMPLETED, InstanceStatus.CANCELLED),
        definition_key=definition,
        business_key=business_key,
        tenant_id=tenant,
        status=status,
    )

    async def action(client: Kikwiflow) -> tuple[Page[ProcessInstance], datetime]:
        page = await client.list_instances(query, limit=limit, cursor=cursor)
        return page, client.services.runtime.now()

    page, now = with_client(context, action)
    if as_json:
        items = [record_of(instance, without=["variables"]) for instance in page.items]
        print_json_items(items, page.next_cursor)
        return
    print_table(
        ("ID", "STATUS", "DEFINITION", "BUSINESS KEY", "ENDED" if query.ended else "STARTED"),
        [
            (
                instance.id,
                instance.status.value,
                f"{instance.definition_key} v{instance.definition_version}",
                instance.business_key,
                when(instance.ended_at or instance.started_at, now),
            )
            for instance in page.items
        ],
        empty=f"no {'ended' if query.ended else 'running'} instances match",
        next_cursor=page.next_cursor,
    )


@instances.command(name="show")
@click.argument("instance_id", metavar="ID")
@json_option
@connection_options
@click.pass_context
def show_instance(context: click.Context, *, instance_id: str, as_json: bool) -> None:
    """Show a running or ended instance: its variables, where it rests, its open incidents."""
    overview = with_client(context, lambda client: look_at(client, instance_id))
    print_overview(overview, as_json=as_json)


@instances.command(
    name="set",
    epilog="""\b
Examples:
  kikwiflow-worker instances set ID --var amount=150 --unset discount
""",
)
@click.argument("instance_id", metavar="ID")
@variable_options
@click.option("--unset", metavar="NAME", multiple=True, help="Remove a variable. May be repeated.")
@json_option
@connection_options
@click.pass_context
def set_variables(
    context: click.Context,
    *,
    instance_id: str,
    pairs: Sequence[str],
    vars_file: Path | None,
    unset: Sequence[str],
    as_json: bool,
) -> None:
    """Set or remove variables of a running instance, and show it."""
    variables = read_variables(pairs, vars_file)
    if not variables and not unset:
        raise click.UsageError("nothing to change; give --var, --vars-file or --unset")
    both = sorted(variables.keys() & set(unset))
    if both:
        raise click.UsageError(f"{', '.join(both)} is to be set and unset; keep one")

    async def action(client: Kikwiflow) -> Overview:
        if variables:
            await client.set_variables(instance_id, variables)
        if unset:
            await client.unset_variables(instance_id, *unset)
        return await look_at(client, instance_id)

    print_overview(with_client(context, action), as_json=as_json)


@instances.command(name="unset")
@click.argument("instance_id", metavar="ID")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@json_option
@connection_options
@click.pass_context
def unset_variables(
    context: click.Context, *, instance_id: str, names: Sequence[str], as_json: bool
) -> None:
    """Remove variables of a running instance, and show it; removing what is not there is no error."""

    async def action(client: Kikwiflow) -> Overview:
        await client.unset_variables(instance_id, *names)
        return await look_at(client, instance_id)

    print_overview(with_client(context, action), as_json=as_json)


@instances.command(name="suspend")
@click.argument("instance_id", metavar="ID")
@json_option
@connection_options
@click.pass_context
def suspend_instance(context: click.Context, *, instance_id: str, as_json: bool) -> None:
    """Let a running instance rest: steps under way are finished, none begins until it is resumed.

    Its external tasks cannot be completed and its keys not be correlated meanwhile; variables can be set.
    """

    async def action(client: Kikwiflow) -> ProcessInstance:
        await client.suspend(instance_id)
        return await client.get_instance(instance_id)

    _report(with_client(context, action), "suspended", as_json=as_json)


@instances.command(name="resume")
@click.argument("instance_id", metavar="ID")
@json_option
@connection_options
@click.pass_context
def resume_instance(context: click.Context, *, instance_id: str, as_json: bool) -> None:
    """Let a suspended instance go on; what became due meanwhile is due now."""

    async def action(client: Kikwiflow) -> ProcessInstance:
        await client.resume(instance_id)
        return await client.get_instance(instance_id)

    _report(with_client(context, action), "resumed", as_json=as_json)


@instances.command(name="cancel")
@click.argument("instance_id", metavar="ID")
@click.option("--by", metavar="NAME", help="Who cancels it, for the record.")
@json_option
@connection_options
@click.pass_context
def cancel_instance(
    context: click.Context, *, instance_id: str, by: str | None, as_json: bool
) -> None:
    """Cancel a running instance with all its tasks; this cannot be undone."""

    async def action(client: Kikwiflow) -> ProcessInstance:
        await client.cancel(instance_id, cancelled_by=by)
        return await client.get_instance(instance_id)

    _report(with_client(context, action), "cancelled", as_json=as_json)


@instances.command(
    name="migrate",
    epilog="""\b
Examples:
  kikwiflow-worker instances migrate ID --dry-run
  kikwiflow-worker instances migrate ID --version 3
""",
)
@click.argument("instance_id", metavar="ID")
@target_version_option
@click.option("--dry-run", is_flag=True, help="Only say whether it can be moved.")
@json_option
@connection_options
@click.pass_context
def migrate_instance(
    context: click.Context, *, instance_id: str, version: int | None, dry_run: bool, as_json: bool
) -> None:
    """Move a running instance to another version of its definition.

    It can be moved if the nodes where it rests are there, with the same type and the same boundary events. Exits with 1,
    and changes nothing, if it cannot. A step that runs meanwhile is repeated.
    """
    verdict = with_client(
        context, lambda client: client.migrate(instance_id, version=version, dry_run=dry_run)
    )
    if as_json:
        print_json(verdict)
    elif not verdict.problems:
        done = "moved" if verdict.migrated else "can be moved"
        versions = f"from version {verdict.from_version} to {verdict.to_version}"
        click.echo(f"instance {instance_id} {done} {versions}")
    else:
        for problem in verdict.problems:
            click.echo(
                f"error: it cannot go on with version {verdict.to_version}: {problem}", err=True
            )
    if verdict.problems:
        context.exit(1)


@instances.command(name="delete")
@click.argument("instance_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask before it is done.")
@click.option("--by", metavar="NAME", help="Who deletes it, for the record of its cancellation.")
@json_option
@connection_options
@click.pass_context
def delete_instance(
    context: click.Context, *, instance_id: str, yes: bool, by: str | None, as_json: bool
) -> None:
    """Remove an instance, running or ended, with its record; nothing can be looked up afterwards.

    A running one is cancelled first.
    """
    if not yes:
        click.confirm(f"remove instance {instance_id} and its record?", abort=True, err=True)
    with_client(context, lambda client: client.delete(instance_id, deleted_by=by))
    if as_json:
        print_json({"id": instance_id, "deleted": True})
    else:
        click.echo(f"deleted instance {instance_id}")


def _report(instance: ProcessInstance, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json(instance)
    else:
        click.echo(f"{done} instance {instance.id}")
