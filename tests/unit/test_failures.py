"""What a segment keeps and leaves when a node fails."""

from datetime import timedelta

import pytest

from kikwiflow_worker.engine.draft import StepFailedError
from kikwiflow_worker.engine.effects import Answered, DueDateGiven, FailureKind, HandlerReturned
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.limits import MAX_VARIABLE_BYTES
from kikwiflow_worker.model.runtime import IncidentType, TaskStatus, TaskType
from kikwiflow_worker.model.unit_of_work import (
    FailTask,
    OpenIncident,
    RemoveTask,
    RescheduleTask,
)
from kikwiflow_worker.model.variables import IncrementVariable, SetVariable
from tests.support.definitions import a_flow
from tests.support.engine import (
    INSTANCE_ID,
    NOON,
    OUTER,
    TASK_ID,
    a_claimed_task,
    a_definition,
    a_delay,
    a_step,
    a_wait,
    an_external_task,
    completed,
    fails,
    sets,
    started,
    worked,
)
from tests.support.findings import a_gateway, a_split

BUSINESS = fails("card expired", kind=FailureKind.BUSINESS, error_type="ProcessError")
FATAL = fails("no such file", kind=FailureKind.FATAL, error_type="Fatal")
LATER = fails("busy", kind=FailureKind.RETRY_LATER, delay=timedelta(minutes=5))
TWO_STEPS = a_definition(a_step("A", "B"), a_step("B"))
A_MEGABYTE = "x" * (MAX_VARIABLE_BYTES - 100)
TOO_MUCH = sets(**{f"page{number}": A_MEGABYTE for number in range(9)})


def test_a_claimed_task_that_fails_is_rescheduled_and_nothing_else_is_written() -> None:
    task = a_claimed_task(TWO_STEPS, "A")

    run = worked(TWO_STEPS, task, "a", replies={"a": fails()})

    due_at = NOON + timedelta(minutes=3)
    assert run.guard == RescheduleTask(
        claim=task.claim, due_at=due_at, attempts=1, retries_left=2, error="no connection"
    )
    assert run.unit.changes == ()
    assert run.result.failure is not None


def test_a_claimed_task_that_fails_its_last_attempt_opens_an_incident() -> None:
    task = a_claimed_task(TWO_STEPS, "A", attempts=2, retries_left=1, tenant_id="acme")

    run = worked(TWO_STEPS, task, "a", replies={"a": fails()})

    assert run.guard == FailTask(claim=task.claim, attempts=3, error="no connection")
    (change,) = run.unit.changes
    assert isinstance(change, OpenIncident)
    incident = change.incident
    assert incident.type is IncidentType.FAILED_JOB
    assert incident.message == "ConnectionError: no connection"
    assert (incident.task_id, incident.node_id) == (TASK_ID, "A")
    assert (incident.instance_id, incident.definition_id) == (INSTANCE_ID, "parcel:1")
    assert (incident.created_at, incident.tenant_id) == (NOON, "acme")


def test_the_incidents_of_one_task_have_different_ids_and_a_repeated_commit_the_same() -> None:
    first = a_claimed_task(TWO_STEPS, "A", retries_left=1)
    later = a_claimed_task(TWO_STEPS, "A", retries_left=1, epoch=5)

    ids = [
        worked(TWO_STEPS, task, "a", replies={"a": fails()}).incidents[0].incident.id
        for task in (first, first, later)
    ]

    assert ids[0] == ids[1] != ids[2]


def test_a_business_error_opens_an_incident_at_once() -> None:
    task = a_claimed_task(TWO_STEPS, "A")

    run = worked(TWO_STEPS, task, "a", replies={"a": BUSINESS})

    assert run.guard == FailTask(claim=task.claim, attempts=1, error="card expired")
    assert run.incidents[0].incident.type is IncidentType.UNHANDLED_BUSINESS_ERROR


def test_a_fatal_error_opens_an_incident_at_once() -> None:
    run = worked(TWO_STEPS, a_claimed_task(TWO_STEPS, "A"), "a", replies={"a": FATAL})

    assert isinstance(run.guard, FailTask)
    assert run.incidents[0].incident.type is IncidentType.FAILED_JOB


def test_retry_later_of_a_claimed_task_uses_no_attempt() -> None:
    task = a_claimed_task(TWO_STEPS, "A", attempts=2, retries_left=1)

    run = worked(TWO_STEPS, task, "a", replies={"a": LATER})

    assert run.guard == RescheduleTask(
        claim=task.claim,
        due_at=NOON + timedelta(minutes=5),
        attempts=2,
        retries_left=1,
        error="busy",
    )


def test_an_inline_failure_keeps_what_succeeded_and_makes_the_failed_node_a_row_of_its_own() -> (
    None
):
    task = a_claimed_task(TWO_STEPS, "A", branch=OUTER)

    run = worked(TWO_STEPS, task, "a", "b", replies={"a": sets(weight=7), "b": fails()})

    assert run.guard == RemoveTask(task.claim)
    assert run.variable_changes == (SetVariable("weight", 7),)
    row = run.row
    assert (row.node_id, row.type, row.status) == ("B", TaskType.STANDARD, TaskStatus.PENDING)
    assert (row.attempts, row.retries_left, row.error) == (1, 2, "no connection")
    assert row.due_at == row.claimable_at == NOON + timedelta(minutes=3)
    assert (row.handler_name, row.branch) == ("b", OUTER)
    assert run.result.failure is None
    assert not run.ends_path


def test_an_inline_failure_follows_the_policy_of_the_node_that_failed() -> None:
    policy = {"strategy": "LINEAR", "maxRetries": 5, "intervals": ["PT7S"]}
    definition = a_definition(a_step("A", "B"), a_step("B", retryPolicy=policy))
    task = a_claimed_task(definition, "A", retries_left=1)

    run = worked(definition, task, "a", "b", replies={"b": fails()})

    assert (run.row.attempts, run.row.retries_left) == (1, 4)
    assert run.row.due_at == NOON + timedelta(seconds=7)


@pytest.mark.parametrize(
    ("reply", "incident_type"),
    [
        (BUSINESS, IncidentType.UNHANDLED_BUSINESS_ERROR),
        (FATAL, IncidentType.FAILED_JOB),
    ],
    ids=["business", "fatal"],
)
def test_an_inline_failure_that_no_attempt_heals_waits_for_a_person(
    reply: object, incident_type: IncidentType
) -> None:
    task = a_claimed_task(TWO_STEPS, "A")

    run = worked(TWO_STEPS, task, "a", "b", replies={"a": sets(weight=7), "b": reply})  # type: ignore[dict-item]

    assert run.guard == RemoveTask(task.claim)
    assert run.variable_changes == (SetVariable("weight", 7),)
    row = run.row
    assert (row.status, row.claimable_at, row.due_at) == (TaskStatus.ERROR, None, None)
    assert (row.attempts, row.retries_left) == (1, 0)
    incident = run.incidents[0].incident
    assert (incident.type, incident.task_id) == (incident_type, row.id)


def test_an_inline_failure_of_a_node_with_one_attempt_waits_for_a_person() -> None:
    policy = {"strategy": "LINEAR", "maxRetries": 1}
    definition = a_definition(a_step("A", "B"), a_step("B", retryPolicy=policy))

    run = worked(definition, a_claimed_task(definition, "A"), "a", "b", replies={"b": fails()})

    assert run.row.status is TaskStatus.ERROR
    assert run.incidents[0].incident.type is IncidentType.FAILED_JOB


def test_retry_later_inline_gives_a_row_that_has_used_no_attempt() -> None:
    task = a_claimed_task(TWO_STEPS, "A")

    run = worked(TWO_STEPS, task, "a", "b", replies={"b": LATER})

    assert (run.row.attempts, run.row.retries_left) == (0, 3)
    assert run.row.due_at == NOON + timedelta(minutes=5)


@pytest.mark.field_case("S-76")
def test_variables_that_are_too_large_together_fail_the_task_and_nothing_else_is_written() -> None:
    task = a_claimed_task(TWO_STEPS, "A")

    run = worked(TWO_STEPS, task, "a", "b", replies={"a": TOO_MUCH})

    assert isinstance(run.guard, FailTask)
    (change,) = run.unit.changes
    assert isinstance(change, OpenIncident)
    assert change.incident.type is IncidentType.VARIABLES_TOO_LARGE
    assert "'page0'" in change.incident.message
    assert run.called == ["a"]


def test_variables_that_become_too_large_inline_leave_what_was_there_before() -> None:
    task = a_claimed_task(TWO_STEPS, "A")

    run = worked(TWO_STEPS, task, "a", "b", replies={"a": sets(weight=7), "b": TOO_MUCH})

    assert run.variable_changes == (SetVariable("weight", 7),)
    assert run.row.status is TaskStatus.ERROR
    assert run.incidents[0].incident.type is IncidentType.VARIABLES_TOO_LARGE


def test_a_change_that_the_variables_do_not_allow_fails_the_task() -> None:
    reply = HandlerReturned((IncrementVariable("carrier", 1),))

    run = worked(
        TWO_STEPS, a_claimed_task(TWO_STEPS, "A"), "a", replies={"a": reply}, carrier="van"
    )

    assert isinstance(run.guard, FailTask)
    assert "'carrier' cannot be incremented" in run.guard.error


def test_a_gateway_that_no_flow_fits_becomes_a_row_that_waits_for_a_person() -> None:
    gateway = a_gateway("ROUTE", a_flow("B", expectedAnswer="van"))
    definition = a_definition(a_step("A", "ROUTE"), gateway, a_step("B"))

    run = worked(definition, a_claimed_task(definition, "A"), "a", carrier="bike")

    row = run.row
    assert (row.node_id, row.type, row.status) == (
        "ROUTE",
        TaskType.EXCLUSIVE_GATEWAY,
        TaskStatus.ERROR,
    )
    assert row.handler_name is None
    assert run.incidents[0].incident.task_id == row.id
    assert "bike" not in run.incidents[0].incident.message


def test_a_gateway_whose_incident_was_retried_looks_at_the_variable_again() -> None:
    gateway = a_gateway("ROUTE", a_flow("B", expectedAnswer="van"))
    definition = a_definition(gateway, a_step("B"))
    task = a_claimed_task(definition, "ROUTE", TaskType.EXCLUSIVE_GATEWAY)

    run = worked(definition, task, "b", carrier="van")

    assert run.called == ["b"]
    assert run.ends_path


def test_a_claimed_gateway_whose_provider_raises_is_rescheduled() -> None:
    gateway = a_gateway(
        "ROUTE", a_flow("B", isDefault=True), providerType="BEAN", providerBean="route"
    )
    definition = a_definition(gateway, a_step("B"))
    task = a_claimed_task(definition, "ROUTE", TaskType.EXCLUSIVE_GATEWAY)

    run = worked(definition, task, "answer_provider:route", replies={"route": fails()})

    assert isinstance(run.guard, RescheduleTask)


def test_a_provider_that_raises_inline_makes_its_gateway_a_row_with_one_attempt_used() -> None:
    gateway = a_gateway(
        "ROUTE", a_flow("END", isDefault=True), providerType="BEAN", providerBean="route"
    )
    definition = a_definition(a_step("A", "ROUTE"), gateway)
    task = a_claimed_task(definition, "A")

    run = worked(definition, task, "a", "answer_provider:route", replies={"route": fails()})

    row = run.row
    assert (row.type, row.attempts, row.retries_left) == (TaskType.EXCLUSIVE_GATEWAY, 1, 2)
    assert row.handler_name == "answer_provider:route"


@pytest.mark.field_case("S-48")
def test_a_gateway_that_fails_in_one_branch_leaves_the_other_branches_alone() -> None:
    gateway = a_gateway("ROUTE", a_flow("JOIN", expectedAnswer="van"))
    definition = a_definition(
        a_step("A", "SPLIT"),
        a_split("ROUTE", "B"),
        gateway,
        a_step("B", "JOIN"),
        {"id": "JOIN", "type": "JOIN_GATEWAY", "outgoing": [a_flow("END")]},
    )

    run = worked(definition, a_claimed_task(definition, "A"), "a", "b", carrier="bike")

    assert run.rows["ROUTE"].status is TaskStatus.ERROR
    assert run.rows["B"].status is TaskStatus.PENDING
    join = run.rows["JOIN"]
    assert join.pending_branch_ids == (f"{join.id}:0", f"{join.id}:1")


@pytest.mark.parametrize(
    "timer",
    [
        a_delay("TIMER", providerType="VARIABLE", providerVariable="sla"),
        a_delay("TIMER", staticValue="ten minutes"),
    ],
    ids=["missing variable", "no time value"],
)
def test_a_timer_without_a_due_date_waits_for_a_person(timer: dict[str, object]) -> None:
    definition = a_definition(a_step("A", "TIMER"), timer)

    run = worked(definition, a_claimed_task(definition, "A"), "a")

    row = run.row
    assert (row.type, row.status) == (TaskType.TIMER_SCHEDULE, TaskStatus.ERROR)
    assert row.handler_name is None


def test_a_timer_whose_incident_was_retried_looks_at_the_variable_again() -> None:
    definition = a_definition(a_delay("TIMER", providerType="VARIABLE", providerVariable="sla"))
    task = a_claimed_task(definition, "TIMER", TaskType.TIMER_SCHEDULE)

    run = worked(definition, task, sla="PT30M")

    assert run.row.type is TaskType.TIMER_TASK
    assert run.row.due_at == NOON.replace(minute=30)


@pytest.mark.parametrize(
    ("reply", "guard_type"),
    [(fails(), RescheduleTask), (DueDateGiven("soon"), FailTask)],
    ids=["raises", "answers no time value"],
)
def test_a_claimed_timer_whose_provider_gives_no_due_date_fails(
    reply: object, guard_type: type
) -> None:
    definition = a_definition(a_delay("TIMER", providerType="BEAN", providerBean="sla"))
    task = a_claimed_task(definition, "TIMER", TaskType.TIMER_SCHEDULE)

    run = worked(definition, task, "due_date_provider:sla", replies={"sla": reply})  # type: ignore[dict-item]

    assert isinstance(run.guard, guard_type)


def test_a_failure_in_a_start_goes_to_the_caller_with_its_cause() -> None:
    cause = ConnectionError("no connection")

    with pytest.raises(StepFailedError, match="nothing was changed") as raised:
        started(TWO_STEPS, "a", "b", replies={"b": fails(cause=cause)})

    assert raised.value.__cause__ is cause
    assert raised.value.node_id == "B"
    assert raised.value.failure.message == "no connection"
    assert INSTANCE_ID in str(raised.value)


def test_a_failure_after_an_external_task_goes_to_the_caller_with_its_cause() -> None:
    definition = a_definition(a_wait("CHECK", "B"), a_step("B"))
    task = an_external_task(definition, "CHECK")

    with pytest.raises(StepFailedError) as raised:
        completed(definition, task, "b", replies={"b": FATAL})

    assert raised.value.node_id == "B"


def test_a_start_whose_gateway_finds_no_flow_is_refused() -> None:
    gateway = a_gateway(
        "ROUTE", a_flow("END", expectedAnswer="van"), providerType="BEAN", providerBean="route"
    )

    with pytest.raises(StepFailedError, match="an answer that no flow expects"):
        started(a_definition(gateway), "answer_provider:route", replies={"route": Answered("bike")})


def test_a_start_that_meets_a_broken_definition_is_refused() -> None:
    definition = a_definition(a_step("A", "NOWHERE"))

    with pytest.raises(ExecutionError, match="has no node 'NOWHERE'"):
        started(definition, "a")
