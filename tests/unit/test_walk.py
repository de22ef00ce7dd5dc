"""How far a segment runs inline, and what it leaves where it rests."""

import pytest

from kikwiflow_worker.engine.effects import (
    Answered,
    CallHandler,
    DueDateGiven,
    HandlerReturned,
)
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.limits import MAX_INLINE_NODES
from kikwiflow_worker.model.runtime import InstanceStatus, TaskStatus, TaskType
from kikwiflow_worker.model.unit_of_work import OpenIncident, RecordEnded, RemoveTask
from tests.support.definitions import a_flow, a_node, a_start, an_end
from tests.support.engine import (
    NOON,
    OUTER,
    TASK_ID,
    a_claimed_task,
    a_definition,
    a_delay,
    a_step,
    a_wait,
    claimed,
    fails,
    sets,
    started,
    worked,
)
from tests.support.findings import a_gateway, a_join, a_split

BY_CARRIER = a_gateway("ROUTE", a_flow("A", expectedAnswer="van"), a_flow("B", isDefault=True))
BY_PROVIDER = {**BY_CARRIER, "providerType": "BEAN", "providerBean": "route"}


def test_a_path_of_tasks_runs_inline_to_its_end() -> None:
    definition = a_definition(a_step("A", "B"), a_step("B"))

    run = started(definition, "a", "b")

    assert run.called == ["a", "b"]
    (change,) = run.unit.changes
    assert isinstance(change, RecordEnded)
    assert change.instance.status is InstanceStatus.COMPLETED
    assert change.instance.ended_at == NOON
    assert change.instance.open_paths == 0


def test_a_handler_sees_the_variables_that_the_one_before_it_set() -> None:
    definition = a_definition(a_step("A", "B"), a_step("B"))

    run = started(definition, "a", "b", replies={"a": sets(weight=7)}, size=3)

    assert run.effects[1].variables == {"size": 3, "weight": 7}


def test_a_handler_is_told_where_it_runs() -> None:
    node = a_step("A", name="Weigh", extensionProperties={"scale": "north"})
    definition = a_definition(node)

    run = worked(definition, a_claimed_task(definition, "A", attempts=2), "a")

    (effect,) = run.effects
    assert isinstance(effect, CallHandler)
    view = effect.view
    assert (view.business_key, view.tenant_id) == ("PARCEL-7", "acme")
    assert (view.definition_key, view.definition_version) == ("parcel", 1)
    assert (view.node_id, view.node_name, view.attempt) == ("A", "Weigh", 3)
    assert view.extension_properties == {"scale": "north"}


def test_an_external_task_rests() -> None:
    definition = a_definition(
        a_step("A", "CHECK"), a_wait("CHECK", name="Check", description="by hand")
    )

    run = started(definition, "a")

    wait = run.waits["CHECK"]
    assert (wait.name, wait.description) == ("Check", "by hand")
    assert (wait.tenant_id, wait.branch, wait.created_at) == ("acme", None, NOON)
    assert not run.rows
    assert not run.ends_path


def test_a_claimed_task_in_a_branch_hands_its_branch_to_what_it_leaves() -> None:
    definition = a_definition(a_step("A", "CHECK"), a_wait("CHECK"))

    run = worked(definition, a_claimed_task(definition, "A", branch=OUTER), "a")

    assert run.guard == RemoveTask(a_claimed_task(definition, "A").claim)
    assert run.waits["CHECK"].branch == OUTER


def test_a_task_with_commit_before_rests_as_a_row() -> None:
    definition = a_definition(a_step("A", "B"), a_step("B", commitBefore=True))

    run = started(definition, "a", "b")

    assert run.called == ["a"]
    row = run.row
    assert (row.node_id, row.type, row.status) == ("B", TaskType.STANDARD, TaskStatus.PENDING)
    assert (row.handler_name, row.attempts, row.retries_left) == ("b", 0, 3)
    assert (row.due_at, row.claimable_at, row.created_at) == (None, NOON, NOON)
    assert (row.priority, row.tenant_id, row.definition_id) == (7, "acme", "parcel:1")


def test_a_claimed_task_with_commit_before_runs() -> None:
    definition = a_definition(a_step("A", commitBefore=True))

    run = worked(definition, a_claimed_task(definition, "A"), "a")

    assert run.called == ["a"]
    assert run.ends_path


def test_a_task_with_commit_after_makes_the_next_task_a_row() -> None:
    definition = a_definition(a_step("A", "B", commitAfter=True), a_step("B"))

    run = started(definition, "a", "b")

    assert run.called == ["a"]
    assert run.row.node_id == "B"


def test_a_task_with_commit_after_before_the_end_completes_in_the_same_commit() -> None:
    definition = a_definition(a_step("A", commitAfter=True))

    run = started(definition, "a")

    assert run.stored_instance.status is InstanceStatus.COMPLETED


def test_a_task_with_commit_after_before_a_gateway_gives_a_row_for_the_chosen_task() -> None:
    first = a_step("FIRST", "ROUTE", commitAfter=True)
    definition = a_definition(first, BY_CARRIER, a_step("A"), a_step("B"))

    run = started(definition, "first", "a", "b", replies={"first": sets(carrier="van")})

    assert run.called == ["first"]
    assert run.row.node_id == "A"


def test_commit_after_of_a_start_event_and_of_a_gateway_counts() -> None:
    start = {**a_start("A"), "commitAfter": True}
    gateway = {**BY_CARRIER, "commitAfter": True}

    after_start = started(a_definition(start, a_step("A")), "a")
    after_gateway = started(
        a_definition(gateway, a_step("A"), a_step("B")), "a", "b", carrier="bike"
    )

    assert after_start.row.node_id == "A"
    assert after_gateway.row.node_id == "B"


def test_commit_before_on_start_gateway_join_and_end_is_walked_through() -> None:
    definition = a_definition(
        {**a_start("ROUTE"), "commitBefore": True},
        {**BY_CARRIER, "commitBefore": True},
        a_step("A"),
        a_step("B", "JOIN"),
        {**a_join(), "commitBefore": True},
        {**an_end(), "commitBefore": True},
    )

    run = started(definition, "a", "b", carrier="bike")

    assert run.called == ["b"]
    assert run.stored_instance.status is InstanceStatus.COMPLETED


def test_a_task_whose_handler_is_missing_here_becomes_a_row_for_a_worker_that_has_it() -> None:
    definition = a_definition(a_step("A", "B"), a_step("B"))

    run = started(definition, "a")

    row = run.row
    assert (row.node_id, row.status, row.handler_name) == ("B", TaskStatus.PENDING, "b")
    assert row.claimable_at == NOON


def test_a_provider_with_the_name_of_a_handler_does_not_stand_in_for_it() -> None:
    definition = a_definition(a_step("A"))

    run = started(definition, "answer_provider:a")

    assert run.row.node_id == "A"


def test_a_gateway_whose_provider_is_missing_here_becomes_a_row() -> None:
    definition = a_definition(BY_PROVIDER, a_step("A"), a_step("B"))

    run = started(definition, "a", "b")

    row = run.row
    assert (row.node_id, row.type) == ("ROUTE", TaskType.EXCLUSIVE_GATEWAY)
    assert row.handler_name == "answer_provider:route"


def test_a_claimed_gateway_asks_its_provider_and_goes_on() -> None:
    definition = a_definition(BY_PROVIDER, a_step("A"), a_step("B"))
    task = a_claimed_task(definition, "ROUTE", TaskType.EXCLUSIVE_GATEWAY, attempts=1)

    run = worked(
        definition, task, "answer_provider:route", "a", replies={"route": Answered("van")}, size=3
    )

    assert run.called == ["route", "a"]
    assert run.effects[0].view.attempt == 2
    assert run.effects[0].variables == {"size": 3}
    assert run.ends_path


def test_a_gateway_reads_its_variable_as_text() -> None:
    yes = a_gateway("ROUTE", a_flow("A", expectedAnswer="true"), a_flow("B", isDefault=True))
    definition = a_definition(yes, a_step("A"), a_step("B"))

    run = started(definition, "a", "b", carrier=True)

    assert run.called == ["a"]


def test_a_timer_becomes_a_row_that_is_due_later() -> None:
    definition = a_definition(a_delay("TIMER", "A"), a_step("A"))

    run = started(definition, "a")

    row = run.row
    assert (row.type, row.status, row.handler_name) == (
        TaskType.TIMER_TASK,
        TaskStatus.PENDING,
        None,
    )
    assert row.due_at == row.claimable_at == NOON.replace(hour=13)


def test_a_timer_row_goes_on_inline_when_it_is_run() -> None:
    definition = a_definition(a_delay("TIMER", "A"), a_step("A"))

    run = worked(definition, a_claimed_task(definition, "TIMER", TaskType.TIMER_TASK), "a")

    assert run.called == ["a"]
    assert run.ends_path


def test_a_timer_takes_its_due_date_from_a_variable() -> None:
    timer = a_delay("TIMER", providerType="VARIABLE", providerVariable="sla")

    run = started(a_definition(timer), sla="PT30M")

    assert run.row.due_at == NOON.replace(minute=30)


def test_a_timer_takes_its_due_date_from_a_provider() -> None:
    timer = a_delay("TIMER", providerType="BEAN", providerBean="sla")

    run = started(
        a_definition(timer), "due_date_provider:sla", replies={"sla": DueDateGiven("PT2H")}
    )

    row = run.row
    assert row.due_at == NOON.replace(hour=14)
    assert (row.type, row.handler_name) == (TaskType.TIMER_TASK, None)


def test_a_timer_whose_provider_is_missing_here_becomes_a_row_that_schedules_it() -> None:
    timer = a_delay("TIMER", "A", providerType="BEAN", providerBean="sla")
    definition = a_definition(timer, a_step("A"))

    first = started(definition).row
    scheduled = worked(
        definition,
        a_claimed_task(definition, "TIMER", first.type, branch=OUTER),
        "due_date_provider:sla",
        replies={"sla": DueDateGiven("PT2H")},
    )

    assert (first.type, first.handler_name) == (TaskType.TIMER_SCHEDULE, "due_date_provider:sla")
    assert first.claimable_at == NOON
    row = scheduled.row
    assert (row.type, row.due_at, row.branch) == (
        TaskType.TIMER_TASK,
        NOON.replace(hour=14),
        OUTER,
    )
    assert row.id != TASK_ID
    assert isinstance(scheduled.guard, RemoveTask)


def test_a_loop_of_tasks_rests_at_a_task_after_a_thousand_nodes() -> None:
    definition = a_definition(a_step("A", "B"), a_step("B", "A"))

    run = started(definition, "a", "b")

    assert len(run.called) == MAX_INLINE_NODES - 1
    assert run.row.status is TaskStatus.PENDING


def test_a_loop_of_gateways_is_an_error_of_the_definition() -> None:
    spin = a_gateway("SPIN", a_flow("AGAIN", handlesNull=True))
    again = a_gateway("AGAIN", a_flow("SPIN", handlesNull=True))
    definition = a_definition(a_step("A", "SPIN"), spin, again)

    with pytest.raises(ExecutionError, match="loop of gateways that never ends"):
        worked(definition, a_claimed_task(definition, "A"), "a")
    with pytest.raises(ExecutionError, match="loop of gateways"):
        started(definition, "a")


def test_a_flow_without_a_target_is_left_to_a_person() -> None:
    definition = a_definition(a_node("A", "EXECUTABLE_TASK", {}, executor="a"))

    found = worked(definition, a_claimed_task(definition, "A"), "a")

    assert found.result.failure is not None
    assert "flow out of node A has no targetNodeId" in found.result.failure.message
    assert [type(change) for change in found.unit.changes] == [OpenIncident]


def test_a_key_does_not_depend_on_where_a_lost_run_was_cut() -> None:
    definition = a_definition(a_step("A", "B"), a_step("B", "C"), a_step("C"))

    lost = worked(definition, a_claimed_task(definition, "A"), "a", "b", "c").keys[2]
    again = worked(
        definition, a_claimed_task(definition, "A"), "a", "b", "c", replies={"b": fails()}
    )
    found = worked(definition, claimed(again.row), "b", "c")

    assert found.keys[1] == lost


def test_a_join_whose_branches_all_ended_keeps_its_commit_after() -> None:
    definition = a_definition(
        a_split("END", "END"), {**a_join("AFTER"), "commitAfter": True}, a_step("AFTER")
    )

    found = started(definition, "after")

    assert found.keys == []
    assert found.row.node_id == "AFTER"


@pytest.mark.parametrize(
    ("node", "task_type", "expected"),
    [
        (a_step("N"), TaskType.STANDARD, "node N cannot be answered with Answered"),
        (
            {**BY_PROVIDER, "id": "N"},
            TaskType.EXCLUSIVE_GATEWAY,
            "node N cannot be answered with HandlerReturned",
        ),
        (
            a_delay("N", providerType="BEAN", providerBean="n"),
            TaskType.TIMER_SCHEDULE,
            "node N cannot be answered with HandlerReturned",
        ),
    ],
    ids=["task", "gateway", "timer"],
)
def test_a_reply_of_the_wrong_kind_is_refused(
    node: dict[str, object], task_type: TaskType, expected: str
) -> None:
    definition = a_definition(node, a_step("A"), a_step("B"))
    wrong = Answered("x") if task_type is TaskType.STANDARD else HandlerReturned()
    name = "route" if task_type is TaskType.EXCLUSIVE_GATEWAY else "n"
    provider = {
        TaskType.STANDARD: "n",
        TaskType.EXCLUSIVE_GATEWAY: "answer_provider:route",
        TaskType.TIMER_SCHEDULE: "due_date_provider:n",
    }[task_type]

    with pytest.raises(TypeError, match=expected):
        worked(
            definition, a_claimed_task(definition, "N", task_type), provider, replies={name: wrong}
        )
