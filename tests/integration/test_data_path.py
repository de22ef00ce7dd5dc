"""What people and definitions write is data: it never becomes an operator, a path or an expression of the database.

One process runs with a poisonous text in every place where a text may stand, on the real server. All of it comes back
as it was, nothing else changes, and every command that was sent is looked at: a new pipeline update without ``$literal``,
or a new filter that takes what it is given, fails here.
"""

import base64
import inspect
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any, get_type_hints

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import (
    ConflictError,
    NotFoundError,
    OperationError,
    VariableError,
)
from kikwiflow_worker.handler import ExecutionContext, task_handler
from kikwiflow_worker.model.capability import Capabilities, Capability, HandlerKind
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.model.runtime import ClaimedTask
from kikwiflow_worker.model.texts import tenant_scoped
from kikwiflow_worker.operations.correlation import CorrelationOutcome
from kikwiflow_worker.store.mongo.locks import MongoLockKeeper
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from kikwiflow_worker.store.views import ExternalTaskQuery, IncidentQuery, InstanceQuery, TaskQuery
from tests.support.definitions import a_file, a_node, a_start, a_task, an_end
from tests.support.injections import Recorder, contents, dangers, holds, unchanged
from tests.support.stores import LOCK

Json = dict[str, Any]

POISONS = [
    "$where poison",
    "$gt poison",
    "$poison",
    "$variables.poison",
    "$$NOW poison",
    "$$poison",
    "poison.a.b",
    ".poison",
    "poison.$[]",
    "variables.poison.value",
    "__proto__ poison",
    "constructor.poison",
    "_id poison",
    '{"$gt": "poison"}',
    "%24poison%2E%00",
    "poison\n\r\t'\"\\;",
    "poison' || 1 == 1 //",
    "poison \u202e\u2028\U0001f600",
    "poison\0nul",
]
OBJECTS = [{"$gt": ""}, {"$ne": None}, ["x"], 7, True, b"x"]


@task_handler("poison handler")
def poison_handler(context: ExecutionContext) -> None:
    context.set("from handler", context.variables["text"])
    context.append("log", context.variables["text"])


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def store(mongo_uri: str, database_name: str, recorder: Recorder) -> AsyncIterator[MongoStore]:  # fmt: skip
    client: AsyncMongoClient[Json] = AsyncMongoClient(mongo_uri, event_listeners=[recorder])
    options = StoreOptions(outbox=OutboxOptions(EventLevel.FULL))
    opened = MongoStore.over(client, database_name, clock=SystemClock(), options=options)
    await opened.prepare()
    yield opened
    await client.close()


@pytest.fixture
def stored(mongo_uri: str, database_name: str) -> Iterator[Database[Json]]:
    with MongoClient[Json](mongo_uri) as client:
        yield client[database_name]


@pytest.fixture
async def client(store: MongoStore) -> AsyncIterator[Kikwiflow]:
    opened = Kikwiflow(store, handlers=[poison_handler])
    yield opened
    opened.close()


async def test_a_poisonous_text_is_the_same_everywhere_and_nothing_but_a_text(
    store: MongoStore,
    client: Kikwiflow,
    stored: Database[Json],
    recorder: Recorder,
    mongo_uri: str,
    database_name: str,
) -> None:
    bystander = await a_bystander(client)
    keeper = MongoLockKeeper(mongo_uri, database_name)
    for poison in POISONS:
        await run_everything_with(poison, store, client, stored, recorder, keeper)
    keeper.close()
    assert (await client.get_instance(bystander)).variables == {"x": "untouched"}


async def run_everything_with(
    poison: str,
    store: MongoStore,
    client: Kikwiflow,
    stored: Database[Json],
    recorder: Recorder,
    keeper: MongoLockKeeper,
) -> None:
    before = contents(stored)
    recorder.commands.clear()
    values = {"text": poison, "tree": {poison: [poison, {poison: {"$gt": poison}}]}, "log": []}
    name = poison.replace("\0", "")  # a variable's name holds no NUL
    await client.deploy(json.dumps(a_poisonous_process(poison)))
    key = a_key(poison)

    instance = await client.start(
        key,
        poison,
        variables={**values, name: poison},
        tenant_id=poison,
        origin=poison,
        started_by=poison,
        idempotency_key=poison,
    )
    again = await client.start(
        key, poison, variables=values, tenant_id=poison, idempotency_key=poison
    )
    (wait,) = (await client.list_external_tasks(ExternalTaskQuery(instance_id=instance.id))).items
    claimed = await client.claim(wait.id, assignee=poison)
    (own,) = (await client.list_external_tasks(ExternalTaskQuery(assignee=poison))).items
    await client.unclaim(wait.id, assignee=poison)
    await client.complete(wait.id, {f"{name} 2": poison}, completed_by=poison)
    await client.set_variables(instance.id, {f"{name}.3": poison}, actor=poison)
    await client.unset_variables(instance.id, f"{name}.3", actor=poison)
    delivered = await client.correlate(
        poison, {f"{name} 4": poison}, tenant_id=poison, actor=poison, message_id=poison
    )
    repeated = await client.correlate(poison, tenant_id=poison, message_id=poison)
    await claim_with(store, keeper, poison)

    assert again.id == instance.id
    assert own.id == claimed.id
    assert claimed.assignee == poison
    assert delivered.outcome is CorrelationOutcome.DELIVERED
    assert repeated.outcome is CorrelationOutcome.KNOWN
    running = await client.get_instance(instance.id)
    assert (running.business_key, running.tenant_id, running.origin, running.started_by) == (
        poison,
        poison,
        poison,
        poison,
    )
    assert running.variables == {
        **values,
        "log": [poison],
        "from handler": poison,
        name: poison,
        f"{name} 2": poison,
        f"{name} 4": poison,
    }
    for query in (
        InstanceQuery(business_key=poison),
        InstanceQuery(tenant_id=poison),
        InstanceQuery(definition_key=key),
    ):
        page = await client.list_instances(query)
        assert [item.id for item in page.items] == [instance.id]
    completed = await store.reads.find_completed_external_task(wait.id)
    assert completed is not None
    assert completed.completed_by == poison
    await client.cancel(instance.id, cancelled_by=poison)
    await client.delete(instance.id, deleted_by=poison)
    assert unchanged(before, contents(stored))
    kinds = {next(iter(command)) for command in recorder.commands}
    assert {"insert", "update", "delete", "find", "findAndModify"} <= kinds
    assert any(holds(command, poison) for command in recorder.commands if "insert" in command)
    assert dangers(recorder.commands) == []


def test_the_look_at_commands_finds_what_it_is_there_for() -> None:
    pipeline = {"update": "c", "updates": [{"q": {}, "u": [{"$set": {"a": "$poison"}}]}]}
    literal = {"update": "c", "updates": [{"q": {}, "u": [{"$set": {"a": {"$literal": "$poison"}}}]}]}  # fmt: skip
    path = {"update": "c", "updates": [{"q": {}, "u": {"$set": {"variables.poison.x": 1}}}]}
    operator = {"find": "c", "filter": {"a": {"$poison": 1}}}
    expression = {"find": "c", "filter": {"$expr": {"$eq": ["$a", "$poison"]}}}

    assert dangers([literal]) == []
    for command in (pipeline, path, operator, expression):
        assert dangers([command]), command


def text_parameters() -> list[tuple[str, str]]:
    """Return every parameter of the client that takes a text, with its method."""
    found = []
    for name, method in inspect.getmembers(Kikwiflow, inspect.isfunction):
        is_call = inspect.iscoroutinefunction(method) or name == "migrate_all"
        if name.startswith("_") or not is_call:
            continue
        hints = get_type_hints(method)
        found += [
            (name, parameter)
            for parameter in inspect.signature(method).parameters
            if hints.get(parameter) in (str, str | None) and (name, parameter) not in NO_NAMES
        ]
    return found


NO_NAMES = {
    ("deploy", "name"),  # only for messages
    ("list_instances", "cursor"),
    ("list_tasks", "cursor"),
    ("list_external_tasks", "cursor"),
    ("list_incidents", "cursor"),
}


async def test_an_object_in_place_of_a_text_is_refused_by_every_call_and_changes_nothing(
    client: Kikwiflow, stored: Database[Json]
) -> None:
    await a_bystander(client)
    before = contents(stored)
    checked = text_parameters()
    assert len(checked) > 30

    for name, parameter in checked:
        for value in (*OBJECTS, "\ud800"):
            with pytest.raises((OperationError, VariableError)) as refused:
                await called(client, name, {parameter: value})
            assert type(refused.value) is not NotFoundError, (name, parameter, value)
            assert type(refused.value) is not ConflictError, (name, parameter, value)

    assert contents(stored) == before


async def test_an_object_in_a_filter_of_a_list_is_refused(client: Kikwiflow) -> None:
    lists: dict[Any, Any] = {
        InstanceQuery: client.list_instances,
        TaskQuery: client.list_tasks,
        ExternalTaskQuery: client.list_external_tasks,
        IncidentQuery: client.list_incidents,
    }
    for kind, listing in lists.items():
        hints = get_type_hints(kind)
        texts = [each.name for each in fields(kind) if hints[each.name] == str | None]
        assert texts
        for name in texts:
            for value in (*OBJECTS, "\ud800"):
                with pytest.raises(OperationError, match=r"give a text|Unicode"):
                    await listing(kind(**{name: value}))
    with pytest.raises(OperationError):
        await client.reads.list_definitions(key={"$gt": ""})  # type: ignore[arg-type]


def a_cursor(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


FORGED: list[object] = [
    ["2024-01-01T00:00:00+00:00", {"$gt": ""}],
    ["2024-01-01T00:00:00+00:00", ["x"]],
    ["2024-01-01T00:00:00+00:00", 7],
    ["2024-01-01T00:00:00+00:00", "\ud800"],
    [{"$gt": ""}, "x"],
    ["0001-01-01T00:00:00+14:00", "x"],
    {"$where": "1"},
    "text",
    None,
    [[[]]],
]


async def test_a_forged_cursor_is_refused(client: Kikwiflow) -> None:
    await a_bystander(client)
    for listing in (
        client.list_instances,
        client.list_tasks,
        client.list_external_tasks,
        client.list_incidents,
    ):
        for content in FORGED:
            with pytest.raises(OperationError, match="the cursor is not one that a page gave"):
                await listing(cursor=a_cursor(content))


async def test_names_of_different_tenants_never_meet(client: Kikwiflow) -> None:
    await client.deploy(json.dumps(a_poisonous_process("plain poison")))
    key, names = a_key("plain poison"), [(None, "b\nc"), ("", "b\nc"), ("b", "c"), ("\nb", "c"), ("b\n", "c"), ("%", "b\nc"), ("%0A", "c")]  # fmt: skip
    values = {"text": "x", "tree": {}, "log": []}

    instances = [
        await client.start(key, "k", variables=values, tenant_id=tenant, idempotency_key=name)
        for tenant, name in names
    ]
    kept = [
        await client.correlate("nobody", tenant_id=tenant, message_id=name, keep_for=timedelta(1))
        for tenant, name in names
    ]

    assert len({instance.id for instance in instances}) == len(names)
    assert {message.outcome for message in kept} == {CorrelationOutcome.KEPT}
    assert len({tenant_scoped(name, tenant) for tenant, name in names}) == len(names)


async def test_starts_of_different_keys_with_one_idempotency_key_in_two_tenants_are_two(
    client: Kikwiflow,
) -> None:
    values = {"text": "x", "tree": {}, "log": []}
    pairs = [("a in b", "c"), ("a", "b in c")]
    for key, _ in pairs:
        await client.deploy(json.dumps(a_poisonous_process("plain poison") | {"key": key}))

    started = [
        await client.start(key, "k", variables=values, tenant_id=tenant, idempotency_key="1")
        for key, tenant in pairs
    ]

    assert started[0].id != started[1].id


async def test_a_node_may_be_called_what_the_engine_calls_its_own_rows(client: Kikwiflow) -> None:
    thrower = a_node(
        "THROW",
        "EVENT_THROWER",
        "message",
        providerType="STATIC",
        staticKey="nobody waits",
        extensionProperties={"kikwiflow.keepFor": "P1D"},
    )
    rest = a_task("keeper", "END", executor="nobody has this")
    inline = a_task("message", "keeper", executor="poison handler")
    file = a_file(a_start("THROW"), thrower, inline, rest, an_end())
    await client.deploy(json.dumps(file))

    instance = await client.start("parcel", "k", variables={"text": "x"})

    (task,) = (await client.list_tasks(TaskQuery(instance_id=instance.id))).items
    assert task.node_id == "keeper"


def a_key(poison: str) -> str:
    return f"{poison} key"


def a_handler(poison: str) -> str:
    return f"{poison} handler".replace(":", "")  # no handler's name holds a colon


def a_poisonous_process(poison: str) -> Json:
    """Return a process with the text in every id, name and handler: a wait, a message, a split, and a rest."""

    def node(number: int) -> str:
        return f"{poison} {number}"

    catcher = a_node(node(3), "EVENT_CATCHER", node(4), catchType="STANDALONE", providerType="VARIABLE", providerVariable="text", name=poison)  # fmt: skip
    split = a_node(node(4), "PARALLEL_GATEWAY", node(5), node(6), targetJoinId=node(7), name=poison)
    nodes = [
        a_start(node(1)),
        a_task(node(1), node(2), executor="poison handler", name=poison, description=poison),
        a_node(node(2), "EXTERNAL_TASK", node(3), name=poison, description=poison),
        catcher,
        split,
        a_task(node(5), node(7), executor="poison handler", name=poison),
        a_task(node(6), node(7), executor=a_handler(poison), name=poison),
        a_node(node(7), "JOIN_GATEWAY", "END"),
        an_end(),
    ]
    return dict(a_file(*nodes, key=a_key(poison), name=poison, description=poison))


async def a_bystander(client: Kikwiflow) -> str:
    """Return an instance that rests beside what a test does."""
    wait = a_node("WAIT", "EXTERNAL_TASK", "END")
    await client.deploy(json.dumps(a_file(a_start("WAIT"), wait, an_end(), key="bystander")))
    started = await client.start("bystander", "aside", variables={"x": "untouched"}, tenant_id="t")
    return started.id


async def claim_with(store: MongoStore, keeper: MongoLockKeeper, poison: str) -> None:
    """Claim, renew, look for and give back what waits, under a poisonous name of a worker."""
    held: list[ClaimedTask] = []
    names = a_handler(poison), "poison handler"
    mine = Capabilities([Capability(HandlerKind.TASK_HANDLER, name) for name in names])
    for limit in (1, 10):  # one by one, and in a batch with its token
        while found := await store.queue.claim_due(
            worker_id=poison, lock=LOCK, capabilities=mine, limit=limit
        ):
            held += found
            if limit == 1:
                break
    assert held
    assert {claimed.task.worker_id for claimed in held} == {poison}
    assert keeper.renew([claimed.claim for claimed in held], lock=LOCK) == frozenset()
    assert keeper.release_unknown(poison, known=frozenset()) == 0
    for claimed in held:
        assert await store.queue.release(claimed.claim)


async def called(client: Kikwiflow, name: str, given: Mapping[str, object]) -> None:
    """Call a method of the client with what is given and with harmless texts for the rest."""
    method = getattr(client, name)
    arguments: Json = {
        parameter.name: "harmless"
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind is not inspect.Parameter.VAR_POSITIONAL
    }
    if "values" in arguments:
        arguments["values"] = {}
    if "timeout_s" in arguments:
        arguments["timeout_s"] = 0
    if name == "override_task":
        arguments["retries"] = 1
    if name == "start":
        arguments["key"] = "bystander"
    if name == "set_variables":
        arguments["instance_id"] = "harmless"
    if "names" in given:
        result = method("harmless", given["names"])
    else:
        result = method(**{**arguments, **given})
    if inspect.isasyncgen(result):
        async for _ in result:
            pass
    else:
        await result
