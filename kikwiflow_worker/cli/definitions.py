"""Validating, deploying and listing definitions."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from kikwiflow_worker.cli.options import (
    SectionCommand,
    common_options,
    connection_options,
    json_option,
)
from kikwiflow_worker.cli.output import (
    clean,
    print_json_items,
    print_table,
    record_of,
    when,
)
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.errors import DefinitionNotFoundError, InvalidDefinitionError, Problem
from kikwiflow_worker.operations.deployment import check_definition
from kikwiflow_worker.store.protocol import DefinitionSummary, Deployment

_OLDER = "new instances still start with a later version; --activate makes this one the latest"


@dataclass(frozen=True, slots=True)
class _Checked:
    """A file and all that was found in it; ``source`` is what was checked."""

    file: str
    source: bytes
    key: str | None
    problems: tuple[Problem, ...]

    @property
    def is_valid(self) -> bool:
        return not any(problem.is_error for problem in self.problems)


@click.command(
    cls=SectionCommand,
    epilog="""\b
Examples:
  kikwiflow-worker validate order.kikwi
  kikwiflow-worker validate processes/*.kikwi --json
""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@json_option
@common_options
@click.pass_context
def validate(context: click.Context, *, files: Sequence[str], as_json: bool) -> None:
    """Check definition files without a database, and list all problems of all of them.

    Exits with 1 if there is an error; warnings alone are no failure.
    """
    checked = [_check(file) for file in files]
    if as_json:
        print_json_items([_checked_record(each) for each in checked])
    else:
        _print_problems(checked, err=False)
        click.echo(_summary(checked))
    if not all(each.is_valid for each in checked):
        context.exit(1)


@click.command(
    cls=SectionCommand,
    epilog="""\b
Examples:
  kikwiflow-worker deploy order.kikwi
  kikwiflow-worker deploy processes/*.kikwi --activate
""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--activate",
    is_flag=True,
    help="Make content that an older version has the latest again, instead of leaving it as it is.",
)
@json_option
@connection_options
@click.pass_context
def deploy(context: click.Context, *, files: Sequence[str], activate: bool, as_json: bool) -> None:
    """Deploy definition files as the next versions of their keys.

    All files are checked first: if one is not valid, none is deployed. A file whose content is deployed already stores
    nothing. Running instances keep the version they started with.
    """
    checked = [_check(file) for file in files]
    _print_problems(checked, err=True)
    if not all(each.is_valid for each in checked):
        click.echo(f"error: nothing was deployed; {_summary(checked)}", err=True)
        context.exit(1)

    async def action(client: Kikwiflow) -> list[Deployment]:
        return [
            await client.deploy(each.source, name=each.file, activate=activate) for each in checked
        ]

    deployments = with_client(context, action)
    if as_json:
        print_json_items(
            [
                _deployment_record(each.file, done)
                for each, done in zip(checked, deployments, strict=True)
            ]
        )
        return
    print_table(
        ("KEY", "VERSION#", "RESULT", "FILE"),
        [
            (done.definition.key, done.definition.version, _result(done), each.file)
            for each, done in zip(checked, deployments, strict=True)
        ],
        details=[None if done.is_latest else _OLDER for done in deployments],
    )


@click.command(
    cls=SectionCommand,
    epilog="""\b
Examples:
  kikwiflow-worker definitions
  kikwiflow-worker definitions order --json
""",
)
@click.argument("key", metavar="[KEY]", required=False)
@json_option
@connection_options
@click.pass_context
def definitions(context: click.Context, *, key: str | None, as_json: bool) -> None:
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
        ("KEY", "VERSION#", "DEPLOYED", "NAME"),
        [(each.key, each.version, when(each.deployed_at, now), each.name) for each in found],
        empty="no definitions; deploy one with: kikwiflow-worker deploy FILE",
    )


async def suggest_key(client: Kikwiflow, key: str) -> str:
    """Return words that name a deployed key close to ``key``, or nothing."""
    known = [summary.key for summary in await client.reads.list_definitions()]
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _check(file: str) -> _Checked:
    try:
        source = Path(file).read_bytes()
    except OSError as error:
        problem = Problem("", f"cannot be read: {error.strerror}", "check the path")
        return _Checked(file, b"", None, (problem,))
    try:
        checked = check_definition(source, name=file)
    except InvalidDefinitionError as error:
        return _Checked(file, source, None, error.problems)
    return _Checked(file, source, checked.file.key, checked.warnings)


def _print_problems(checked: Sequence[_Checked], *, err: bool) -> None:
    for each in checked:
        for problem in each.problems:
            click.echo(clean(f"{each.file}: {problem}"), err=err)


def _summary(checked: Sequence[_Checked]) -> str:
    errors = sum(problem.is_error for each in checked for problem in each.problems)
    warnings = sum(len(each.problems) for each in checked) - errors
    counts = ((len(checked), "file"), (errors, "error"), (warnings, "warning"))
    return ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts)


def _checked_record(checked: _Checked) -> dict[str, object]:
    problems = [
        {
            "severity": "error" if problem.is_error else "warning",
            **record_of(problem, without=["is_error"]),
        }
        for problem in checked.problems
    ]
    return {
        "file": checked.file,
        "key": checked.key,
        "is_valid": checked.is_valid,
        "problems": problems,
    }


def _deployment_record(file: str, done: Deployment) -> dict[str, object]:
    return {
        "file": file,
        "id": done.definition.id,
        "key": done.definition.key,
        "version": done.definition.version,
        "created": done.created,
        "is_latest": done.is_latest,
    }


def _result(done: Deployment) -> str:
    if done.created:
        return "deployed"
    return "unchanged" if done.is_latest else "older"
