"""Metrics of steps: of those that a worker runs, and of those that external workers fetch from and report to a server."""

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

_CLAIMED = (
    "kikwiflow_tasks_claimed_total",
    "Tasks claimed by this worker, or through this server.",
)
_DURATION = (
    "kikwiflow_task_duration_seconds",
    "Time from start to outcome of a task; of a fetched one, from the fetch.",
)
_DURATION_LABELS = ("definition", "node", "outcome")
_ATTEMPTS = ("kikwiflow_task_attempts_total", "Attempts that ended, by outcome.")
_ATTEMPTS_LABELS = ("outcome",)
_RECLAIMED = ("kikwiflow_tasks_reclaimed_total", "Tasks taken over from a worker, by reason.")
_RECLAIMED_LABELS = ("reason",)


class StepMetrics:
    """How many tasks were claimed, and what came of them.

    Thread-safe. A server beside a worker counts into the worker's.

    Args:
        registry: Where they are read; None for nowhere.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._claimed = Counter(*_CLAIMED, registry=registry)
        self._duration = Histogram(
            *_DURATION, _DURATION_LABELS, registry=registry, buckets=_BUCKETS
        )
        self._attempts = Counter(*_ATTEMPTS, _ATTEMPTS_LABELS, registry=registry)
        self._reclaimed = Counter(*_RECLAIMED, _RECLAIMED_LABELS, registry=registry)
        self._cells: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}

    def claimed(self, *, is_rescued: bool) -> None:
        """Count a claim; one of a task whose lock had lapsed is a rescue."""
        self._claimed.inc()
        if is_rescued:
            self._reclaimed.labels(reason="lock_expired").inc()

    def released_unknown(self, number: int) -> None:
        """Count tasks that were given back because the reply to their claim was lost."""
        self._reclaimed.labels(reason="reply_lost").inc(number)

    def ended(self, *, definition: str, node: str, outcome: str, duration_s: float) -> None:
        """Count a step; its two series are looked up once, since that takes longer than to count."""
        found = self._cells.get((definition, node, outcome))
        if found is None:
            found = self._cells[definition, node, outcome] = (
                self._attempts.labels(outcome=outcome),
                self._duration.labels(definition=definition, node=node, outcome=outcome),
            )
        attempts, durations = found
        attempts.inc()
        durations.observe(duration_s)


def step_metrics_rows() -> tuple[str, ...]:
    """Return one Markdown table row for each of these metrics."""
    return (
        metric_row(*_CLAIMED, "counter"),
        metric_row(*_DURATION, "histogram", *_DURATION_LABELS),
        metric_row(*_ATTEMPTS, "counter", *_ATTEMPTS_LABELS),
        metric_row(*_RECLAIMED, "counter", *_RECLAIMED_LABELS),
    )


def metrics_table(rows: tuple[str, ...]) -> str:
    """Return the Markdown table of metrics."""
    return "\n".join(["| Metric | Type | Labels | Meaning |", "|---|---|---|---|", *rows]) + "\n"


def metric_row(name: str, text: str, kind: str, *labels: str) -> str:
    """Return the row of one metric."""
    return f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |"
