"""Which rows can be claimed, and what claiming and releasing make of them (protocol R2, R3)."""

from collections.abc import Iterable
from datetime import timedelta

from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.external_work import EXTERNAL_WORKER_PREFIX
from kikwiflow_worker.model.runtime import TaskStatus, TopicNode
from kikwiflow_worker.store.mongo.codec import encode_topic_node
from kikwiflow_worker.store.mongo.driver import Document
from kikwiflow_worker.store.mongo.guards import UNLOCKED

CLAIM_TIME_MS = 1_000
"""How long the server may look for a row to claim before the rows at the head are taken for locked."""

DUE: Document = {
    "claimableAt": {"$type": "date"},
    "status": {"$in": [TaskStatus.PENDING.value, TaskStatus.LOCKED.value]},
    "$expr": {"$lte": ["$claimableAt", "$$NOW"]},
}
"""What waits for a worker, or for another one, now.

``$type`` keeps out rows without the field, which ``$expr`` alone takes for earlier than every date.
"""


def due_filter(capabilities: Capabilities) -> Document:
    """Return the filter for tasks that can be claimed now by a worker with ``capabilities``."""
    return {"handlerName": {"$in": [None, *sorted(capabilities.stored)]}, **DUE}


def topic_filter(topics: Iterable[str]) -> Document:
    """Return the filter for tasks that can be claimed now and whose handler is one of ``topics``."""
    return {"handlerName": {"$in": sorted(topics)}, **DUE}


def node_filter(nodes: Iterable[TopicNode]) -> Document:
    """Return the filter for tasks that can be claimed now at one of ``nodes``."""
    return {"topicNode": {"$in": [encode_topic_node(node) for node in sorted(nodes)]}, **DUE}


def claim_pipeline(worker_id: str, lock: timedelta, *, token: str | None = None) -> list[Document]:
    """Return the update that claims a row until ``lock`` from the database's now.

    Args:
        token: Names the command that claims many rows, to find those that it won.
    """
    ends = lock_end(lock)
    is_fetch = worker_id.startswith(EXTERNAL_WORKER_PREFIX)
    lapsed = {"$cond": [{"$eq": ["$status", TaskStatus.LOCKED.value]}, 1, 0]}
    return [
        {
            "$set": {
                "status": TaskStatus.LOCKED.value,
                "workerId": {"$literal": worker_id},
                "lockExpiresAt": ends,
                "claimableAt": ends,
                "claimToken": {"$literal": token} if token else "$$REMOVE",
                # Whoever takes the report may be another process than the one that was asked.
                "fetchedAt": "$$NOW" if is_fetch else "$$REMOVE",
                "epoch": {"$add": ["$epoch", 1]},
                "crashCount": {"$add": ["$crashCount", lapsed]},
            }
        }
    ]


def release_pipeline() -> list[Document]:
    """Return the update that gives a row back: due when it was due before, at once if it had no date."""
    return [
        {
            "$set": {
                "status": TaskStatus.PENDING.value,
                "claimableAt": {"$ifNull": ["$dueDate", "$$NOW"]},
                "epoch": {"$add": ["$epoch", 1]},
            }
        },
        {"$unset": list(UNLOCKED)},
    ]


def lock_end(lock: timedelta) -> Document:
    """Return the expression for ``lock`` from the database's now."""
    return {"$add": ["$$NOW", int(lock.total_seconds() * 1000)]}
