"""Outbox events: stored with the commit that caused them, at the level that is set."""

import json
from datetime import timedelta

import pytest
from pymongo import MongoClient

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.handler import (
    EvaluationContext,
    ExecutionContext,
    answer_provider,
    task_handler,
)
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import StoreOptions
from kikwiflow_worker.store.views import ExternalTaskQuery
from tests.support.definitions import Json, a_file, a_flow, a_node, a_start, a_task, an_end

pytestmark = pytest.mark.mongo

GATEWAY = a_node(
    "GATE",
    "EXCLUSIVE_GATEWAY",
    a_flow("END", isDefault=True, id="to-end"),
    providerType="BEAN",
    providerBean="route",
)
SYNCHRONOUS = (a_start(), a_task("TASK", "GATE"), GATEWAY, an_end())
WAITS = (a_start("SIGN"), a_node("SIGN", "EXTERNAL_TASK", "END"), an_end())


@task_handler("weigh_parcel")
def weigh(ctx: ExecutionContext) -> dict[str, object]:
    return {"grams": 120}


@answer_provider("route")
def route(ctx: EvaluationContext) -> str:
    return "van"


def text(*nodes: Json) -> str:
    return json.dumps(a_file(*nodes))


def connect(uri: str, database: str, level: EventLevel):  # type: ignore[no-untyped-def]
    options = StoreOptions(outbox=OutboxOptions(level, timedelta(days=3)))
    return Kikwiflow.connect(uri, database=database, handlers=[weigh, route], options=options)


def stored(uri: str, database: str) -> list[dict[str, object]]:
    with MongoClient(uri, tz_aware=True) as client:
        found = client[database].outbox_events.find().sort([("timestamp", 1), ("position", 1)])
        return list(found)


async def test_a_synchronous_process_leaves_its_events_in_order(
    mongo_uri: str, database_name: str
) -> None:
    async with connect(mongo_uri, database_name, EventLevel.FULL) as kikwiflow:
        await kikwiflow.deploy(text(*SYNCHRONOUS))
        instance = await kikwiflow.start("parcel", "P-1", started_by="ana")

    events = sorted(stored(mongo_uri, database_name), key=lambda event: event["position"])  # type: ignore[arg-type,return-value]
    assert [event["eventType"] for event in events] == [
        "FLOW_NODE_FINISHED",
        "FLOW_NODE_FINISHED",
        "FLOW_NODE_FINISHED",
        "GATEWAY_ANSWER_RESOLVED",
        "FLOW_NODE_FINISHED",
        "PROCESS_INSTANCE_FINISHED",
        "PROCESS_INSTANCE_STARTED",
    ]
    payloads = [event["payload"] for event in events]
    assert [payload["flowNodeDefinitionId"] for payload in payloads[:3]] == [  # type: ignore[index]
        "START",
        "TASK",
        "GATE",
    ]
    assert payloads[3]["chosenFlowId"] == "to-end"  # type: ignore[index]
    assert payloads[5]["variables"] == {"grams": 120}  # type: ignore[index]
    assert payloads[6]["actorId"] == "ana"  # type: ignore[index]
    assert {event["processInstanceId"] for event in events} == {instance.id}


async def test_only_the_life_of_instances_and_tasks_is_stored_at_that_level(
    mongo_uri: str, database_name: str
) -> None:
    async with connect(mongo_uri, database_name, EventLevel.LIFECYCLE) as kikwiflow:
        await kikwiflow.deploy(text(*WAITS))
        instance = await kikwiflow.start("parcel", "P-1")
        query = ExternalTaskQuery(instance_id=instance.id)
        (task,) = (await kikwiflow.list_external_tasks(query)).items
        await kikwiflow.claim(task.id, assignee="ana")
        await kikwiflow.unclaim(task.id)
        await kikwiflow.set_variables(instance.id, {"weight": 3})
        await kikwiflow.complete(task.id, completed_by="ben")

    kinds = [str(event["eventType"]) for event in stored(mongo_uri, database_name)]
    assert sorted(kinds) == [
        "EXTERNAL_TASK_CLAIMED",
        "EXTERNAL_TASK_COMPLETED",
        "EXTERNAL_TASK_UNCLAIMED",
        "PROCESS_INSTANCE_FINISHED",
        "PROCESS_INSTANCE_STARTED",
    ]


async def test_a_variable_changed_from_outside_is_an_event_of_its_own(
    mongo_uri: str, database_name: str
) -> None:
    async with connect(mongo_uri, database_name, EventLevel.FULL) as kikwiflow:
        await kikwiflow.deploy(text(*WAITS))
        instance = await kikwiflow.start("parcel", "P-1")
        await kikwiflow.set_variables(instance.id, {"weight": 3}, actor="ana")
        await kikwiflow.unset_variables(instance.id, "weight", actor="ana")

    changed = [
        event["payload"]
        for event in stored(mongo_uri, database_name)
        if event["eventType"] == "PROCESS_VARIABLE_CHANGED"
    ]
    assert [(p["name"], p["value"], p["removed"], p["actorId"]) for p in changed] == [  # type: ignore[index]
        ("weight", 3, False, "ana"),
        ("weight", None, True, "ana"),
    ]


async def test_nothing_is_stored_unless_it_is_asked_for(mongo_uri: str, database_name: str) -> None:
    async with connect(mongo_uri, database_name, EventLevel.OFF) as kikwiflow:
        await kikwiflow.deploy(text(*SYNCHRONOUS))
        await kikwiflow.start("parcel", "P-1")

    assert stored(mongo_uri, database_name) == []
