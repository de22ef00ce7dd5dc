"""Who fetches which topics and nodes, for people: records of external workers, beside what workers of our own say about themselves."""

import math
from dataclasses import dataclass, field

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.model.runtime import TopicNode
from kikwiflow_worker.store.external_work import Fetch
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.figures import SILENT_S
from kikwiflow_worker.store.mongo.queries import encode_worker
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.views import WorkerRecord

EVERY_S = 10.0
"""Between two records of a worker, at least: as often as workers of our own record themselves."""

MAX_WORKERS = 10_000
"""Remembered; beyond it, the one that has not fetched for longest is forgotten, and recorded at its next fetch."""

MAX_SOURCES = 200
"""Topics and nodes remembered of one worker: those it fetched last."""


@dataclass(slots=True)
class _Fetcher:
    """What a worker has fetched lately.

    Attributes:
        recorded_at: Seconds, monotonic.
        sources: Topics and nodes, with the instant, in the same seconds, until which a task of it may keep the worker busy.
    """

    recorded_at: float = -math.inf
    sources: dict[str | TopicNode, float] = field(default_factory=dict)

    def fetches(self, fetch: Fetch, now: float) -> None:
        """Note a fetch, and forget what was not fetched for so long that the worker would be silent."""
        named: tuple[str | TopicNode, ...] = (*sorted(fetch.topics), *sorted(fetch.nodes))
        lately = {
            source: busy_until
            for source, busy_until in self.sources.items()
            if busy_until + SILENT_S > now and source not in named
        }
        lately |= dict.fromkeys(named, now + fetch.lock.total_seconds())
        self.sources = dict(list(lately.items())[-MAX_SOURCES:])

    @property
    def topics(self) -> tuple[str, ...]:
        """Those it fetched lately."""
        return tuple(sorted(each for each in self.sources if isinstance(each, str)))

    @property
    def nodes(self) -> tuple[TopicNode, ...]:
        """Those it fetched lately."""
        return tuple(sorted(each for each in self.sources if isinstance(each, TopicNode)))


class FetchRecords:
    """Records fetches, each worker of each tenant at most every ``EVERY_S``."""

    def __init__(self, collections: Collections, server_time: ServerTime, clock: Clock) -> None:
        self._workers = collections.workers
        self._time = server_time
        self._clock = clock
        self._fetchers: dict[tuple[str, str | None], _Fetcher] = {}

    async def record(self, fetch: Fetch) -> None:
        """Note a fetch, and record its worker if that was not done lately."""
        now = self._clock.monotonic()
        fetcher = self._remembered(fetch.worker_id, fetch.tenant_id)
        fetcher.fetches(fetch, now)
        if now - fetcher.recorded_at < EVERY_S:
            return
        # Before the write: one that fails is not tried again by each fetch that follows.
        fetcher.recorded_at = now
        await self._write(fetch, fetcher, now)

    def _remembered(self, worker_id: str, tenant_id: str | None) -> _Fetcher:
        key = (worker_id, tenant_id)
        fetcher = self._fetchers.pop(key, None) or _Fetcher()
        self._fetchers[key] = fetcher
        if len(self._fetchers) > MAX_WORKERS:
            del self._fetchers[next(iter(self._fetchers))]
        return fetcher

    async def _write(self, fetch: Fetch, fetcher: _Fetcher, now: float) -> None:
        seen_at = self._time.now()
        record = WorkerRecord(
            id=fetch.worker_id,
            instance_name=fetch.worker_id.rpartition("/")[2],
            # What it does not say is empty, so that an older release reads the record.
            host="",
            pid=0,
            version="",
            started_at=seen_at,
            seen_at=seen_at,
            state="running",
            slots=0,
            running=0,
            handlers=fetcher.topics,
            nodes=fetcher.nodes,
            is_external=True,
            tenant_id=fetch.tenant_id,
            busy_s=max(fetcher.sources.values()) - now,
        )
        document = encode_worker(record)
        found = {"_id": document.pop("_id")}
        first = {"startedAt": document.pop("startedAt")}
        change = {"$set": document, "$setOnInsert": first}
        if not record.nodes:
            change["$unset"] = {"nodes": ""}
        with translated(f"recording {fetch.worker_id}"):
            await settled(self._workers.update_one(found, change, upsert=True))
