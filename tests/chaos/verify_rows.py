"""What must not be in the active collections when a run has come to its end, and what nobody can reach in any case."""

from collections.abc import Iterator
from datetime import timedelta

from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.store.mongo.reachability_rules import Trouble
from kikwiflow_worker.store.mongo.store import MongoStore
from tests.chaos.load_shape import Json
from tests.chaos.verify_report import Kind, Violation

_NOBODYS = ["KEPT_MESSAGE", "CANCEL_CHILDREN"]
"""These belong to no instance, and may still wait for their time."""


def find_leftovers(database: Database[Json]) -> Iterator[Violation]:
    """Yield the rows that are left although every instance should have ended."""
    for row in database.executable_tasks.find({"type": {"$nin": _NOBODYS}}):
        at = f"task {row['_id']} ({row['type']}, {row['status']}) at node {row['taskDefinitionId']}"
        locked = f", locked by {row.get('workerId')}" if row["status"] == "LOCKED" else ""
        words = f"{at} of instance {row['processInstanceId']} is left{locked}"
        yield Violation(Kind.STUCK, words)
    for row in database.external_tasks.find():
        at = f"external task {row['_id']} at node {row['taskDefinitionId']}"
        yield Violation(Kind.STUCK, f"{at} of instance {row['processInstanceId']} is left")
    for incident in database.incidents.find({"status": "OPEN"}):
        at = f"incident {incident['_id']} of task {incident['executionId']}"
        where = f"node {incident['taskDefinitionId']} of instance {incident['processInstanceId']}"
        yield Violation(Kind.STUCK, f"{at} at {where} is open: {incident['message']}")


async def find_unreachable(uri: str, database: str) -> list[Violation]:
    """Return what ``kikwiflow-worker verify`` finds; nothing runs any more, so nothing is legal in passing."""
    store = MongoStore.open(uri, database, clock=SystemClock())
    try:
        reachability = await store.find_unreachable(grace=timedelta(0))
    finally:
        await store.close()
    return [
        Violation(
            Kind.DOUBLED if each.trouble is Trouble.TWICE else Kind.STUCK,
            f"{each.collection} {each.id!r} at node {each.node_id} of instance {each.instance_id}: {each.words}",
        )
        for each in reachability.found
    ]
