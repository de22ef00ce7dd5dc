"""Which units share a transaction: never two that decide about one row (protocol R15)."""

from kikwiflow_worker.model.messages import Message, MessageStatus
from kikwiflow_worker.model.runtime import Attachment, Branch, Claim, HostKind
from kikwiflow_worker.model.unit_of_work import (
    AbandonChildren,
    ArriveTask,
    CompleteExternalTask,
    Detach,
    EndHost,
    EndPath,
    InsertTask,
    RecordMessage,
    RemoveTask,
    ReserveStartKey,
    UnitOfWork,
)
from kikwiflow_worker.store.mongo.grouping import group_units
from tests.support.engine import NOON
from tests.support.stores import a_task


def removal(task_id: str, *changes: object) -> UnitOfWork:
    return UnitOfWork((RemoveTask(Claim(task_id, "w", 1)),), changes)  # type: ignore[arg-type]


def test_units_of_different_tasks_share_a_transaction() -> None:
    units = [removal("a"), removal("b", EndPath("i", NOON)), removal("c", EndPath("i", NOON))]

    assert group_units(units) == ((0, 1, 2),)


def test_two_units_of_one_task_do_not() -> None:
    assert group_units([removal("a"), removal("b"), removal("a")]) == ((0, 1), (2,))


def test_a_host_and_its_timer_do_not_whichever_comes_first() -> None:
    ends = UnitOfWork(
        (RemoveTask(Claim("timer", "w", 1)), EndHost("host", HostKind.EXECUTABLE_TASK)),
        (Detach("host", "timer"),),
    )
    done = removal("host", Detach("host"))

    assert group_units([ends, done]) == ((0,), (1,))
    assert group_units([done, ends]) == ((0,), (1,))


def test_a_host_and_the_next_cycle_of_its_timer_do_not() -> None:
    attached = Attachment("host", "HOST", HostKind.EXECUTABLE_TASK)
    cycle = removal("timer", InsertTask(a_task(attached_to=attached)))

    assert group_units([cycle, removal("host", Detach("host"))]) == ((0,), (1,))


def test_timers_of_different_hosts_do() -> None:
    units = [
        UnitOfWork(
            (RemoveTask(Claim(f"timer-{n}", "w", 1)), EndHost(f"host-{n}", HostKind.EXTERNAL_TASK)),
            (Detach(f"host-{n}", f"timer-{n}"),),
        )
        for n in range(3)
    ]

    assert group_units(units) == ((0, 1, 2),)


def test_units_of_operations_are_alone() -> None:
    start = UnitOfWork((), (ReserveStartKey("k", "i", None, NOON),))
    completion = CompleteExternalTask(
        task_id="e",
        instance_id="i",
        definition_id="d",
        node_id="N",
        completed_at=NOON,
        completed_by=None,
    )

    groups = group_units([start, removal("a"), UnitOfWork((completion,), ()), removal("b")])

    assert groups == ((1, 3), (0,), (2,))


def test_units_that_end_other_instances_waits_or_may_find_their_document_there_are_alone() -> None:
    thrower = removal("thrower")
    completion = CompleteExternalTask(
        task_id="e",
        instance_id="i",
        definition_id="d",
        node_id="N",
        completed_at=NOON,
        completed_by=None,
    )
    thrower = UnitOfWork((*thrower.guards, completion), ())
    kept = Message(
        id="m",
        key="k",
        tenant_id=None,
        variables={},
        status=MessageStatus.KEPT,
        created_at=NOON,
        kept_until=NOON,
        expires_at=NOON,
    )
    abandons = AbandonChildren("i", "d", "coordinator", NOON)
    units = [thrower, removal("a", abandons), removal("b", RecordMessage(kept))]

    assert group_units(units) == ((0,), (1,), (2,))


def test_a_branch_s_end_is_as_good_as_a_removal() -> None:
    arrival = UnitOfWork((ArriveTask(Claim("a", "w", 1), Branch("b1", "join")),), ())

    assert group_units([arrival, removal("b")]) == ((0, 1),)


def test_every_unit_is_in_one_group() -> None:
    units = [removal(f"t{n % 5}") for n in range(23)]

    positions = [position for group in group_units(units) for position in group]

    assert sorted(positions) == list(range(23))
