"""The port of workers outside this package: fetching tasks by topic or node, and keeping their locks.

A task that is locked from outside is locked as any other (protocol R2 to R5): the worker's id and the epoch are in the filter
of every write, a lock that lapsed can be fetched by another, and until then it still commits.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from kikwiflow_worker.model.external_work import WorkReport
from kikwiflow_worker.model.runtime import Claim, ClaimedTask, TopicNode

MAX_TOPICS = 20
MAX_NODES = 20
"""Of one fetch: for each of them, and each priority, the index is entered once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Who asks for tasks of which topics and nodes, and for how long each is locked.

    Attributes:
        topics: At most ``MAX_TOPICS``; with ``nodes`` at least one.
        nodes: At most ``MAX_NODES``.
        tenant_id: Whose tasks are asked for; None for those of all.
    """

    worker_id: str
    topics: frozenset[str] = frozenset()
    nodes: frozenset[TopicNode] = frozenset()
    lock: timedelta
    tenant_id: str | None = None


class ExternalWork(Protocol):
    """Tasks for external workers. With ``tenant_id``, those of one tenant only."""

    async def fetch(self, wanted: Fetch, *, limit: int) -> tuple[ClaimedTask, ...]:
        """Claim due tasks whose handler is one of the topics, and such as are at one of the nodes.

        The most urgent come first, a quarter are the oldest. A fetch by topic and by node shares its tasks between the two.
        None means that nothing is due, or that others claimed all that was seen.
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
