"""Who changed what over HTTP."""

from datetime import datetime

import click

from kikwiflow_worker.cli.options import SectionGroup, connection_options, json_option, page_options
from kikwiflow_worker.cli.output import print_json_items, print_table, when
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.store.access import AuditEntry, AuditQuery
from kikwiflow_worker.store.views import Page


@click.group(cls=SectionGroup)
def audit() -> None:
    """See who changed what over HTTP, and which tokens were given out."""


@audit.command(
    name="list",
    epilog="""\b
Examples:
  kikwiflow-worker audit list --actor ana
  kikwiflow-worker audit list --about INSTANCE-ID --json
""",
)
@click.option(
    "--actor", metavar="NAME", help="Only what NAME did: a token's name, or a JWT's subject."
)
@click.option("--operation", metavar="NAME", help="Only this operation, as cancelInstance.")
@click.option(
    "--about", metavar="ID", help="Only what was done to this instance, task or incident."
)
@click.option("--tenant", metavar="NAME", help="Only what identities of this tenant did.")
@page_options
@json_option
@connection_options
@click.pass_context
def list_audit(
    context: click.Context,
    *,
    actor: str | None,
    operation: str | None,
    about: str | None,
    tenant: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List changes, newest first, refused ones included.

    A result that is missing belongs to a change that is under way, or whose server died: see whether it was made.
    """
    query = AuditQuery(actor=actor, operation=operation, subject=about, tenant_id=tenant)

    async def action(client: Kikwiflow) -> tuple[Page[AuditEntry], datetime]:
        page = await client.access.audit.list(query, limit=limit, cursor=cursor)
        return page, client.services.runtime.now()

    page, now = with_client(context, action)
    if as_json:
        print_json_items(page.items, page.next_cursor)
        return
    print_table(
        ("WHEN", "ACTOR", "TENANT", "OPERATION", "RESULT", "ABOUT", "REQUEST"),
        [
            (
                when(entry.at, now),
                entry.actor,
                entry.tenant_id,
                entry.operation,
                entry.result,
                " ".join(f"{name}={each}" for name, each in entry.subjects.items()) or None,
                entry.request_id or None,
            )
            for entry in page.items
        ],
        empty="nothing was changed that matches",
        next_cursor=page.next_cursor,
    )
