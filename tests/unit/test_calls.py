"""Call activities: their coordinator, their starters, and the children that these start."""

from dataclasses import replace

import pytest

from kikwiflow_worker.engine.draft import StepFailedError
from kikwiflow_worker.engine.effects import DefinitionFound
from kikwiflow_worker.engine.running import run_task
from kikwiflow_worker.engine.visits import part_id
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.limits import MAX_CALL_DEPTH, MAX_CHILDREN
from kikwiflow_worker.model.runtime import (
    Branch,
    ClaimedTask,
    ExecutableTask,
    InstanceStatus,
    Loop,
    Parent,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    ArriveTask,
    AwaitNextChild,
    EndPath,
    FailTask,
    InsertInstance,
    RecordEnded,
    RemoveArrivals,
    RemoveTask,
    RescheduleTask,
    StartChild,
)
from tests.support.definitions import Json, a_flow, a_node
from tests.support.engine import (
    INSTANCE_ID,
    NOON,
    OUTER,
    TASK_ID,
    Run,
    a_claimed_task,
    a_definition,
    a_step,
    a_wait,
    an_instance,
    claimed,
    fails,
    run,
    started,
    surroundings,
    worked,
)
from tests.support.findings import DEADLINE, an_event

CHILD = a_definition(a_wait("CHECK"), key="child")
PASSING_CHILD = a_definition(a_step("PACK"), key="child")
REPLY = {"child": DefinitionFound(CHILD)}


def a_call(*targets: str, **fields: object) -> Json:
    chosen = {"calledElement": "child", **fields}
    return a_node("CALL", "CALL_ACTIVITY_COORDINATOR", *(targets or ("END",)), **chosen)


def for_each(mode: str | None = None, **fields: object) -> Json:
    """Return a call activity for each element of ``parcels``."""
    each = {"collectionVariable": "parcels", "elementVariable": "parcel", "iterationMode": mode}
    return a_call(**{**each, **fields})


def coordinator_of(found: Run) -> ExecutableTask:
    (row,) = [row for row in found.born if row.type is TaskType.CALL_ACTIVITY_COORDINATOR]
    return row


def starters_of(found: Run) -> list[ExecutableTask]:
    return [row for row in found.born if row.type is TaskType.CALL_ACTIVITY_STARTER]


def a_starter(definition: ProcessDefinition, index: int = 0, **fields: object) -> ClaimedTask:
    """Return the claimed starter of the child for element ``index``, which is ``parcel <index>``."""
    own: dict[str, object] = {
        "branch": Branch(f"coordinator:{index}", "coordinator"),
        "loop": Loop(index, element=(f"parcel {index}",)),
    }
    return a_claimed_task(definition, "CALL", TaskType.CALL_ACTIVITY_STARTER, **{**own, **fields})


def child_of(found: Run) -> InsertInstance:
    (change,) = [change for change in found.unit.changes if isinstance(change, InsertInstance)]
    return change


# --- reaching the node


def test_a_call_without_a_collection_starts_one_child() -> None:
    definition = a_definition(a_call())

    found = started(definition)

    coordinator, (starter,) = coordinator_of(found), starters_of(found)
    branch = Branch(f"{coordinator.id}:0", coordinator.id)
    assert starter.branch == branch
    assert starter.loop == Loop(0, element=(None,))
    assert (starter.status, starter.claimable_at, starter.retries_left) == (
        TaskStatus.PENDING,
        NOON,
        3,
    )
    assert coordinator.pending_branch_ids == (branch.id,)
    assert coordinator.loop == Loop(0)
    assert (coordinator.status, coordinator.claimable_at) == (TaskStatus.AWAITING_BRANCHES, None)


def test_a_parallel_call_starts_a_child_for_each_element() -> None:
    definition = a_definition(for_each("PARALLEL"))

    found = started(definition, parcels=["x", None, "z"])

    coordinator, starters = coordinator_of(found), starters_of(found)
    assert [s.loop for s in starters] == [
        Loop(index, element=(element,)) for index, element in enumerate(["x", None, "z"])
    ]
    branches = [s.branch.id for s in starters if s.branch]
    assert list(coordinator.pending_branch_ids) == branches
    assert branches == [f"{coordinator.id}:{index}" for index in range(3)]
    assert len({coordinator.id, *(s.id for s in starters)}) == 4


def test_a_sequential_call_starts_the_first_child_and_keeps_the_other_elements() -> None:
    definition = a_definition(for_each("SEQUENTIAL"))

    found = started(definition, parcels=["x", "y", "z"])

    (starter,) = starters_of(found)
    assert starter.loop == Loop(0, element=("x",))
    coordinator = coordinator_of(found)
    assert coordinator.loop == Loop(0, pending=("y", "z"))
    assert coordinator.pending_branch_ids == (f"{coordinator.id}:0",)


@pytest.mark.parametrize("mode", ["PARALLEL", "SEQUENTIAL", None])
def test_an_empty_list_starts_no_child_and_the_coordinator_is_due_at_once(
    mode: str | None,
) -> None:
    definition = a_definition(for_each(mode))

    found = started(definition, parcels=[])

    assert starters_of(found) == []
    assert (found.row.status, found.row.claimable_at) == (TaskStatus.PENDING, NOON)
    assert found.row.loop == Loop(0)


def test_a_call_in_a_branch_keeps_the_branch_at_its_coordinator() -> None:
    definition = a_definition(a_step("A", "CALL"), a_call())

    found = worked(definition, a_claimed_task(definition, "A", branch=OUTER), "a")

    assert coordinator_of(found).branch == OUTER
    assert starters_of(found)[0].branch != OUTER
    assert isinstance(found.guard, RemoveTask)


@pytest.mark.parametrize("parcels", ["x", None, {"a": 1}, ["x"] * (MAX_CHILDREN + 1)])
def test_a_collection_that_cannot_be_used_waits_for_a_person(parcels: object) -> None:
    definition = a_definition(a_step("A", "CALL"), for_each())

    found = worked(definition, a_claimed_task(definition, "A"), "a", parcels=parcels)

    assert (found.row.type, found.row.status) == (
        TaskType.CALL_ACTIVITY_COORDINATOR,
        TaskStatus.ERROR,
    )
    assert found.row.loop is None
    assert len(found.incidents) == 1


def test_as_many_children_as_allowed_are_started() -> None:
    definition = a_definition(for_each("SEQUENTIAL"))

    found = started(definition, parcels=["x"] * MAX_CHILDREN)

    assert len(starters_of(found)) == 1


def test_a_start_whose_collection_cannot_be_used_is_refused() -> None:
    with pytest.raises(StepFailedError, match="needs a list"):
        started(a_definition(for_each()))


def test_a_call_whose_incident_was_retried_looks_at_the_collection_again() -> None:
    definition = a_definition(for_each())
    task = a_claimed_task(definition, "CALL", TaskType.CALL_ACTIVITY_COORDINATOR)

    found = worked(definition, task, parcels=["x"])

    assert found.guard == RemoveTask(task.claim)
    assert coordinator_of(found).id != TASK_ID
    assert len(starters_of(found)) == 1
    assert not found.ends_path


# --- starting a child


def test_a_starter_stays_as_the_record_of_the_child_it_started() -> None:
    definition = a_definition(a_call())
    starter = a_starter(definition)

    found = worked(definition, starter, replies=REPLY)

    assert found.guard == StartChild(starter.claim)
    child = child_of(found).instance
    assert child.parent == Parent(
        instance_id=INSTANCE_ID,
        coordinator_task_id="coordinator",
        branch_id="coordinator:0",
        starter_task_id=TASK_ID,
        depth=1,
    )
    assert (child.definition_id, child.definition_key, child.definition_version) == (
        "child:1",
        "child",
        1,
    )
    assert (child.origin, child.tenant_id, child.priority) == ("CALL_ACTIVITY", "acme", 7)
    assert (child.started_at, child.business_value) == (NOON, None)
    assert found.waits["CHECK"].instance_id == child.id


def test_a_repeated_starter_starts_the_same_child() -> None:
    definition = a_definition(a_call())

    first, second = (worked(definition, a_starter(definition), replies=REPLY) for _ in range(2))

    assert first.unit == second.unit


def test_a_starter_whose_child_was_cancelled_starts_another_one() -> None:
    definition = a_definition(a_call())

    first = worked(definition, a_starter(definition), replies=REPLY)
    second = worked(definition, a_starter(definition, occurrence=1), replies=REPLY)

    assert child_of(first).instance.id != child_of(second).instance.id


def test_a_child_has_a_copy_of_the_variables_and_its_element() -> None:
    definition = a_definition(for_each())
    starter = a_starter(definition, 2)

    found = worked(definition, starter, replies=REPLY, size=3, parcels=["a", "b", "c"])

    child = child_of(found).instance
    assert child.variables == {"size": 3, "parcels": ["a", "b", "c"], "parcel": "parcel 2"}
    assert child.business_key == "PARCEL-7#2"


def test_a_child_without_a_collection_has_the_business_key_of_its_parent() -> None:
    definition = a_definition(a_call(elementVariable="parcel"))

    found = worked(definition, a_starter(definition), replies=REPLY)

    child = child_of(found).instance
    assert child.business_key == "PARCEL-7"
    assert child.variables == {}


def test_a_child_that_ends_at_once_arrives_with_its_starter() -> None:
    definition = a_definition(a_call())
    starter = a_starter(definition)

    found = worked(definition, starter, "pack", replies={"child": DefinitionFound(PASSING_CHILD)})

    assert found.guard == ArriveTask(starter.claim, Branch("coordinator:0", "coordinator"))
    (record,) = found.unit.changes
    assert isinstance(record, RecordEnded)
    assert record.instance.status is InstanceStatus.COMPLETED


def test_a_child_that_fails_at_once_is_there_with_its_failure() -> None:
    definition = a_definition(a_call())
    replies = {"child": DefinitionFound(PASSING_CHILD), "pack": fails()}

    found = worked(definition, a_starter(definition), "pack", replies=replies)

    assert isinstance(found.guard, StartChild)
    assert (found.row.node_id, found.row.attempts) == ("PACK", 1)
    assert found.row.instance_id == child_of(found).instance.id
    assert found.result.failure is None


def test_a_definition_that_is_not_deployed_is_looked_for_again() -> None:
    definition = a_definition(a_call())

    found = worked(definition, a_starter(definition), replies={"child": DefinitionFound(None)})

    assert isinstance(found.guard, RescheduleTask)
    assert "'child'" in found.guard.error
    assert found.unit.changes == ()


def nested(depth: int) -> Run:
    """Run a starter in an instance that has ``depth`` call activities above it."""
    definition = a_definition(a_call())
    above = Parent("parent", "coordinator-0", "coordinator-0:0", "starter-0", depth)
    instance = replace(an_instance(definition), parent=above if depth else None)
    return run(run_task(definition, a_starter(definition), instance, surroundings()), REPLY)


def test_a_child_is_one_deeper_than_its_parent() -> None:
    child = child_of(nested(MAX_CALL_DEPTH - 1)).instance

    assert child.parent is not None
    assert child.parent.depth == MAX_CALL_DEPTH


@pytest.mark.field_case("S-74")
def test_a_call_that_is_nested_too_deep_waits_for_a_person() -> None:
    found = nested(MAX_CALL_DEPTH)

    assert isinstance(found.guard, FailTask)
    assert "call itself" in found.guard.error


# --- going on


def test_the_next_child_of_a_sequence_follows_the_one_that_ended() -> None:
    definition = a_definition(for_each("SEQUENTIAL"))
    task = a_claimed_task(
        definition,
        "CALL",
        TaskType.CALL_ACTIVITY_COORDINATOR,
        loop=Loop(0, pending=("y", "z")),
        branch=OUTER,
    )

    found = worked(definition, task)

    assert found.guard == AwaitNextChild(
        claim=task.claim, branch_id=f"{TASK_ID}:1", loop=Loop(1, pending=("z",))
    )
    assert found.unit.changes[0] == RemoveArrivals(TASK_ID)
    assert found.row.type is TaskType.CALL_ACTIVITY_STARTER
    assert found.row.loop == Loop(1, element=("y",))
    assert found.row.branch == Branch(f"{TASK_ID}:1", TASK_ID)
    assert found.row.id == part_id(TASK_ID, "starter#1")
    assert len(found.unit.changes) == 2


def test_each_child_of_a_sequence_has_a_starter_of_its_own() -> None:
    definition = a_definition(for_each("SEQUENTIAL"))
    first = started(definition, parcels=["x", "y"])
    coordinator = coordinator_of(first)

    second = worked(definition, claimed(coordinator), parcels=["x", "y"])

    assert starters_of(first)[0].id != starters_of(second)[0].id
    assert isinstance(second.guard, AwaitNextChild)
    assert second.guard.branch_id not in coordinator.pending_branch_ids


def test_after_the_last_child_the_path_goes_on_inline() -> None:
    definition = a_definition(a_call("A"), a_step("A"))
    task = a_claimed_task(definition, "CALL", TaskType.CALL_ACTIVITY_COORDINATOR, loop=Loop(2))

    found = worked(definition, task, "a")

    assert found.guard == RemoveTask(task.claim)
    assert found.called == ["a"]
    assert found.unit.changes == (RemoveArrivals(TASK_ID), EndPath(INSTANCE_ID, NOON))


def test_after_a_call_with_a_deadline_the_next_task_waits_for_the_decision() -> None:
    event = an_event(DEADLINE, outgoing=[a_flow("END")])
    definition = a_definition(a_call("A", boundaryEventIds=["EVENT"]), event, a_step("A"))
    task = a_claimed_task(definition, "CALL", TaskType.CALL_ACTIVITY_COORDINATOR, loop=Loop(0))

    found = worked(definition, task, "a")

    assert (found.called, found.row.node_id) == ([], "A")
    kinds = {type(change).__name__ for change in found.unit.changes}
    assert kinds == {"RemoveArrivals", "Detach", "InsertTask"}


def test_a_call_that_ends_its_branch_arrives() -> None:
    definition = a_definition(a_call())
    task = a_claimed_task(
        definition, "CALL", TaskType.CALL_ACTIVITY_COORDINATOR, loop=Loop(0), branch=OUTER
    )

    found = worked(definition, task)

    assert found.guard == ArriveTask(task.claim, OUTER)
    assert found.unit.changes == (RemoveArrivals(TASK_ID),)


def test_commit_after_of_a_call_makes_the_next_task_a_row() -> None:
    definition = a_definition(a_call("A", commitAfter=True), a_step("A"))
    task = a_claimed_task(definition, "CALL", TaskType.CALL_ACTIVITY_COORDINATOR, loop=Loop(0))

    assert worked(definition, task, "a").row.node_id == "A"
