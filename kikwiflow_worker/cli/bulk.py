"""Doing one thing to many incidents or instances."""

from datetime import datetime

import click

from kikwiflow_worker.cli.options import SectionGroup, connection_options, json_option, page_options
from kikwiflow_worker.cli.output import (
    exactly,
    print_fields,
    print_heading,
    print_json,
    print_json_items,
    print_table,
    when,
)
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.model.bulk import BulkAction, BulkFilter, BulkJob, BulkStatus
from kikwiflow_worker.model.runtime import IncidentType
from kikwiflow_worker.operations import bulk as jobs
from kikwiflow_worker.store.views import Page

_ACTIONS = {action.value.replace("_", "-").lower(): action for action in BulkAction}
_NOBODY = "command line"


@click.group(cls=SectionGroup)
def bulk() -> None:
    """Retry, cancel, suspend, resume or migrate many at once; workers carry it out."""


@bulk.command(
    name="start",
    epilog="""\b
Examples:
  kikwiflow-worker bulk start retry-incidents --definition order --node CHARGE --by ana
  kikwiflow-worker bulk start cancel --definition order --business-key ORDER-7 --yes
  kikwiflow-worker bulk start migrate --definition order --version 4
""",
)
@click.argument("action", metavar="ACTION", type=click.Choice(list(_ACTIONS)))
@click.option("--definition", metavar="KEY", help="Only of this definition, all versions.")
@click.option("--node", metavar="ID", help="Only where an incident, or a path, is at this node.")
@click.option("--business-key", metavar="KEY", help="Only instances with this business key.")
@click.option("--instance", metavar="ID", help="Only incidents of this instance.")
@click.option(
    "--type",
    "incident_type",
    type=click.Choice([each.value for each in IncidentType], case_sensitive=False),
    help="Only incidents of this type.",
)
@click.option("--version", type=int, help="Where to migrate to, the latest by default.")
@click.option("--yes", is_flag=True, help="Do not ask before it is started.")
@click.option("--by", metavar="NAME", default=_NOBODY, help="Who starts it, for the record.")
@json_option
@connection_options
@click.pass_context
def start_job(
    context: click.Context,
    *,
    action: str,
    definition: str | None,
    node: str | None,
    business_key: str | None,
    instance: str | None,
    incident_type: str | None,
    version: int | None,
    yes: bool,
    by: str,
    as_json: bool,
) -> None:
    """Say how many there are, ask, and let workers do ACTION to each.

    ACTION is retry-incidents, cancel, suspend, resume or migrate. It is about what there is now: what begins later is not
    touched. Each item is done on its own; a worker that dies is followed by another.
    """
    chosen = BulkFilter(
        definition_key=definition,
        instance_id=instance,
        business_key=business_key,
        node_id=node,
        incident_type=IncidentType(incident_type) if incident_type else None,
    )

    async def create(client: Kikwiflow) -> BulkJob:
        return await jobs.create(
            client.services, _ACTIONS[action], chosen, created_by=by, version=version
        )

    job = with_client(context, create)
    if not yes:
        click.confirm(f"{action}: {_matched(job)} now; do it?", abort=True, err=True)
    job = with_client(context, lambda client: jobs.confirm(client.services, job.id, by=by))
    if as_json:
        print_json(job)
        return
    click.echo(f"bulk job {job.id} runs for {_matched(job)}; look at it: bulk show {job.id}")


@bulk.command(name="list")
@page_options
@json_option
@connection_options
@click.pass_context
def list_jobs(context: click.Context, *, limit: int, cursor: str | None, as_json: bool) -> None:
    """List the jobs of the last month, newest first."""

    async def action(client: Kikwiflow) -> tuple[Page[BulkJob], datetime]:
        page = await jobs.list_jobs(client.services, limit=limit, cursor=cursor)
        return page, client.services.runtime.now()

    page, now = with_client(context, action)
    if as_json:
        print_json_items(page.items, page.next_cursor)
        return
    print_table(
        ("ID", "ACTION", "STATUS", "CREATED", "MATCHED", "DONE", "SKIPPED", "FAILED"),
        [
            (
                job.id,
                job.action.value,
                job.status.value,
                when(job.created_at, now),
                _matched(job),
                str(job.counts.done),
                str(job.counts.skipped),
                str(job.counts.failed),
            )
            for job in page.items
        ],
        empty="no bulk jobs",
        next_cursor=page.next_cursor,
    )


@bulk.command(name="show")
@click.argument("job_id", metavar="ID")
@json_option
@connection_options
@click.pass_context
def show_job(context: click.Context, *, job_id: str, as_json: bool) -> None:
    """Show how far a job is, and why items were skipped or failed."""

    async def action(client: Kikwiflow) -> tuple[BulkJob, datetime]:
        return await jobs.get(client.services, job_id), client.services.runtime.now()

    job, now = with_client(context, action)
    if as_json:
        print_json(job)
        return
    print_fields(
        {
            "id": job.id,
            "action": job.action.value,
            "status": job.status.value,
            "definition": job.filter.definition_key,
            "version": job.target_version,
            "node": job.filter.node_id,
            "business key": job.filter.business_key,
            "instance": job.filter.instance_id,
            "incident type": job.filter.incident_type.value if job.filter.incident_type else None,
            "tenant": job.tenant_id,
            "created": exactly(job.created_at, now),
            "created by": job.created_by,
            "confirmed": exactly(job.confirmed_at, now),
            "confirmed by": job.confirmed_by,
            "ended": exactly(job.ended_at, now),
            "cancelled by": job.cancelled_by,
            "matched": _matched(job),
            "done": job.counts.done,
            "skipped": job.counts.skipped,
            "failed": job.counts.failed,
        }
    )
    if job.reasons:
        print_heading("reasons")
        for reason in job.reasons:
            click.echo(f"{reason.item_id}: {reason.message}")
    if job.status is BulkStatus.RUNNING:
        click.echo("\nany worker goes on with it")


@bulk.command(name="cancel")
@click.argument("job_id", metavar="ID")
@click.option("--by", metavar="NAME", default=_NOBODY, help="Who ends it, for the record.")
@json_option
@connection_options
@click.pass_context
def cancel_job(context: click.Context, *, job_id: str, by: str, as_json: bool) -> None:
    """Let a job end after the items that are being done; what is done stays done."""
    job = with_client(context, lambda client: jobs.cancel(client.services, job_id, by=by))
    if as_json:
        print_json(job)
        return
    click.echo(f"bulk job {job.id} is cancelled; {job.counts.total} items were looked at")


def _matched(job: BulkJob) -> str:
    noun = "incident" if job.action is BulkAction.RETRY_INCIDENTS else "instance"
    return f"{job.matched:,}{'+' if job.is_capped else ''} {noun}{'' if job.matched == 1 else 's'}"
