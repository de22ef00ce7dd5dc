"""Something to see on every page."""

import json
from datetime import timedelta

from kikwiflow_worker.model.bulk import BulkAction, BulkFilter
from kikwiflow_worker.operations import bulk
from kikwiflow_worker.store.views import TaskQuery, WorkerRecord
from tests.support.dead_letters import store_dead_letter
from tests.support.definitions import a_node, a_start, a_task, an_end
from tests.support.management import Managed, a_token
from tests.support.xss import HOSTILE

CRATE_NODES = (
    a_start("WEIGH"),
    a_task("WEIGH", "END", commitBefore=True, retryPolicy={"maxRetries": 5, "strategy": "LINEAR", "intervals": ["PT1H"]}),
    an_end(),
)  # fmt: skip
LETTER_NODES = (
    a_start("STAMP"),
    a_task("STAMP", "END", commitBefore=True, executor="nobody_has_it"),
    an_end(),
)
ORDER_NODES = (
    a_start("REVIEW"),
    a_node("REVIEW", "EXTERNAL_TASK", "DECIDE", name="Review the order"),
    a_node("DECIDE", "EXCLUSIVE_GATEWAY",
        {"targetNodeId": "END", "id": "yes", "name": "yes", "expectedAnswer": "true"},
        {"targetNodeId": "STAMP", "id": "no", "name": "no", "isDefault": True, "handlesNull": True},
        name="Released?", providerType="VARIABLE", providerVariable="released"),
    a_task("STAMP", "END"),
    an_end(),
)  # fmt: skip


async def fill(managed: Managed) -> dict[str, str]:
    """Store instances in every state, a bulk job and a worker; return the ids of some of them."""
    waiting = await managed.a_waiting_parcel("PARCEL-1")
    await managed.a_waiting_parcel("PARCEL-2")
    failed = await managed.a_failed_parcel("PARCEL-3")
    ended = await managed.an_ended_parcel("PARCEL-4")
    later = await managed.a_waiting_parcel("PARCEL-5")
    await managed.kikwiflow.complete((await managed.task_of(later)).id, {}, completed_by="ann")
    await managed.deploy(*CRATE_NODES, key="crate")
    await managed.kikwiflow.start("crate", "CRATE-1", variables={"broken": True})
    await managed.work()
    await managed.deploy(*LETTER_NODES, key="letter")
    await managed.kikwiflow.start("letter", "LETTER-1")
    await managed.deploy(*ORDER_NODES, key="order")
    order = await managed.kikwiflow.start("order", "ORDER-1", variables={"amount": 150})
    await managed.deploy(*ORDER_NODES, key="order", description="A second version")
    await record_worker(managed)
    dead = store_dead_letter(managed.data, "dead-1", failed.instance_id, failed.definition_id)
    job = await bulk.create(
        managed.services, BulkAction.RETRY_INCIDENTS, BulkFilter(), created_by="ann"
    )
    retried = (await managed.kikwiflow.list_tasks(TaskQuery(retrying=True))).items[0]
    return {
        "key": "order",
        "incident": failed.id,
        "job": job.id,
        "event": dead,
        "token": await a_token(managed),
        "retrying": retried.instance_id,
        "retried": retried.id,
        "waiting": waiting.id,
        "failed": failed.instance_id,
        "ended": ended.id,
        "order": order.id,
        "task": (await managed.task_of(order, "REVIEW")).id,
        "catch": (await managed.task_of(waiting, "RECALL")).id,
    }


async def record_worker(managed: Managed, name: str = "bench") -> None:
    """Let a worker have reported just now."""
    now = managed.services.runtime.now()
    record = WorkerRecord(
        id=f"{name}.1",
        instance_name=name,
        host="host-1",
        pid=4711,
        version="0.1.0",
        started_at=now - timedelta(hours=3),
        seen_at=now,
        state="running",
        slots=10,
        running=4,
        handlers=("weigh_parcel",),
        event_loop_lag_s=0.012,
    )
    await managed.services.reads.record_worker(record)


async def fill_with_malice(managed: Managed) -> dict[str, str]:
    """Store every hostile text in every place that takes a text; return the ids of the last ones."""
    ids: dict[str, str] = {}
    for number, text in enumerate(HOSTILE):
        key = f"evil-{number}"
        nodes = (
            a_start("WEIGH"),
            a_task("WEIGH", "ASK", commitBefore=True, retryPolicy={"maxRetries": 1}, name=text),
            a_node("ASK", "EXTERNAL_TASK", "DECIDE", name=text, description=text),
            a_node("DECIDE", "EXCLUSIVE_GATEWAY",
                {"targetNodeId": "END", "id": "a", "name": text, "expectedAnswer": text},
                {"targetNodeId": "END", "id": "b", "name": text, "isDefault": True},
                name=text, providerType="VARIABLE", providerVariable="answer"),
            an_end(),
        )  # fmt: skip
        await managed.deploy(*nodes, key=key, name=text, description=text)
        variables = {text.replace("\0", ""): text, "nested": {text: [text]}}
        waiting = await managed.kikwiflow.start(
            key, text, variables=variables, started_by=text, origin=text
        )
        failed = await managed.kikwiflow.start(key, text, variables={**variables, "broken": True})
        await managed.work()
        incident = await managed.incident_of(failed)
        said = {"message": text, "stackTrace": json.dumps(text) + text}
        managed.data.incidents.update_one({"_id": incident.id}, {"$set": said})
        task = await managed.task_of(waiting, "ASK")
        await managed.kikwiflow.claim(task.id, assignee=text)
        ids = {"key": key, "waiting": waiting.id, "failed": failed.id}
        event = store_dead_letter(
            managed.data,
            f"evil-{number}",
            failed.id,
            failed.definition_id,
            payload={"text": text.replace("\0", "")},
            lastError=text,
        )
        ids |= {"task": task.id, "incident": incident.id, "event": event}
    await record_worker(managed, HOSTILE[1])
    return ids
