"""How a deadline or a catch event ends its host, and what happens when the host is done first."""

import pytest

from kikwiflow_worker.model.runtime import (
    Attachment,
    ExternalTaskType,
    HostKind,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    AbandonChildren,
    ArriveTask,
    CompleteExternalTask,
    Detach,
    EndHost,
    EndPath,
    RemoveTask,
)
from tests.support.definitions import Json, a_flow
from tests.support.engine import (
    INSTANCE_ID,
    NOON,
    OUTER,
    TASK_ID,
    a_claimed_task,
    a_definition,
    a_step,
    an_external_task,
    completed,
    fails,
    worked,
)
from tests.support.findings import (
    CATCH,
    DEADLINE,
    REMINDER,
    a_gateway,
    a_host,
    a_join,
    a_split,
    an_event,
)

AT_EXTERNAL = Attachment("host-1", "HOST", HostKind.EXTERNAL_TASK)
AT_CALL = Attachment("host-1", "HOST", HostKind.EXECUTABLE_TASK)


def a_deadline(*targets: str | Json, **fields: object) -> Json:
    """Return the interruptive timer EVENT that goes on to ``targets``."""
    outgoing = [a_flow(t) if isinstance(t, str) else t for t in targets or ("END",)]
    return {**an_event(DEADLINE), "outgoing": outgoing, **fields}


# --- an interruptive timer


def deadline_row(attached: Attachment = AT_EXTERNAL, **fields: object) -> dict[str, object]:
    return {"task_type": TaskType.INTERRUPTIVE_TIMER, "attached_to": attached, **fields}


def test_a_deadline_ends_its_host_and_all_beside_it_and_the_path_rests_at_the_next_task() -> None:
    definition = a_definition(a_host("EXTERNAL_TASK", "EVENT"), a_deadline("A"), a_step("A"))
    task = a_claimed_task(definition, "EVENT", **deadline_row())  # type: ignore[arg-type]

    run = worked(definition, task, "a")

    assert run.unit.guards == (
        RemoveTask(task.claim),
        EndHost("host-1", HostKind.EXTERNAL_TASK),
    )
    assert run.unit.changes[0] == Detach("host-1", TASK_ID)
    assert run.called == []
    assert (run.row.node_id, run.row.status, run.row.due_at) == ("A", TaskStatus.PENDING, None)
    assert not run.ends_path


def test_gateways_after_a_deadline_are_passed_before_the_race_is_decided() -> None:
    definition = a_definition(
        a_host("EXTERNAL_TASK", "EVENT"),
        a_deadline("ROUTE"),
        a_gateway("ROUTE", a_flow("A", expectedAnswer="van"), a_flow("B", isDefault=True)),
        a_step("A"),
        a_step("B"),
    )
    task = a_claimed_task(definition, "EVENT", **deadline_row())  # type: ignore[arg-type]

    run = worked(definition, task, "a", "b", carrier="van")

    assert run.called == []
    assert run.row.node_id == "A"


def test_a_thrower_after_a_deadline_throws_only_after_the_race_is_decided() -> None:
    thrower = a_thrower("THROW", "END")
    definition = a_definition(a_host("EXTERNAL_TASK", "EVENT"), a_deadline("THROW"), thrower)
    task = a_claimed_task(definition, "EVENT", **deadline_row())  # type: ignore[arg-type]

    run = worked(definition, task)

    assert run.thrown == []
    assert run.row.type is TaskType.EVENT_THROW


def a_thrower(node_id: str, target: str) -> Json:
    return {
        "id": node_id,
        "type": "EVENT_THROWER",
        "outgoing": [a_flow(target)],
        "providerType": "STATIC",
        "staticKey": "go",
    }


def test_a_deadline_that_leads_to_the_end_ends_the_path_with_the_host() -> None:
    definition = a_definition(a_host("EXTERNAL_TASK", "EVENT"), a_deadline("END"))
    task = a_claimed_task(definition, "EVENT", **deadline_row())  # type: ignore[arg-type]

    run = worked(definition, task)

    assert run.unit.changes == (Detach("host-1", TASK_ID), EndPath(INSTANCE_ID, NOON))


def test_a_deadline_that_ends_its_branch_becomes_the_record_of_the_arrival() -> None:
    definition = a_definition(
        a_split("HOST", "A"),
        {**a_host("EXTERNAL_TASK", "EVENT"), "outgoing": [a_flow("JOIN")]},
        a_deadline("JOIN"),
        a_step("A", "JOIN"),
        a_join(),
    )
    task = a_claimed_task(definition, "EVENT", branch=OUTER, **deadline_row())  # type: ignore[arg-type]

    run = worked(definition, task)

    assert run.unit.guards == (
        ArriveTask(task.claim, OUTER),
        EndHost("host-1", HostKind.EXTERNAL_TASK),
    )
    assert run.unit.changes == (Detach("host-1", TASK_ID),)


def test_the_deadline_of_a_call_activity_abandons_its_children() -> None:
    definition = a_definition(
        a_host("CALL_ACTIVITY_COORDINATOR", "EVENT"), a_deadline("A"), a_step("A")
    )
    task = a_claimed_task(definition, "EVENT", **deadline_row(AT_CALL))  # type: ignore[arg-type]

    run = worked(definition, task, "a")

    assert EndHost("host-1", HostKind.EXECUTABLE_TASK) in run.unit.guards
    assert AbandonChildren(INSTANCE_ID, definition.id, "host-1", NOON) in run.unit.changes


# --- a boundary catch event


def test_a_catch_event_ends_its_host_and_the_path_rests_at_the_next_task() -> None:
    event = an_event(CATCH, outgoing=[a_flow("A")])
    definition = a_definition(a_host("EXTERNAL_TASK", "EVENT"), event, a_step("A"))
    catch = an_external_task(
        definition, "EVENT", type=ExternalTaskType.BOUNDARY_CATCH, attached_to=AT_EXTERNAL
    )

    run = completed(definition, catch, "a", variables={"reason": "late"})

    own, host = run.unit.guards
    assert isinstance(own, CompleteExternalTask)
    assert (own.task_id, own.node_id, own.completed_by) == (TASK_ID, "EVENT", "ana")
    assert own.pending_keys is None
    assert host == EndHost("host-1", HostKind.EXTERNAL_TASK)
    assert run.unit.changes[0] == Detach("host-1", TASK_ID)
    assert [change.name for change in run.variable_changes] == ["reason"]
    assert (run.called, run.row.node_id) == ([], "A")


def test_a_catch_event_that_ends_its_branch_leaves_a_record_that_is_attached_to_nothing() -> None:
    definition = a_definition(a_host("TIMER_TASK", "EVENT"), an_event(CATCH))
    catch = an_external_task(
        definition, "EVENT", OUTER, type=ExternalTaskType.BOUNDARY_CATCH, attached_to=AT_CALL
    )

    run = completed(definition, catch)

    assert run.unit.guards[1] == EndHost("host-1", HostKind.EXECUTABLE_TASK)
    assert (run.row.type, run.row.status) == (TaskType.ARRIVAL, TaskStatus.ARRIVED)
    assert (run.row.branch, run.row.attached_to) == (OUTER, None)
    assert not run.ends_path


# --- the host is done first


@pytest.mark.parametrize("event_type", [DEADLINE, CATCH])
def test_what_follows_a_host_with_an_interruptive_event_waits_for_the_decision(
    event_type: str,
) -> None:
    host = {**a_host("EXTERNAL_TASK", "EVENT"), "outgoing": [a_flow("A")]}
    definition = a_definition(host, an_event(event_type), a_step("A"))

    run = completed(definition, an_external_task(definition, "HOST"), "a")

    assert run.called == []
    assert run.row.node_id == "A"
    assert run.unit.changes[0] == Detach(TASK_ID)


def test_what_follows_a_host_with_a_reminder_alone_runs_inline() -> None:
    host = {**a_host("EXTERNAL_TASK", "EVENT"), "outgoing": [a_flow("A")]}
    definition = a_definition(host, an_event(REMINDER), a_step("A"))

    run = completed(definition, an_external_task(definition, "HOST"), "a")

    assert run.called == ["a"]
    assert run.unit.changes[0] == Detach(TASK_ID)


@pytest.mark.parametrize("event_type", [DEADLINE, CATCH])
def test_what_follows_a_timer_with_an_interruptive_event_waits_for_the_decision(
    event_type: str,
) -> None:
    host = {**a_host("TIMER_TASK", "EVENT"), "outgoing": [a_flow("A")]}
    definition = a_definition(host, an_event(event_type), a_step("A"))
    task = a_claimed_task(definition, "HOST", TaskType.TIMER_TASK)

    run = worked(definition, task, "a")

    assert (run.called, run.row.node_id) == ([], "A")
    assert run.guard == RemoveTask(task.claim)
    assert run.unit.changes[0] == Detach(TASK_ID)


def test_a_task_with_a_reminder_that_succeeds_takes_its_reminder_along() -> None:
    definition = a_definition(a_host("EXECUTABLE_TASK", "EVENT"), an_event(REMINDER))

    run = worked(definition, a_claimed_task(definition, "HOST"), "weigh_parcel")

    assert run.unit.changes == (Detach(TASK_ID), EndPath(INSTANCE_ID, NOON))


def test_a_task_with_a_reminder_that_fails_keeps_its_reminder() -> None:
    definition = a_definition(a_host("EXECUTABLE_TASK", "EVENT"), an_event(REMINDER))

    run = worked(
        definition,
        a_claimed_task(definition, "HOST"),
        "weigh_parcel",
        replies={"weigh_parcel": fails()},
    )

    assert run.unit.changes == ()


def test_a_host_without_events_detaches_nothing() -> None:
    definition = a_definition(a_host("EXTERNAL_TASK"))

    run = completed(definition, an_external_task(definition, "HOST"))

    assert run.unit.changes == (EndPath(INSTANCE_ID, NOON),)
