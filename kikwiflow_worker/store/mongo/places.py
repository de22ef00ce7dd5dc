"""Finds rows by the node where they stand: for one version or several, for one node or all that have rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kikwiflow_worker.model.runtime import ExternalTaskType, TaskStatus, TaskType
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.store.mongo.driver import Collection, Document, settled
from kikwiflow_worker.store.mongo.ways import Condition, Way, one_of
from kikwiflow_worker.store.mongo.windows import MAX_RANGES, MAX_TIME_MS

NODE_WAY = Way("node_created", ("processDefinitionId", "taskDefinitionId"), ("type", "tenantId"))
"""The index of tasks and of external tasks by version and node."""

MAX_LOOKS = 10
"""Looks through this index that one page may consist of."""

_NO_TOKENS = (
    TaskType.ARRIVAL,
    TaskType.CANCEL_INSTANCE,
    TaskType.CANCEL_CHILDREN,
    TaskType.KEPT_MESSAGE,
    TaskType.CALL_ACTIVITY_STARTER,
    TaskType.JOIN_GATEWAY,
)

STANDING = Condition({"$nin": [each.value for each in _NO_TOKENS]})
"""The type of an executable task that is where a path stands."""

STANDING_OUTSIDE = Condition({"$nin": [ExternalTaskType.GROUP_KEY.value]})
"""The type of an external task that is."""


def is_token(row: Document) -> bool:
    """Return whether a row of an instance is where one of its paths stands; a join is, once its branches are there."""
    if "attachedToRefId" in row or row.get("type") == ExternalTaskType.GROUP_KEY:
        return False
    if row.get("type") == TaskType.JOIN_GATEWAY:
        return bool(row["status"] != TaskStatus.AWAITING_BRANCHES)
    return row.get("type") not in _NO_TOKENS and row["status"] != TaskStatus.ARRIVED


@dataclass(frozen=True, slots=True)
class Places:
    """Versions and nodes, each of them with each; as many conditions as fit into the ranges of one look."""

    definition_ids: tuple[str, ...]
    node_ids: tuple[str, ...]

    def conditions(self) -> list[dict[str, Condition]]:
        """Return the conditions of the looks that find the rows of all places; more than ``MAX_LOOKS`` are too many."""
        if not self.definition_ids or not self.node_ids:
            return []
        nodes = [
            self.node_ids[at : at + MAX_RANGES] for at in range(0, len(self.node_ids), MAX_RANGES)
        ]
        step = max(1, MAX_RANGES // len(nodes[0]))
        return [
            {"processDefinitionId": one_of(self.definition_ids[at : at + step]), "taskDefinitionId": one_of(some)}
            for some in nodes
            for at in range(0, len(self.definition_ids), step)
        ]  # fmt: skip


async def find_places(
    collection: Collection, definition_ids: Sequence[str] | None, node_id: str | None
) -> Places:
    """Return where rows of ``collection`` are, of these versions and at this node; the keys of one index tell."""
    check_texts(node_id=node_id)
    if definition_ids is not None and node_id is not None:
        return Places(tuple(definition_ids), (node_id,))
    present = await definitions_with_rows(collection)
    found = present if definition_ids is None else _both(present, definition_ids)
    if node_id is not None:
        return Places(found, (node_id,))
    nodes: set[str] = set()
    for definition_id in found:
        nodes.update(await nodes_with_rows(collection, definition_id))
    return Places(found, tuple(sorted(nodes)))


async def definitions_with_rows(collection: Collection) -> tuple[str, ...]:
    """Return the versions that have rows here."""
    return _texts(await settled(collection.distinct("processDefinitionId", maxTimeMS=MAX_TIME_MS)))


async def nodes_with_rows(collection: Collection, definition_id: str) -> tuple[str, ...]:
    """Return the nodes of one version that have rows here."""
    found = {"processDefinitionId": definition_id}
    return _texts(
        await settled(collection.distinct("taskDefinitionId", found, maxTimeMS=MAX_TIME_MS))
    )


def _both(present: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(present) & set(wanted)))


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(sorted(value for value in values if isinstance(value, str)))
