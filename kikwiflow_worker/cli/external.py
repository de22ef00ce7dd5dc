"""Listing, claiming and completing external tasks."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from kikwiflow_worker.cli.options import SectionGroup, connection_options, json_option, page_options
from kikwiflow_worker.cli.output import print_json, print_json_items, print_table, when
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.cli.variables import read_variables, variable_options
from kikwiflow_worker.cli.words import external_type, key_of, label_of
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.model.runtime import ExternalTask
from kikwiflow_worker.store.views import ExternalTaskQuery, Page


@click.group(cls=SectionGroup)
def external() -> None:
    """List, claim and complete external tasks, the waits that someone outside ends."""


@external.command(
    name="list",
    epilog="""\b
Examples:
  kikwiflow-worker external list --unassigned
  kikwiflow-worker external list --assignee ana --json
  kikwiflow-worker external list --key payment:ORDER-1
""",
)
@click.option("--instance", metavar="ID", help="Only tasks of this instance.")
@click.option("--node", metavar="ID", help="Only tasks at this node of the definition.")
@click.option("--assignee", metavar="NAME", help="Only tasks that NAME has claimed.")
@click.option("--unassigned", is_flag=True, help="Only tasks that nobody has claimed.")
@click.option("--tenant", metavar="NAME", help="Only tasks of this tenant.")
@click.option("--key", metavar="KEY", help="Only waits for this correlation key.")
@page_options
@json_option
@connection_options
@click.pass_context
def list_external_tasks(
    context: click.Context,
    *,
    instance: str | None,
    node: str | None,
    assignee: str | None,
    unassigned: bool,
    tenant: str | None,
    key: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List open external tasks, oldest first: waits for people, and for messages with a correlation key."""
    if unassigned and assignee is not None:
        raise click.UsageError("--assignee and --unassigned exclude each other; keep one")
    query = ExternalTaskQuery(
        instance_id=instance,
        node_id=node,
        assignee=assignee,
        unassigned=unassigned,
        tenant_id=tenant,
        correlation_key=key,
    )

    async def action(client: Kikwiflow) -> tuple[Page[ExternalTask], datetime]:
        page = await client.list_external_tasks(query, limit=limit, cursor=cursor)
        return page, client.services.runtime.now()

    page, now = with_client(context, action)
    if as_json:
        print_json_items(page.items, page.next_cursor)
        return
    print_table(
        ("ID", "TYPE", "NODE", "KEY", "NAME", "ASSIGNEE", "CREATED"),
        [
            (
                task.id,
                external_type(task),
                task.node_id,
                key_of(task),
                label_of(task),
                task.assignee,
                when(task.created_at, now),
            )
            for task in page.items
        ],
        empty="no open external tasks match",
        next_cursor=page.next_cursor,
    )


@external.command(name="claim")
@click.argument("task_id", metavar="ID")
@click.option("--by", metavar="NAME", required=True, help="Who works on it from now on.")
@json_option
@connection_options
@click.pass_context
def claim(context: click.Context, *, task_id: str, by: str, as_json: bool) -> None:
    """Claim an external task for NAME; again for the same NAME is no error."""
    task = with_client(context, lambda client: client.claim(task_id, assignee=by))
    _report(task, f"external task {task.id} is claimed by {task.assignee}", as_json=as_json)


@external.command(name="unclaim")
@click.argument("task_id", metavar="ID")
@click.option("--by", metavar="NAME", help="Only if NAME has it; without it, whoever has it.")
@json_option
@connection_options
@click.pass_context
def unclaim(context: click.Context, *, task_id: str, by: str | None, as_json: bool) -> None:
    """Give an external task back, so that others can claim it."""
    task = with_client(context, lambda client: client.unclaim(task_id, assignee=by))
    _report(task, f"external task {task.id} is claimed by nobody", as_json=as_json)


@external.command(
    name="complete",
    epilog="""\b
Examples:
  kikwiflow-worker external complete ID --var approved=true --by ana
""",
)
@click.argument("task_id", metavar="ID")
@variable_options
@click.option("--by", metavar="NAME", help="Who completes it, for the record.")
@json_option
@connection_options
@click.pass_context
def complete(
    context: click.Context,
    *,
    task_id: str,
    pairs: Sequence[str],
    vars_file: Path | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Complete an external task, set the variables given, and let its instance go on.

    Completing it a second time is an error (exit 1) that says when and by whom it was completed.
    """
    variables = read_variables(pairs, vars_file)
    instance = with_client(
        context, lambda client: client.complete(task_id, variables, completed_by=by)
    )
    if as_json:
        print_json(instance)
    else:
        click.echo(
            f"completed external task {task_id}; instance {instance.id} is {instance.status.value}"
        )


def _report(task: ExternalTask, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(task)
    else:
        click.echo(text)
