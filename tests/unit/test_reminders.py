"""Non-interruptive timers: a path of their own beside the host, and the next cycle."""

from datetime import timedelta

import pytest

from kikwiflow_worker.engine.effects import FailureKind
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.runtime import (
    Attachment,
    Branch,
    ClaimedTask,
    HostKind,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import EndPath, OpenPath, RemoveTask
from tests.support.definitions import Json, a_flow
from tests.support.engine import (
    INSTANCE_ID,
    NOON,
    OUTER,
    TASK_ID,
    a_claimed_task,
    a_definition,
    a_step,
    a_wait,
    fails,
    sets,
    worked,
)
from tests.support.findings import REMINDER, a_host, a_join, a_split, an_event

HOUR = timedelta(hours=1)
AT_HOST = Attachment("host-1", "HOST", HostKind.EXTERNAL_TASK)


def a_process(*nodes: Json, leads_to: str = "END", **fields: object) -> ProcessDefinition:
    """Return a wait HOST with the hourly reminder EVENT that goes on to ``leads_to``."""
    reminder = {**an_event(REMINDER), "outgoing": [a_flow(leads_to)], **fields}
    return a_definition(a_host("EXTERNAL_TASK", "EVENT"), reminder, *nodes)


def at_most(times: int) -> Json:
    return {
        "schedulePolicy": {
            "type": "RATE_DURATION",
            "expression": "PT1H",
            "maxOccurrences": times,
        }
    }


def a_cycle(definition: ProcessDefinition, **fields: object) -> ClaimedTask:
    """Return the first cycle of EVENT, created an hour before noon and due at noon."""
    own: dict[str, object] = {
        "due_at": NOON,
        "created_at": NOON - HOUR,
        "occurrence": 1,
        "attached_to": AT_HOST,
        "branch": OUTER,
    }
    return a_claimed_task(definition, "EVENT", TaskType.NON_INTERRUPTIVE_TIMER, **{**own, **fields})


def test_a_reminder_whose_path_ends_leaves_its_host_and_the_other_paths_alone() -> None:
    definition = a_process(**at_most(1))
    cycle = a_cycle(definition)

    found = worked(definition, cycle)

    assert found.guard == RemoveTask(cycle.claim)
    assert found.unit.changes == ()


def test_the_handlers_of_a_reminder_run_and_their_variables_are_kept() -> None:
    definition = a_process(a_step("A"), leads_to="A", **at_most(1))

    found = worked(definition, a_cycle(definition), "a", replies={"a": sets(nudged=True)})

    assert found.called == ["a"]
    assert [change.name for change in found.variable_changes] == ["nudged"]
    assert len(found.unit.changes) == 1


def test_a_path_that_rests_is_one_more_that_the_instance_ends_after() -> None:
    definition = a_process(a_wait("CHECK"), leads_to="CHECK", **at_most(1))

    found = worked(definition, a_cycle(definition))

    assert found.unit.changes[0] == OpenPath(INSTANCE_ID)
    branch = found.waits["CHECK"].branch
    assert branch is not None
    assert branch.join_task_id is None
    assert branch.id not in {OUTER.id, TASK_ID}


def test_what_fails_on_the_path_rests_there_and_the_reminder_goes_on() -> None:
    definition = a_process(a_step("A"), leads_to="A")

    found = worked(definition, a_cycle(definition), "a", replies={"a": fails()})

    assert isinstance(found.guard, RemoveTask)
    assert set(found.rows) == {"A", "EVENT"}
    assert found.rows["A"].attempts == 1
    assert OpenPath(INSTANCE_ID) in found.unit.changes


def test_the_end_of_a_rested_path_ends_that_path_and_no_branch() -> None:
    definition = a_process(a_step("A"), leads_to="A")
    private = Branch("side", None)

    found = worked(definition, a_claimed_task(definition, "A", branch=private), "a")

    assert isinstance(found.guard, RemoveTask)
    assert found.unit.changes == (EndPath(INSTANCE_ID, NOON),)


def test_a_path_that_comes_to_the_join_of_its_hosts_branch_ends_without_arriving() -> None:
    definition = a_definition(
        a_split("HOST", "A"),
        {**a_host("EXTERNAL_TASK", "EVENT"), "outgoing": [a_flow("JOIN")]},
        {**an_event(REMINDER), "outgoing": [a_flow("JOIN")], **at_most(1)},
        a_step("A", "JOIN"),
        a_join(),
    )
    cycle = a_cycle(definition)

    found = worked(definition, cycle)

    assert found.guard == RemoveTask(cycle.claim)
    assert found.unit.changes == ()


def test_the_next_cycle_is_a_new_row_counted_from_when_this_one_was_due() -> None:
    definition = a_process()
    cycle = a_cycle(definition, due_at=NOON - timedelta(minutes=7), attempts=2, error="x")

    found = worked(definition, cycle)

    following = found.row
    assert following.id != TASK_ID
    assert (following.type, following.node_id) == (TaskType.NON_INTERRUPTIVE_TIMER, "EVENT")
    assert following.due_at == following.claimable_at == NOON + timedelta(minutes=53)
    assert following.occurrence == 2
    assert following.created_at == NOON - HOUR
    assert (following.attached_to, following.branch) == (AT_HOST, OUTER)
    assert (following.status, following.worker_id, following.epoch) == (
        TaskStatus.PENDING,
        None,
        0,
    )
    assert (following.attempts, following.crash_count, following.error) == (0, 0, None)


def test_every_cycle_has_an_id_of_its_own_and_a_repeated_one_the_same() -> None:
    definition = a_process()

    first = worked(definition, a_cycle(definition)).row.id
    again = worked(definition, a_cycle(definition)).row.id
    later = worked(definition, a_cycle(definition, due_at=NOON + HOUR)).row.id

    assert first == again
    assert later != first


@pytest.mark.parametrize(("occurrence", "goes_on"), [(1, True), (2, True), (3, False)])
def test_a_bounded_reminder_fires_as_often_as_it_may(occurrence: int, goes_on: bool) -> None:
    definition = a_process(**at_most(3))

    found = worked(definition, a_cycle(definition, occurrence=occurrence))

    assert bool(found.born) is goes_on


def test_months_are_counted_from_the_creation_of_the_timer() -> None:
    monthly = {"schedulePolicy": {"type": "RATE_DURATION", "expression": "P1M"}}
    definition = a_process(**monthly)
    created_at = NOON.replace(month=1, day=31)
    cycle = a_cycle(definition, created_at=created_at, due_at=NOON.replace(month=2, day=28))

    assert worked(definition, cycle).row.due_at == NOON.replace(month=3, day=31)


@pytest.mark.field_case("S-59")
def test_a_cycle_that_was_missed_is_skipped_where_the_timer_says_so() -> None:
    definition = a_process(
        a_step("A"), leads_to="A", extensionProperties={"kikwiflow.missedFires": "skip"}
    )
    cycle = a_cycle(definition, due_at=NOON - timedelta(hours=3, minutes=30))

    found = worked(definition, cycle, "a")

    assert found.called == []
    assert found.guard == RemoveTask(cycle.claim)
    assert (found.row.due_at, found.row.occurrence) == (NOON + timedelta(minutes=30), 1)
    assert len(found.unit.changes) == 1


@pytest.mark.field_case("S-59")
def test_a_late_cycle_fires_once_for_all_that_were_missed() -> None:
    definition = a_process(a_step("A"), leads_to="A")
    cycle = a_cycle(definition, due_at=NOON - timedelta(hours=3, minutes=30))

    found = worked(definition, cycle, "a")

    assert found.called == ["a"]
    assert (found.row.due_at, found.row.occurrence) == (NOON + timedelta(minutes=30), 2)


def test_a_reminder_is_never_retried_because_of_what_it_leads_to() -> None:
    definition = a_process(a_step("A"), leads_to="A")
    replies = {"a": fails(kind=FailureKind.FATAL)}

    found = worked(definition, a_cycle(definition), "a", replies=replies)

    assert found.result.failure is None
    assert found.rows["A"].status is TaskStatus.ERROR
    assert found.incidents[0].incident.task_id == found.rows["A"].id


def test_commit_after_of_a_reminder_makes_its_first_task_a_row() -> None:
    definition = a_process(a_step("A"), leads_to="A", commitAfter=True)

    found = worked(definition, a_cycle(definition), "a")

    assert found.called == []
    assert "A" in found.rows
