"""Tasks for external workers: claimed by topic or node, and fenced by worker and epoch as all others."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.model.external_work import WorkReport
from kikwiflow_worker.model.runtime import Claim, ClaimedTask
from kikwiflow_worker.store.external_work import Fetch
from kikwiflow_worker.store.mongo.batch_claims import Band
from kikwiflow_worker.store.mongo.claim_filters import (
    lock_end,
    node_filter,
    release_pipeline,
    topic_filter,
)
from kikwiflow_worker.store.mongo.claims import Claims
from kikwiflow_worker.store.mongo.codec import decode_claimed, decode_instance
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Document, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.fetch_records import FetchRecords
from kikwiflow_worker.store.mongo.guards import held
from kikwiflow_worker.store.mongo.turns import OLDEST_EVERY, OLDEST_FIRST, URGENT_FIRST
from kikwiflow_worker.store.mongo.work_reports import decode_report, report_filter

_PRIORITIES = list(range(10))
"""All of them: said where the order is by time alone, so that their ranges of the index are merged."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Due tasks that a fetch asks for, and the indexes that lead to them: by time, and by tenant and priority."""

    due: Document
    by_time: str
    by_tenant: str


class MongoExternalWork:
    """The port of external workers of one database; contracts are those of ``ExternalWork``."""

    def __init__(
        self,
        collections: Collections,
        claims: Claims,
        records: FetchRecords,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        self._tasks = collections.tasks
        self._instances = collections.instances
        self._sealing = collections.sealing
        self._reports = collections.work_reports
        self._claims = claims
        self._records = records
        self._clock = clock
        self._chance = chance

    async def fetch(self, wanted: Fetch, *, limit: int) -> tuple[ClaimedTask, ...]:
        """Claim due tasks of the topics and at the nodes."""
        sources = list(_sources(wanted))
        self._chance.shuffle(sources)
        share = -(-limit // len(sources))
        bands = [
            band for source in sources for band in self._bands(source, share, wanted.tenant_id)
        ]
        return await self._claims.claim_bands(
            bands, worker_id=wanted.worker_id, lock=wanted.lock, limit=limit
        )

    def _bands(self, source: _Source, share: int, tenant_id: str | None) -> Iterator[Band]:
        """Yield the oldest tasks and the most urgent ones: those of the tenant, or those without one."""
        whole, rest = divmod(share, OLDEST_EVERY)
        oldest = whole + (self._chance.randrange(OLDEST_EVERY) < rest)
        own = {**source.due, "tenantId": tenant_id}
        if share > oldest:
            yield Band(own, URGENT_FIRST, share - oldest, index=source.by_tenant)
        if tenant_id is None:
            # Also without a share: only here the tasks of tenants are found.
            yield Band(source.due, OLDEST_FIRST, oldest, index=source.by_time)
        elif oldest:
            by_time = {**own, "priority": {"$in": _PRIORITIES}}
            yield Band(by_time, OLDEST_FIRST, oldest, index=source.by_tenant)

    async def record_fetch(self, fetch: Fetch) -> None:
        """Note that an external worker lives and what it fetches."""
        await self._records.record(fetch)

    async def find_held(self, claim: Claim, *, tenant_id: str | None = None) -> ClaimedTask | None:
        """Return the task of a claim with its instance as it is now."""
        with translated(f"loading task {claim.task_id}"):
            row = await settled(self._tasks.find_one(_held(claim, tenant_id)))
            if row is None:
                return None
            found = {"_id": row["processInstanceId"]}
            instance = await settled(self._instances.find_one(found))
        found = {instance["_id"]: decode_instance(instance, self._sealing)} if instance else {}
        task, loaded = decode_claimed(row, found, self._sealing)
        return ClaimedTask(
            task=task,
            claim=claim,
            instance=loaded,
            # A fetch of an older release did not note when it was: none is later than the end of its lock.
            claimed_at=row.get("fetchedAt", row["lockExpiresAt"]),
            locked_until=self._clock.monotonic(),
        )

    async def extend(
        self, claim: Claim, *, lock: timedelta, tenant_id: str | None = None
    ) -> datetime | None:
        """Let the lock end ``lock`` from now."""
        ends = lock_end(lock)
        with translated(f"renewing the lock of task {claim.task_id}"):
            row = await settled(
                self._tasks.find_one_and_update(
                    _held(claim, tenant_id),
                    [{"$set": {"lockExpiresAt": ends, "claimableAt": ends}}],
                    return_document=True,
                )
            )
        return row["lockExpiresAt"] if row else None

    async def unlock(self, claim: Claim, *, tenant_id: str | None = None) -> bool:
        """Give the task back undone."""
        with translated(f"releasing task {claim.task_id}"):
            found = _held(claim, tenant_id)
            released = await settled(self._tasks.update_one(found, release_pipeline()))
        return bool(released.matched_count == 1)

    async def find_report(self, claim: Claim, *, tenant_id: str | None = None) -> WorkReport | None:
        """Return what was said about a claim."""
        found = report_filter(claim) | ({} if tenant_id is None else {"tenantId": tenant_id})
        with translated(f"looking up the report of task {claim.task_id}"):
            document = await settled(self._reports.find_one(found))
        return decode_report(document) if document else None


def _sources(wanted: Fetch) -> Iterator[_Source]:
    if wanted.topics:
        yield _Source(topic_filter(wanted.topics), "claim", "fair_claim")
    if wanted.nodes:
        yield _Source(node_filter(wanted.nodes), "node_claim", "fair_node_claim")


def _held(claim: Claim, tenant_id: str | None) -> Document:
    return held(claim) | ({} if tenant_id is None else {"tenantId": tenant_id})
