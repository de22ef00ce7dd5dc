"""Listing, showing and changing executable tasks."""

from datetime import datetime

import click

from kikwiflow_worker.cli.options import SectionGroup, connection_options, json_option, page_options
from kikwiflow_worker.cli.output import (
    exactly,
    first_line,
    print_fields,
    print_json,
    print_json_items,
    print_table,
    when,
)
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.cli.words import place_of
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.engine.time_values import parse_time_value
from kikwiflow_worker.errors import NotFoundError
from kikwiflow_worker.model.runtime import ExecutableTask, HostKind, TaskStatus, TaskType
from kikwiflow_worker.store.views import Page, TaskQuery


@click.group(cls=SectionGroup)
def tasks() -> None:
    """List, show and change executable tasks, the due and running work of the workers."""


@tasks.command(
    name="list",
    epilog="""\b
Examples:
  kikwiflow-worker tasks list --retrying
  kikwiflow-worker tasks list --status ERROR --handler charge_card --json
""",
)
@click.option("--instance", metavar="ID", help="Only tasks of this instance.")
@click.option(
    "--status",
    type=click.Choice([each.value for each in TaskStatus], case_sensitive=False),
    help="Only tasks with this status; LOCKED is held by a worker, ERROR waits for a person.",
)
@click.option("--node", metavar="ID", help="Only tasks at this node of the definition.")
@click.option("--handler", metavar="NAME", help="Only tasks that need this handler.")
@click.option("--retrying", is_flag=True, help="Only tasks that failed and wait for an attempt.")
@page_options
@json_option
@connection_options
@click.pass_context
def list_tasks(
    context: click.Context,
    *,
    instance: str | None,
    status: str | None,
    node: str | None,
    handler: str | None,
    retrying: bool,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List executable tasks, oldest first."""
    if retrying and status not in (None, TaskStatus.PENDING):
        raise click.UsageError("--retrying lists PENDING tasks; leave --status out")
    query = TaskQuery(
        instance_id=instance,
        status=TaskStatus(status) if status else None,
        node_id=node,
        handler_name=handler,
        retrying=retrying,
    )

    async def action(client: Kikwiflow) -> tuple[Page[ExecutableTask], datetime]:
        page = await client.list_tasks(query, limit=limit, cursor=cursor)
        return page, client.services.runtime.now()

    page, now = with_client(context, action)
    if as_json:
        print_json_items(page.items, page.next_cursor)
        return
    print_table(
        ("ID", "STATUS", "TRIES#", "NEXT", "NODE", "HANDLER"),
        [
            (
                task.id,
                task.status.value,
                task.attempts,
                _next_attempt(task, now),
                place_of(task),
                task.handler_name,
            )
            for task in page.items
        ],
        details=[_why_not_done(task, now) for task in page.items],
        empty="no tasks match",
        next_cursor=page.next_cursor,
    )


@tasks.command(name="show")
@click.argument("task_id", metavar="ID")
@json_option
@connection_options
@click.pass_context
def show_task(context: click.Context, *, task_id: str, as_json: bool) -> None:
    """Show one executable task: attempts, next attempt, error, and the worker that holds it."""

    async def action(client: Kikwiflow) -> tuple[ExecutableTask, datetime]:
        task = await client.reads.find_task(task_id)
        if task is None:
            raise NotFoundError(
                f"no executable task has the id {task_id}; it is done, or the id is wrong"
            )
        return task, client.services.runtime.now()

    task, now = with_client(context, action)
    if as_json:
        print_json(task)
        return
    print_fields(
        {
            "id": task.id,
            "status": task.status.value,
            "node": task.node_id,
            "type": task.type.value,
            "handler": task.handler_name,
            "instance": task.instance_id,
            "definition": task.definition_id,
            "created": exactly(task.created_at, now),
            "failed attempts": task.attempts,
            "attempts left": task.retries_left,
            "worker crashes": task.crash_count or None,
            "next attempt": _exact_next_attempt(task, now),
            "held by": task.worker_id,
            "lock ends": exactly(task.lock_expires_at, now),
            "waits for": ", ".join(task.pending_branch_ids) or None,
            "attached to": _host(task),
            "cycle": task.occurrence if task.type is TaskType.NON_INTERRUPTIVE_TIMER else None,
            "element": task.loop.index if task.loop else None,
            "elements to come": (len(task.loop.pending) or None) if task.loop else None,
            "tenant": task.tenant_id,
            "error": task.error,
        }
    )


@tasks.command(
    name="override",
    epilog="""\b
Examples:
  kikwiflow-worker tasks override ID --retries 5
  kikwiflow-worker tasks override ID --due PT10M
  kikwiflow-worker tasks override ID --due 2026-12-31T23:59:59Z --by ana
""",
)
@click.argument("task_id", metavar="ID")
@click.option(
    "--retries", metavar="N", type=click.IntRange(1), help="How many attempts it has left."
)
@click.option(
    "--due",
    metavar="WHEN",
    help="When it is due: an instant with its offset, or a duration from now.",
)
@click.option(
    "--by", metavar="NAME", help="Who resolves the incident of a failed task, for the record."
)
@json_option
@connection_options
@click.pass_context
def override(
    context: click.Context,
    *,
    task_id: str,
    retries: int | None,
    due: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Give a task other attempts or another due time; a timer can so be let go, or put off.

    A task that failed for good waits for a worker again, and its incident is resolved. One that runs now is refused.
    """
    if retries is None and due is None:
        raise click.UsageError("nothing to change; give --retries or --due")

    async def action(client: Kikwiflow) -> tuple[ExecutableTask, datetime]:
        now = client.services.runtime.now()
        due_at = None if due is None else parse_time_value(due, now=now)
        task = await client.override_task(task_id, retries=retries, due_at=due_at, by=by)
        return task, now

    task, now = with_client(context, action)
    if as_json:
        print_json(task)
        return
    attempt = _exact_next_attempt(task, now)
    click.echo(f"task {task.id} has {task.retries_left} attempts left; next attempt: {attempt}")


def _next_attempt(task: ExecutableTask, now: datetime) -> str | None:
    if task.status is not TaskStatus.PENDING:
        return None
    return when(task.due_at, now) if task.due_at and task.due_at > now else "due"


def _exact_next_attempt(task: ExecutableTask, now: datetime) -> str | None:
    if task.status is not TaskStatus.PENDING:
        return None
    return exactly(task.due_at, now) or "due since it was created"


def _host(task: ExecutableTask) -> str | None:
    host = task.attached_to
    if host is None:
        return None
    kind = "external task" if host.host_kind is HostKind.EXTERNAL_TASK else "task"
    return f"{host.host_node_id}, {kind} {host.host_id}"


def _why_not_done(task: ExecutableTask, now: datetime) -> str | None:
    if task.worker_id is not None:
        return f"held by {task.worker_id}, its lock ends {when(task.lock_expires_at, now)}"
    return first_line(task.error)
