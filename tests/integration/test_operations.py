"""What people do to running instances, on a real database."""

import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
from pymongo import MongoClient

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import (
    ClaimLostError,
    ConflictError,
    DefinitionError,
    DefinitionNotFoundError,
    NotFoundError,
    OperationError,
)
from kikwiflow_worker.handler import ExecutionContext, Fatal, task_handler
from kikwiflow_worker.model.capability import NO_CAPABILITIES, Capabilities
from kikwiflow_worker.model.runtime import ClaimedTask, HostKind, IncidentStatus, TaskStatus
from kikwiflow_worker.model.unit_of_work import Committed, EndHost, UnitOfWork
from kikwiflow_worker.operations.execution import OutcomeKind, execute_task
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.views import ExternalTaskQuery, IncidentQuery, InstanceQuery, TaskQuery
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.registry import registry_of
from tests.support.definitions import Json, a_file, a_node, a_start, an_end
from tests.support.findings import a_join, a_split
from tests.support.stores import claim_next

pytestmark = pytest.mark.mongo

WAITS = (a_start("SIGN"), a_node("SIGN", "EXTERNAL_TASK", "END"), an_end())


def text(*nodes: Json, **fields: object) -> str:
    return json.dumps(a_file(*nodes, **fields))


def waits_of_branches(names: Sequence[str]) -> list[Json]:
    waits = [a_node(name, "EXTERNAL_TASK", "JOIN") for name in names]
    return [a_start("SPLIT"), a_split(*names), *waits, a_join(), an_end()]


@pytest.fixture
async def kikwiflow(mongo_uri: str, database_name: str) -> AsyncIterator[Kikwiflow]:
    async with Kikwiflow.connect(mongo_uri, database=database_name) as client:
        yield client


@pytest.mark.field_case("S-37", "S-88")
async def test_a_running_instance_is_deleted_without_a_trace(kikwiflow: Kikwiflow) -> None:
    await kikwiflow.deploy(text(*WAITS))
    instance = await kikwiflow.start("parcel", "P-1")

    await kikwiflow.delete(instance.id)

    with pytest.raises(NotFoundError):
        await kikwiflow.get_instance(instance.id)
    waiting = await kikwiflow.list_external_tasks(ExternalTaskQuery(instance_id=instance.id))
    assert waiting.items == ()
    with pytest.raises(NotFoundError):
        await kikwiflow.delete(instance.id)


async def test_a_suspended_definition_starts_nothing_and_its_instances_rest(
    kikwiflow: Kikwiflow,
) -> None:
    await kikwiflow.deploy(text(*WAITS))
    running = [await kikwiflow.start("parcel", f"P-{number}") for number in range(3)]

    suspended = await kikwiflow.suspend_definition("parcel")

    with pytest.raises(ConflictError, match="definition 'parcel' is suspended"):
        await kikwiflow.start("parcel", "P-4")
    statuses = {(await kikwiflow.get_instance(instance.id)).status for instance in running}
    assert (suspended, statuses) == (3, {"SUSPENDED"})
    assert await kikwiflow.resume_definition("parcel") == 3
    assert (await kikwiflow.start("parcel", "P-4")).status == "ACTIVE"


async def test_a_new_version_of_a_suspended_definition_is_suspended_too(
    kikwiflow: Kikwiflow,
) -> None:
    await kikwiflow.deploy(text(*WAITS))
    await kikwiflow.suspend_definition("parcel")

    await kikwiflow.deploy(text(*WAITS, name="another"))

    with pytest.raises(ConflictError):
        await kikwiflow.start("parcel", "P-1")


async def test_a_waiting_task_gets_another_due_time(
    kikwiflow: Kikwiflow, mongo_uri: str, database_name: str
) -> None:
    timer = a_node("WAIT", "TIMER_TASK", "END", providerType="STATIC", staticValue="PT48H")
    await kikwiflow.deploy(text(a_start("WAIT"), timer, an_end()))
    instance = await kikwiflow.start("parcel", "P-1")
    (task,) = (await kikwiflow.list_tasks(TaskQuery(instance_id=instance.id))).items
    now = kikwiflow.services.runtime.now()

    changed = await kikwiflow.override_task(task.id, due_at=now - timedelta(seconds=1))

    assert changed.due_at == now - timedelta(seconds=1)
    claimed = await claim_from(mongo_uri, database_name, NO_CAPABILITIES)
    assert claimed is not None
    assert claimed.task.id == task.id


async def test_a_task_that_failed_for_good_gets_attempts_and_its_incident_is_resolved(
    mongo_uri: str, database_name: str
) -> None:
    @task_handler("weigh_parcel")
    def handler(ctx: ExecutionContext) -> None:
        raise Fatal("no scales")

    registry = registry_of([handler])
    runtime = HandlerRuntime(registry, threads=1)
    async with Kikwiflow.connect(mongo_uri, database=database_name) as kikwiflow:
        await kikwiflow.deploy(text())
        instance = await kikwiflow.start("parcel", "P-1")
        claimed = await claim_from(mongo_uri, database_name, registry.capabilities)
        assert claimed is not None
        store_task, services = claimed.task.id, kikwiflow.services
        await execute_task(services, runtime.invoker(), claimed, services.runtime.commit)
        runtime.close()
        failed = await kikwiflow.reads.find_task(store_task)

        revived = await kikwiflow.override_task(store_task, retries=2, by="ana")

        query = IncidentQuery(instance_id=instance.id, status=None)
        (incident,) = (await kikwiflow.list_incidents(query)).items
    assert failed is not None
    assert failed.status is TaskStatus.ERROR
    assert (revived.status, revived.retries_left, revived.attempts) == (TaskStatus.PENDING, 2, 0)
    assert (incident.status, incident.resolved_by) == (IncidentStatus.RESOLVED, "ana")


async def test_a_change_of_nothing_and_of_nobody_is_refused(kikwiflow: Kikwiflow) -> None:
    with pytest.raises(OperationError, match="say what to change"):
        await kikwiflow.override_task("t")
    with pytest.raises(NotFoundError):
        await kikwiflow.override_task("t", retries=1)


async def test_an_instance_goes_on_with_a_newer_version(kikwiflow: Kikwiflow) -> None:
    await kikwiflow.deploy(text(*WAITS))
    instance = await kikwiflow.start("parcel", "P-1")
    longer = (
        a_start("SIGN"),
        a_node("SIGN", "EXTERNAL_TASK", "STAMP"),
        a_node("STAMP", "EXTERNAL_TASK", "END"),
        an_end(),
    )
    await kikwiflow.deploy(text(*longer))

    planned = await kikwiflow.migrate(instance.id, dry_run=True)
    before = await kikwiflow.get_instance(instance.id)
    moved = await kikwiflow.migrate(instance.id)

    assert (planned.problems, planned.migrated, before.definition_version) == ((), False, 1)
    assert (moved.migrated, moved.from_version, moved.to_version) == (True, 1, 2)
    query = ExternalTaskQuery(instance_id=instance.id)
    (task,) = (await kikwiflow.list_external_tasks(query)).items
    await kikwiflow.complete(task.id)
    (stamp,) = (await kikwiflow.list_external_tasks(query)).items
    assert stamp.node_id == "STAMP"
    with pytest.raises(DefinitionError, match="runs with version 2"):
        await kikwiflow.migrate(instance.id)


@pytest.mark.field_case("S-81")
async def test_a_running_instance_keeps_its_version_when_another_is_deployed(
    kikwiflow: Kikwiflow,
) -> None:
    await kikwiflow.deploy(text(*WAITS))
    instance = await kikwiflow.start("parcel", "P-1")
    await kikwiflow.deploy(
        text(a_start("OTHER"), a_node("OTHER", "EXTERNAL_TASK", "END"), an_end())
    )

    (wait,) = (
        await kikwiflow.list_external_tasks(ExternalTaskQuery(instance_id=instance.id))
    ).items
    after = await kikwiflow.complete(wait.id)

    assert after.definition_version == 1
    assert (await kikwiflow.start("parcel", "P-2")).definition_version == 2


async def test_a_task_of_an_instance_that_is_being_cancelled_is_gone(
    kikwiflow: Kikwiflow, mongo_uri: str, database_name: str
) -> None:
    await kikwiflow.deploy(text(*WAITS))
    instance = await kikwiflow.start("parcel", "P-1")
    (wait,) = (await kikwiflow.list_external_tasks()).items
    with MongoClient[Json](mongo_uri) as opened:
        marked = {"$set": {"status": "CANCELLING"}}
        opened[database_name].process_instances.update_one({"_id": instance.id}, marked)

    with pytest.raises(NotFoundError, match="was cancelled"):
        await kikwiflow.complete(wait.id)


async def test_a_version_without_the_node_is_refused_and_says_which(kikwiflow: Kikwiflow) -> None:
    await kikwiflow.deploy(text(*WAITS))
    instance = await kikwiflow.start("parcel", "P-1")
    await kikwiflow.deploy(
        text(a_start("STAMP"), a_node("STAMP", "EXTERNAL_TASK", "END"), an_end())
    )

    verdict = await kikwiflow.migrate(instance.id)

    assert verdict.problems == ("it rests at SIGN, which version 2 does not have",)
    assert not verdict.migrated
    assert (await kikwiflow.get_instance(instance.id)).definition_version == 1


@pytest.mark.field_case("S-82")
async def test_all_instances_are_moved_and_each_gets_a_verdict(kikwiflow: Kikwiflow) -> None:
    await kikwiflow.deploy(text(*WAITS))
    first, second = [await kikwiflow.start("parcel", name) for name in ("P-1", "P-2")]
    stamps = text(a_start("STAMP"), a_node("STAMP", "EXTERNAL_TASK", "END"), an_end())
    await kikwiflow.deploy(stamps)
    await kikwiflow.start("parcel", "P-3")
    longer = (
        a_start("SIGN"),
        a_node("SIGN", "EXTERNAL_TASK", "SEAL"),
        a_node("SEAL", "EXTERNAL_TASK", "END"),
        an_end(),
    )
    await kikwiflow.deploy(text(*longer))

    planned = [verdict async for verdict in kikwiflow.migrate_all("parcel", dry_run=True)]
    await kikwiflow.suspend(first.id)
    moved = [verdict async for verdict in kikwiflow.migrate_all("parcel")]
    again = [verdict async for verdict in kikwiflow.migrate_all("parcel")]

    assert [(v.from_version, v.to_version, v.migrated) for v in planned] == [
        (2, 3, False),
        (1, 3, False),
        (1, 3, False),
    ]
    assert [v.migrated for v in moved] == [False, True, True]
    assert moved[0].problems == again[0].problems == planned[0].problems
    assert "it rests at STAMP" in moved[0].problems[0]
    assert len(again) == 1
    assert (await kikwiflow.get_instance(second.id)).definition_version == 3
    with pytest.raises(DefinitionNotFoundError):
        await anext(kikwiflow.migrate_all("parcel", version=9))


async def test_an_instance_that_ends_before_its_turn_gets_no_verdict(kikwiflow: Kikwiflow) -> None:
    await kikwiflow.deploy(text(*WAITS))
    first, second = [await kikwiflow.start("parcel", name) for name in ("P-1", "P-2")]
    await kikwiflow.deploy(text(*WAITS, name="longer"))

    verdicts = kikwiflow.migrate_all("parcel")
    assert (await anext(verdicts)).instance_id == second.id
    await kikwiflow.cancel(first.id)

    assert [verdict async for verdict in verdicts] == []


async def test_a_node_past_the_first_page_of_what_rests_counts(kikwiflow: Kikwiflow) -> None:
    names = [f"SIGN-{number:03}" for number in range(501)]
    await kikwiflow.deploy(text(*waits_of_branches(names)))
    instance = await kikwiflow.start("parcel", "P-1")
    await kikwiflow.deploy(text(*waits_of_branches(["SEAL", "STAMP"])))

    verdict = await kikwiflow.migrate(instance.id)

    resting = {f"it rests at {name}, which version 2 does not have" for name in names}
    assert resting <= set(verdict.problems)


async def test_listing_by_status_finds_the_suspended(kikwiflow: Kikwiflow) -> None:
    await kikwiflow.deploy(text(*WAITS))
    instance = await kikwiflow.start("parcel", "P-1")
    await kikwiflow.start("parcel", "P-2")
    await kikwiflow.suspend(instance.id)

    found = await kikwiflow.list_instances(InstanceQuery(status="SUSPENDED"))

    assert [item.id for item in found.items] == [instance.id]


async def claim_from(uri: str, database: str, handlers: Capabilities) -> ClaimedTask | None:
    store = MongoStore.open(uri, database, clock=SystemClock())
    await store.prepare()
    claimed = await claim_next(store, handlers)
    await store.close()
    return claimed


async def test_an_incident_beside_a_host_is_closed_with_the_host(
    kikwiflow: Kikwiflow, mongo_uri: str, database_name: str
) -> None:
    host = a_node("SIGN", "EXTERNAL_TASK", "STAMP", boundaryEventIds=["LATE"])
    late = a_node(
        "LATE",
        "BOUNDARY_INTERRUPTIVE_TIMER",
        "END",
        attachedToRef="SIGN",
        providerType="VARIABLE",
        providerVariable="deadline",
    )
    # The task before the host makes the host's creation a worker's step, whose broken timer becomes an incident.
    wait = a_node("WAIT", "TIMER_TASK", "SIGN", providerType="STATIC", staticValue="PT0S")
    stamp = a_node("STAMP", "EXTERNAL_TASK", "END")
    await kikwiflow.deploy(text(a_start("WAIT"), wait, host, late, stamp, an_end()))
    instance = await kikwiflow.start("parcel", "P-1")
    claimed = await claim_from(mongo_uri, database_name, NO_CAPABILITIES)
    assert claimed is not None
    runtime, services = HandlerRuntime(registry_of([]), threads=1), kikwiflow.services
    await execute_task(services, runtime.invoker(), claimed, services.runtime.commit)
    runtime.close()
    query = ExternalTaskQuery(instance_id=instance.id)
    (sign,) = (await kikwiflow.list_external_tasks(query)).items
    opened = (await kikwiflow.list_incidents(IncidentQuery(instance_id=instance.id))).items

    await kikwiflow.complete(sign.id)

    closed = IncidentQuery(instance_id=instance.id, status=None)
    assert [incident.node_id for incident in opened] == ["LATE"]
    (incident,) = (await kikwiflow.list_incidents(closed)).items
    assert incident.status is IncidentStatus.CLOSED
    assert (await kikwiflow.get_instance(instance.id)).status == "ACTIVE"


async def test_a_thrower_whose_receiver_lost_its_host_looks_for_another_one(
    kikwiflow: Kikwiflow, mongo_uri: str, database_name: str
) -> None:
    key = {"providerType": "STATIC", "staticKey": "STAMPED"}
    throws = a_node("THROW", "EVENT_THROWER", "END", commitBefore=True, **key)
    await kikwiflow.deploy(text(a_start("THROW"), throws, an_end()))
    catches = (a_start("CATCH"), a_node("CATCH", "EVENT_CATCHER", "END", **key), an_end())
    await kikwiflow.deploy(text(*catches, key="letter"))
    receiver = await kikwiflow.start("letter", "L-1")
    thrower = await kikwiflow.start("parcel", "P-1")
    claimed = await claim_from(mongo_uri, database_name, NO_CAPABILITIES)
    assert claimed is not None
    runtime, services = HandlerRuntime(registry_of([]), threads=1), kikwiflow.services
    hosts = [EndHost("the-host-of-another-event", HostKind.EXTERNAL_TASK)]

    async def commit(unit: UnitOfWork) -> Committed:
        if hosts:
            raise ClaimLostError(hosts.pop())
        return await services.runtime.commit(unit)

    outcome = await execute_task(services, runtime.invoker(), claimed, commit)

    runtime.close()
    assert outcome.kind is OutcomeKind.COMPLETED
    for instance in (receiver, thrower):
        assert (await kikwiflow.get_instance(instance.id)).status == "COMPLETED"


async def test_a_call_activity_waits_while_its_definition_is_suspended(
    kikwiflow: Kikwiflow, mongo_uri: str, database_name: str
) -> None:
    call = a_node("CALL", "CALL_ACTIVITY_COORDINATOR", "END", calledElement="child")
    await kikwiflow.deploy(text(*WAITS, key="child"))
    await kikwiflow.deploy(text(a_start("CALL"), call, an_end()))
    instance = await kikwiflow.start("parcel", "P-1")
    await kikwiflow.suspend_definition("child")

    claimed = await claim_from(mongo_uri, database_name, NO_CAPABILITIES)
    assert claimed is not None
    runtime, services = HandlerRuntime(registry_of([]), threads=1), kikwiflow.services
    await execute_task(services, runtime.invoker(), claimed, services.runtime.commit)
    runtime.close()

    starter = await kikwiflow.reads.find_task(claimed.task.id)
    assert starter is not None
    assert (starter.status, starter.attempts) == (TaskStatus.PENDING, 0)
    assert "is suspended" in str(starter.error)
    assert (await kikwiflow.get_instance(instance.id)).status == "ACTIVE"
