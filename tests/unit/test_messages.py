"""Correlation keys: who waits for them, what a match changes, and throwing a message."""

from datetime import timedelta

import pytest

from kikwiflow_worker.engine.draft import StepFailedError
from kikwiflow_worker.engine.effects import (
    Deliver,
    Delivered,
    KeysGiven,
    NobodyWaits,
)
from kikwiflow_worker.engine.segments import start_instance
from kikwiflow_worker.engine.visits import derived_id
from kikwiflow_worker.handler import CorrelationItem
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.nodes import MatchPolicy
from kikwiflow_worker.model.runtime import (
    ExternalTask,
    ExternalTaskType,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import (
    ChangeVariables,
    CompleteExternalTask,
    Detach,
    EndPath,
    InsertExternalTask,
    MatchKey,
    RecordEnded,
    RecordMessage,
    RemoveTask,
    RescheduleTask,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import SetVariable
from tests.support.definitions import Json, a_node
from tests.support.engine import (
    INSTANCE_ID,
    NOON,
    OUTER,
    TASK_ID,
    a_claimed_task,
    a_definition,
    a_step,
    an_external_task,
    an_instance,
    claimed,
    completed,
    fails,
    run,
    started,
    surroundings,
    worked,
)
from tests.support.findings import a_join, a_split

STATIC: Json = {"providerType": "STATIC", "staticKey": "go"}


def a_catcher(*targets: str, node_id: str = "CATCH", **fields: object) -> Json:
    chosen = {"catchType": "STANDALONE", **STATIC, **fields}
    return a_node(node_id, "EVENT_CATCHER", *(targets or ("END",)), **chosen)


def a_group_node(policy: str | None, *targets: str, **fields: object) -> Json:
    chosen = {"providerType": "VARIABLE", "providerVariable": "keys", "matchPolicy": policy}
    return a_catcher(*targets, catchType="GROUP", **{**chosen, **fields})


def a_thrower(*targets: str, node_id: str = "THROW", **fields: object) -> Json:
    return a_node(node_id, "EVENT_THROWER", *(targets or ("END",)), **{**STATIC, **fields})


def a_group(
    definition: ProcessDefinition, policy: MatchPolicy, *pending: str, **fields: object
) -> tuple[ExternalTask, dict[str, ExternalTask]]:
    """Return a stored group whose keys ``pending`` have not come, and their rows."""
    group = an_external_task(
        definition,
        "CATCH",
        type=ExternalTaskType.GROUP,
        match_policy=policy,
        pending_keys=pending,
        total_keys=len(pending),
        **fields,
    )
    rows = {
        key: an_external_task(
            definition,
            "CATCH",
            id=derived_id(group.id, key),
            type=ExternalTaskType.GROUP_KEY,
            correlation_key=key,
            group_id=group.id,
            match_policy=policy,
        )
        for key in pending
    }
    return group, rows


# --- waiting


def test_a_catcher_rests_as_a_wait_for_its_key() -> None:
    definition = a_definition(a_catcher(name="Paid"))

    found = started(definition)

    (wait,) = found.born_waits
    assert (wait.type, wait.correlation_key) == (ExternalTaskType.CATCHER, "go")
    assert (wait.name, wait.tenant_id, wait.attached_to) == ("Paid", "acme", None)
    assert found.born == []


def test_a_catcher_in_a_branch_waits_in_that_branch() -> None:
    definition = a_definition(a_step("A", "CATCH"), a_catcher())

    found = worked(definition, a_claimed_task(definition, "A", branch=OUTER), "a")

    assert found.waits["CATCH"].branch == OUTER


@pytest.mark.parametrize(
    ("policy", "stored"),
    [("ALL", MatchPolicy.ALL), ("ANY", MatchPolicy.ANY), (None, MatchPolicy.ALL)],
)
def test_a_group_waits_for_each_of_its_keys_once(policy: str | None, stored: MatchPolicy) -> None:
    definition = a_definition(a_group_node(policy))

    found = started(definition, keys=["a", "b", "a"])

    (group,) = [wait for wait in found.born_waits if wait.type is ExternalTaskType.GROUP]
    keys = [wait for wait in found.born_waits if wait.type is ExternalTaskType.GROUP_KEY]
    assert (group.pending_keys, group.total_keys, group.match_policy) == (("a", "b"), 2, stored)
    assert group.correlation_key is None
    assert [key.correlation_key for key in keys] == ["a", "b"]
    assert {(key.group_id, key.match_policy, key.branch) for key in keys} == {
        (group.id, stored, None)
    }
    assert len({group.id, *(key.id for key in keys)}) == 3


def test_the_keys_of_a_group_in_a_branch_carry_no_token_of_their_own() -> None:
    definition = a_definition(a_step("A", "CATCH"), a_group_node("ALL"))

    task = a_claimed_task(definition, "A", branch=OUTER)
    found = worked(definition, task, "a", keys=["x", "y"])

    branches = {wait.type: wait.branch for wait in found.born_waits}
    assert branches == {ExternalTaskType.GROUP: OUTER, ExternalTaskType.GROUP_KEY: None}


def test_a_catcher_whose_provider_is_elsewhere_rests_until_a_worker_has_it() -> None:
    definition = a_definition(a_catcher(providerType="BEAN", providerBean="order_keys"))

    first = started(definition)
    second = worked(
        definition,
        claimed(first.row),
        "correlation_keys_provider:order_keys",
        replies={"order_keys": KeysGiven((CorrelationItem("o-7", "Order 7"),))},
    )

    assert first.row.type is TaskType.KEY_RESOLUTION
    assert first.row.handler_name == "correlation_keys_provider:order_keys"
    (wait,) = second.born_waits
    assert (wait.correlation_key, wait.display_name) == ("o-7", "Order 7")
    assert second.guard == RemoveTask(claimed(first.row).claim)
    assert not second.ends_path


def test_a_catcher_without_a_key_waits_for_a_person() -> None:
    definition = a_definition(a_step("A", "CATCH"), a_group_node("ALL"))

    found = worked(definition, a_claimed_task(definition, "A"), "a", keys="no list")

    assert found.born_waits == []
    assert (found.row.type, found.row.status) == (TaskType.KEY_RESOLUTION, TaskStatus.ERROR)
    assert len(found.incidents) == 1


# --- a match


def test_a_message_ends_the_catcher_sets_its_variables_and_goes_on() -> None:
    definition = a_definition(a_catcher("A"), a_step("A"))
    wait = an_external_task(definition, "CATCH", type=ExternalTaskType.CATCHER)

    found = completed(definition, wait, "a", variables={"paid": True})

    assert isinstance(found.guard, CompleteExternalTask)
    assert (found.guard.task_id, found.guard.completed_by) == (TASK_ID, "ana")
    assert found.guard.pending_keys is None
    assert found.asked[0].variables == {"paid": True}
    assert found.variable_changes == (SetVariable("paid", value=True),)
    assert found.ends_path


def test_commit_after_of_a_catcher_makes_the_next_task_a_row() -> None:
    definition = a_definition(a_catcher("A", commitAfter=True), a_step("A"))
    wait = an_external_task(definition, "CATCH", type=ExternalTaskType.CATCHER)

    found = completed(definition, wait, "a")

    assert (found.called, found.row.node_id) == ([], "A")


def test_a_key_that_is_not_the_last_changes_the_group_and_its_row_and_nothing_else() -> None:
    definition = a_definition(a_group_node("ALL", "A"), a_step("A"))
    group, rows = a_group(definition, MatchPolicy.ALL, "x", "y")

    found = completed(definition, rows["x"], "a", group=group, variables={"x": 1})

    assert found.guard == MatchKey(
        task_id=rows["x"].id, group_id=group.id, key="x", pending_keys=("x", "y")
    )
    assert found.unit.changes == (ChangeVariables(INSTANCE_ID, (SetVariable("x", 1),)),)
    assert found.called == []


def test_the_last_key_ends_the_group_and_goes_on() -> None:
    definition = a_definition(a_group_node("ALL", "A"), a_step("A"))
    group, rows = a_group(definition, MatchPolicy.ALL, "y", branch=OUTER)

    found = completed(definition, rows["y"], "a", group=group)

    assert isinstance(found.guard, CompleteExternalTask)
    assert (found.guard.task_id, found.guard.pending_keys) == (group.id, ("y",))
    assert found.unit.changes[0] == Detach(group.id)
    assert found.called == ["a"]
    assert (found.row.type, found.row.branch) == (TaskType.ARRIVAL, OUTER)


def test_any_key_ends_a_group_that_waits_for_any() -> None:
    definition = a_definition(a_group_node("ANY", "A"), a_step("A"))
    group, rows = a_group(definition, MatchPolicy.ANY, "x", "y")

    found = completed(definition, rows["y"], "a", group=group)

    assert isinstance(found.guard, CompleteExternalTask)
    assert (found.guard.task_id, found.guard.pending_keys) == (group.id, ("x", "y"))
    assert found.unit.changes[0] == Detach(group.id)
    assert found.called == ["a"]
    assert found.ends_path


@pytest.mark.parametrize("policy", [MatchPolicy.ALL, MatchPolicy.ANY])
def test_what_follows_a_group_has_the_same_key_whichever_message_was_last(
    policy: MatchPolicy,
) -> None:
    definition = a_definition(a_group_node(policy, "A"), a_step("A"))
    keys = []
    for last in ("x", "y"):
        _, rows = a_group(definition, MatchPolicy.ANY, "x", "y")
        group, _ = a_group(definition, policy, last)
        keys.append(completed(definition, rows[last], "a", group=group).keys)

    assert keys[0] == keys[1]


def test_a_failure_after_a_message_goes_to_its_caller() -> None:
    definition = a_definition(a_catcher("A"), a_step("A"))
    wait = an_external_task(definition, "CATCH", type=ExternalTaskType.CATCHER)

    with pytest.raises(StepFailedError, match="node A"):
        completed(definition, wait, "a", replies={"a": fails()})


# --- throwing


RECEIVED = UnitOfWork(
    (
        CompleteExternalTask(
            task_id="wait-2",
            instance_id="instance-2",
            definition_id="definition-1",
            node_id="CATCH",
            completed_at=NOON,
            completed_by=None,
        ),
    ),
    (EndPath("instance-2", NOON),),
)
DELIVERED = Delivered("wait-2", RECEIVED)


def test_a_throw_is_committed_with_what_it_leads_to() -> None:
    definition = a_definition(a_step("A", "THROW"), a_thrower("B"), a_step("B"))
    task = a_claimed_task(definition, "A")

    found = worked(definition, task, "a", "b", replies={"go": DELIVERED})

    assert found.thrown == [Deliver("go", "acme", frozenset())]
    assert found.called == ["a", "b"]
    assert found.unit.guards == (RemoveTask(task.claim), *RECEIVED.guards)
    assert found.unit.changes == (*RECEIVED.changes, EndPath(INSTANCE_ID, NOON))


def test_a_start_that_throws_writes_both_instances() -> None:
    definition = a_definition(a_thrower())

    found = started(definition, replies={"go": DELIVERED})

    assert found.unit.guards == RECEIVED.guards
    assert RECEIVED.changes[0] in found.unit.changes
    assert [type(change) for change in found.unit.changes].count(RecordEnded) == 1


def test_what_was_changed_before_the_throw_comes_before_what_the_throw_leads_to() -> None:
    definition = a_definition(a_thrower("CATCH"), a_catcher(node_id="CATCH"))
    task = a_claimed_task(definition, "THROW", TaskType.EVENT_THROW)

    found = worked(definition, task, replies={"go": DELIVERED})

    kinds = [type(change) for change in found.unit.changes]
    assert kinds == [EndPath, InsertExternalTask]


def test_a_thrower_with_commit_before_rests() -> None:
    definition = a_definition(a_step("A", "THROW"), a_thrower(commitBefore=True))

    found = started(definition, "a")

    assert (found.thrown, found.row.type) == ([], TaskType.EVENT_THROW)
    assert (found.row.retries_left, found.row.handler_name) == (3, None)


def test_a_second_message_is_thrown_after_the_commit_of_the_first() -> None:
    definition = a_definition(a_thrower("AGAIN"), a_thrower(node_id="AGAIN"))

    found = started(definition, replies={"go": DELIVERED})

    assert len(found.thrown) == 1
    assert (found.row.node_id, found.row.type) == ("AGAIN", TaskType.EVENT_THROW)


def test_a_claimed_throw_that_nobody_waits_for_is_tried_again() -> None:
    definition = a_definition(a_thrower("A"), a_step("A"))
    task = a_claimed_task(definition, "THROW", TaskType.EVENT_THROW)

    found = worked(definition, task, "a", replies={"go": NobodyWaits()})

    assert isinstance(found.guard, RescheduleTask)
    assert (found.guard.attempts, found.guard.retries_left) == (1, 2)
    assert found.unit.changes == ()
    assert found.called == []


def test_an_inline_throw_that_nobody_waits_for_keeps_what_was_done_before_it() -> None:
    provided = {"providerType": "BEAN", "providerBean": "order_keys"}
    definition = a_definition(a_step("A", "THROW"), a_thrower(**provided))
    task = a_claimed_task(definition, "A")

    found = worked(
        definition,
        task,
        "a",
        "correlation_keys_provider:order_keys",
        replies={"order-7": NobodyWaits()},
    )

    assert found.guard == RemoveTask(task.claim)
    assert (found.row.type, found.row.attempts) == (TaskType.EVENT_THROW, 1)
    assert found.row.handler_name == "correlation_keys_provider:order_keys"
    assert not found.ends_path


def test_a_thrower_that_keeps_its_message_goes_on_although_nobody_waits() -> None:
    definition = a_definition(
        a_thrower("A", extensionProperties={"kikwiflow.keepFor": "PT1H"}), a_step("A")
    )
    task = a_claimed_task(definition, "THROW", TaskType.EVENT_THROW)

    found = worked(definition, task, "a", replies={"go": NobodyWaits()})

    (message,) = [c.message for c in found.unit.changes if isinstance(c, RecordMessage)]
    assert (message.key, message.tenant_id) == ("go", "acme")
    assert message.kept_until == NOON + timedelta(hours=1)
    assert (found.row.type, found.row.node_id) == (TaskType.KEPT_MESSAGE, message.id)
    assert found.row.instance_id == ""
    assert (found.guard, found.called) == (RemoveTask(task.claim), ["a"])


def test_a_start_whose_message_nobody_waits_for_is_refused() -> None:
    definition = a_definition(a_thrower())

    with pytest.raises(StepFailedError, match="no instance waits") as raised:
        started(definition, replies={"go": NobodyWaits()})

    assert raised.value.node_id == "THROW"


def test_a_catcher_is_no_receiver_of_what_is_thrown_after_it() -> None:
    definition = a_definition(a_catcher("THROW"), a_thrower())
    wait = an_external_task(definition, "CATCH", type=ExternalTaskType.CATCHER)

    found = completed(definition, wait, replies={"go": DELIVERED})

    assert found.thrown == [Deliver("go", "acme", frozenset({TASK_ID}))]


def test_no_key_of_a_group_that_is_done_receives_what_is_thrown_after_it() -> None:
    definition = a_definition(a_group_node("ANY", "THROW"), a_thrower())
    group, rows = a_group(definition, MatchPolicy.ANY, "x", "y")

    found = completed(definition, rows["x"], group=group, replies={"go": DELIVERED})

    assert found.thrown[0].taken == {rows["x"].id, rows["y"].id}


def test_a_receiver_throws_its_own_messages_after_the_commit() -> None:
    definition = a_definition(a_catcher("THROW"), a_thrower())
    wait = an_external_task(definition, "CATCH", type=ExternalTaskType.CATCHER)

    found = completed(definition, wait, by_thrower=True)

    assert (found.thrown, found.row.type) == ([], TaskType.EVENT_THROW)


def test_a_receiver_that_fails_keeps_the_failure_to_itself() -> None:
    definition = a_definition(a_catcher("A"), a_step("A"))
    wait = an_external_task(definition, "CATCH", type=ExternalTaskType.CATCHER)

    found = completed(definition, wait, "a", by_thrower=True, replies={"a": fails()})

    assert isinstance(found.guard, CompleteExternalTask)
    assert (found.row.node_id, found.row.attempts) == ("A", 1)
    assert found.result.failure is None


def test_a_thrower_in_a_branch_hands_its_branch_on() -> None:
    definition = a_definition(
        a_split("THROW", "A"), a_thrower("JOIN"), a_step("A", "JOIN"), a_join()
    )

    first = started(definition)

    row = first.rows["THROW"]
    assert (row.type, first.thrown) == (TaskType.EVENT_THROW, [])
    assert row.branch is not None


def test_an_answer_that_fits_no_throw_is_an_error_of_the_program() -> None:
    definition = a_definition(a_thrower())
    segment = start_instance(definition, an_instance(definition), surroundings())

    with pytest.raises(TypeError, match="node THROW cannot be answered"):
        run(segment, {"go": KeysGiven(())})


def test_a_message_that_cannot_be_kept_fails_its_thrower_and_not_what_was_done_before() -> None:
    properties = {"kikwiflow.keepFor": "P9999Y"}
    definition = a_definition(a_step("A", "THROW"), a_thrower(extensionProperties=properties))
    task = a_claimed_task(definition, "A")

    found = worked(definition, task, "a", replies={"go": NobodyWaits()})

    assert (found.guard, found.called) == (RemoveTask(task.claim), ["a"])
    assert (found.row.node_id, found.row.status) == ("THROW", TaskStatus.ERROR)
    assert "thrower THROW: kikwiflow.keepFor" in found.incidents[0].incident.message
