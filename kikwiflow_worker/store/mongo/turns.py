"""Whose turn it is: tenants one after another, and now and then whatever has waited longest (ADR 0019)."""

from collections.abc import AsyncIterator
from typing import TypeAlias

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.store.mongo.driver import Collection, Document, Session, settled
from kikwiflow_worker.store.mongo.rotation import MAX_TENANTS, TenantRotation

Sort: TypeAlias = list[tuple[str, int]]

OLDEST_FIRST: Sort = [("claimableAt", 1)]
URGENT_FIRST: Sort = [("priority", -1), ("claimableAt", 1)]

OLDEST_EVERY = 4
"""One of so many claims takes what has been claimable longest, so that no priority and no tenant waits for ever."""


class Turns:
    """The turns of one worker."""

    def __init__(self, tasks: Collection, clock: Clock) -> None:
        self._tasks = tasks
        self._rotation = TenantRotation(clock)
        self._last_tenant = ""
        self._turn = 0

    @property
    def is_after_nothing(self) -> bool:
        """Whether the last poll found nothing: the next one looks for the oldest task only, and costs one command."""
        return self._turn == 0

    @property
    def is_oldest_first(self) -> bool:
        """Whether the next claim of one task takes the oldest."""
        return self._turn % OLDEST_EVERY == 0

    def count(self, *, found: bool) -> None:
        """Note that a poll is over."""
        self._turn = self._turn + 1 if found else 0

    async def tenants(self, session: Session) -> AsyncIterator[str | None]:
        """Yield the tenants in turn, until those that are left have been dropped; None stands for no tenant."""
        if self._rotation.is_stale:
            self._rotation.fill(await self._due_tenants(session))
        while not self._rotation.is_empty:
            yield self._rotation.next()

    async def next_tenants(self, most: int, session: Session) -> list[str | None]:
        """Return whose turn it is, at most ``most``, each once."""
        found: list[str | None] = []
        async for tenant in self.tenants(session):
            if tenant in found:
                break
            found.append(tenant)
            if len(found) == most:
                break
        return found

    def drop(self, tenant: str | None) -> None:
        """Leave a tenant without due work out until the next look."""
        self._rotation.drop(tenant)

    async def _due_tenants(self, session: Session) -> list[str | None]:
        """Return tenants with due tasks, one index seek each; work without a tenant counts as one more."""
        tenants: list[str | None] = [None]
        after = self._last_tenant
        while len(tenants) <= MAX_TENANTS:
            found: Document = {
                "tenantId": {"$gt": after},
                "claimableAt": {"$type": "date"},
                "$expr": {"$lte": ["$claimableAt", "$$NOW"]},
            }
            row = await settled(
                self._tasks.find_one(
                    found, {"tenantId": 1}, sort=[("tenantId", 1)], hint="tenants", session=session
                )
            )
            after = row["tenantId"] if row else ""
            if row is None:
                break
            tenants.append(after)
        self._last_tenant = after
        return tenants
