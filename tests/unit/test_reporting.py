"""What log lines and metrics say of a step."""

from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.runtime import TaskType
from kikwiflow_worker.model.unit_of_work import RescheduleTask, UnitOfWork
from kikwiflow_worker.operations.execution import Outcome, OutcomeKind
from kikwiflow_worker.telemetry import Metrics
from kikwiflow_worker.worker.reporting import StepReport
from tests.support.engine import NOON, claimed
from tests.support.stores import a_task


def test_a_look_in_vain_is_no_failure_and_no_message_becomes_a_label() -> None:
    registry = CollectorRegistry()
    report = StepReport(SystemClock(), Metrics(registry, version="1", instance="w"))

    with capture_logs() as logs:
        for message_id in ("message-1", "message-2"):
            look = claimed(a_task(type=TaskType.KEPT_MESSAGE, node_id=message_id))
            again = RescheduleTask(
                claim=look.claim, due_at=NOON, attempts=1, retries_left=3, error=""
            )
            with report.step(look) as running:
                running.ended(Outcome(OutcomeKind.KEPT, unit=UnitOfWork((again,), ())))

    said = [(log["event"], log["log_level"]) for log in logs if log["log_level"] != "debug"]
    assert said == [("message.kept", "info")] * 2
    assert "message-1" not in generate_latest(registry).decode()


@pytest.mark.field_case("S-65")
def test_how_late_a_timer_fires_is_measured() -> None:
    registry = CollectorRegistry()
    report = StepReport(SystemClock(), Metrics(registry, version="1", instance="w"))
    timer = claimed(a_task(type=TaskType.TIMER_TASK, due_at=NOON))

    with report.step(replace(timer, claimed_at=NOON + timedelta(seconds=7))):
        pass

    lateness = "kikwiflow_timer_lateness_seconds"
    assert registry.get_sample_value(f"{lateness}_sum") == 7
    assert registry.get_sample_value(f"{lateness}_bucket", {"le": "5.0"}) == 0
