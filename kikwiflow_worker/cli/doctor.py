"""Checks an installation from the settings to the work that waits."""

import asyncio
from collections.abc import AsyncIterator

import click

from kikwiflow_worker.cli.checks import (
    Finding,
    Verdict,
    examine_server,
    examine_work,
    failed,
)
from kikwiflow_worker.cli.connection import Address, database_address, store_options
from kikwiflow_worker.cli.handlers import installed_handlers
from kikwiflow_worker.cli.options import (
    SectionCommand,
    connection_options,
    invocation,
    json_option,
    settings_options,
)
from kikwiflow_worker.cli.output import masked, print_json_items, print_table
from kikwiflow_worker.cli.session import log_to_stderr
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import KikwiflowError
from kikwiflow_worker.settings import Settings
from kikwiflow_worker.store.mongo.store import MongoStore

_CHECKS = (
    "settings",
    "handlers",
    "database",
    "version",
    "replica set",
    "schema",
    "transaction",
    "open transactions",
    "clock",
    "definitions",
    "workers",
    "waiting tasks",
    "incidents",
)
"""All checks, in the order in which they are made."""


@click.command(
    cls=SectionCommand,
    epilog="""\b
Examples:
  kikwiflow-worker doctor
  kikwiflow-worker --config worker.toml doctor --json
""",
)
@json_option
@settings_options(("handlers",))
@connection_options
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> None:
    """Check settings, handlers, database and work, and say what to do about what is wrong.

    The database checks create collections and indexes that are missing and write one record, which expires at once.
    Exits with 1 if a check fails; a warning is no failure.
    """
    findings = _findings(context)
    done = {finding.check for finding in findings}
    findings += [
        Finding(check, Verdict.SKIP, "not checked") for check in _CHECKS if check not in done
    ]
    if as_json:
        print_json_items([masked(finding) for finding in findings])
    else:
        print_table(("CHECK", "", "RESULT"), [_row(each) for each in findings])
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        context.exit(1)


def _findings(context: click.Context) -> list[Finding]:
    try:
        settings = invocation(context).settings()
    except KikwiflowError as error:
        return [failed("settings", error)]
    findings = [
        Finding("settings", Verdict.OK, "valid; kikwiflow-worker --print-config shows them"),
        _handlers(settings),
    ]
    log_to_stderr(settings)
    try:
        with database_address(settings) as address:
            findings += asyncio.run(_examine(address, settings))
    except KikwiflowError as error:
        findings.append(failed("database", error))
    return findings


async def _examine(address: Address, settings: Settings) -> list[Finding]:
    options = store_options(settings)
    store = MongoStore.open(address.uri, address.database, clock=SystemClock(), options=options)
    try:
        findings = await _collect("database", examine_server(store, options))
        if not any(finding.verdict is Verdict.FAIL for finding in findings):
            findings += await _collect("workers", examine_work(store))
        return findings
    finally:
        await store.close()


async def _collect(check: str, examination: AsyncIterator[Finding]) -> list[Finding]:
    findings: list[Finding] = []
    try:
        async for finding in examination:
            findings.append(finding)  # noqa: PERF401 - what was found before a failure is kept
    except KikwiflowError as error:
        findings.append(failed(check, error))
    return findings


def _handlers(settings: Settings) -> Finding:
    rows, problems = installed_handlers(settings.handlers)
    if problems:
        return Finding(
            "handlers", Verdict.FAIL, "\n".join(problems), "correct or uninstall what offers them"
        )
    if not rows:
        return Finding(
            "handlers",
            Verdict.WARN,
            "none are installed here; a worker of this installation runs no task that needs one",
            "install a distribution that offers handlers",
        )
    return Finding("handlers", Verdict.OK, f"{len(rows)} loaded")


def _row(finding: Finding) -> tuple[str, str, str]:
    remedy = f"\n-> {finding.remedy}" if finding.remedy else ""
    return finding.check, finding.verdict.value, finding.message + remedy
