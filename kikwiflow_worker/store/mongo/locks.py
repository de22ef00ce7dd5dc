"""Renewing locks over a synchronous connection of its own, which no handler can starve."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from pymongo import MongoClient

from kikwiflow_worker.model.runtime import Claim, TaskStatus
from kikwiflow_worker.store.mongo.claim_filters import lock_end, release_pipeline
from kikwiflow_worker.store.mongo.driver import (
    CODEC_OPTIONS,
    MAJORITY_READ,
    Document,
    client_options,
)
from kikwiflow_worker.store.mongo.errors import translated, translated_opening

_QUIET: Mapping[str, Any] = {"serverMonitoringMode": "poll", "heartbeatFrequencyMS": 60_000}
"""A second client need not watch the servers all the time: a renewal that fails makes it look at once."""


class MongoLockKeeper:
    """Renews locks. Use it from one thread."""

    def __init__(self, uri: str, database: str) -> None:
        with translated_opening():
            options = client_options(uri, maxPoolSize=2, **_QUIET)
            self._client: MongoClient[Document] = MongoClient(uri, connect=False, **options)
        tasks = self._client.get_database(database, codec_options=CODEC_OPTIONS)["executable_tasks"]
        self._tasks = tasks
        self._majority_tasks = tasks.with_options(read_concern=MAJORITY_READ)
        self._suspects: frozenset[tuple[str, int]] = frozenset()

    def renew(self, claims: Sequence[Claim], *, lock: timedelta) -> frozenset[Claim]:
        """Renew ``claims``; return those that are lost. See ``LockKeeper.renew``."""
        if not claims:
            return frozenset()
        ends = lock_end(lock)
        found = self._held(claims)
        with translated("renewing locks"):
            renewed = self._tasks.update_many(
                found, [{"$set": {"lockExpiresAt": ends, "claimableAt": ends}}]
            )
            if renewed.matched_count == len(claims):
                return frozenset()
            alive = {(row["_id"], row["epoch"]) for row in self._tasks.find(found, {"epoch": 1})}
        return frozenset(claim for claim in claims if (claim.task_id, claim.epoch) not in alive)

    def release_unknown(self, worker_id: str, *, known: frozenset[str]) -> int:
        """Release what is locked under our name without our knowing. See ``LockKeeper.release_unknown``."""
        mine = {
            "workerId": worker_id,
            "status": TaskStatus.LOCKED.value,
            "_id": {"$nin": sorted(known)},
        }
        with translated("looking for unknown locks"):
            found = frozenset(
                (row["_id"], row["epoch"]) for row in self._majority_tasks.find(mine, {"epoch": 1})
            )
            released = 0
            for task_id, epoch in found & self._suspects:
                one = {
                    "_id": task_id,
                    "workerId": worker_id,
                    "epoch": epoch,
                    "status": TaskStatus.LOCKED.value,
                }
                released += self._tasks.update_one(one, release_pipeline()).matched_count
        self._suspects = found
        return released

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _held(self, claims: Sequence[Claim]) -> Document:
        by_epoch: dict[tuple[str, int], list[str]] = defaultdict(list)
        for claim in claims:
            by_epoch[claim.worker_id, claim.epoch].append(claim.task_id)
        arms = [
            {
                "_id": {"$in": ids},
                "workerId": worker_id,
                "epoch": epoch,
                "status": TaskStatus.LOCKED.value,
            }
            for (worker_id, epoch), ids in by_epoch.items()
        ]
        return {"$or": arms}
