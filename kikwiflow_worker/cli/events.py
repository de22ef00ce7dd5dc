"""Looking after outbox events that are relayed: how far the relay is, and what the sink would not take."""

from collections.abc import Sequence
from datetime import datetime

import click

from kikwiflow_worker.cli.options import SectionGroup, connection_options, json_option, page_options
from kikwiflow_worker.cli.output import (
    first_line,
    print_fields,
    print_heading,
    print_json,
    print_json_items,
    print_table,
    record_of,
    when,
)
from kikwiflow_worker.cli.session import with_store
from kikwiflow_worker.errors import ConflictError
from kikwiflow_worker.operations.dead_letters import resend_all
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.relay import (
    EventQuery,
    RelayMeasures,
    RelayStatus,
    SliceState,
    StoredEvent,
)
from kikwiflow_worker.store.views import Page


@click.group(cls=SectionGroup)
def events() -> None:
    """See how far the relay of outbox events is, and look after dead letters."""


@events.command()
@json_option
@connection_options
@click.pass_context
def status(context: click.Context, *, as_json: bool) -> None:
    """Show where events go, how many wait and for how long, and which slices the sink takes nothing from."""

    async def action(
        store: MongoStore,
    ) -> tuple[str | None, RelayMeasures, tuple[SliceState, ...], datetime]:
        await store.ping()
        care = store.relay_care
        found = await care.find_sink(), await care.measure(), await care.list_slices()
        return *found, store.relay.now()

    sink, measures, slices, now = with_store(context, action)
    if as_json:
        counts = {each.value: count for each, count in measures.counts.items()}
        print_json(
            {
                "sink": sink,
                "lag_s": measures.lag_s,
                "counts": counts,
                "count_cap": measures.cap,
                "slices": [record_of(one) for one in slices],
            }
        )
        return
    shown = {
        each.value.lower(): f"{count:,}+" if count >= measures.cap else f"{count:,}"
        for each, count in measures.counts.items()
    }
    print_fields(
        {"sink": sink or "none, events are not relayed", "lag": f"{measures.lag_s:.0f} s", **shown}
    )
    stalled = [one for one in slices if one.failures]
    if stalled:
        print_heading("Slices that the sink takes nothing from")
        print_table(
            ("SLICE#", "LAG#", "ROUNDS#", "NEXT", "LAST TAKEN", "ERROR"),
            [
                (
                    one.slice,
                    f"{one.lag_s:.0f} s",
                    one.failures,
                    when(one.paused_until, now),
                    when(one.delivered_at, now),
                    first_line(one.last_error),
                )
                for one in stalled
            ],
        )


@events.command(
    name="list",
    epilog="""\b
Examples:
  kikwiflow-worker events list
  kikwiflow-worker events list --status RETRYING --instance ID --json
""",
)
@click.option(
    "--status",
    "chosen",
    type=click.Choice([each.value for each in RelayStatus], case_sensitive=False),
    default=RelayStatus.DEAD.value,
    show_default=True,
    help="HELD ones wait for an earlier one of their instance.",
)
@click.option("--instance", metavar="ID", help="Only events of this instance.")
@page_options
@json_option
@connection_options
@click.pass_context
def list_events(
    context: click.Context,
    *,
    chosen: str,
    instance: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List events, by default the dead letters, in their order. Payloads are only in --json."""
    query = EventQuery(status=RelayStatus(chosen), instance_id=instance)

    async def action(store: MongoStore) -> tuple[Page[StoredEvent], datetime]:
        await store.ping()
        page = await store.relay_care.list_events(query, limit=limit, cursor=cursor)
        return page, store.relay.now()

    page, now = with_store(context, action)
    if as_json:
        print_json_items(page.items, page.next_cursor)
        return
    print_table(
        ("ID", "EVENT", "INSTANCE", "STORED", "TRIES#", "NEXT"),
        [
            (
                one.id,
                one.type,
                one.instance_id,
                when(one.timestamp, now),
                one.attempts,
                when(one.retry_at, now),
            )
            for one in page.items
        ],
        empty=f"no event is {query.status}",
        details=[first_line(one.last_error) for one in page.items],
        next_cursor=page.next_cursor,
    )


@events.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "wants_all", is_flag=True, help="All dead letters.")
@click.option("--instance", metavar="ID", help="All dead letters of this instance.")
@json_option
@connection_options
@click.pass_context
def resend(
    context: click.Context,
    *,
    ids: Sequence[str],
    wants_all: bool,
    instance: str | None,
    as_json: bool,
) -> None:
    """Let dead letters be tried again at once, with all their attempts; what they held back follows them."""
    if sum((bool(ids), wants_all, instance is not None)) != 1:
        raise click.UsageError("give IDs of dead letters (events list), or --all, or --instance ID")

    async def action(store: MongoStore) -> int:
        await store.ping()
        if ids:
            return await store.relay_care.resend(ids)
        return (await resend_all(store.relay_care, instance_id=instance)).count

    count = with_store(context, action)
    if ids and count < len(set(ids)):
        raise ConflictError(
            f"{count} of {len(set(ids))} events are tried again; the others are no dead letters: kikwiflow-worker events list"
        )
    _answer({"resent": count}, f"{count} tried again", as_json=as_json)


@events.command()
@click.argument("event_id", metavar="ID")
@click.option("--by", metavar="NAME", help="Who gives it up, for the record.")
@json_option
@connection_options
@click.pass_context
def drop(context: click.Context, *, event_id: str, by: str | None, as_json: bool) -> None:
    """Give up a dead letter: it is never sent, and what follows in its instance goes on."""

    async def action(store: MongoStore) -> bool:
        await store.ping()
        return await store.relay_care.drop(event_id, by=by)

    if not with_store(context, action):
        raise ConflictError(f"event {event_id!r} is no dead letter: kikwiflow-worker events list")
    _answer({"dropped": event_id}, f"event {event_id} was dropped", as_json=as_json)


@events.command(name="stop-relaying")
@json_option
@connection_options
@click.pass_context
def stop_relaying(context: click.Context, *, as_json: bool) -> None:
    """Let events expire without having been relayed. Stop the relays first; a relay that starts takes it back."""

    async def action(store: MongoStore) -> int:
        await store.ping()
        return await store.relay_care.retire()

    count = with_store(context, action)
    words = f"events are not relayed any more; {count} that waited expire after events_ttl_days"
    _answer({"expiring": count}, words, as_json=as_json)


def _answer(record: dict[str, object], words: str, *, as_json: bool) -> None:
    if as_json:
        print_json(record)
    else:
        click.echo(words)
