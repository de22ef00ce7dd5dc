"""Recurring timers, and the cycles that they have."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from kikwiflow_worker.engine.schedules import (
    first_occurrence,
    next_occurrence,
)
from kikwiflow_worker.model.nodes import BoundaryNonInterruptiveTimer

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
BERLIN = "Europe/Berlin"


def a_timer(
    schedule_type: str | None = None,
    expression: str | None = None,
    *,
    properties: dict[str, str] | None = None,
    **policy: object,
) -> BoundaryNonInterruptiveTimer:
    return BoundaryNonInterruptiveTimer.model_validate(
        {
            "id": "REMIND",
            "type": "BOUNDARY_NON_INTERRUPTIVE_TIMER",
            "schedulePolicy": {"type": schedule_type, "expression": expression, **policy},
            "extensionProperties": {
                f"kikwiflow.{name}": text for name, text in (properties or {}).items()
            },
        }
    )


def hourly(missed_fires: str | None = None, **properties: str) -> BoundaryNonInterruptiveTimer:
    named = {"missedFires": missed_fires} if missed_fires else {}
    return a_timer("RATE_DURATION", "PT1H", properties={**named, **properties})


def cron(expression: str, zone: str | None = None) -> BoundaryNonInterruptiveTimer:
    return a_timer("CRON", expression, properties={"timeZone": zone} if zone else {})


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def cycles(node: BoundaryNonInterruptiveTimer, *, since: datetime) -> Iterator[datetime]:
    """Yield the due times of a timer that is created at ``since`` and always fired in time."""
    cycle = first_occurrence(node, now=since)
    while cycle is not None:
        yield cycle.due_at
        cycle = next_occurrence(
            node,
            previous=cycle.due_at,
            occurrence=cycle.number,
            now=cycle.due_at,
            created_at=since,
        )


def local_cycles(expression: str, zone: str, since: str, count: int) -> list[str]:
    """Return the first cycles as a clock on the wall of ``zone`` shows them, with its offset."""
    start = datetime.fromisoformat(since).replace(tzinfo=ZoneInfo(zone))
    dues = islice(cycles(cron(expression, zone), since=start), count)
    return [f"{due.astimezone(ZoneInfo(zone)):%d %H:%M:%S %z}" for due in dues]


def after(
    node: BoundaryNonInterruptiveTimer, previous: datetime, *, now: datetime
) -> datetime | None:
    cycle = next_occurrence(node, previous=previous, occurrence=1, now=now)
    return None if cycle is None else cycle.due_at
