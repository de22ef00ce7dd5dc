"""What one finished step writes."""

import pytest

from kikwiflow_worker.model.runtime import Claim
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    CompleteExternalTask,
    FailTask,
    Guard,
    RemoveTask,
    RescheduleTask,
    guarded_task_id,
)
from tests.support.engine import INSTANCE_ID, NOON, OUTER

CLAIM = Claim("task-1", "worker-1", 3)


@pytest.mark.parametrize(
    "guard",
    [
        RemoveTask(CLAIM),
        ArriveTask(CLAIM, OUTER),
        RescheduleTask(claim=CLAIM, due_at=NOON, attempts=1, retries_left=2, error="busy"),
        FailTask(claim=CLAIM, attempts=3, error="busy"),
        CompleteExternalTask(
            task_id="task-1",
            instance_id=INSTANCE_ID,
            definition_id="definition-1",
            node_id="CHECK",
            completed_at=NOON,
            completed_by=None,
        ),
    ],
    ids=lambda guard: type(guard).__name__,
)
def test_a_guard_names_the_task_that_it_decides_about(guard: Guard) -> None:
    assert guarded_task_id(guard) == "task-1"
