"""Turns what became of a step into log lines and metrics."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.model.runtime import ClaimedTask, TaskType
from kikwiflow_worker.model.unit_of_work import OpenIncident, RescheduleTask, UnitOfWork
from kikwiflow_worker.operations.execution import Outcome, OutcomeKind, count_step
from kikwiflow_worker.operations.spans import processing
from kikwiflow_worker.telemetry import Event, Metrics, emit
from kikwiflow_worker.tracing.protocol import NO_TRACING, Span, Tracing


class RunningReport:
    """The report of one step that is under way."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None

    def ended(self, outcome: Outcome) -> None:
        """Note what became of the step."""
        self.outcome = outcome


class StepReport:
    """Reports steps."""

    def __init__(self, clock: Clock, metrics: Metrics, tracing: Tracing = NO_TRACING) -> None:
        self._clock = clock
        self._metrics = metrics
        self._tracing = tracing

    @contextmanager
    def step(self, claimed: ClaimedTask) -> Iterator[RunningReport]:
        """Report the step that runs in the block; of a step that raises there is a span only."""
        with processing(self._tracing, claimed) as span:
            if span.trace_id is not None:
                structlog.contextvars.bind_contextvars(trace_id=span.trace_id)
            report = RunningReport()
            with self._measured(claimed, report):
                yield report
            if report.outcome is not None:
                _end(span, report.outcome)

    def traced(self, claimed: ClaimedTask, unit: UnitOfWork) -> UnitOfWork:
        """Return the unit of a step with its trace context: that of its span, or of its task where no spans are made."""
        return unit.traced(self._tracing.current() or claimed.task.traceparent)

    @contextmanager
    def _measured(self, claimed: ClaimedTask, report: RunningReport) -> Iterator[None]:
        started = self._clock.monotonic()
        task = claimed.task
        if task.type is TaskType.TIMER_TASK and task.due_at is not None:
            lateness = claimed.claimed_at - task.due_at
            self._metrics.timer_lateness.observe(max(0.0, lateness.total_seconds()))
        emit(Event.TASK_STARTED, type=task.type.value, handler=task.handler_name)
        yield
        if report.outcome is not None:
            self._report(claimed, report.outcome, self._clock.monotonic() - started)

    def _report(self, claimed: ClaimedTask, outcome: Outcome, duration_s: float) -> None:
        count_step(self._metrics.steps, claimed, outcome, duration_s)
        key = claimed.instance.definition_key if claimed.instance else ""
        keys: dict[str, object] = {"definition_key": key, "duration_s": round(duration_s, 4)}
        if outcome.failure is not None:
            keys |= {"error_type": outcome.failure.error_type, "error": outcome.failure.message}
        match outcome.kind:
            case OutcomeKind.COMPLETED:
                emit(Event.TASK_COMPLETED, **keys)
            case OutcomeKind.RETRY_SCHEDULED:
                emit(Event.TASK_RETRY_SCHEDULED, **keys, **_retry_keys(outcome))
            case OutcomeKind.KEPT:
                emit(Event.MESSAGE_KEPT, **keys, **_retry_keys(outcome))
            case OutcomeKind.INCIDENT_OPENED:
                emit(Event.TASK_FAILED, **keys)
            case OutcomeKind.PARKED:
                emit(Event.TASK_PARKED, **keys)
            case OutcomeKind.CLAIM_LOST | OutcomeKind.DISCARDED | OutcomeKind.OVERTAKEN:
                emit(Event.CLAIM_LOST, **keys, outcome=outcome.kind.value)
            case OutcomeKind.CANCELLED:
                emit(Event.INSTANCE_CANCELLED, **keys)
        self._report_changes(outcome)

    def _report_changes(self, outcome: Outcome) -> None:
        for change in outcome.unit.changes if outcome.unit else ():
            if isinstance(change, OpenIncident):
                incident = change.incident
                emit(
                    Event.INCIDENT_OPENED,
                    incident_id=incident.id,
                    type=incident.type.value,
                    at=incident.node_id,
                )
        if outcome.committed.released:
            emit(Event.JOIN_RELEASED, joins=outcome.committed.released)
        for ended in outcome.committed.ended:
            emit(
                Event.INSTANCE_COMPLETED,
                ended_instance_id=ended.id,
                definition_key=ended.definition_key,
                status=ended.status.value,
            )


def _end(span: Span, outcome: Outcome) -> None:
    span.note({"kikwiflow.outcome": outcome.kind.value})
    if outcome.failure is not None:
        span.failed(outcome.failure.error_type, outcome.failure.message)


def _retry_keys(outcome: Outcome) -> dict[str, object]:
    guard = outcome.unit.guards[0] if outcome.unit else None
    if isinstance(guard, RescheduleTask):
        return {"due_at": guard.due_at.isoformat(), "retries_left": guard.retries_left}
    return {}
