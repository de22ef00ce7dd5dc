"""Listing, suspending, resuming and migrating definitions."""

import difflib
from datetime import datetime

import click

from kikwiflow_worker.cli.options import (
    SectionGroup,
    connection_options,
    json_option,
    target_version_option,
)
from kikwiflow_worker.cli.output import print_json, print_json_items, print_table, when
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.errors import DefinitionNotFoundError
from kikwiflow_worker.operations.migration import MigrationVerdict
from kikwiflow_worker.store.views import DefinitionSummary


@click.group(cls=SectionGroup)
def definitions() -> None:
    """List, suspend and resume deployed definitions; migrate their instances."""


@definitions.command(
    name="list",
    epilog="""\b
Examples:
  kikwiflow-worker definitions list
  kikwiflow-worker definitions list order --json
""",
)
@click.argument("key", metavar="[KEY]", required=False)
@json_option
@connection_options
@click.pass_context
def list_definitions(context: click.Context, *, key: str | None, as_json: bool) -> None:
    """List the latest version of all definitions, or all versions of KEY, newest first."""

    async def action(client: Kikwiflow) -> tuple[tuple[DefinitionSummary, ...], datetime]:
        found = await client.reads.list_definitions(key=key)
        if key is not None and not found:
            suggestion = await suggest_key(client, key)
            raise DefinitionNotFoundError(f"no definition has the key {key!r}{suggestion}")
        return found, client.services.runtime.now()

    found, now = with_client(context, action)
    if as_json:
        print_json_items(found)
        return
    print_table(
        ("KEY", "VERSION#", "STATUS", "DEPLOYED", "NAME"),
        [
            (
                each.key,
                each.version,
                "SUSPENDED" if each.is_suspended else "ACTIVE",
                when(each.deployed_at, now),
                each.name,
            )
            for each in found
        ],
        empty="no definitions; deploy one with: kikwiflow-worker deploy FILE",
    )


@definitions.command(name="suspend")
@click.argument("key", metavar="KEY")
@json_option
@connection_options
@click.pass_context
def suspend_definition(context: click.Context, *, key: str, as_json: bool) -> None:
    """Let no instance of a definition start, and all that run rest, until it is resumed.

    It counts for all versions, later ones included. If it is interrupted, repeat it.
    """
    count = with_client(context, lambda client: client.suspend_definition(key))
    _report(key, count, "suspended", as_json=as_json)


@definitions.command(name="resume")
@click.argument("key", metavar="KEY")
@json_option
@connection_options
@click.pass_context
def resume_definition(context: click.Context, *, key: str, as_json: bool) -> None:
    """Let a suspended definition and all its suspended instances go on.

    Instances that were suspended one by one go on, too.
    """
    count = with_client(context, lambda client: client.resume_definition(key))
    _report(key, count, "resumed", as_json=as_json)


@definitions.command(
    name="migrate",
    epilog="""\b
Examples:
  kikwiflow-worker definitions migrate order --dry-run
  kikwiflow-worker definitions migrate order --version 3
""",
)
@click.argument("key", metavar="KEY")
@target_version_option
@click.option("--dry-run", is_flag=True, help="Only say which can be moved.")
@json_option
@connection_options
@click.pass_context
def migrate_definition(
    context: click.Context, *, key: str, version: int | None, dry_run: bool, as_json: bool
) -> None:
    """Move all running instances of a definition to one version.

    Each is moved by itself, as by "instances migrate". Exits with 1 if one cannot be; the others are moved. If it is
    interrupted, repeat it.
    """

    async def action(client: Kikwiflow) -> list[MigrationVerdict]:
        verdicts = client.migrate_all(key, version=version, dry_run=dry_run)
        return [verdict async for verdict in verdicts]

    verdicts = with_client(context, action)
    if as_json:
        print_json_items(verdicts)
    else:
        print_table(
            ("ID", "FROM#", "TO#", "VERDICT"),
            [(v.instance_id, v.from_version, v.to_version, _verdict(v)) for v in verdicts],
            details=["; ".join(v.problems) for v in verdicts],
            empty=f"no running instance of {key} has another version",
        )
    if any(verdict.problems for verdict in verdicts):
        context.exit(1)


async def suggest_key(client: Kikwiflow, key: str) -> str:
    """Return words that name a deployed key close to ``key``, or nothing."""
    known = [summary.key for summary in await client.reads.list_definitions()]
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _verdict(verdict: MigrationVerdict) -> str:
    if verdict.problems:
        return "cannot be moved"
    return "moved" if verdict.migrated else "can be moved"


def _report(key: str, count: int, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"key": key, "instances": count})
    else:
        click.echo(f"{done} definition {key} and {count} running instances")
