"""What the outside sees of a running worker: events, log lines and metrics.

The catalogues in ``docs/reference`` are generated from here, so a name exists once.
"""

import logging
import re
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Self, TextIO

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from kikwiflow_worker.step_metrics import StepMetrics, metric_row, metrics_table, step_metrics_rows

_FAST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LATENESS_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)


class LogLevel(StrEnum):
    """How grave a log line must be to be written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """Return the level's number in the standard library."""
        return logging.getLevelNamesMapping()[self.name]


class LogFormat(StrEnum):
    """How a log line looks; ``AUTO`` is ``CONSOLE`` on a terminal and ``JSON`` elsewhere."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class Event(StrEnum):
    """The name of something that happened, the ``event`` of a log line.

    Attributes:
        level: What the line is logged at: debug is each poll, info a change of state, warning something degraded but
            handled, error what a person must look at.
        meaning: One line for the catalogue.
    """

    level: LogLevel
    level_number: int
    meaning: str

    def __new__(cls, name: str, level: LogLevel, meaning: str) -> Self:
        """Make a member whose value is ``name``."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.level = level
        member.level_number = level.number
        member.meaning = meaning
        return member

    WORKER_STARTED = "worker.started", LogLevel.INFO, "The worker is ready and claims tasks."
    WORKER_DRAINING = (
        "worker.draining",
        LogLevel.INFO,
        "The worker claims nothing more and finishes what runs.",
    )
    WORKER_STOPPED = (
        "worker.stopped",
        LogLevel.INFO,
        "The worker has finished or released everything.",
    )
    SERVICE_CRASHED = "service.crashed", LogLevel.ERROR, "A part of the worker failed unexpectedly."
    HANDLER_LOADED = (
        "handler.loaded",
        LogLevel.INFO,
        "A handler or provider was found and can be called.",
    )
    HANDLER_BLOCKED_LOOP = (
        "handler.blocked_loop",
        LogLevel.WARNING,
        "A handler blocks the event loop; nothing else runs.",
    )
    ACQUIRER_BACKED_OFF = (
        "acquirer.backed_off",
        LogLevel.DEBUG,
        "The acquirer waits longer: nothing due, or the store failed.",
    )
    TASK_CLAIMED = "task.claimed", LogLevel.DEBUG, "A task belongs to this worker."
    TASK_STARTED = "task.started", LogLevel.DEBUG, "The run of a claimed task began."
    TASK_COMPLETED = "task.completed", LogLevel.DEBUG, "A task's outcome is committed."
    TASK_RETRY_SCHEDULED = (
        "task.retry_scheduled",
        LogLevel.WARNING,
        "An attempt failed; the task is tried again later.",
    )
    MESSAGE_KEPT = (
        "message.kept",
        LogLevel.INFO,
        "Nobody can take a kept message yet; its task looks again later.",
    )
    TASK_FAILED = "task.failed", LogLevel.ERROR, "A task failed for good and an incident is open."
    TASK_RELEASED = (
        "task.released",
        LogLevel.INFO,
        "A claimed task was given back without using an attempt.",
    )
    TASK_PARKED = (
        "task.parked",
        LogLevel.INFO,
        "A task of a suspended instance rests until the instance is resumed.",
    )
    TASK_RESCUED = (
        "task.rescued",
        LogLevel.WARNING,
        "A task was taken over from a worker whose lock had expired.",
    )
    LOCK_LOST = (
        "lock.lost",
        LogLevel.WARNING,
        "A task that runs here belongs to another worker; its handler is cancelled.",
    )
    LOCK_RENEWED = "lock.renewed", LogLevel.DEBUG, "The locks of all running tasks were prolonged."
    COMMIT_CONFLICTED = (
        "commit.conflicted",
        LogLevel.DEBUG,
        "A commit met a concurrent one and is tried again.",
    )
    CLAIM_LOST = (
        "claim.lost",
        LogLevel.INFO,
        "A commit found that the task belongs to somebody else; nothing was written.",
    )
    JOIN_RELEASED = "join.released", LogLevel.INFO, "The last branch arrived and the join goes on."
    INSTANCE_COMPLETED = "instance.completed", LogLevel.INFO, "A process instance reached its end."
    INSTANCE_CANCELLED = (
        "instance.cancelled",
        LogLevel.INFO,
        "A process instance was ended before its end.",
    )
    INCIDENT_OPENED = "incident.opened", LogLevel.ERROR, "A failure waits for a person."
    STORE_UNAVAILABLE = (
        "store.unavailable",
        LogLevel.WARNING,
        "The database does not answer; the worker backs off and is not ready.",
    )
    STORE_RECOVERED = "store.recovered", LogLevel.INFO, "The database answers again."
    MANAGEMENT_STARTED = (
        "management.started",
        LogLevel.INFO,
        "The management server listens for requests.",
    )
    MANAGEMENT_STOPPED = (
        "management.stopped",
        LogLevel.INFO,
        "The management server has finished its requests.",
    )
    REQUEST_ANSWERED = (
        "request.answered",
        LogLevel.INFO,
        "The management server answered a request; the route is named, never the ids in its path.",
    )
    REQUEST_FAILED = (
        "request.failed",
        LogLevel.ERROR,
        "The management server met an error that it did not expect; the caller was told the request id.",
    )
    RELAY_STARTED = "relay.started", LogLevel.INFO, "The relay looks for outbox events to send."
    RELAY_STALLED = (
        "relay.stalled",
        LogLevel.WARNING,
        "The sink takes no outbox events; they wait and are tried again.",
    )
    RELAY_RECOVERED = "relay.recovered", LogLevel.INFO, "The sink takes outbox events again."
    RELAY_DEAD_LETTERED = (
        "relay.dead_lettered",
        LogLevel.ERROR,
        "The sink would not take an outbox event; its instance's events wait for a person.",
    )
    RELAY_SLICE_LOST = (
        "relay.slice_lost",
        LogLevel.WARNING,
        "A round took too long and another relay took over; some events are sent twice.",
    )
    RELAY_REFUSED = (
        "relay.refused",
        LogLevel.ERROR,
        "This process may not relay outbox events; the worker goes on without.",
    )
    CLOCK_SKEWED = (
        "clock.skewed",
        LogLevel.WARNING,
        "The host's clock differs from the database's; work is not affected.",
    )


@dataclass(slots=True)
class _Least:
    """The least grave line that is written, to leave the others out before anything is made of them."""

    level_number: int = 0


_least = _Least()


def emit(event: Event, **keys: object) -> None:
    """Log ``event`` at its own level with ``keys``; never pass the value of a variable."""
    if event.level_number >= _least.level_number:
        structlog.get_logger().log(event.level_number, event, **keys)


def events_reference() -> str:
    """Return the Markdown table of all events."""
    rows = [f"| `{event.value}` | {event.level.value} | {event.meaning} |" for event in Event]
    return "\n".join(["| Event | Level | Meaning |", "|---|---|---|", *rows]) + "\n"


# Up to the last @ of the word: a password with an unescaped / or @ must not leak its tail.
# A single slash is what a path makes of the two.
_CREDENTIALS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:/{1,2}[^\s:@/]*):\S*@")
_SECRET_OPTIONS = re.compile(
    r"\b(authMechanismProperties|\w*(?:password|passphrase|secret|token))=[^&\s'\"]*",
    re.IGNORECASE,
)


def mask_credentials(text: str) -> str:
    """Return ``text`` with the password and the secret options of each URI in it replaced by ``***``."""
    if ":/" not in text and "=" not in text:
        return text
    return _SECRET_OPTIONS.sub(r"\1=***", _CREDENTIALS.sub(r"\1:***@", text))


def _masked(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _masked(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(item) for item in value]
    # Anything else becomes text here, so that no renderer prints an object whose repr holds a URI.
    return mask_credentials(str(value))


def _mask_line(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    return {key: _masked(value) for key, value in line.items()}


def _order_keys(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    first = {key: line[key] for key in ("event", "level", "timestamp") if key in line}
    return first | {key: value for key, value in line.items() if key not in first}


class _WorkerLogHandler(logging.StreamHandler[TextIO]):
    """Writes all lines; a second call of ``configure_logging`` replaces it."""

    def write(self, line: str) -> None:
        """Write a finished line. Like the standard library's own, a stream that fails is no error of who logs."""
        with suppress(OSError, ValueError), self.lock or nullcontext():
            self.stream.write(line + self.terminator)
            self.stream.flush()


@dataclass(frozen=True, slots=True)
class _Lines:
    """Takes our own lines past the records of the standard library, which cost more than all the rest of a line."""

    handler: _WorkerLogHandler

    def msg(self, line: str) -> None:
        """Write a line."""
        self.handler.write(line)

    log = debug = info = warning = warn = error = critical = exception = fatal = msg


_TALKATIVE = ("aiokafka", "httpcore", "httpx", "pymongo", "python_multipart", "sse_starlette")
"""Libraries whose lines below a warning hold what they carry: documents, requests, events. Values are never logged."""


def configure_logging(level: LogLevel, log_format: LogFormat, stream: TextIO) -> None:
    """Send all log lines of the process, ours and the standard library's, to ``stream`` in one shape.

    Context variables are merged into each line and credentials in URIs are masked. May be called again, for example
    to change the level.

    Args:
        level: What to write; the driver's and some other libraries' own lines are written from warning on.
        log_format: The shape of a line.
        stream: Where to write; it decides what ``LogFormat.AUTO`` means.
    """
    is_console = log_format is LogFormat.CONSOLE or (
        log_format is LogFormat.AUTO and stream.isatty()
    )
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        if is_console
        else structlog.processors.JSONRenderer()
    )
    handler = _WorkerLogHandler(stream)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                ProcessorFormatter.remove_processors_meta,
                _mask_line,
                _order_keys,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, _WorkerLogHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.number)
    _least.level_number = level.number
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(level.number, logging.WARNING))
    lines = _Lines(handler)
    structlog.configure(
        processors=[*shared, _mask_line, _order_keys, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level.number),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,  # a later call must reach loggers that exist already
    )


def reset_logging() -> None:
    """Let events be logged as if ``configure_logging`` had not been called; the standard library's loggers stay as they are."""
    structlog.reset_defaults()
    _least.level_number = 0


class Metrics:
    """The worker's Prometheus metrics.

    Thread-safe. Each is registered with ``registry`` only, so that two workers in one process, or two tests, do not
    share numbers.
    """

    def __init__(self, registry: CollectorRegistry, *, version: str, instance: str) -> None:
        self._registry = registry
        self._rows: list[str] = []
        who = "Always 1; says who runs."
        self._rows.append(metric_row("kikwiflow_worker_info", who, "gauge", "version", "instance"))
        Info("kikwiflow_worker", who, registry=registry).info(
            {"version": version, "instance": instance}
        )
        self.up = self._gauge(
            "kikwiflow_worker_up", "1 while it takes tasks, else 0: as /readyz, without a look."
        )
        self.slots = self._gauge(
            "kikwiflow_worker_slots", "Slots for running tasks, by state (free, busy).", "state"
        )
        self.steps = StepMetrics(registry)
        self._rows += step_metrics_rows()
        self.claim_duration = self._histogram(
            "kikwiflow_claim_duration_seconds", "Time of one call for due tasks.", _FAST_BUCKETS
        )
        self.claim_empty = self._counter(
            "kikwiflow_claim_empty_total", "Calls for due tasks that found none."
        )
        self.due_tasks = self._gauge(
            "kikwiflow_due_tasks", "Tasks that are due and belong to nobody."
        )
        self.oldest_due = self._gauge(
            "kikwiflow_oldest_due_seconds", "How long the oldest due task has been waiting."
        )
        self.timer_lateness = self._histogram(
            "kikwiflow_timer_lateness_seconds",
            "How long after its due time a timer fired.",
            _LATENESS_BUCKETS,
        )
        self.lock_renewals = self._counter(
            "kikwiflow_lock_renewals_total",
            "Calls to prolong locks, by result (ok, lost, failed).",
            "result",
        )
        self.locks_lost = self._counter(
            "kikwiflow_locks_lost_total", "Running tasks that were lost to another worker."
        )
        self.incidents_open = self._gauge(
            "kikwiflow_incidents_open", "Incidents that wait for a person."
        )
        self.txn_attempts = self._counter(
            "kikwiflow_txn_attempts_total", "Transactions begun, tries again included."
        )
        self.txn_conflicts = self._counter(
            "kikwiflow_txn_conflicts_total", "Transactions that met a concurrent one."
        )
        self.clock_skew = self._gauge(
            "kikwiflow_clock_skew_seconds", "The host's clock minus the database's."
        )
        self.event_loop_lag = self._histogram(
            "kikwiflow_event_loop_lag_seconds", "How late the event loop woke up.", _FAST_BUCKETS
        )
        self.store_outages = self._counter(
            "kikwiflow_store_outages_total", "Times the database stopped answering."
        )
        self.relay_events = self._counter(
            "kikwiflow_relay_events_total",
            "Outbox events sent, by outcome (delivered, failed, dead).",
            "outcome",
        )
        self.relay_waiting = self._gauge(
            "kikwiflow_relay_waiting_events",
            "Outbox events that were not delivered yet, by status; counted up to 10,000.",
            "status",
        )
        self.relay_lag = self._gauge(
            "kikwiflow_relay_lag_seconds", "Age of the oldest outbox event that can be sent."
        )

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    @property
    def rows(self) -> tuple[str, ...]:
        """Return one Markdown table row for each metric."""
        return tuple(self._rows)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        self._rows.append(metric_row(name, text, "counter", *labels))
        return Counter(name, text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        self._rows.append(metric_row(name, text, "gauge", *labels))
        return Gauge(name, text, labels, registry=self._registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        self._rows.append(metric_row(name, text, "histogram", *labels))
        return Histogram(name, text, labels, registry=self._registry, buckets=buckets)


def metrics_reference() -> str:
    """Return the Markdown table of all metrics."""
    return metrics_table(Metrics(CollectorRegistry(), version="", instance="").rows)
