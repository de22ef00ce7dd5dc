"""What a unit of work changes, and that a tenant commits its own alone."""

import inspect
import typing
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from kikwiflow_worker.errors import ClaimLostError, TenantBoundError
from kikwiflow_worker.model import unit_of_work as units
from kikwiflow_worker.model.bulk import BulkCounts, BulkProgress
from kikwiflow_worker.model.definition import parse_definition
from kikwiflow_worker.model.events import EventType, OutboxEvent
from kikwiflow_worker.model.external_work import ReportKind, ReportOutcome, WorkReport
from kikwiflow_worker.model.messages import Message, MessageStatus
from kikwiflow_worker.model.runtime import (
    Branch,
    Claim,
    ExternalTaskType,
    HostKind,
    IncidentType,
    Loop,
    ProcessInstance,
    TaskType,
)
from kikwiflow_worker.model.unit_of_work import Change, Committed, Guard, UnitOfWork
from kikwiflow_worker.store.tenancy import Tenancy, TenantRuntimeStore
from kikwiflow_worker.store.tenant_units import subjects_of
from tests.compat.records import a_task, a_wait, an_incident, an_instance
from tests.compat.service_records import AT, SOURCE

DEFINITION = parse_definition(SOURCE).file.deployed(definition_id="definition-1", version=1)
CLAIM = Claim("claimed", "worker-1", 1)
BRANCH = Branch("branch-1", "join-1")


def message(tenant_id: str | None) -> Message:
    return Message(
        id="message-1",
        key="payment:1",
        tenant_id=tenant_id,
        variables={},
        status=MessageStatus.KEPT,
        created_at=AT,
        kept_until=AT,
        expires_at=AT,
    )


def report(tenant_id: str | None) -> WorkReport:
    return WorkReport(
        claim=CLAIM,
        kind=ReportKind.COMPLETED,
        outcome=ReportOutcome.COMPLETED,
        instance_id="i",
        node_id="NODE",
        tenant_id=tenant_id,
        reported_at=AT,
    )


EVENT = OutboxEvent(
    id="event-1",
    type=EventType.PROCESS_INSTANCE_STARTED,
    timestamp=AT,
    instance_id="i",
    definition_id="definition-1",
    payload={},
)
PROGRESS = BulkProgress(
    counts=BulkCounts(), reasons=(), chunk=(), cursor=None, is_read=True, is_last=True
)
FOREIGN: list[Guard | Change] = [
    units.RemoveTask(CLAIM),
    units.ArriveTask(CLAIM, BRANCH),
    units.RescheduleTask(claim=CLAIM, due_at=AT, attempts=1, retries_left=1, error="it broke"),
    units.FailTask(claim=CLAIM, attempts=1, error="it broke"),
    units.StartChild(CLAIM),
    units.AwaitNextChild(claim=CLAIM, branch_id="branch-1", loop=Loop(1)),
    units.CompleteExternalTask(
        task_id="t", instance_id="i", definition_id="d", node_id="NODE", completed_at=AT, completed_by=None
    ),
    units.MatchKey(task_id="t", group_id="g", key="k", pending_keys=("k",)),
    units.EndHost("t", HostKind.EXECUTABLE_TASK),
    units.SettleMessage("message-1", "blue"),
    units.InsertInstance(an_instance(tenant_id="blue")),
    units.RecordEnded(an_instance(tenant_id="blue")),
    units.ReserveStartKey("key", "i", "blue", AT),
    units.InsertTask(a_task(TaskType.STANDARD, instance_id="i", tenant_id="red")),
    units.InsertTask(a_task(TaskType.KEPT_MESSAGE, instance_id="", tenant_id="blue")),
    units.InsertExternalTask(a_wait(ExternalTaskType.TASK, instance_id="i", tenant_id="red")),
    units.ChangeVariables("i", ()),
    units.OpenIncident(an_incident(IncidentType.FAILED_JOB, instance_id="i", tenant_id="red")),
    units.RecordMessage(message("blue")),
    units.RecordEvent(EVENT),
    units.RecordReport(report("blue")),
    units.RecordProgress("job-1", PROGRESS, AT),
    units.RemoveArrivals("t"),
    units.Detach("t"),
    units.AbandonChildren("i", "definition-1", "t", AT),
    units.OpenPath("i"),
    units.EndPath("i", AT),
]  # fmt: skip
"""One of each kind of guard and change, about something of ``blue``."""


class Store:
    """Where everything belongs to one tenant; counts what is committed and looked up."""

    def __init__(self, tenant_id: str | None) -> None:
        self.tenant_id = tenant_id
        self.committed: list[UnitOfWork] = []
        self.looks = 0
        self.changed: list[str] = []

    async def find_instance(self, instance_id: str) -> ProcessInstance:
        self.looks += 1
        return an_instance(id=instance_id, tenant_id=self.tenant_id)

    async def find_ended_instance(self, _: str) -> None:
        self.looks += 1

    async def find_task(self, task_id: str) -> object:
        self.looks += 1
        return a_task(TaskType.STANDARD, id=task_id, tenant_id=self.tenant_id)

    async def find_external_task(self, task_id: str) -> object:
        self.looks += 1
        return a_wait(ExternalTaskType.TASK, id=task_id, tenant_id=self.tenant_id)

    async def find_incident(self, incident_id: str) -> object:
        return an_incident(IncidentType.FAILED_JOB, id=incident_id, tenant_id=self.tenant_id)

    async def commit(self, unit: UnitOfWork) -> Committed:
        self.committed.append(unit)
        return Committed()

    def __getattr__(self, name: str) -> Any:
        async def change(*_: object, **__: object) -> bool:
            self.changed.append(name)
            return True

        return change


def view(store: Any, tenant_id: str = "red") -> TenantRuntimeStore:
    return TenantRuntimeStore(store, Tenancy(tenant_id, store, store))


def unit_of(part: Guard | Change) -> UnitOfWork:
    is_guard = isinstance(part, typing.get_args(Guard))
    return UnitOfWork((part,), ()) if is_guard else UnitOfWork((), (part,))  # type: ignore[arg-type]


def test_every_kind_of_guard_and_change_is_tried() -> None:
    kinds = {
        kind
        for _, kind in inspect.getmembers(units, inspect.isclass)
        if is_dataclass(kind) and kind not in {UnitOfWork, Committed}
        if kind.__module__ == units.__name__
    }

    assert {type(part) for part in FOREIGN} == kinds


@pytest.mark.parametrize("part", FOREIGN, ids=lambda part: type(part).__name__)
@pytest.mark.parametrize("owner", ["blue", None])
async def test_a_unit_that_is_about_another_tenant_is_not_written(
    part: Guard | Change, owner: str | None
) -> None:
    store = Store(owner)

    with pytest.raises((ClaimLostError, TenantBoundError)):
        await view(store).commit(unit_of(part))

    assert store.committed == []


@pytest.mark.parametrize("part", FOREIGN, ids=lambda part: type(part).__name__)
async def test_the_same_unit_is_written_for_whom_it_is_about(part: Guard | Change) -> None:
    if isinstance(part, units.RecordProgress):
        return  # no tenant's: workers record it
    store = Store("blue")
    inserted = getattr(part, "task", None) or getattr(part, "incident", None)
    tenant_id = "red" if inserted is not None and inserted.tenant_id == "red" else "blue"
    store.tenant_id = tenant_id

    await view(store, tenant_id).commit(unit_of(part))

    assert store.committed == [unit_of(part)]


async def test_what_is_known_to_be_the_tenants_own_is_not_looked_up_again() -> None:
    store = Store("red")
    seen = view(store)
    await seen.find_instance("i")
    await seen.find_external_task("t")
    before = store.looks

    await seen.commit(UnitOfWork((), (units.ChangeVariables("i", ()), units.Detach("t"))))
    assert await seen._tenancy.owns_task("t")

    assert store.looks == before


def test_what_a_unit_inserts_itself_need_not_exist_yet() -> None:
    instance = an_instance(id="new", tenant_id="red")
    task = a_task(TaskType.STANDARD, id="new-task", instance_id="new", tenant_id="red")
    found = subjects_of(
        UnitOfWork(
            (), (units.InsertInstance(instance), units.InsertTask(task), units.Detach("new-task"))
        )
    )

    assert (found.tenant_ids, found.instance_ids, found.task_ids) == ({"red"}, set(), set())


async def test_the_empty_tenant_is_one_of_its_own() -> None:
    store = Store(None)

    assert await view(store, "").find_instance("i") is None


COMMANDS: dict[str, Callable[[TenantRuntimeStore], Awaitable[object]]] = {
    "discard_task": lambda store: store.discard_task(CLAIM),
    "cancel_instance": lambda store: store.cancel_instance("i", cancelled_by=None),
    "sweep_cancelled": lambda store: store.sweep_cancelled("i"),
    "suspend_instance": lambda store: store.suspend_instance("i"),
    "resume_instance": lambda store: store.resume_instance("i"),
    "park_task": lambda store: store.park_task(CLAIM),
    "retry_incident": lambda store: store.retry_incident("n", retries=1, resolved_by=None),
    "override_task": lambda store: store.override_task("t", retries=1, due_at=None, by=None),
    "forget_instance": lambda store: store.forget_instance("i"),
    "migrate_instance": lambda store: store.migrate_instance(
        "i", before_id="d", after=DEFINITION, nodes=frozenset()
    ),
    "assign_external_task": lambda store: store.assign_external_task(
        "t", assignee="eve", expected=None
    ),
}


def test_every_method_of_the_view_that_could_change_something_is_tried() -> None:
    methods = {
        name for name in vars(TenantRuntimeStore) if not name.startswith(("_", "find_", "now"))
    }

    assert methods - set(COMMANDS) == {"commit", "commit_group"}


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_command_reaches_the_store_for_the_tenants_own_alone(name: str) -> None:
    own, foreign, nobodys = Store("red"), Store("blue"), Store(None)

    assert await COMMANDS[name](view(own))
    for store in (foreign, nobodys):
        with suppress(ClaimLostError):
            assert await COMMANDS[name](view(store)) is False

    assert own.changed == [name]
    assert foreign.changed == nobodys.changed == []


async def test_what_only_workers_do_is_refused() -> None:
    store = Store("red")

    with pytest.raises(TenantBoundError):
        await view(store).find_children(BRANCH, limit=1)
    with pytest.raises(TenantBoundError):
        await view(store).commit_group([], hand_on=None)
    assert store.changed == []


def test_a_view_holds_nothing_but_its_port_and_its_tenant() -> None:
    assert [field.name for field in fields(TenantRuntimeStore)] == ["_inner", "_tenancy"]
