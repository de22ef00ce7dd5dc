"""What waits beside a host, and what becomes of an event that cannot be set up."""

from datetime import timedelta

import pytest

from kikwiflow_worker.engine.draft import StepFailedError
from kikwiflow_worker.engine.effects import DueDateGiven, KeysGiven
from kikwiflow_worker.handler import CorrelationItem
from kikwiflow_worker.model.runtime import (
    Attachment,
    ExternalTaskType,
    HostKind,
    IncidentType,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    RemoveTask,
)
from tests.support.definitions import Json, a_flow
from tests.support.engine import (
    NOON,
    OUTER,
    Run,
    a_claimed_task,
    a_definition,
    a_step,
    claimed,
    fails,
    started,
    worked,
)
from tests.support.findings import (
    CATCH,
    DEADLINE,
    HANDLER,
    REMINDER,
    a_host,
    a_join,
    a_split,
    an_event,
)

HOUR = timedelta(hours=1)
AT_EXTERNAL = Attachment("host-1", "HOST", HostKind.EXTERNAL_TASK)
AT_CALL = Attachment("host-1", "HOST", HostKind.EXECUTABLE_TASK)


def host_of(run: Run) -> tuple[str, HostKind]:
    """Return the id and kind of the row that waits at HOST, or of its group."""
    for wait in run.born_waits:
        if wait.node_id == "HOST" and wait.type is not ExternalTaskType.GROUP_KEY:
            return wait.id, HostKind.EXTERNAL_TASK
    (row,) = [
        row
        for row in run.born
        if row.node_id == "HOST" and row.type is not TaskType.CALL_ACTIVITY_STARTER
    ]
    return row.id, HostKind.EXECUTABLE_TASK


# --- rows beside the host


@pytest.mark.parametrize(
    ("host_type", "event_type"),
    [
        ("EXECUTABLE_TASK", REMINDER),
        ("EXTERNAL_TASK", DEADLINE),
        ("EXTERNAL_TASK", REMINDER),
        ("TIMER_TASK", DEADLINE),
        ("TIMER_TASK", REMINDER),
        ("EVENT_CATCHER", DEADLINE),
        ("EVENT_CATCHER", REMINDER),
        ("CALL_ACTIVITY_COORDINATOR", DEADLINE),
        ("CALL_ACTIVITY_COORDINATOR", REMINDER),
    ],
)
def test_a_boundary_timer_is_a_row_that_is_due_beside_its_host(
    host_type: str, event_type: str
) -> None:
    definition = a_definition(a_host(host_type, "EVENT"), an_event(event_type))

    run = started(definition, "weigh_parcel")

    host_id, kind = host_of(run)
    timer = run.rows["EVENT"] if host_type != "CALL_ACTIVITY_COORDINATOR" else run.born[-1]
    expected = {
        DEADLINE: (TaskType.INTERRUPTIVE_TIMER, None),
        REMINDER: (TaskType.NON_INTERRUPTIVE_TIMER, 1),
    }
    assert (timer.type, timer.occurrence) == expected[event_type]
    assert timer.attached_to == Attachment(host_id, "HOST", kind)
    assert (timer.due_at, timer.claimable_at, timer.status) == (
        NOON + HOUR,
        NOON + HOUR,
        TaskStatus.PENDING,
    )
    assert (timer.branch, timer.handler_name) == (None, None)


@pytest.mark.parametrize("host_type", ["EXTERNAL_TASK", "TIMER_TASK"])
def test_a_catch_event_waits_for_its_key_beside_its_host(host_type: str) -> None:
    event = an_event(CATCH, providerType="VARIABLE", providerVariable="order", keyPrefix="stop-")
    definition = a_definition(a_host(host_type, "EVENT"), event)

    run = started(definition, order=7)

    catch = run.waits["EVENT"]
    assert catch.type is ExternalTaskType.BOUNDARY_CATCH
    assert (catch.correlation_key, catch.display_name) == ("stop-7", "stop-7")
    assert catch.attached_to == Attachment(host_of(run)[0], "HOST", host_of(run)[1])
    assert catch.tenant_id == "acme"


@pytest.mark.parametrize("host_type", ["EXECUTABLE_TASK", "EXTERNAL_TASK"])
def test_an_error_handler_is_no_row(host_type: str) -> None:
    definition = a_definition(a_host(host_type, "EVENT"), an_event(HANDLER))

    run = started(definition, "weigh_parcel")

    assert "EVENT" not in {*(row.node_id for row in run.born), *run.waits}


def test_a_task_with_a_reminder_is_a_row_although_its_handler_is_here() -> None:
    definition = a_definition(a_host("EXECUTABLE_TASK", "EVENT"), an_event(REMINDER))

    run = started(definition, "weigh_parcel")

    assert run.called == []
    assert set(run.rows) == {"HOST", "EVENT"}
    assert run.rows["HOST"].handler_name == "weigh_parcel"


def test_a_task_with_an_error_handler_alone_runs_inline() -> None:
    definition = a_definition(a_host("EXECUTABLE_TASK", "EVENT"), an_event(HANDLER))

    assert started(definition, "weigh_parcel").called == ["weigh_parcel"]


def test_all_events_of_a_host_in_a_branch_belong_to_that_branch() -> None:
    definition = a_definition(
        a_split("HOST", "A"),
        {**a_host("EXTERNAL_TASK", "DEADLINE", "REMINDER", "CATCH"), "outgoing": [a_flow("JOIN")]},
        an_event(DEADLINE, "DEADLINE"),
        an_event(REMINDER, "REMINDER"),
        an_event(CATCH, "CATCH"),
        a_step("A", "JOIN"),
        a_join(),
    )

    run = started(definition)

    host = run.waits["HOST"]
    assert host.branch is not None
    events = [run.rows["DEADLINE"], run.rows["REMINDER"], run.waits["CATCH"]]
    assert [event.branch for event in events] == [host.branch] * 3
    assert {event.attached_to.host_id for event in events if event.attached_to} == {host.id}
    assert len({host.id, *(event.id for event in events)}) == 4


def test_events_of_a_group_hang_on_the_group_and_not_on_its_keys() -> None:
    catcher = {
        **a_host("EVENT_CATCHER", "EVENT"),
        "catchType": "GROUP",
        "providerType": "VARIABLE",
        "providerVariable": "orders",
    }
    definition = a_definition(catcher, an_event(DEADLINE))

    run = started(definition, orders=["a", "b"])

    (group,) = [wait for wait in run.born_waits if wait.type is ExternalTaskType.GROUP]
    assert run.row.attached_to == Attachment(group.id, "HOST", HostKind.EXTERNAL_TASK)


def test_what_is_beside_a_host_has_the_same_id_whenever_the_step_is_repeated() -> None:
    definition = a_definition(
        a_host("EXTERNAL_TASK", "EVENT", "CATCH"), an_event(REMINDER), an_event(CATCH, "CATCH")
    )

    assert started(definition).unit == started(definition).unit


# --- an event that cannot be set up


BY_VARIABLE = {"providerType": "VARIABLE", "providerVariable": "missing"}
BROKEN = [
    (an_event(DEADLINE, **BY_VARIABLE), TaskType.TIMER_SCHEDULE),
    (an_event(CATCH, **BY_VARIABLE), TaskType.KEY_RESOLUTION),
    (
        an_event(REMINDER, extensionProperties={"kikwiflow.timeZone": "Nowhere"})
        | {"schedulePolicy": {"type": "CRON", "expression": "0 9 * * *"}},
        TaskType.TIMER_SCHEDULE,
    ),
]


@pytest.mark.parametrize(("event", "row_type"), BROKEN)
def test_a_broken_event_waits_for_a_person_beside_its_host(event: Json, row_type: TaskType) -> None:
    definition = a_definition(a_step("A", "HOST"), a_host("EXTERNAL_TASK", "EVENT"), event)

    run = worked(definition, a_claimed_task(definition, "A"), "a")

    host = run.waits["HOST"]
    assert (run.row.type, run.row.status) == (row_type, TaskStatus.ERROR)
    assert run.row.attached_to == Attachment(host.id, "HOST", HostKind.EXTERNAL_TASK)
    assert run.row.claimable_at is None
    (opened,) = run.incidents
    assert opened.incident.type is IncidentType.FAILED_JOB
    assert opened.incident.task_id == run.row.id
    assert not run.ends_path


@pytest.mark.parametrize("event", [event for event, _ in BROKEN])
def test_a_broken_event_is_raised_to_a_caller(event: Json) -> None:
    definition = a_definition(a_host("EXTERNAL_TASK", "EVENT"), event)

    with pytest.raises(StepFailedError) as raised:
        started(definition)

    assert raised.value.node_id == "EVENT"


def test_the_row_of_a_broken_event_becomes_the_right_one_when_it_is_retried() -> None:
    event = an_event(DEADLINE, providerType="VARIABLE", providerVariable="sla")
    definition = a_definition(a_host("EXTERNAL_TASK", "EVENT"), event)
    task = a_claimed_task(
        definition, "EVENT", TaskType.TIMER_SCHEDULE, attached_to=AT_EXTERNAL, branch=OUTER
    )

    run = worked(definition, task, sla="PT2H")

    assert run.guard == RemoveTask(task.claim)
    assert (run.row.type, run.row.due_at) == (TaskType.INTERRUPTIVE_TIMER, NOON + 2 * HOUR)
    assert (run.row.attached_to, run.row.branch) == (AT_EXTERNAL, OUTER)
    assert len(run.unit.changes) == 1


def test_a_broken_reminder_that_is_retried_gets_its_first_cycle() -> None:
    definition = a_definition(a_host("EXTERNAL_TASK", "EVENT"), an_event(REMINDER))
    task = a_claimed_task(definition, "EVENT", TaskType.TIMER_SCHEDULE, attached_to=AT_EXTERNAL)

    run = worked(definition, task)

    assert run.guard == RemoveTask(task.claim)
    assert (run.row.type, run.row.occurrence) == (TaskType.NON_INTERRUPTIVE_TIMER, 1)
    assert (run.row.due_at, run.row.attached_to) == (NOON + HOUR, AT_EXTERNAL)


def test_a_deadline_whose_provider_is_elsewhere_waits_for_it_beside_its_host() -> None:
    event = an_event(DEADLINE, providerType="BEAN", providerBean="sla")
    definition = a_definition(a_host("EXTERNAL_TASK", "EVENT"), event)

    first = started(definition)
    row = first.row
    second = worked(
        definition,
        claimed(row),
        "due_date_provider:sla",
        replies={"sla": DueDateGiven(timedelta(minutes=5))},
    )

    attached = Attachment(first.waits["HOST"].id, "HOST", HostKind.EXTERNAL_TASK)
    assert (row.type, row.handler_name) == (TaskType.TIMER_SCHEDULE, "due_date_provider:sla")
    assert (row.status, row.attached_to) == (TaskStatus.PENDING, attached)
    assert second.row.type is TaskType.INTERRUPTIVE_TIMER
    assert second.row.due_at == NOON + timedelta(minutes=5)
    assert (second.row.attached_to, second.row.handler_name) == (attached, None)
    assert second.row.id != row.id


def test_a_catch_event_whose_provider_is_elsewhere_waits_for_it_beside_its_host() -> None:
    event = an_event(CATCH, providerType="BEAN", providerBean="stop")
    definition = a_definition(a_host("EXTERNAL_TASK", "EVENT"), event)

    first = started(definition)
    row = first.row
    second = worked(
        definition,
        claimed(row),
        "correlation_keys_provider:stop",
        replies={"stop": KeysGiven((CorrelationItem("stop-7", "Stop 7"),))},
    )

    attached = Attachment(first.waits["HOST"].id, "HOST", HostKind.EXTERNAL_TASK)
    assert (row.type, row.handler_name) == (
        TaskType.KEY_RESOLUTION,
        "correlation_keys_provider:stop",
    )
    assert row.attached_to == attached
    catch = second.waits["EVENT"]
    assert catch.type is ExternalTaskType.BOUNDARY_CATCH
    assert (catch.correlation_key, catch.display_name) == ("stop-7", "Stop 7")
    assert catch.attached_to == attached
    assert second.guard == RemoveTask(claimed(row).claim)


def test_a_deadline_whose_provider_fails_is_tried_again_beside_its_host() -> None:
    event = an_event(DEADLINE, providerType="BEAN", providerBean="sla")
    definition = a_definition(a_step("A", "HOST"), a_host("EXTERNAL_TASK", "EVENT"), event)

    run = worked(
        definition,
        a_claimed_task(definition, "A"),
        "a",
        "due_date_provider:sla",
        replies={"sla": fails()},
    )

    assert "HOST" in run.waits
    assert (run.row.type, run.row.status) == (TaskType.TIMER_SCHEDULE, TaskStatus.PENDING)
    assert (run.row.attempts, run.row.handler_name) == (1, "due_date_provider:sla")
    assert run.row.due_at == NOON + timedelta(minutes=3)


BY_BEAN: Json = {"providerType": "BEAN", "providerBean": "n"}


@pytest.mark.parametrize(
    ("host", "task_type", "provider"),
    [
        (
            {**a_host("TIMER_TASK", "EVENT"), **BY_BEAN},
            TaskType.TIMER_SCHEDULE,
            "due_date_provider:n",
        ),
        (
            {**a_host("EVENT_CATCHER", "EVENT"), **BY_BEAN},
            TaskType.KEY_RESOLUTION,
            "correlation_keys_provider:n",
        ),
        (a_host("CALL_ACTIVITY_COORDINATOR", "EVENT"), TaskType.CALL_ACTIVITY_COORDINATOR, "n"),
    ],
    ids=["timer", "catcher", "call"],
)
def test_a_host_that_is_only_being_set_up_has_nothing_to_detach(
    host: Json, task_type: TaskType, provider: str
) -> None:
    definition = a_definition(host, an_event(DEADLINE))
    task = a_claimed_task(definition, "HOST", task_type)

    found = worked(definition, task, provider)

    kinds = {type(change).__name__ for change in found.unit.changes}
    assert kinds <= {"InsertTask", "InsertExternalTask"}
