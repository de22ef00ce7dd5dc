"""What a server counts of the steps that external workers fetch and report, on the real database."""

import asyncio
from dataclasses import dataclass, replace

import pytest
from prometheus_client import CollectorRegistry

from kikwiflow_worker.management.backend import Backend
from kikwiflow_worker.step_metrics import StepMetrics
from tests.management.test_external_workers import fetch, fetch_one, invoices, say, start
from tests.support.management import Managed
from tests.support.stores import lapse

__all__ = ["invoices"]

pytestmark = pytest.mark.mongo


@dataclass(frozen=True)
class Counted:
    """What a server counts of the steps of external workers."""

    registry: CollectorRegistry

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"kikwiflow_{name}", labels) or 0

    def attempts(self) -> dict[str, float]:
        """Return the attempts that ended, by outcome."""
        return {
            sample.labels["outcome"]: sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == "kikwiflow_task_attempts_total"
        }


@pytest.fixture
def counted(invoices: Managed) -> Counted:
    counted = Counted(CollectorRegistry())
    backend: Backend = invoices.app.state.backend
    services = replace(backend.services, steps=StepMetrics(counted.registry))
    invoices.app.state.backend = replace(backend, services=services)
    return counted


async def test_a_report_is_counted_once_as_a_workers_step(
    invoices: Managed, counted: Counted
) -> None:
    for _ in range(4):
        await start(invoices)
    done, retried, failed, business = await fetch(invoices, maxTasks=4)
    invoices.data.executable_tasks.update_one(
        {"_id": done["id"]},
        [{"$set": {"fetchedAt": {"$subtract": ["$fetchedAt", 5_000]}}}],
    )
    await say(invoices, done, "extend-lock", lockSeconds=600)

    for _ in range(2):
        await say(invoices, done, "complete")
        await say(invoices, retried, "failure", message="no", retryAfterSeconds=0)
        await say(invoices, failed, "failure", message="no", retries=0)
        await say(invoices, business, "error", code="E7", message="no")
    await asyncio.gather(*(say(invoices, done, "complete") for _ in range(3)))

    assert counted.value("tasks_claimed_total") == 4
    assert counted.attempts() == {"completed": 2, "retry_scheduled": 1, "incident_opened": 1}
    of_node = {"definition": "invoice", "node": "RENDER", "outcome": "completed"}
    assert counted.value("task_duration_seconds_count", **of_node) == 2
    assert 5 <= counted.value("task_duration_seconds_sum", **of_node) < 60
    again = await fetch_one(invoices)
    lapse(invoices.data, str(again["id"]))
    await fetch_one(invoices, "heir")
    assert counted.value("tasks_claimed_total") == 6
    assert counted.value("tasks_reclaimed_total", reason="lock_expired") == 1
    assert (await say(invoices, again, "complete")).status_code == 409
    assert sum(counted.attempts().values()) == 4


async def test_completions_at_once_are_counted_once(invoices: Managed, counted: Counted) -> None:
    await start(invoices)
    task = await fetch_one(invoices)

    await asyncio.gather(*(say(invoices, task, "complete") for _ in range(5)))

    assert counted.attempts() == {"completed": 1}


async def test_what_a_fetch_decides_itself_is_counted_and_what_it_gives_back_is_not(
    invoices: Managed, counted: Counted
) -> None:
    await start(invoices)
    await say(invoices, await fetch_one(invoices), "unlock")
    for _ in range(3):
        lapse(invoices.data, str((await fetch_one(invoices))["id"]))
    assert counted.attempts() == {}

    assert await fetch(invoices) == []

    assert counted.attempts() == {"incident_opened": 1}
    assert counted.value("tasks_claimed_total") == 5
