"""The example of an approval that escalates after 48 hours, both ways, with time that is moved by the test."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from kikwiflow_worker.handler import ExecutionContext, Fatal, task_handler
from kikwiflow_worker.model.runtime import IncidentType
from kikwiflow_worker.testing import Harness
from tests.support.conformance import EXAMPLE_FOLDER, skip_reason
from tests.support.definitions import PROCESS_FOLDER

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Example:
    """An approval: its file, and what its parts are called."""

    path: Path
    key: str
    handler: str
    approve: str
    timer: str
    review: str


EXPENSE = Example(
    EXAMPLE_FOLDER / "expense-approval.kikwi.json",
    "expense-approval",
    "expenseValidationTaskHandler",
    "AWAIT_APPROVAL",
    "ESCALATE_TIMER",
    "AWAIT_FINANCE_REVIEW",
)
OWN = Example(
    PROCESS_FOLDER / "own-escalation.kikwi",
    "own-escalation",
    "check_claim",
    "APPROVE",
    "ESCALATE",
    "REVIEW",
)
EXAMPLES = [
    pytest.param(OWN, id=OWN.key),
    pytest.param(
        EXPENSE,
        id=EXPENSE.key,
        marks=pytest.mark.skipif(not EXPENSE.path.exists(), reason=skip_reason()),
    ),
]


def validation(name: str) -> Callable[..., object]:
    @task_handler(name)
    def validate(context: ExecutionContext) -> Mapping[str, object]:
        amount = context["amount"]
        if not isinstance(amount, int) or amount <= 0:
            raise Fatal("the amount is not positive")
        return {"valid": True}

    return validate


async def waiting_at(harness: Harness) -> list[str]:
    return [task.node_id for task in await harness.external_tasks()]


@pytest.mark.parametrize("example", EXAMPLES)
async def test_an_approval_in_time_ends_the_process(example: Example) -> None:
    async with Harness(handlers=[validation(example.handler)]) as harness:
        await harness.deploy(example.path)
        started = await harness.start(example.key, "EXP-1", variables={"amount": 120})
        await harness.run()
        await harness.advance(47 * HOUR)
        waited_at = await waiting_at(harness)
        await harness.complete(example.approve, {"approvedBy": "manager"})
        await harness.run()
        ended = await harness.instance(started.id)
        fired = await harness.advance(2 * HOUR)

    assert waited_at == [example.approve]
    assert ended.status == "COMPLETED"
    assert ended.variables == {"amount": 120, "valid": True, "approvedBy": "manager"}
    assert fired == 0


@pytest.mark.parametrize("example", EXAMPLES)
async def test_without_an_answer_for_48_hours_it_escalates(example: Example) -> None:
    async with Harness(handlers=[validation(example.handler)]) as harness:
        await harness.deploy(example.path)
        started = await harness.start(example.key, "EXP-2", variables={"amount": 120})
        await harness.run()
        early = await harness.advance(48 * HOUR - timedelta(seconds=1))
        waited_before = await waiting_at(harness)
        fired = await harness.advance(timedelta(seconds=1))
        waited_after = await waiting_at(harness)
        await harness.complete(example.review, {"approvedBy": "finance"})
        await harness.run()
        ended = await harness.instance(started.id)

    assert (early, waited_before) == (0, [example.approve])
    assert (fired, waited_after) == (1, [example.review])
    assert ended.status == "COMPLETED"
    assert ended.variables == {"amount": 120, "valid": True, "approvedBy": "finance"}


@pytest.mark.parametrize("example", EXAMPLES)
async def test_what_is_not_valid_waits_for_a_person_and_for_no_deadline(example: Example) -> None:
    async with Harness(handlers=[validation(example.handler)]) as harness:
        await harness.deploy(example.path)
        started = await harness.start(example.key, "EXP-3", variables={"amount": -1})
        await harness.run()
        (incident,) = await harness.incidents()
        fired = await harness.advance(72 * HOUR)
        waited_at = await waiting_at(harness)
        instance = await harness.instance(started.id)

    assert incident.type is IncidentType.FAILED_JOB
    assert (fired, waited_at) == (0, [])
    assert instance.status == "ACTIVE"
