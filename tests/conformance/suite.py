"""All rows, in the order of the reference."""

from tests.conformance import (
    rows_calls,
    rows_catchers,
    rows_events,
    rows_flow,
    rows_hosts,
    rows_races,
    rows_tasks,
    rows_timers,
)

ROWS = (
    *rows_tasks.ROWS,
    *rows_timers.ROWS,
    *rows_catchers.ROWS,
    *rows_hosts.ROWS,
    *rows_calls.ROWS,
    *rows_flow.ROWS,
    *rows_races.ROWS,
    *rows_events.ROWS,
)
