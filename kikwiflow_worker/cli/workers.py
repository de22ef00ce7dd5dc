"""Listing the workers of a database."""

from datetime import datetime, timedelta

import click

from kikwiflow_worker.cli.options import SectionCommand, connection_options, json_option
from kikwiflow_worker.cli.output import print_json_items, print_table, record_of, when
from kikwiflow_worker.cli.session import with_client
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.store.views import WorkerRecord

_SILENT_AFTER = timedelta(seconds=45)
"""A worker says every ten seconds that it lives; four in a row must be missing."""

_NOTHING = "-"
"""Stands for what an external worker does not tell."""


@click.command(cls=SectionCommand)
@json_option
@connection_options
@click.pass_context
def workers(context: click.Context, *, as_json: bool) -> None:
    """List the workers that were seen in the last 24 hours, the latest first.

    A worker that was not seen for 45 seconds is silent: it was stopped, has crashed, or does not reach the database.
    External workers are listed with those of our own; while one may be busy with a task that it fetched, it is not expected
    to be seen. LAG is how many seconds late the event loop woke up at worst in the ten seconds before: a handler blocks it.
    """

    async def action(client: Kikwiflow) -> tuple[tuple[WorkerRecord, ...], datetime]:
        return await client.reads.list_workers(), client.services.runtime.now()

    found, now = with_client(context, action)
    if as_json:
        print_json_items(
            [{**record_of(worker), "is_alive": is_alive(worker, now)} for worker in found]
        )
        return
    print_table(
        ("ID", "", "SEEN", "STATE", "BUSY#", "LAG#", "HOST", "VERSION"),
        [
            (
                worker.id,
                "alive" if is_alive(worker, now) else "silent",
                when(worker.seen_at, now),
                worker.state,
                _NOTHING if worker.is_external else f"{worker.running}/{worker.slots}",
                _lag_of(worker),
                _host_of(worker),
                worker.version or _NOTHING,
            )
            for worker in found
        ],
        empty="no worker was seen lately; start one with: kikwiflow-worker --instance-name NAME",
    )


def is_alive(worker: WorkerRecord, now: datetime) -> bool:
    """Return whether the worker has not stopped and was seen lately, by the database's time ``now``."""
    quiet = _SILENT_AFTER + timedelta(seconds=worker.busy_s)
    return worker.state != "stopped" and now - worker.seen_at < quiet


def _host_of(worker: WorkerRecord) -> str:
    if not worker.is_external:
        return f"{worker.host} {worker.pid}"
    return "external" if worker.tenant_id is None else f"external, tenant {worker.tenant_id}"


def _lag_of(worker: WorkerRecord) -> str:
    lag = worker.event_loop_lag_s
    return _NOTHING if lag is None else f"{lag:.3f}"
