"""The port of workers outside this package: fetching tasks by topic, and keeping their locks.

A task that is locked from outside is locked as any other (protocol R2 to R5): the worker's id and the epoch are in the filter
of every write, a lock that lapsed can be fetched by another, and until then it still commits.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from kikwiflow_worker.model.external_work import WorkReport
from kikwiflow_worker.model.runtime import Claim, ClaimedTask

MAX_TOPICS = 20
"""Of one fetch: for each of them, and each priority, the index is entered once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Who asked for tasks of which topics, and for how long each would be locked."""

    worker_id: str
    topics: frozenset[str]
    lock: timedelta
    tenant_id: str | None = None


class ExternalWork(Protocol):
    """Tasks for external workers. With ``tenant_id``, those of one tenant only."""

    async def claim_topics(
        self,
        *,
        worker_id: str,
        lock: timedelta,
        topics: Collection[str],
        limit: int,
        tenant_id: str | None = None,
    ) -> tuple[ClaimedTask, ...]:
        """Claim due tasks whose handler is one of ``topics``: the most urgent first, a quarter of them the oldest.

        None means that nothing is due, or that others claimed all that was seen.

        Args:
            topics: At most ``MAX_TOPICS``.
        """
        ...

    async def record_fetch(self, fetch: Fetch) -> None:
        """Note that an external worker lives and what it fetches, at most every ten seconds: for people, as ``WorkerRecord``.

        Nothing depends on it: a fetch whose record cannot be written has fetched all the same.
        """
        ...

    async def find_held(self, claim: Claim, *, tenant_id: str | None = None) -> ClaimedTask | None:
        """Return the task of a claim with its instance as it is now; None if the claim is lost."""
        ...

    async def extend(
        self, claim: Claim, *, lock: timedelta, tenant_id: str | None = None
    ) -> datetime | None:
        """Let the lock end ``lock`` from now; return when that is, None if the claim is lost."""
        ...

    async def unlock(self, claim: Claim, *, tenant_id: str | None = None) -> bool:
        """Give the task back undone, due as before; False if the claim is lost. Uses no attempt."""
        ...

    async def find_report(self, claim: Claim, *, tenant_id: str | None = None) -> WorkReport | None:
        """Return what was said about a claim, as the majority knows it."""
        ...
