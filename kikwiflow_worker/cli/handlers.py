"""Listing the handlers of this installation."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

import click

from kikwiflow_worker.cli.options import (
    SectionCommand,
    common_options,
    invocation,
    json_option,
    settings_options,
)
from kikwiflow_worker.cli.output import masked, print_heading, print_json, print_table
from kikwiflow_worker.errors import HandlerLoadError
from kikwiflow_worker.worker.registry import ENTRY_POINT_GROUP, load_registry


@dataclass(frozen=True, slots=True)
class HandlerRow:
    """A handler of this installation and where it comes from."""

    name: str
    kind: str
    timeout_s: float | None
    module: str
    distribution: str | None
    distribution_version: str | None


@click.command(
    cls=SectionCommand,
    epilog="""\b
Examples:
  kikwiflow-worker handlers
  kikwiflow-worker handlers --handlers my-distribution --json
""",
)
@json_option
@settings_options(("handlers",))
@common_options
@click.pass_context
def handlers(context: click.Context, *, as_json: bool) -> None:
    """List the handlers and providers that a worker of this installation has.

    They come from installed distributions, through the entry point group kikwiflow_worker.handlers. Exits with 78 if
    one cannot be loaded, as a worker would.
    """
    only = invocation(context).settings().handlers
    rows, problems = installed_handlers(only)
    if as_json:
        print_json(masked({"items": rows, "next_cursor": None, "problems": problems}))
    else:
        _print_by_module(rows)
    if problems:
        raise HandlerLoadError(problems)


def installed_handlers(only: Sequence[str]) -> tuple[tuple[HandlerRow, ...], tuple[str, ...]]:
    """Return the handlers that can be loaded, by name, and what is wrong with the others."""
    problems: tuple[str, ...] = ()
    try:
        load_registry(only)
    except HandlerLoadError as error:
        problems = error.problems
    rows = {row for point in entry_points(group=ENTRY_POINT_GROUP) for row in _rows_of(point, only)}
    return tuple(sorted(rows, key=lambda row: (row.name, row.kind, row.module))), problems


def _rows_of(point: EntryPoint, only: Sequence[str]) -> list[HandlerRow]:
    names = {point.name, point.value, point.dist.name if point.dist else point.name}
    if only and names.isdisjoint(only):
        return []
    try:
        registry = load_registry((point.value,))
    except HandlerLoadError:
        return []
    return [
        HandlerRow(
            name=handler.capability.name,
            kind=handler.capability.kind.value,
            timeout_s=handler.spec.timeout_s,
            module=point.value,
            distribution=point.dist.name if point.dist else None,
            distribution_version=point.dist.version if point.dist else None,
        )
        for handler in registry
    ]


def _print_by_module(rows: Sequence[HandlerRow]) -> None:
    if not rows:
        click.echo("no handlers are installed; install a distribution that offers some")
    origins = {(row.module, row.distribution, row.distribution_version) for row in rows}
    for module, distribution, version in sorted(origins, key=str):
        print_heading(f"{module} ({distribution or 'unknown distribution'} {version or ''})")
        print_table(
            ("NAME", "KIND", "TIMEOUT"),
            [
                (
                    row.name,
                    row.kind.replace("_", " "),
                    None if row.timeout_s is None else f"{row.timeout_s:g} s",
                )
                for row in rows
                if row.module == module
            ],
        )
