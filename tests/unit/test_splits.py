"""Splitting a path into branches, and where they meet."""

import pytest

from kikwiflow_worker.model.runtime import Branch, InstanceStatus, TaskStatus, TaskType
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    CompleteExternalTask,
    EndPath,
    RemoveArrivals,
    RemoveTask,
)
from tests.support.definitions import a_flow, an_end
from tests.support.engine import (
    NOON,
    OUTER,
    TASK_ID,
    Run,
    a_claimed_task,
    a_definition,
    a_delay,
    a_step,
    a_wait,
    an_external_task,
    completed,
    sets,
    started,
    worked,
)
from tests.support.findings import a_gateway, a_join, a_split

EVERY = ("a", "b", "c", "d", "after")


def branches_of(run: Run, *node_ids: str) -> list[str]:
    """Return the ids of the branches that these nodes rest in."""
    branch_of = {node_id: row.branch for node_id, row in run.rows.items()}
    branch_of |= {node_id: wait.branch for node_id, wait in run.waits.items()}
    branches = [branch_of[node_id] for node_id in node_ids]
    return [branch.id for branch in branches if branch]


def test_a_split_makes_every_branch_and_the_join_a_row() -> None:
    definition = a_definition(a_split("A", "B"), a_step("A", "JOIN"), a_step("B", "JOIN"), a_join())

    run = started(definition, *EVERY)

    assert run.called == []
    assert set(run.rows) == {"A", "B", "JOIN"}
    join = run.rows["JOIN"]
    assert (join.type, join.status) == (TaskType.JOIN_GATEWAY, TaskStatus.AWAITING_BRANCHES)
    assert (join.claimable_at, join.handler_name, join.branch) == (None, None, None)
    assert (join.retries_left, join.priority, join.tenant_id) == (3, 7, "acme")
    assert join.pending_branch_ids == (f"{join.id}:0", f"{join.id}:1")
    assert run.rows["A"].branch == Branch(f"{join.id}:0", join.id)
    assert run.rows["B"].branch == Branch(f"{join.id}:1", join.id)


def test_branches_may_start_with_a_wait_or_a_timer() -> None:
    definition = a_definition(
        a_split("CHECK", "TIMER"), a_wait("CHECK", "JOIN"), a_delay("TIMER", "JOIN"), a_join()
    )

    run = started(definition)

    assert branches_of(run, "CHECK", "TIMER") == list(run.rows["JOIN"].pending_branch_ids)
    assert run.rows["TIMER"].type is TaskType.TIMER_TASK


def test_a_branch_that_starts_with_a_gateway_rests_at_what_the_gateway_leads_to() -> None:
    definition = a_definition(
        a_split("ROUTE", "B"),
        a_gateway("ROUTE", a_flow("CHECK", handlesNull=True)),
        a_wait("CHECK", "JOIN"),
        a_step("B", "JOIN"),
        a_join(),
    )

    run = started(definition, *EVERY)

    assert branches_of(run, "CHECK", "B") == list(run.rows["JOIN"].pending_branch_ids)


def test_a_branch_that_starts_with_a_gateway_without_its_provider_rests_at_the_gateway() -> None:
    gateway = a_gateway(
        "ROUTE", a_flow("JOIN", isDefault=True), providerType="BEAN", providerBean="x"
    )
    definition = a_definition(a_split("ROUTE"), gateway, a_join())

    run = started(definition)

    assert run.rows["ROUTE"].type is TaskType.EXCLUSIVE_GATEWAY
    assert branches_of(run, "ROUTE") == list(run.rows["JOIN"].pending_branch_ids)


def test_a_split_within_a_branch_makes_its_branches_and_a_join_that_belongs_to_the_branch() -> None:
    definition = a_definition(
        a_split("INNER", "C", node_id="SPLIT"),
        a_split("A", "B", node_id="INNER", join="MEET"),
        a_step("A", "MEET"),
        a_step("B", "MEET"),
        a_join("JOIN", node_id="MEET"),
        a_step("C", "JOIN"),
        a_join(),
    )

    run = started(definition, *EVERY)

    assert set(run.rows) == {"A", "B", "C", "MEET", "JOIN"}
    outer, inner = run.rows["JOIN"], run.rows["MEET"]
    assert inner.branch == Branch(f"{outer.id}:0", outer.id)
    assert branches_of(run, "A", "B") == list(inner.pending_branch_ids)
    assert branches_of(run, "MEET", "C") == list(outer.pending_branch_ids)


def test_a_branch_that_ends_in_the_splits_own_commit_is_not_waited_for() -> None:
    definition = a_definition(
        a_split("END", "A", "JOIN"), a_step("A", "JOIN"), a_join(), an_end("END")
    )

    run = started(definition, *EVERY)

    join = run.rows["JOIN"]
    assert join.pending_branch_ids == (f"{join.id}:1",)
    assert branches_of(run, "A") == [f"{join.id}:1"]


@pytest.mark.field_case("S-68")
def test_a_split_whose_branches_all_end_at_once_goes_on_without_a_join_row() -> None:
    definition = a_definition(
        a_split("JOIN", "END"), a_join("AFTER"), a_step("AFTER"), an_end("END")
    )

    run = started(definition, *EVERY)

    assert run.called == ["after"]
    assert run.stored_instance.status is InstanceStatus.COMPLETED


def test_such_a_split_within_a_branch_goes_on_in_that_branch() -> None:
    definition = a_definition(
        a_step("A", "SPLIT"), a_split("JOIN", "END"), a_join("CHECK"), a_wait("CHECK"), an_end()
    )

    run = worked(definition, a_claimed_task(definition, "A", branch=OUTER), "a")

    assert run.waits["CHECK"].branch == OUTER
    assert not run.rows


def test_a_task_that_reaches_the_join_in_its_branch_arrives() -> None:
    definition = a_definition(a_split("A"), a_step("A", "JOIN"), a_join())
    task = a_claimed_task(definition, "A", branch=OUTER)

    run = worked(definition, task, "a", replies={"a": sets(weight=7)})

    assert run.guard == ArriveTask(task.claim, OUTER)
    assert len(run.unit.changes) == 1
    assert run.variable_changes


def test_an_end_event_in_a_branch_arrives_and_does_not_end_the_instance() -> None:
    definition = a_definition(a_step("A", "END"))
    task = a_claimed_task(definition, "A", branch=OUTER)

    run = worked(definition, task, "a")

    assert run.guard == ArriveTask(task.claim, OUTER)
    assert run.unit.changes == ()


def test_a_node_without_outgoing_in_a_branch_arrives() -> None:
    definition = a_definition({**a_step("A"), "outgoing": []})
    task = a_claimed_task(definition, "A", branch=OUTER)

    run = worked(definition, task, "a")

    assert run.guard == ArriveTask(task.claim, OUTER)
    assert not run.ends_path


def test_a_node_without_outgoing_outside_a_branch_ends_the_path() -> None:
    definition = a_definition({**a_step("A"), "outgoing": []})
    task = a_claimed_task(definition, "A")

    run = worked(definition, task, "a")

    assert run.unit.guards == (RemoveTask(task.claim),)
    assert run.unit.changes == (EndPath(task.task.instance_id, NOON),)


def test_an_external_task_that_ends_a_branch_leaves_a_record_of_its_arrival() -> None:
    definition = a_definition(a_wait("CHECK", "JOIN"), a_join())

    run = completed(definition, an_external_task(definition, "CHECK", OUTER))

    assert isinstance(run.guard, CompleteExternalTask)
    row = run.row
    assert (row.type, row.status, row.branch) == (TaskType.ARRIVAL, TaskStatus.ARRIVED, OUTER)
    assert (row.claimable_at, row.handler_name, row.node_id) == (NOON, None, "CHECK")
    assert row.id != TASK_ID
    assert not run.ends_path


def test_an_external_task_without_outgoing_in_a_branch_arrives() -> None:
    definition = a_definition({**a_wait("CHECK"), "outgoing": []})

    run = completed(definition, an_external_task(definition, "CHECK", OUTER))

    assert run.row.status is TaskStatus.ARRIVED


def test_an_external_task_that_comes_round_again_in_its_branch_leaves_no_arrival() -> None:
    definition = a_definition(
        a_wait("CHECK", "ROUTE"), a_gateway("ROUTE", a_flow("CHECK", handlesNull=True))
    )

    run = completed(definition, an_external_task(definition, "CHECK", OUTER))

    assert not run.rows
    assert run.waits["CHECK"].branch == OUTER
    assert run.waits["CHECK"].id != TASK_ID


def test_a_join_goes_on_inline_and_removes_the_arrivals() -> None:
    definition = a_definition(a_join("AFTER"), a_step("AFTER"))
    task = a_claimed_task(definition, "JOIN", TaskType.JOIN_GATEWAY)

    run = worked(definition, task, "after", replies={"after": sets(done=True)})

    assert run.called == ["after"]
    assert run.guard == RemoveTask(task.claim)
    assert run.unit.changes[0] == RemoveArrivals(TASK_ID)
    assert run.ends_path


def test_a_join_goes_on_in_the_enclosing_branch() -> None:
    definition = a_definition(a_join("CHECK"), a_wait("CHECK"))
    task = a_claimed_task(definition, "JOIN", TaskType.JOIN_GATEWAY, branch=OUTER)

    run = worked(definition, task)

    assert run.waits["CHECK"].branch == OUTER
    assert RemoveArrivals(TASK_ID) in run.unit.changes


def test_a_join_that_leads_to_the_enclosing_join_arrives_there() -> None:
    definition = a_definition(a_join("JOIN", node_id="MEET"), a_join())
    task = a_claimed_task(definition, "MEET", TaskType.JOIN_GATEWAY, branch=OUTER)

    run = worked(definition, task)

    assert run.guard == ArriveTask(task.claim, OUTER)
    assert run.unit.changes == (RemoveArrivals(TASK_ID),)


def test_commit_after_of_a_join_makes_the_next_task_a_row() -> None:
    definition = a_definition({**a_join("AFTER"), "commitAfter": True}, a_step("AFTER"))

    run = worked(definition, a_claimed_task(definition, "JOIN", TaskType.JOIN_GATEWAY), "after")

    assert run.called == []
    assert run.row.node_id == "AFTER"


def test_a_join_outside_any_branch_is_passed() -> None:
    definition = a_definition(a_step("A", "JOIN"), a_join("AFTER"), a_step("AFTER"))

    run = started(definition, "a", "after")

    assert run.called == ["a", "after"]
