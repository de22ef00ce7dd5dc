"""How long visits of nodes lasted, as outbox events tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kikwiflow_worker.model.events import EventType, NodeStatus
from kikwiflow_worker.store.mongo.driver import Collection, settled
from kikwiflow_worker.store.mongo.windows import MAX_TIME_MS

MOST_SAMPLED = 50
"""Visits of a node that its average is of, at most: the newest."""

_FEWEST_SAMPLED = 5
_SAMPLED_IN_ALL = 10_000
"""Events that all nodes together are sampled by, unless there are so many that each would have less than the fewest."""

_NODES_AT_ONCE = 200
"""Of one command, each a look of its own at the index: a command for each takes five times as long (measured)."""


@dataclass(frozen=True, slots=True)
class Average:
    """How long a visit of a node lasts, and how many visits that is the average of."""

    length: timedelta
    sampled: int


@dataclass(frozen=True, slots=True)
class _Visits:
    """Events that tell how long a visit of a node took; an index leads to them by version, node and time."""

    event: EventType
    node: str
    begun: str
    ended: str

    def stages(
        self, definition_id: str, node_id: str, tenant_id: str | None, sample: int
    ) -> list[dict[str, Any]]:
        """Return the stages that give the average of a node's newest visits; nothing if there is none to tell."""
        begun, ended = f"payload.{self.begun}", f"payload.{self.ended}"
        tells: dict[str, Any] = {
            begun: {"$type": "date"},
            ended: {"$type": "date"},
            "payload.nodeExecutionStatus": {"$in": [NodeStatus.SUCCESS.value, None]},
        }
        if tenant_id is not None:
            tells["payload.tenantId"] = tenant_id
        node = {
            "eventType": self.event.value,
            "processDefinitionId": definition_id,
            f"payload.{self.node}": node_id,
        }
        length = {"$subtract": [f"${ended}", f"${begun}"]}
        return [
            {"$match": node},
            {"$sort": {"timestamp": -1}},
            {"$limit": sample},
            {"$match": tells},
            {
                "$group": {
                    "_id": f"$payload.{self.node}",
                    "length": {"$avg": length},
                    "sampled": {"$sum": 1},
                }
            },
        ]


_STEPS = _Visits(EventType.FLOW_NODE_FINISHED, "flowNodeDefinitionId", "startedAt", "finishedAt")
_WAITS = _Visits(EventType.EXTERNAL_TASK_COMPLETED, "taskDefinitionId", "createdAt", "completedAt")


async def average_visits(
    events: Collection, definition_id: str, node_ids: Sequence[str], tenant_id: str | None
) -> Mapping[str, Average]:
    """Return the averages of those of the nodes whose visits are known, of one tenant or of all."""
    sample = max(_FEWEST_SAMPLED, min(MOST_SAMPLED, _SAMPLED_IN_ALL // max(1, len(node_ids))))
    found: dict[str, Average] = {}
    for visits in (_STEPS, _WAITS):
        left = [node_id for node_id in node_ids if node_id not in found]
        for at in range(0, len(left), _NODES_AT_ONCE):
            parts = [
                visits.stages(definition_id, node_id, tenant_id, sample)
                for node_id in left[at : at + _NODES_AT_ONCE]
            ]
            found |= await _averages(events, parts)
    return found


async def _averages(
    events: Collection, parts: Sequence[list[dict[str, Any]]]
) -> dict[str, Average]:
    first, *others = parts
    pipeline = [
        *first,
        *({"$unionWith": {"coll": events.name, "pipeline": other}} for other in others),
    ]
    cursor = await settled(events.aggregate(pipeline, maxTimeMS=MAX_TIME_MS))
    return {
        row["_id"]: Average(timedelta(milliseconds=row["length"]), row["sampled"])
        for row in await cursor.to_list(len(parts))
    }
