"""The three ways a segment begins, and what stays the same when it is repeated."""

from dataclasses import replace

import pytest

from kikwiflow_worker.engine.effects import DueDateGiven, HandlerReturned
from kikwiflow_worker.engine.running import run_task
from kikwiflow_worker.errors import ExecutionError, VariableTooLargeError
from kikwiflow_worker.model.runtime import InstanceStatus, TaskType
from kikwiflow_worker.model.unit_of_work import (
    CompleteExternalTask,
    EndPath,
    InsertInstance,
    InsertTask,
    RemoveTask,
)
from kikwiflow_worker.model.variables import IncrementVariable, SetVariable, UnsetVariable
from tests.support.definitions import a_flow
from tests.support.engine import (
    INSTANCE_ID,
    NOON,
    TASK_ID,
    Replies,
    a_claimed_task,
    a_definition,
    a_delay,
    a_step,
    a_wait,
    an_external_task,
    an_instance,
    claimed,
    completed,
    fails,
    run,
    sets,
    started,
    surroundings,
    worked,
)
from tests.support.findings import a_gateway, a_join, a_split

TWO_STEPS = a_definition(a_step("A", "B"), a_step("B"))


def test_a_start_that_rests_stores_the_instance_with_the_variables_it_has_then() -> None:
    definition = a_definition(a_step("A", "CHECK"), a_wait("CHECK"))

    found = started(definition, "a", replies={"a": sets(weight=7)}, size=3)

    assert found.unit.guards == ()
    assert isinstance(found.unit.changes[0], InsertInstance)
    assert found.stored_instance.variables == {"size": 3, "weight": 7}
    assert found.stored_instance.status is InstanceStatus.ACTIVE
    assert found.variable_changes == ()


def test_a_claimed_task_changes_only_the_variables_that_were_touched() -> None:
    replies = {
        "a": HandlerReturned((SetVariable("weight", 7), IncrementVariable("count", 1))),
        "b": HandlerReturned((UnsetVariable("weight"), IncrementVariable("count", 2))),
    }

    found = worked(
        TWO_STEPS,
        a_claimed_task(TWO_STEPS, "A"),
        "a",
        "b",
        replies=replies,
        count=1,
        size=3,
    )

    assert found.variable_changes == (UnsetVariable("weight"), IncrementVariable("count", 3))
    assert found.result.variables == {"count": 4, "size": 3}


def test_a_claimed_task_that_ends_its_path_removes_itself_and_ends_the_path() -> None:
    task = a_claimed_task(TWO_STEPS, "B")

    found = worked(TWO_STEPS, task, "b")

    assert found.unit.guards == (RemoveTask(task.claim),)
    assert found.unit.changes == (EndPath(INSTANCE_ID, NOON),)


def test_transient_variables_are_seen_in_the_segment_and_never_stored() -> None:
    definition = a_definition(a_step("A", "B"), a_step("B", "CHECK"), a_wait("CHECK"))
    replies = {"a": HandlerReturned((SetVariable("weight", 7),), {"token": "secret"})}

    at_start = started(definition, "a", "b", replies=replies)
    on_row = worked(definition, a_claimed_task(definition, "A"), "a", "b", replies=replies)

    assert at_start.effects[1].variables == {"weight": 7, "token": "secret"}
    assert at_start.stored_instance.variables == {"weight": 7}
    assert on_row.variable_changes == (SetVariable("weight", 7),)
    assert on_row.result.variables == {"weight": 7, "token": "secret"}
    assert "secret" not in repr(on_row.unit)


def test_a_transient_variable_hides_the_stored_one_until_it_is_stored_again() -> None:
    definition = a_definition(a_step("A", "B"), a_step("B", "C"), a_step("C"))
    replies = {"a": HandlerReturned((), {"size": "hidden"}), "b": sets(size=4)}

    found = worked(
        definition, a_claimed_task(definition, "A"), "a", "b", "c", replies=replies, size=3
    )

    assert [effect.variables["size"] for effect in found.effects] == [3, "hidden", 4]
    assert found.variable_changes == (SetVariable("size", 4),)


def test_a_transient_variable_decides_about_a_gateway() -> None:
    gateway = a_gateway("ROUTE", a_flow("B", expectedAnswer="van"))
    definition = a_definition(a_step("A", "ROUTE"), gateway, a_step("B"))
    replies = {"a": HandlerReturned((), {"carrier": "van"})}

    found = started(definition, "a", "b", replies=replies)

    assert found.called == ["a", "b"]


def test_completing_an_external_task_sets_the_variables_and_goes_on_inline() -> None:
    definition = a_definition(a_wait("CHECK", "B"), a_step("B"))
    task = an_external_task(definition, "CHECK")

    found = completed(definition, task, "b", variables={"approved": "yes"})

    assert found.effects[0].variables == {"approved": "yes"}
    assert found.guard == CompleteExternalTask(
        task_id=TASK_ID,
        instance_id=INSTANCE_ID,
        definition_id=definition.id,
        node_id="CHECK",
        completed_at=NOON,
        completed_by="ana",
    )
    assert found.variable_changes == (SetVariable("approved", "yes"),)
    assert found.ends_path


def test_commit_after_of_an_external_task_makes_the_next_task_a_row() -> None:
    definition = a_definition(a_wait("CHECK", "B", commitAfter=True), a_step("B"))

    found = completed(definition, an_external_task(definition, "CHECK"), "b")

    assert found.called == []
    assert found.row.node_id == "B"


def test_an_external_task_without_outgoing_ends_the_path() -> None:
    definition = a_definition({**a_wait("CHECK"), "outgoing": []})

    found = completed(definition, an_external_task(definition, "CHECK"))

    assert found.unit.changes == (EndPath(INSTANCE_ID, NOON),)


def test_completing_with_variables_that_are_too_large_is_refused() -> None:
    definition = a_definition(a_wait("CHECK"))
    pages = {f"page{number}": "x" * 1_000_000 for number in range(9)}

    with pytest.raises(VariableTooLargeError, match="limit of an instance"):
        completed(definition, an_external_task(definition, "CHECK"), variables=pages)


def test_a_claimed_task_whose_node_is_not_in_the_definition_is_an_error() -> None:
    with pytest.raises(ExecutionError, match="has no node 'GONE'"):
        worked(TWO_STEPS, a_claimed_task(TWO_STEPS, "GONE"))


def test_a_start_without_a_start_point_is_an_error() -> None:
    definition = a_definition(a_step("A"))

    with pytest.raises(ExecutionError, match="no defaultStartPoint"):
        started(replace(definition, default_start_point=None))


def test_the_idempotency_key_of_a_claimed_task_is_its_id_at_every_attempt() -> None:
    first = worked(TWO_STEPS, a_claimed_task(TWO_STEPS, "A"), "a")
    second = worked(TWO_STEPS, a_claimed_task(TWO_STEPS, "A", attempts=1, epoch=3), "a")

    assert first.keys == second.keys == [TASK_ID]


@pytest.mark.parametrize("attempt", ["fails inline", "handler missing"])
def test_the_row_that_an_inline_visit_becomes_has_the_key_of_that_visit(attempt: str) -> None:
    task = a_claimed_task(TWO_STEPS, "A")
    succeeded = worked(TWO_STEPS, task, "a", "b")

    other = (
        worked(TWO_STEPS, task, "a", "b", replies={"b": fails()})
        if attempt == "fails inline"
        else worked(TWO_STEPS, task, "a")
    )
    again = worked(TWO_STEPS, claimed(other.row), "b")

    assert again.keys == [succeeded.keys[1]]


def test_the_row_that_an_inline_due_date_becomes_has_the_key_of_that_visit() -> None:
    timer = a_delay("TIMER", providerType="BEAN", providerBean="sla")
    definition = a_definition(a_step("A", "TIMER"), timer)
    task, provider = a_claimed_task(definition, "A"), "due_date_provider:sla"

    inline = worked(definition, task, "a", provider)
    missing = worked(definition, task, "a")
    failed = worked(definition, task, "a", provider, replies={"sla": fails()})
    later = worked(definition, claimed(missing.row), provider)

    assert missing.row.id == failed.row.id == inline.keys[1]
    assert later.keys == [inline.keys[1]]


def test_a_second_visit_in_a_loop_has_another_key() -> None:
    gateway = a_gateway("ROUTE", a_flow("A", expectedAnswer="again"), a_flow("END", isDefault=True))
    definition = a_definition(a_step("A", "ROUTE"), gateway)
    replies = {"a": [sets(carrier="again"), sets(carrier="again"), sets(carrier="done")]}

    found = worked(definition, a_claimed_task(definition, "A"), "a", replies=replies)

    assert found.called == ["a", "a", "a"]
    assert len(set(found.keys)) == 3


def test_different_rows_give_different_keys_to_the_same_node() -> None:
    first = worked(TWO_STEPS, a_claimed_task(TWO_STEPS, "A"), "a", "b")
    second = worked(TWO_STEPS, a_claimed_task(TWO_STEPS, "A", id="another-row"), "a", "b")

    assert set(first.keys).isdisjoint(second.keys)


def test_a_repeated_segment_gives_an_identical_unit() -> None:
    definition = a_definition(
        a_step("A", "SPLIT"),
        a_split("B", "CHECK", "TIMER", "ROUTE"),
        a_step("B", "JOIN"),
        a_wait("CHECK", "JOIN"),
        a_delay("TIMER", "JOIN", providerType="BEAN", providerBean="sla"),
        a_gateway("ROUTE", a_flow("JOIN", expectedAnswer="van")),
        a_join(),
    )
    replies: Replies = {"a": sets(carrier="bike"), "sla": DueDateGiven("PT2H")}

    first, second = (
        worked(
            definition,
            a_claimed_task(definition, "A"),
            "a",
            "due_date_provider:sla",
            replies=replies,
        )
        for _ in range(2)
    )

    assert first.unit == second.unit
    assert len(first.rows) == 4
    assert len(first.waits) == 1


def test_all_ids_that_one_segment_derives_are_different() -> None:
    names = [f"N{number}" for number in range(9)]
    definition = a_definition(a_split(*names), *(a_step(name, "JOIN") for name in names), a_join())

    found = started(definition)

    assert len({row.id for row in found.rows.values()}) == 10


def test_the_time_of_a_segment_is_the_one_it_was_given() -> None:
    later = NOON.replace(hour=20)
    task = a_claimed_task(TWO_STEPS, "B")
    segment = run_task(TWO_STEPS, task, an_instance(TWO_STEPS), surroundings("b", now=later))

    found = run(segment)

    assert found.unit.changes == (EndPath(INSTANCE_ID, later),)


def test_no_task_is_born_claimed_or_with_an_epoch() -> None:
    found = started(TWO_STEPS)

    (insert,) = [change for change in found.unit.changes if isinstance(change, InsertTask)]
    assert (insert.task.worker_id, insert.task.lock_expires_at, insert.task.epoch) == (
        None,
        None,
        0,
    )
    assert insert.task.type is TaskType.STANDARD
