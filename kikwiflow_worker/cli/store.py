"""Checking what is stored, and upgrading what an older release stored."""

from collections.abc import Iterator

import click

from kikwiflow_worker.cli.checks import Finding, Verdict
from kikwiflow_worker.cli.options import SectionGroup, connection_options, json_option
from kikwiflow_worker.cli.output import masked, print_json, print_json_items, print_table
from kikwiflow_worker.cli.session import with_store
from kikwiflow_worker.store.mongo.collections import SCHEMA_VERSION
from kikwiflow_worker.store.mongo.inspection import Findings, Inspection
from kikwiflow_worker.store.mongo.reencrypting import Reencrypted

_UPGRADE = "kikwiflow-worker store upgrade"
_NEWER = "use the release that wrote it"


@click.group(cls=SectionGroup)
def store() -> None:
    """Check what is stored, and upgrade what an older release stored."""


@store.command(
    name="check",
    epilog="""\b
Examples:
  kikwiflow-worker store check
  kikwiflow-worker store check --sample 1000000 --json
""",
)
@click.option(
    "--sample",
    metavar="N",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="How many documents of each collection are looked at.",
)
@json_option
@connection_options
@click.pass_context
def check(context: click.Context, *, sample: int, as_json: bool) -> None:
    """Check schema version, indexes, documents that cannot be read, and rows left behind; changes nothing.

    Workers may run meanwhile. Exits with 1 if a check fails.
    """
    inspection = with_store(context, lambda opened: opened.inspect(sample=sample))
    findings = list(_findings(inspection, sample))
    if as_json:
        print_json_items([masked(finding) for finding in findings])
    else:
        print_table(
            ("CHECK", "", "RESULT"),
            [(each.check, each.verdict.value, _result(each)) for each in findings],
        )
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        context.exit(1)


@store.command(name="upgrade")
@json_option
@connection_options
@click.pass_context
def upgrade(context: click.Context, *, as_json: bool) -> None:
    """Bring documents and indexes to what this release stores; stop the workers of the older release first.

    Take a backup before it. It can be repeated: an upgrade that was interrupted goes on. A new database is prepared.
    Indexes of ours with other options are made anew; those of others are left alone.
    """
    done = with_store(context, lambda opened: opened.upgrade())
    if as_json:
        print_json(done)
        return
    before = "a new database" if done.before is None else f"version {done.before}"
    click.echo(f"schema: {before} -> version {done.after}")
    for name, count in done.documents.items():
        click.echo(f"{name}: {count} documents changed")
    click.echo(f"indexes made: {', '.join(done.indexes) or 'none, all were there'}")


@store.command(
    name="reencrypt",
    epilog="""\b
Examples:
  kikwiflow-worker store reencrypt --encryption-key-file /etc/kikwiflow/keys
  kikwiflow-worker store reencrypt --encryption-key-file /etc/kikwiflow/keys --batch 20 --json
""",
)
@click.option(
    "--batch",
    metavar="N",
    type=click.IntRange(1, 1000),
    default=200,
    show_default=True,
    help="How many documents are read at a time.",
)
@json_option
@connection_options
@click.pass_context
def reencrypt(context: click.Context, *, batch: int, as_json: bool) -> None:
    """Encrypt every stored variable and text of an error with the first key of the file, or store them plain if that says so.

    Workers may run meanwhile, and must all have the file as it is now: what one writes with another key behind this
    command's back stays so. It can be repeated: a run that was interrupted goes on. Exits with 1 if a value is left as it
    is because its key is not in the file.
    """
    done = with_store(
        context, lambda opened: opened.reencrypt(batch=batch, progressed=_tell_progress)
    )
    if as_json:
        print_json(done)
    else:
        click.echo(f"{done.examined:,} documents examined, {done.changed:,} values rewritten")
    if done.unreadable:
        keys = ", ".join(sorted(done.unreadable_keys))
        click.echo(
            f"{done.unreadable:,} values were left as they are: they cannot be decrypted with key {keys}; "
            "add it to the file and run this again",
            err=True,
        )
        context.exit(1)


def _tell_progress(done: Reencrypted) -> None:
    click.echo(
        f"{done.collection}: {done.examined:,} documents examined, {done.changed:,} values rewritten",
        err=True,
    )


def _findings(inspection: Inspection, sample: int) -> Iterator[Finding]:
    yield _version(inspection.version)
    yield _indexes(inspection)
    examined = sum(inspection.examined.values())
    full = [name for name, count in inspection.examined.items() if count == sample]
    looked = f"{examined} documents can be read"
    if full:
        looked += f"; of {', '.join(full)} only the first {sample} were looked at (--sample)"
    yield _of_kind(
        "documents",
        inspection.unreadable,
        well=looked,
        remedy="a newer release or somebody by hand wrote them; use that release, or restore them",
    )
    yield _of_kind(
        "left behind",
        inspection.orphans,
        well="no row names what is not there",
        remedy="look whether the database was restored or changed in parts; they do no harm, but nobody removes them",
    )
    yield _of_kind(
        "stranded",
        inspection.stranded,
        well="every running instance rests somewhere",
        remedy="look whether the database was restored or changed in parts; cancel them: "
        "kikwiflow-worker instances cancel ID",
    )


def _version(version: int | None) -> Finding:
    if version is None:
        return Finding("schema", Verdict.WARN, "nothing has been prepared here yet", _UPGRADE)
    if version > SCHEMA_VERSION:
        known = f"version {version}, this release knows up to {SCHEMA_VERSION}"
        return Finding("schema", Verdict.FAIL, known, _NEWER)
    if version < SCHEMA_VERSION:
        needed = f"version {version}, this release needs {SCHEMA_VERSION}"
        return Finding("schema", Verdict.FAIL, needed, _UPGRADE)
    return Finding("schema", Verdict.OK, f"version {version}")


def _indexes(inspection: Inspection) -> Finding:
    if inspection.version is None:
        return Finding("indexes", Verdict.SKIP, "not checked")
    lines = [f"{name} is missing" for name in inspection.missing_indexes]
    lines += [f"{name} has other keys or options" for name in inspection.changed_indexes]
    if lines:
        return Finding("indexes", Verdict.FAIL, "\n".join(lines), _UPGRADE)
    return Finding("indexes", Verdict.OK, "all are there")


def _of_kind(check_name: str, found: Findings, *, well: str, remedy: str) -> Finding:
    if not found.count:
        return Finding(check_name, Verdict.OK, well)
    lines = list(found.named)
    if found.count > len(lines):
        lines.append(f"and {found.count - len(lines)} more")
    return Finding(check_name, Verdict.FAIL, "\n".join(lines), remedy)


def _result(finding: Finding) -> str:
    return finding.message + (f"\n-> {finding.remedy}" if finding.remedy else "")
