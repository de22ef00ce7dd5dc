"""Bearer tokens for the HTTP API and the dashboard."""

import getpass
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import uuid4

import click

from kikwiflow_worker.cli.options import SectionGroup, connection_options, json_option
from kikwiflow_worker.cli.output import print_json, print_json_items, print_table, record_of, when
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.model.identity import Role
from kikwiflow_worker.operations.tokens import IssuedToken, TokenDesk
from kikwiflow_worker.store.access import ApiToken

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def length(text: str) -> timedelta:
    """Return a length of time in words as ``90d``, ``12h``, ``30m`` or ``0``, or refuse the option."""
    found = re.fullmatch(r"(\d{1,6})([smhd])|0", text)
    if not found:
        raise click.BadParameter(f"{text!r} is no length of time; write it as 90d, 12h or 30m")
    return timedelta(**{_UNITS[found[2]]: int(found[1])}) if found[2] else timedelta(0)


@click.group(cls=SectionGroup)
def tokens() -> None:
    """Give out bearer tokens for the HTTP API and the dashboard, renew and revoke them."""


@tokens.command(
    name="create",
    epilog="""\b
Examples:
  kikwiflow-worker tokens create shop-frontend --role operator --tenant shop
  kikwiflow-worker tokens create ci --role deployer --all-tenants --expires-in 30d
""",
)
@click.argument("name", metavar="NAME")
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    type=click.Choice([role.value for role in Role]),
    help="What it may do: viewer sees, operator changes what runs, deployer deploys, admin all of it. Can be repeated.",
)
@click.option("--tenant", metavar="NAME", help="The only tenant that it sees and changes.")
@click.option("--all-tenants", is_flag=True, help="It sees and changes what belongs to any tenant.")
@click.option(
    "--expires-in",
    "lifetime",
    type=length,
    default="90d",
    show_default=True,
    metavar="LENGTH",
    help="How long it is accepted: 30m, 12h, 90d.",
)
@json_option
@connection_options
@click.pass_context
def create(
    context: click.Context,
    *,
    name: str,
    roles: Sequence[str],
    tenant: str | None,
    all_tenants: bool,
    lifetime: timedelta,
    as_json: bool,
) -> None:
    """Give out a token for NAME and print its secret, which is never shown again."""
    if (tenant is None) is not all_tenants:
        raise click.UsageError("give one of --tenant NAME and --all-tenants")
    issued = with_client(
        context,
        lambda client: _desk(client).create(
            name,
            roles=frozenset(map(Role, roles)),
            tenant_id=tenant,
            lifetime=lifetime,
        ),
    )
    _show(issued, as_json=as_json)


@tokens.command(name="list")
@json_option
@connection_options
@click.pass_context
def list_tokens(context: click.Context, *, as_json: bool) -> None:
    """List all tokens, those that expired or were revoked within the last weeks included; never a secret."""

    async def action(client: Kikwiflow) -> tuple[tuple[ApiToken, ...], datetime]:
        return await client.access.tokens.list(), client.services.runtime.now()

    found, now = with_client(context, action)
    if as_json:
        print_json_items([_record(token) for token in found])
        return
    print_table(
        ("NAME", "ROLES", "TENANT", "STATE", "EXPIRES", "LAST USED", "CREATED"),
        [
            (
                token.name,
                ", ".join(sorted(token.roles)),
                "(all)" if token.tenant_id is None else token.tenant_id,
                token.state(now).value,
                when(token.expires_at, now),
                when(token.last_used_at, now),
                when(token.created_at, now),
            )
            for token in found
        ],
        empty="no tokens; give one out: kikwiflow-worker tokens create NAME --role viewer --all-tenants",
    )


@tokens.command(name="rotate")
@click.argument("name", metavar="NAME")
@click.option(
    "--expires-in",
    "lifetime",
    type=length,
    default="90d",
    show_default=True,
    metavar="LENGTH",
    help="How long the new secret is accepted.",
)
@click.option(
    "--overlap",
    type=length,
    default="0",
    show_default=True,
    metavar="LENGTH",
    help="How long the old secret is accepted beside it.",
)
@json_option
@connection_options
@click.pass_context
def rotate(
    context: click.Context, *, name: str, lifetime: timedelta, overlap: timedelta, as_json: bool
) -> None:
    """Give the token of NAME a new secret and print it; the old one is refused within seconds, or after --overlap."""
    issued = with_client(
        context, lambda client: _desk(client).rotate(name, lifetime=lifetime, overlap=overlap)
    )
    _show(issued, as_json=as_json)


@tokens.command(name="revoke")
@click.argument("name", metavar="NAME")
@json_option
@connection_options
@click.pass_context
def revoke(context: click.Context, *, name: str, as_json: bool) -> None:
    """End the token of NAME, and the dashboard's sessions that were opened with it, within seconds."""
    token = with_client(context, lambda client: _desk(client).revoke(name))
    if as_json:
        print_json(_record(token))
    else:
        click.echo(f"revoked the token of {token.name}; it is refused everywhere within 5 seconds")


def _desk(client: Kikwiflow) -> TokenDesk:
    return TokenDesk(
        access=client.access,
        now=client.services.runtime.now,
        new_id=lambda: str(uuid4()),
        by=f"cli:{_user()}",
    )


def _user() -> str:
    """Return the account on this host; a container may have none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def _show(issued: IssuedToken, *, as_json: bool) -> None:
    if as_json:
        print_json({**_record(issued.token), "secret": issued.secret})
        return
    token = issued.token
    of_tenant = "all tenants" if token.tenant_id is None else f"tenant {token.tenant_id}"
    roles = ", ".join(sorted(token.roles))
    click.echo(
        f"token of {token.name}: {roles}, {of_tenant}, until {token.expires_at:%Y-%m-%d %H:%M} UTC",
        err=True,
    )
    click.echo("its secret, which is not shown again:", err=True)
    click.echo(issued.secret)


def _record(token: ApiToken) -> dict[str, object]:
    return {**record_of(token, without=("roles",)), "roles": sorted(token.roles)}
