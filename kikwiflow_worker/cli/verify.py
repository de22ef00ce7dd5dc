"""Looking for what nobody can reach."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import click

from kikwiflow_worker.cli.options import SectionCommand, connection_options, json_option
from kikwiflow_worker.cli.output import print_json, print_table
from kikwiflow_worker.cli.session import with_store
from kikwiflow_worker.store.mongo.reachability import Reachability, Unreachable
from kikwiflow_worker.store.mongo.reachability_rules import Trouble

_LISTED = 100
"""How many are printed in a table; JSON has them all."""

_REMEDIES = {
    Trouble.LEFT_BEHIND: "nothing waits for these, and nobody removes them: look whether the database was restored or "
    "changed in parts",
    Trouble.STRANDED: "these wait for what never comes: cancel the instance (kikwiflow-worker instances cancel ID), start it "
    "anew, and report it with the workers' logs",
    Trouble.NOT_CLAIMABLE: "no worker can find these: kikwiflow-worker tasks override TASK_ID makes one due, or cancel the "
    "instance",
    Trouble.CLAIM: "their worker has gone and none has taken over: is one running that has the handler? "
    "(kikwiflow-worker workers, kikwiflow-worker handlers)",
    Trouble.TWICE: "the same work is there a second time: cancel the instance, and report it with the workers' logs",
    Trouble.MESSAGE: "send these again under another message id (kikwiflow-worker messages correlate)",
}


@click.command(
    cls=SectionCommand,
    epilog="""\b
Examples:
  kikwiflow-worker verify
  kikwiflow-worker verify --grace 60 --json
""",
)
@click.option(
    "--grace",
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=10,
    show_default=True,
    help="How long something must look wrong before it is reported. Workers may run: some of it is legal in passing.",
)
@json_option
@connection_options
@click.pass_context
def verify(context: click.Context, *, grace: float, as_json: bool) -> None:
    """Look for rows that nobody can reach, claims left behind and joins that wait for nobody; change nothing.

    Every document of the active collections is read, in pages; what looks wrong is read again after --grace. Exits with
    1 if anything is wrong.
    """
    found = with_store(
        context, lambda store: store.find_unreachable(grace=timedelta(seconds=grace))
    )
    if as_json:
        print_json(found)
    else:
        _print(found)
    if found.found:
        context.exit(1)


def _print(found: Reachability) -> None:
    examined = ", ".join(f"{count} {name}" for name, count in found.examined.items())
    if not found.found:
        click.echo(f"everything can be reached: {examined}")
        return
    listed = found.found[:_LISTED]
    print_table(
        ("TROUBLE", "DOCUMENT", "NODE", "INSTANCE"),
        [_row(each) for each in listed],
        details=[each.words for each in listed],
    )
    if len(found.found) > _LISTED:
        click.echo(f"and {len(found.found) - _LISTED} more; --json lists all")
    click.echo(f"\nexamined: {examined}")
    for trouble, count in Counter(each.trouble for each in found.found).items():
        click.echo(f"{count} {trouble}: {_REMEDIES[trouble]}")


def _row(each: Unreachable) -> Sequence[object]:
    return each.trouble, f"{each.collection} {each.id}", each.node_id, each.instance_id
