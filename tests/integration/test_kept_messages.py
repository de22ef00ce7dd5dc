"""Messages that come before somebody waits for them, and messages that come twice."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.engine.messages import Receiver
from kikwiflow_worker.errors import NotFoundError, OperationError
from kikwiflow_worker.model.capability import NO_CAPABILITIES
from kikwiflow_worker.model.runtime import ExternalTask
from kikwiflow_worker.operations.correlation import (
    CorrelationOutcome,
    CorrelationRequest,
    correlate,
)
from kikwiflow_worker.operations.execution import OutcomeKind, execute_task
from kikwiflow_worker.operations.services import Invoker, Services
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.protocol import RuntimeStore
from kikwiflow_worker.store.views import TaskQuery
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.registry import HandlerRegistry
from tests.support.definitions import a_file, a_node, a_start, an_end
from tests.support.stores import claim_next

pytestmark = pytest.mark.mongo

CATCHER = a_node(
    "PAID",
    "EVENT_CATCHER",
    "END",
    catchType="STANDALONE",
    providerType="VARIABLE",
    providerVariable="order",
)
HOUR = timedelta(hours=1)


class Side:
    """A client, and a worker loop that runs what is due."""

    def __init__(self, client: Kikwiflow, store: MongoStore) -> None:
        self.client = client
        self.kinds: list[OutcomeKind] = []
        self._store = store
        self._handlers = HandlerRuntime(HandlerRegistry(), threads=1)

    @property
    def invoker(self) -> Invoker:
        return self._handlers.invoker()

    async def work(self) -> int:
        """Run everything that is due; return how many tasks ran."""
        runs = 0
        while True:
            claimed = await claim_next(self._store, NO_CAPABILITIES)
            if claimed is None:
                self._handlers.close()
                return runs
            services = self.client.services
            invoker = self._handlers.invoker()
            outcome = await execute_task(services, invoker, claimed, services.runtime.commit)
            self.kinds.append(outcome.kind)
            runs += 1


@pytest.fixture
async def side(mongo_uri: str, database_name: str) -> AsyncIterator[Side]:
    store = MongoStore.open(mongo_uri, database_name, clock=SystemClock())
    await store.prepare()
    client = Kikwiflow(store)
    await client.deploy(json.dumps(a_file(a_start("PAID"), CATCHER, an_end())))
    yield Side(client, store)
    client.close()
    await store.close()


@pytest.mark.field_case("S-72")
async def test_a_message_is_kept_until_somebody_waits_for_it(side: Side) -> None:
    kept = await side.client.correlate("O-1", {"amount": 7}, keep_for=HOUR)
    await side.work()
    instance = await side.client.start("parcel", "P-1", variables={"order": "O-1"})

    await side.work()

    ended = await side.client.get_instance(instance.id)
    assert kept.outcome is CorrelationOutcome.KEPT
    assert side.kinds == [OutcomeKind.KEPT, OutcomeKind.COMPLETED]
    assert (ended.status, ended.variables) == ("COMPLETED", {"order": "O-1", "amount": 7})
    assert (await side.client.list_tasks(TaskQuery())).items == ()


async def test_a_kept_message_is_delivered_once(side: Side) -> None:
    await side.client.correlate("O-1", keep_for=HOUR, message_id="m-1")
    first = await side.client.start("parcel", "P-1", variables={"order": "O-1"})
    second = await side.client.start("parcel", "P-2", variables={"order": "O-1"})

    await side.work()

    statuses = [(await side.client.get_instance(one.id)).status for one in (first, second)]
    assert sorted(statuses) == ["ACTIVE", "COMPLETED"]


@pytest.mark.field_case("S-72")
async def test_a_message_with_a_known_id_changes_nothing(side: Side) -> None:
    instance = await side.client.start("parcel", "P-1", variables={"order": "O-1"})
    other = await side.client.start("parcel", "P-2", variables={"order": "O-1"})

    first = await side.client.correlate("O-1", message_id="m-1")
    again = await side.client.correlate("O-1", message_id="m-1")

    assert (first.outcome, again.outcome) == (
        CorrelationOutcome.DELIVERED,
        CorrelationOutcome.KNOWN,
    )
    assert (await side.client.get_instance(instance.id)).status == "COMPLETED"
    assert (await side.client.get_instance(other.id)).status == "ACTIVE"


async def test_the_same_message_at_once_is_delivered_once(side: Side) -> None:
    for number in range(8):
        await side.client.start("parcel", f"P-{number}", variables={"order": "O-1"})

    sends = [side.client.correlate("O-1", message_id="m-1") for _ in range(8)]
    found = [correlation.outcome for correlation in await asyncio.gather(*sends)]

    assert found.count(CorrelationOutcome.DELIVERED) == 1
    assert found.count(CorrelationOutcome.KNOWN) == 7


class Overtaken:
    """A runtime that lets others act between the look for who waits and the read of its instance."""

    def __init__(self, runtime: RuntimeStore, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._runtime = runtime
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    def __getattr__(self, name: str) -> object:
        return getattr(self._runtime, name)

    async def find_waiting(self, key: str, **among: Any) -> ExternalTask | None:
        """Answer as the database did a moment ago."""
        found = await self._runtime.find_waiting(key, **among)
        if meanwhile := self._meanwhile:
            self._meanwhile = None
            await meanwhile()
        return found


def overtaken(side: Side, meanwhile: Callable[[], Awaitable[object]]) -> Services:
    runtime = cast("RuntimeStore", Overtaken(side.client.services.runtime, meanwhile))
    return replace(side.client.services, runtime=runtime)


async def test_a_message_whose_receiver_goes_meanwhile_reaches_the_next(side: Side) -> None:
    first = await side.client.start("parcel", "P-1", variables={"order": "O-1"})
    second = await side.client.start("parcel", "P-2", variables={"order": "O-1"})
    services = overtaken(side, lambda: side.client.correlate("O-1"))

    found = await correlate(services, side.invoker, CorrelationRequest(key="O-1", variables={}))

    assert found.outcome is CorrelationOutcome.DELIVERED
    ended = [(await side.client.get_instance(one.id)).status for one in (first, second)]
    assert ended == ["COMPLETED", "COMPLETED"]


async def test_each_who_could_get_a_message_is_checked_before(side: Side) -> None:
    first = await side.client.start("parcel", "P-1", variables={"order": "O-1"})
    second = await side.client.start("parcel", "P-2", variables={"order": "O-1"})
    asked: list[str | None] = []

    async def check(receiver: Receiver | None) -> None:
        asked.append(receiver.instance.id if receiver else None)
        if receiver is not None and receiver.instance.id == first.id:
            await side.client.cancel(first.id)
        else:
            raise OperationError("not to this one")

    request = CorrelationRequest(key="O-1", variables={})
    with pytest.raises(OperationError, match="not to this one"):
        await correlate(side.client.services, side.invoker, request, check=check)

    assert asked == [first.id, second.id]
    assert (await side.client.get_instance(second.id)).ended_at is None


async def test_a_message_that_its_twin_has_taken_the_receiver_from_is_known(side: Side) -> None:
    await side.client.start("parcel", "P-1", variables={"order": "O-1"})
    request = CorrelationRequest(key="O-1", variables={}, message_id="m-1")
    services = overtaken(side, lambda: side.client.correlate("O-1", message_id="m-1"))

    found = await correlate(services, side.invoker, request)

    assert found.outcome is CorrelationOutcome.KNOWN


async def test_a_message_for_nobody_is_refused_unless_it_is_kept(side: Side) -> None:
    with pytest.raises(NotFoundError):
        await side.client.correlate("O-1")
    with pytest.raises(OperationError, match="365 days"):
        await side.client.correlate("O-1", keep_for=timedelta(days=1000))


async def test_tenants_do_not_get_each_others_messages(side: Side) -> None:
    await side.client.correlate("O-1", tenant_id="a", keep_for=HOUR)
    instance = await side.client.start("parcel", "P", variables={"order": "O-1"}, tenant_id="b")

    await side.work()

    assert (await side.client.get_instance(instance.id)).status == "ACTIVE"


async def test_a_message_and_its_catcher_at_once_always_meet(side: Side) -> None:
    for number in range(20):
        key = f"O-{number}"
        _, instance = await asyncio.gather(
            side.client.correlate(key, keep_for=HOUR),
            side.client.start("parcel", key, variables={"order": key}),
        )
        await side.work()

        assert (await side.client.get_instance(instance.id)).status == "COMPLETED"


THROWER = a_node("TELL", "EVENT_THROWER", "END", providerType="STATIC", staticKey="O-9")


async def test_a_throw_that_nobody_awaits_is_kept_if_the_thrower_says_so(side: Side) -> None:
    keeps = {**THROWER, "extensionProperties": {"kikwiflow.keepFor": "PT1H"}}
    await side.client.deploy(json.dumps(a_file(a_start("TELL"), keeps, an_end(), key="teller")))
    thrown = await side.client.start("teller", "T-1")
    waits = await side.client.start("parcel", "P-1", variables={"order": "O-9"})

    await side.work()

    assert thrown.status == "COMPLETED"
    assert (await side.client.get_instance(waits.id)).status == "COMPLETED"


@pytest.mark.parametrize("waits", [True, False])
async def test_a_parent_gets_the_outputs_of_its_child_that_it_asks_for(
    side: Side, waits: bool
) -> None:
    call = a_node(
        "CALL",
        "CALL_ACTIVITY_COORDINATOR",
        "END",
        calledElement="child",
        extensionProperties={"kikwiflow.outputs": "amount, order=ordered, missing"},
    )
    sign = a_node("SIGN", "EXTERNAL_TASK", "END")
    child = (a_start("SIGN"), sign, an_end()) if waits else (a_start("END"), an_end())
    await side.client.deploy(json.dumps(a_file(*child, key="child")))
    await side.client.deploy(json.dumps(a_file(a_start("CALL"), call, an_end(), key="caller")))
    parent = await side.client.start("caller", "C-1", variables={"order": "O-1", "amount": 1})

    await side.work()
    if waits:
        (task,) = (await side.client.list_external_tasks()).items
        await side.client.complete(task.id, {"amount": 2, "secret": True})
        await side.work()

    ended = await side.client.get_instance(parent.id)
    assert ended.status == "COMPLETED"
    assert ended.variables == {"order": "O-1", "ordered": "O-1", "amount": 2 if waits else 1}


async def test_a_message_that_its_receiver_cannot_take_stays_kept(side: Side) -> None:
    big = "x" * 900_000
    await side.client.correlate("O-1", {"amount": big}, keep_for=HOUR)
    full = {f"v{number}": big for number in range(9)}
    instance = await side.client.start("parcel", "P-1", variables={"order": "O-1", **full})

    await side.work()

    (keeper,) = (await side.client.list_tasks(TaskQuery())).items
    assert side.kinds == [OutcomeKind.KEPT]
    assert "its receiver cannot take it" in str(keeper.error)
    assert (await side.client.get_instance(instance.id)).status == "ACTIVE"
