"""Variables that would become too large to be stored: refused before the commit, on an instance that stays as it was."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from bson import encode
from pymongo import MongoClient
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import VariableTooLargeError
from kikwiflow_worker.handler import ExecutionContext, Fatal, task_handler
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.model.limits import MAX_DOCUMENT_BYTES
from kikwiflow_worker.model.runtime import ClaimedTask, IncidentStatus
from kikwiflow_worker.model.unit_of_work import (
    ChangeVariables,
    Committed,
    EndPath,
    InsertTask,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import SetVariable, UnsetVariable
from kikwiflow_worker.operations import correlation, external_tasks, variables
from kikwiflow_worker.operations.correlation import CorrelationRequest
from kikwiflow_worker.operations.execution import OutcomeKind, execute_task
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.mongo.driver import CODEC_OPTIONS
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from kikwiflow_worker.store.views import ExternalTaskQuery, IncidentQuery, TaskQuery
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.registry import registry_of
from tests.support.definitions import Json, a_file, a_node, a_start, a_task, an_end
from tests.support.findings import a_join, a_split
from tests.support.mongo import MongoServer
from tests.support.stores import a_task as a_row
from tests.support.stores import claim_next, put_instance, snapshot

pytestmark = pytest.mark.mongo

ALMOST_A_MEGABYTE = "x" * 1_000_000
FILLED = {f"v{n}": ALMOST_A_MEGABYTE for n in range(14)}
"""Nearly all that fits; as branches that were loaded before could have written it."""


@task_handler("fill")
def fill(ctx: ExecutionContext) -> None:
    ctx.set(ctx.view.node_id, ALMOST_A_MEGABYTE)


@task_handler("spoil")
def spoil(ctx: ExecutionContext) -> None:
    if "mended" not in ctx:
        raise Fatal("no scales")


def text(*nodes: Json, key: str = "parcel") -> str:
    return json.dumps(a_file(*nodes, key=key))


class Bench:
    """A client, and a worker that runs one task at a time."""

    def __init__(self, store: MongoStore, data: Database[Json]) -> None:
        self.client = Kikwiflow(store)
        self.data = data
        self.store = store
        self._handlers = HandlerRuntime(registry_of([fill, spoil]), threads=1)

    async def claim(self) -> ClaimedTask:
        claimed = await claim_next(self.store, self._handlers.invoker().capabilities)
        assert claimed is not None
        return claimed

    async def run(self, claimed: ClaimedTask) -> OutcomeKind:
        services = self.client.services
        invoker = self._handlers.invoker()
        return (await execute_task(services, invoker, claimed, services.runtime.commit)).kind

    def fill_up(self, instance_id: str) -> None:
        """Let others have written nearly all that fits, after the instance was loaded."""
        filled = {name: {"name": name, "value": value} for name, value in FILLED.items()}
        self.data.process_instances.update_one(
            {"_id": instance_id}, {"$set": {"variables": filled}}
        )

    def services(self, instance_id: str) -> Services:
        """Return the services of a caller whose commit comes after others have filled the instance up."""
        services = self.client.services

        class Late:
            def __getattr__(runtime, name: str) -> object:  # noqa: N805 - self is the test's bench
                return getattr(services.runtime, name)

            async def commit(runtime, unit: UnitOfWork) -> Committed:  # noqa: N805
                self.fill_up(instance_id)
                runtime.before = snapshot(self.data)
                return await services.runtime.commit(unit)

            before: dict[str, list[Json]]

        late: Any = Late()
        return replace(services, runtime=late)

    def close(self) -> None:
        self._handlers.close()
        self.client.close()


@asynccontextmanager
async def a_bench(
    server: MongoServer, data: Database[Json], outbox: OutboxOptions
) -> AsyncIterator[Bench]:
    options = StoreOptions(outbox=outbox)
    store = MongoStore.open(server.uri, data.name, clock=SystemClock(), options=options)
    await store.ping()
    bench = Bench(store, data)
    yield bench
    bench.close()
    await store.close()


@pytest.fixture(autouse=True)
def roomy_server(mongo_server: MongoServer) -> Iterator[None]:
    """Give the server of the tests the cache that documents of 14 MB need; its own is a quarter of a gigabyte."""
    window = "minSnapshotHistoryWindowInSeconds"
    with MongoClient[Json](mongo_server.uri) as client:

        def configure(cache: str, history_s: object) -> None:
            engine = {"wiredTigerEngineRuntimeConfig": f"cache_size={cache}"}
            client.admin.command({"setParameter": 1, **engine})
            client.admin.command({"setParameter": 1, window: history_s})

        before = client.admin.command({"getParameter": 1, window: 1})[window]
        configure("1G", 0)
        yield
        configure("256M", before)


@pytest.fixture
async def bench(mongo_server: MongoServer, data: Database[Json]) -> AsyncIterator[Bench]:
    async with a_bench(mongo_server, data, OutboxOptions()) as opened:
        yield opened


async def test_branches_that_together_become_too_large_leave_an_incident_and_all_else(
    bench: Bench,
) -> None:
    names = [f"B{n}" for n in range(15)]
    branches = [a_task(name, "JOIN", executor="fill") for name in names]
    await bench.client.deploy(
        text(a_start("SPLIT"), a_split(*names), *branches, a_join(), an_end())
    )
    instance = await bench.client.start("parcel", "P-1")
    # All are loaded before one of them has stored anything.
    claimed = [await bench.claim() for _ in names]

    outcomes = [await bench.run(one) for one in claimed]

    assert outcomes == [OutcomeKind.COMPLETED] * 14 + [OutcomeKind.INCIDENT_OPENED]
    (incident,) = (await bench.client.list_incidents(IncidentQuery(instance_id=instance.id))).items
    assert incident.type == "VARIABLES_TOO_LARGE"
    assert "MAX_DOCUMENT_BYTES" in incident.message
    after = await bench.client.get_instance(instance.id)
    assert set(after.variables) == set(names) - {claimed[-1].task.node_id}

    for name in names[:8]:
        await bench.client.unset_variables(instance.id, name)
    await bench.client.retry_incident(incident.id)
    assert await bench.run(await bench.claim()) is OutcomeKind.COMPLETED
    assert await bench.run(await bench.claim()) is OutcomeKind.COMPLETED
    assert (await bench.client.get_instance(instance.id)).status == "COMPLETED"


async def test_a_child_whose_outputs_do_not_fit_waits_with_an_incident_of_its_own(
    bench: Bench,
) -> None:
    outputs = {"kikwiflow.outputs": "WORK"}
    call = a_node(
        "CALL",
        "CALL_ACTIVITY_COORDINATOR",
        "END",
        calledElement="child",
        extensionProperties=outputs,
    )
    work = a_task("WORK", "END", executor="fill", commitBefore=True)
    await bench.client.deploy(text(a_start("WORK"), work, an_end(), key="child"))
    await bench.client.deploy(text(a_start("CALL"), call, an_end()))
    parent = await bench.client.start("parcel", "P-1")
    assert await bench.run(await bench.claim()) is OutcomeKind.COMPLETED
    claimed = await bench.claim()
    bench.fill_up(parent.id)

    assert await bench.run(claimed) is OutcomeKind.INCIDENT_OPENED

    (incident,) = (await bench.client.list_incidents(IncidentQuery())).items
    assert (incident.type, incident.node_id) == ("VARIABLES_TOO_LARGE", "WORK")
    assert parent.id in incident.message
    assert (await bench.client.get_instance(parent.id)).variables == FILLED
    await bench.client.unset_variables(parent.id, "v0", "v1")
    await bench.client.retry_incident(incident.id)
    assert await bench.run(await bench.claim()) is OutcomeKind.COMPLETED
    assert "WORK" in (await bench.client.get_instance(parent.id)).variables


async def test_a_child_that_ends_at_once_with_outputs_that_do_not_fit_opens_the_same_incident(
    bench: Bench,
) -> None:
    outputs = {"kikwiflow.outputs": "WORK=one, WORK=another"}
    call = a_node(
        "CALL", "CALL_ACTIVITY_COORDINATOR", "END", calledElement="child", extensionProperties=outputs
    )  # fmt: skip
    work = a_task("WORK", "END", executor="fill")
    await bench.client.deploy(text(a_start("WORK"), work, an_end(), key="child"))
    await bench.client.deploy(text(a_start("CALL"), call, an_end()))
    seven = {f"v{n}": ALMOST_A_MEGABYTE for n in range(7)}
    parent = await bench.client.start("parcel", "P-1", variables=seven)

    assert await bench.run(await bench.claim()) is OutcomeKind.INCIDENT_OPENED

    (incident,) = (await bench.client.list_incidents(IncidentQuery())).items
    assert incident.type == "VARIABLES_TOO_LARGE"
    assert (await bench.client.get_instance(parent.id)).variables == seven


Call = Callable[[Services, "Bench", str, str, Mapping[str, object]], Awaitable[object]]


async def complete(services: Services, bench: Bench, i: str, task: str, v: Mapping[str, object]) -> None:  # fmt: skip
    await external_tasks.complete(
        services, bench._handlers.invoker(), task, variables=v, completed_by="ana"
    )


async def correlate(services: Services, bench: Bench, i: str, task: str, v: Mapping[str, object]) -> None:  # fmt: skip
    request = CorrelationRequest(key="paid", variables=v, message_id="m-1")
    await correlation.correlate(services, bench._handlers.invoker(), request)


async def set_them(services: Services, bench: Bench, i: str, task: str, v: Mapping[str, object]) -> None:  # fmt: skip
    await variables.set_variables(services, i, v, actor="ana")


@pytest.mark.parametrize("call", [complete, correlate, set_them])
async def test_what_a_caller_adds_at_the_same_time_is_refused_and_nothing_changes(
    bench: Bench, data: Database[Json], call: Call
) -> None:
    catcher = {"catchType": "STANDALONE", "providerType": "STATIC", "staticKey": "paid"}
    wait = (
        a_node("WAIT", "EVENT_CATCHER", "END", **catcher)
        if call is correlate
        else a_node("WAIT", "EXTERNAL_TASK", "END")
    )
    await bench.client.deploy(text(a_start("WAIT"), wait, an_end()))
    instance = await bench.client.start("parcel", "P-1")
    (task,) = (await bench.client.list_external_tasks(ExternalTaskQuery())).items
    services = bench.services(instance.id)
    one_more = {"more": ALMOST_A_MEGABYTE}

    with pytest.raises(VariableTooLargeError, match="MAX_DOCUMENT_BYTES"):
        await call(services, bench, instance.id, task.id, one_more)

    late: Any = services.runtime
    assert snapshot(data) == late.before
    await bench.client.unset_variables(instance.id, "v0", "v1", "v2", "v3", "v4", "v5", "v6")
    await call(bench.client.services, bench, instance.id, task.id, one_more)
    after = await bench.client.get_instance(instance.id)
    assert after.variables["more"] == ALMOST_A_MEGABYTE


async def test_variables_with_which_a_person_resolves_are_refused_and_the_incident_stays_open(
    bench: Bench,
) -> None:
    work = a_task("WORK", "END", executor="spoil", commitBefore=True)
    await bench.client.deploy(text(a_start("WORK"), work, an_end()))
    instance = await bench.client.start("parcel", "P-1")
    await bench.run(await bench.claim())
    (incident,) = (await bench.client.list_incidents(IncidentQuery())).items
    bench.fill_up(instance.id)
    mended = {"mended": ALMOST_A_MEGABYTE}

    with pytest.raises(VariableTooLargeError, match="MAX_DOCUMENT_BYTES"):
        await bench.client.retry_incident(incident.id, variables=mended)

    assert (await bench.client.get_instance(instance.id)).variables == FILLED
    (still,) = (await bench.client.list_incidents(IncidentQuery())).items
    assert still.status is IncidentStatus.OPEN
    (task,) = (await bench.client.list_tasks(TaskQuery())).items
    assert task.status == "ERROR"


async def test_the_largest_instance_that_fits_ends_with_its_event_and_its_record(
    mongo_server: MongoServer, data: Database[Json]
) -> None:
    async with a_bench(mongo_server, data, OutboxOptions(level=EventLevel.FULL)) as bench:
        instance = await put_instance(bench.store)
        await _fill_to_the_byte(bench.store, data, instance.id)

        await bench.store.runtime.commit(
            UnitOfWork((), (EndPath(instance.id, instance.started_at),))
        )

    (event,) = data.outbox_events.find({"eventType": "PROCESS_INSTANCE_FINISHED"})
    (record,) = data.process_history.find()
    assert len(event["payload"]["variables"]) == len(record["variables"]) > 13


async def test_an_instance_is_filled_to_the_last_byte_and_no_further(
    bench: Bench, data: Database[Json]
) -> None:
    instance = await put_instance(bench.store)
    last = await _fill_to_the_byte(bench.store, data, instance.id)
    before = snapshot(data)

    # The same again replaces what is there: nothing is added.
    await _set(bench.store, instance.id, last=last)
    with pytest.raises(VariableTooLargeError, match=r"14,680,065 bytes.*MAX_DOCUMENT_BYTES"):
        await bench.store.runtime.commit(
            UnitOfWork(
                (),
                (
                    InsertTask(a_row()),
                    ChangeVariables(instance.id, (SetVariable("last", last + "x"),)),
                ),
            )
        )

    assert snapshot(data) == before
    unset = ChangeVariables(instance.id, (UnsetVariable("v1"),))
    await bench.store.runtime.commit(UnitOfWork((), (unset,)))


async def _fill_to_the_byte(store: MongoStore, data: Database[Json], instance_id: str) -> str:
    """Fill an instance with variables until its document has exactly the limit; return the last variable."""
    for n in range(13):
        await _set(store, instance_id, **{f"v{n}": ALMOST_A_MEGABYTE})
    await _set(store, instance_id, last="")
    size = len(encode(data.process_instances.find_one({"_id": instance_id}), codec_options=CODEC_OPTIONS))  # fmt: skip
    last = "x" * (MAX_DOCUMENT_BYTES - size)
    await _set(store, instance_id, last=last)
    return last


async def _set(store: MongoStore, instance_id: str, **values: str) -> None:
    sets = tuple(SetVariable(name, value) for name, value in values.items())
    await store.runtime.commit(UnitOfWork((), (ChangeVariables(instance_id, sets),)))
