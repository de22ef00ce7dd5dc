"""Validating and deploying definitions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

from kikwiflow_worker.cli.options import (
    SectionCommand,
    common_options,
    connection_options,
    invocation,
    json_option,
    settings_options,
)
from kikwiflow_worker.cli.output import (
    clean,
    masked,
    print_json_items,
    print_table,
    record_of,
)
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.errors import InvalidDefinitionError, Problem
from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.operations.deployment import (
    CheckedDefinition,
    check_definition,
    deploy_all,
)
from kikwiflow_worker.store.protocol import Deployment
from kikwiflow_worker.worker.registry import load_registry

_Decorated = TypeVar("_Decorated", bound=Callable[..., object])

_OLDER = "new instances still start with a later version; --activate makes this one the latest"


@dataclass(frozen=True, slots=True)
class _Checked:
    """A file and all that was found in it; ``definition`` is what can be deployed."""

    file: str
    definition: CheckedDefinition | None
    problems: tuple[Problem, ...]

    @property
    def key(self) -> str | None:
        """The definition's key, if the file can be deployed."""
        return self.definition.file.key if self.definition is not None else None

    @property
    def is_valid(self) -> bool:
        return not any(problem.is_error for problem in self.problems)


def handlers_option(command: _Decorated) -> _Decorated:
    """Add ``--check-handlers``."""
    return click.option(
        "--check-handlers",
        is_flag=True,
        help="Refuse a file that needs a handler which is not installed here, instead of leaving it to the workers.",
    )(command)


@click.command(
    cls=SectionCommand,
    epilog="""\b
Examples:
  kikwiflow-worker validate order.kikwi
  kikwiflow-worker validate processes/*.kikwi --json
""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@handlers_option
@json_option
@settings_options(("handlers",))
@common_options
@click.pass_context
def validate(
    context: click.Context, *, files: Sequence[str], check_handlers: bool, as_json: bool
) -> None:
    """Check definition files without a database, and list all problems of all of them.

    Exits with 1 if there is an error; warnings alone are no failure.
    """
    checked = _check_all(context, files, check_handlers=check_handlers)
    if as_json:
        print_json_items([masked(_checked_record(each)) for each in checked])
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
  kikwiflow-worker deploy order.kikwi --check-handlers
""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--activate",
    is_flag=True,
    help="Make content that an older version has the latest again, instead of leaving it as it is.",
)
@handlers_option
@json_option
@settings_options(("handlers",))
@connection_options
@click.pass_context
def deploy(
    context: click.Context,
    *,
    files: Sequence[str],
    activate: bool,
    check_handlers: bool,
    as_json: bool,
) -> None:
    """Deploy definition files as the next versions of their keys.

    All files are checked first and deployed in one transaction: all of them or none. A file whose content is deployed already stores
    nothing. Running instances keep the version they started with.
    """
    checked = _check_all(context, files, check_handlers=check_handlers)
    _print_problems(checked, err=True)
    if not all(each.is_valid for each in checked):
        click.echo(f"error: nothing was deployed; {_summary(checked)}", err=True)
        context.exit(1)

    valid = [each.definition for each in checked if each.definition is not None]
    deployments = with_client(
        context, lambda client: deploy_all(client.services, valid, activate=activate)
    )
    if as_json:
        print_json_items(
            [
                masked(_deployment_record(each.file, done))
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


def _check_all(
    context: click.Context, files: Sequence[str], *, check_handlers: bool
) -> list[_Checked]:
    capabilities = None
    if check_handlers:
        capabilities = load_registry(invocation(context).settings().handlers).capabilities
    return [_check(file, capabilities) for file in files]


def _check(file: str, capabilities: Capabilities | None) -> _Checked:
    try:
        source = Path(file).read_bytes()
    except (OSError, ValueError) as error:  # a path with a NUL character is a ValueError
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return _Checked(file, None, (Problem("", f"cannot be read: {reason}", "check the path"),))
    try:
        checked = check_definition(source, name=file, capabilities=capabilities)
    except InvalidDefinitionError as error:
        return _Checked(file, None, error.problems)
    return _Checked(file, checked, checked.warnings)


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
