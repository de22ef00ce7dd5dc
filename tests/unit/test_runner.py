"""From a claim to the run of its task."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from kikwiflow_worker.acquirer.claim_book import ClaimBook
from kikwiflow_worker.acquirer.slots import Slots
from kikwiflow_worker.model.runtime import Claim, ClaimedTask
from kikwiflow_worker.telemetry import Metrics
from kikwiflow_worker.testing import ManualClock
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.registry import registry_of
from kikwiflow_worker.worker.reporting import StepReport
from kikwiflow_worker.worker.runner import TaskRunner
from tests.support.stores import an_instance
from tests.unit.test_claim_book import a_claimed_task


@dataclass
class FakeQueue:
    """Remembers what was released."""

    released: list[Claim] = field(default_factory=list)

    async def release(self, claim: Claim) -> bool:
        self.released.append(claim)
        return True


@dataclass
class Bench:
    """A runner that comes as far as the decision whether to start a handler: it has no database."""

    clock: ManualClock = field(default_factory=ManualClock)
    book: ClaimBook = field(default_factory=ClaimBook)
    slots: Slots = field(default_factory=lambda: Slots(4))
    queue: Any = field(default_factory=FakeQueue)

    async def dispatch(self, claimed: ClaimedTask) -> list[Any]:
        """Hand a claim on, wait until it has ended, and return the log lines."""
        services: Any = None
        runner = TaskRunner(
            services,
            self.queue,
            HandlerRuntime(registry_of([]), threads=1),
            book=self.book,
            slots=self.slots,
            clock=self.clock,
            report=StepReport(self.clock, Metrics(CollectorRegistry(), version="1", instance="w")),
        )
        with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
            async with asyncio.TaskGroup() as group:
                runner.dispatch(claimed, group, lambda: None)
        return lines


@pytest.mark.field_case("S-03")
async def test_a_task_that_still_runs_here_is_not_run_a_second_time() -> None:
    bench = Bench()
    earlier, again = a_claimed_task(epoch=1), a_claimed_task(epoch=2)

    with bench.book.holding(earlier, lambda: None):
        lines = await bench.dispatch(again)

        assert bench.slots.used == 0
        assert [line["event"] for line in lines] == ["claim.lost"]
        assert bench.book.known_ids() == {"t"}
    assert bench.queue.released == []


@pytest.mark.field_case("S-05")
async def test_a_claim_whose_lock_has_lapsed_before_its_handler_starts_is_given_back() -> None:
    bench = Bench()
    late = a_claimed_task(locked_until=bench.clock.monotonic())

    lines = await bench.dispatch(late)

    assert bench.queue.released == [late.claim]
    assert bench.slots.used == 0
    assert [line["event"] for line in lines] == ["task.released"]


@pytest.mark.field_case("S-45")
async def test_what_goes_wrong_beside_the_handler_frees_the_slot_too() -> None:
    bench = Bench(queue=None)  # there is nobody to give it back to
    late = a_claimed_task(locked_until=bench.clock.monotonic())

    lines = await bench.dispatch(late)

    assert bench.slots.used == 0
    assert bench.book.known_ids() == frozenset()
    assert [line["event"] for line in lines] == ["service.crashed"]


@pytest.mark.field_case("S-87")
async def test_every_line_of_a_step_says_whose_it_is() -> None:
    bench = Bench()
    instance = an_instance(id="i", definition_key="parcel", definition_version=3)
    late = replace(a_claimed_task(locked_until=bench.clock.monotonic()), instance=instance)

    (line,) = await bench.dispatch(late)

    assert {key: line[key] for key in line if key not in {"event", "log_level"}} == {
        "task_id": "t",
        "instance_id": "i",
        "node_id": "N",
        "definition_id": "d",
        "definition_key": "parcel",
        "definition_version": 3,
        "attempt": 1,
        "worker_id": "w",
        "epoch": 1,
    }
