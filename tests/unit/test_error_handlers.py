"""Boundary error handlers: which one takes over, and what of the handler that raised is kept."""

import pytest

from kikwiflow_worker.engine.effects import FailureKind
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.runtime import IncidentType, TaskStatus
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    Detach,
    EndPath,
    FailTask,
    RecordEnded,
    RemoveTask,
    RescheduleTask,
)
from kikwiflow_worker.model.variables import SetVariable
from tests.support.definitions import Json, a_flow
from tests.support.engine import (
    INSTANCE_ID,
    NOON,
    OUTER,
    TASK_ID,
    a_claimed_task,
    a_definition,
    a_step,
    raises,
    started,
    worked,
)
from tests.support.findings import HANDLER, REMINDER, an_event

STEPS = ("A", "B", "C")


def a_process(*handlers: tuple[str, str | None], **fields: object) -> ProcessDefinition:
    """Return task HOST with these error handlers (step they lead to, code), in this order."""
    events = [f"ON_{target}" for target, _ in handlers]
    nodes = [
        an_event(HANDLER, f"ON_{target}", errorCode=code, outgoing=[a_flow(target)], **fields)
        for target, code in handlers
    ]
    host = a_step("HOST", boundaryEventIds=events)
    return a_definition(host, *nodes, *(a_step(step) for step in STEPS))


def called_after(definition: ProcessDefinition, code: str | None) -> list[str]:
    """Return what runs after HOST raised a process error with this code."""
    found = started(definition, "host", "a", "b", "c", replies={"host": raises(code)})
    return found.called[1:]


def test_the_handler_with_the_code_takes_over_inline() -> None:
    definition = a_process(("A", "REFUSED"), ("B", "LOST"))

    assert called_after(definition, "LOST") == ["b"]


def test_the_first_of_two_handlers_that_fit_takes_over() -> None:
    definition = a_process(("A", None), ("B", "LOST"))

    assert called_after(definition, "LOST") == ["a"]


def test_a_handler_without_a_code_catches_every_code() -> None:
    definition = a_process(("A", "REFUSED"), ("B", None))

    assert called_after(definition, "LOST") == ["b"]
    assert called_after(definition, None) == ["b"]


@pytest.mark.parametrize("code", [None, "LOST"])
def test_an_error_that_no_handler_takes_waits_for_a_person(code: str | None) -> None:
    definition = a_process(("A", "REFUSED"))
    task = a_claimed_task(definition, "HOST")

    found = worked(definition, task, "host", "a", replies={"host": raises(code, weight=7)})

    assert isinstance(found.guard, FailTask)
    assert found.incidents[0].incident.type is IncidentType.UNHANDLED_BUSINESS_ERROR
    assert found.variable_changes == ()
    assert found.called == ["host"]


@pytest.mark.parametrize("kind", [FailureKind.TECHNICAL, FailureKind.FATAL])
def test_only_process_errors_are_taken(kind: FailureKind) -> None:
    definition = a_process(("A", None))
    task = a_claimed_task(definition, "HOST")

    found = worked(definition, task, "host", "a", replies={"host": raises(kind=kind)})

    assert found.called == ["host"]
    assert isinstance(found.guard, RescheduleTask | FailTask)


def test_what_was_set_before_the_error_is_kept_and_seen_by_what_follows() -> None:
    definition = a_process(("A", "LOST"))
    task = a_claimed_task(definition, "HOST")

    found = worked(definition, task, "host", "a", replies={"host": raises("LOST", weight=7)})

    assert found.variable_changes == (SetVariable("weight", 7),)
    assert found.asked[1].variables == {"weight": 7}
    assert found.guard == RemoveTask(task.claim)
    assert found.incidents == []
    assert found.result.failure is None


def test_an_inline_task_is_rescued_too() -> None:
    host = a_step("HOST", boundaryEventIds=["EVENT"])
    definition = a_definition(
        a_step("A", "HOST"), host, an_event(HANDLER, outgoing=[a_flow("B")]), a_step("B")
    )
    task = a_claimed_task(definition, "A")

    found = worked(definition, task, "a", "host", "b", replies={"host": raises("LOST")})

    assert found.called == ["a", "host", "b"]
    assert found.guard == RemoveTask(task.claim)


def test_commit_after_of_the_handler_makes_the_next_task_a_row() -> None:
    definition = a_process(("A", None), commitAfter=True)
    task = a_claimed_task(definition, "HOST")

    found = worked(definition, task, "host", "a", replies={"host": raises("LOST", weight=7)})

    assert found.called == ["host"]
    assert (found.row.node_id, found.row.status) == ("A", TaskStatus.PENDING)
    assert found.variable_changes == (SetVariable("weight", 7),)


def test_commit_after_of_the_host_does_not_count_for_its_handler() -> None:
    host = a_step("HOST", boundaryEventIds=["EVENT"], commitAfter=True)
    definition = a_definition(host, an_event(HANDLER, outgoing=[a_flow("A")]), a_step("A"))

    found = started(definition, "host", "a", replies={"host": raises()})

    assert found.called == ["host", "a"]


def test_a_handler_that_leads_to_the_end_of_a_branch_ends_the_branch() -> None:
    definition = a_process(("END", None))
    task = a_claimed_task(definition, "HOST", branch=OUTER)

    found = worked(definition, task, "host", replies={"host": raises()})

    assert found.guard == ArriveTask(task.claim, OUTER)
    assert found.unit.changes == ()


def test_a_handler_that_leads_to_the_end_ends_the_instance() -> None:
    definition = a_process(("END", None))

    found = started(definition, "host", replies={"host": raises()})

    (change,) = found.unit.changes
    assert isinstance(change, RecordEnded)


def test_a_rescued_task_takes_its_reminder_along() -> None:
    host = a_step("HOST", boundaryEventIds=["EVENT", "REMINDER"])
    reminder: Json = an_event(REMINDER, "REMINDER")
    definition = a_definition(host, an_event(HANDLER), reminder)
    task = a_claimed_task(definition, "HOST")

    found = worked(definition, task, "host", replies={"host": raises()})

    assert found.unit.changes == (Detach(TASK_ID), EndPath(INSTANCE_ID, NOON))


def test_a_task_that_fails_before_it_can_be_rescued_has_used_an_attempt() -> None:
    definition = a_process(("A", None))
    replies = {"host": [raises(kind=FailureKind.TECHNICAL), raises("LOST")]}

    first = worked(definition, a_claimed_task(definition, "HOST"), "host", "a", replies=replies)
    assert isinstance(first.guard, RescheduleTask)
    assert first.guard.attempts == 1
