"""Telling joins that branches have arrived: single-document updates outside the transaction (protocol R9)."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from kikwiflow_worker.model.runtime import TaskStatus
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, settled
from kikwiflow_worker.store.mongo.errors import translated

_AT_ONCE = 8
"""Joins told at the same time; more would only queue in the client."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A branch that is known, by the majority, to have ended; ``task_id`` is the row that records it."""

    task_id: str
    join_task_id: str
    branch_id: str


class Arrivals:
    """Delivers arrivals to their joins and removes their records."""

    def __init__(self, collections: Collections) -> None:
        self._tasks = collections.tasks

    async def deliver(self, arrivals: Sequence[Arrival]) -> frozenset[str]:
        """Pull the branches from their joins, all of one join at once; return the joins that this released.

        Only for arrivals that the majority knows. Idempotent: a branch counts once, however often it is delivered.
        """
        branches: dict[str, list[str]] = defaultdict(list)
        for arrival in arrivals:
            branches[arrival.join_task_id].append(arrival.branch_id)
        with translated("delivering branches to their join"):
            joins = list(branches)
            released: set[str] = set()
            for first in range(0, len(joins), _AT_ONCE):
                batch = joins[first : first + _AT_ONCE]
                pulled = await asyncio.gather(*(self._pull(join, branches[join]) for join in batch))
                released |= {join for join, is_last in zip(batch, pulled, strict=True) if is_last}
            recorded = {
                "_id": {"$in": [arrival.task_id for arrival in arrivals]},
                "status": TaskStatus.ARRIVED.value,
            }
            await settled(self._tasks.delete_many(recorded))
        return frozenset(released)

    async def deliver_found(self, *, limit: int) -> int:
        """Deliver arrivals whose own delivery was interrupted; return how many."""
        due = {
            "claimableAt": {"$type": "date"},
            "status": TaskStatus.ARRIVED.value,
            "$expr": {"$lte": ["$claimableAt", "$$NOW"]},
        }
        fields = {"joinTaskId": 1, "branchId": 1}
        with translated("looking for undelivered branches"):
            found = await self._tasks.find(due, fields).hint("arrivals").limit(limit).to_list(limit)
        arrivals = [Arrival(row["_id"], row["joinTaskId"], row["branchId"]) for row in found]
        if arrivals:
            await self.deliver(arrivals)
        return len(arrivals)

    async def _pull(self, join_task_id: str, arrived: list[str]) -> bool:
        """Remove the branches and release the join in one write; return whether that released it."""
        found = {
            "_id": join_task_id,
            "status": TaskStatus.AWAITING_BRANCHES.value,
            "pendingBranchIds": {"$in": arrived},
        }
        result = await settled(
            # The list of a join of thousands of branches is not sent back for each of them.
            self._tasks.find_one_and_update(
                found, pull_pipeline(arrived), projection={"status": 1}, return_document=True
            )
        )
        return bool(result is not None and result["status"] == TaskStatus.PENDING.value)


def pull_pipeline(arrived: list[str]) -> list[Document]:
    """Return the update that pulls ``arrived`` and makes the join due when none is left."""
    counted = {"$in": ["$$this", {"$literal": arrived}]}
    left = {"$filter": {"input": "$pendingBranchIds", "cond": {"$not": [counted]}}}
    is_last = {"$eq": ["$pendingBranchIds", []]}
    return [
        {"$set": {"pendingBranchIds": left}},
        {
            "$set": {
                "status": {"$cond": [is_last, TaskStatus.PENDING.value, "$status"]},
                "claimableAt": {"$cond": [is_last, "$$NOW", "$$REMOVE"]},
            }
        },
    ]
