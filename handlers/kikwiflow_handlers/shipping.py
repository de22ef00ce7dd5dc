"""The physical half of an order: picking, quality, papers, carrier, hand-over."""

from collections.abc import Mapping
from datetime import timedelta

from kikwiflow_handlers.reading import read_count, read_lines
from kikwiflow_handlers.remote import blocking_call, remote_call
from kikwiflow_worker.clock import Clock, SystemClock
from kikwiflow_worker.handler import (
    EvaluationContext,
    ExecutionContext,
    RetryLater,
    due_date_provider,
    task_handler,
)


class Throttle:
    """Keeps a limit of calls for each second; one for each process is good enough for a friendly client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self._used = 0

    def admits(self, per_second: int) -> bool:
        """Count a call; return False if this second has had enough of them."""
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second, self._used = second, 0
        self._used += 1
        return self._used <= per_second


_CARRIER = Throttle(SystemClock())


@task_handler("pickItems")
def pick_items(ctx: ExecutionContext) -> None:
    """Walk from line to line; a long handler that is not ``async`` looks whether it still matters."""
    for _ in read_lines(ctx):
        if ctx.is_cancelled:
            return
        blocking_call(ctx)


@task_handler("checkQuality")
async def check_quality(ctx: ExecutionContext) -> Mapping[str, object]:
    """Find the goods good enough once they were reworked as often as they have ``defects``."""
    await remote_call(ctx)
    defects = read_count(ctx, "defects", default=0)
    return {"qualityOk": read_count(ctx, "reworkCount", default=0) >= defects}


@task_handler("reworkItems")
async def rework_items(ctx: ExecutionContext) -> None:
    """Repair, and count how often."""
    await remote_call(ctx)
    ctx.increment("reworkCount")


@task_handler("printInvoice")
async def print_invoice(ctx: ExecutionContext) -> Mapping[str, object]:
    """Print an invoice; its number comes from the business key, so a second run prints the same one."""
    await remote_call(ctx)
    return {"invoiceNumber": f"INV-{ctx.business_key}"}


@task_handler("bookCarrier", timeout_s=30)
async def book_carrier(ctx: ExecutionContext) -> Mapping[str, object]:
    """Book a carrier that takes only so many calls a second (extension property ``bookingsPerSecond``).

    Raises:
        RetryLater: It has had enough for now. That is no failure: it uses none of the attempts.
    """
    limit = int(ctx.view.extension_properties.get("bookingsPerSecond", "100"))
    if not _CARRIER.admits(limit):
        raise RetryLater(timedelta(seconds=0.5), "the carrier takes no more bookings this second")
    await remote_call(ctx)
    return {"carrier": "AIR" if ctx.get("isExpress") is True else "ROAD"}


@due_date_provider("nextPickup")
def next_pickup(ctx: EvaluationContext) -> str:
    """Return how long to wait for the van, an ISO-8601 duration; an instant would do as well."""
    kind = "expressWait" if ctx.get("isExpress") is True else "standardWait"
    return ctx.view.extension_properties.get(kind, "PT0S")


@task_handler("handOver")
async def hand_over(ctx: ExecutionContext) -> Mapping[str, object]:
    """Give the parcel to the driver."""
    await remote_call(ctx)
    ctx.increment("handOvers")
    return {"outcome": "DELIVERED"}
