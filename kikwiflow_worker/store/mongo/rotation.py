"""Whose turn it is: the tenants that have due work, one after another."""

from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from kikwiflow_worker.clock import Clock

REFRESH_S = 1.0
"""How old the list of tenants may be; a tenant's first task waits at most so long for its turn."""

MAX_TENANTS = 50
"""Tenants looked up at once; the next look goes on after them."""


class TenantRotation:
    """A round of tenants; None stands for work without a tenant."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tenants: deque[str | None] = deque()
        self._filled_at = -REFRESH_S

    @property
    def is_stale(self) -> bool:
        """Whether the list is too old to be fair."""
        return self._clock.monotonic() - self._filled_at >= REFRESH_S

    @property
    def is_empty(self) -> bool:
        """Whether no tenant is left."""
        return not self._tenants

    def fill(self, tenants: Iterable[str | None]) -> None:
        """Replace the list; those that were on it keep their order, so that a refresh gives nobody a second turn."""
        found = set(tenants)
        kept = [tenant for tenant in self._tenants if tenant in found]
        new = sorted(found.difference(kept), key=lambda tenant: tenant or "")
        self._tenants = deque([*new, *kept])
        self._filled_at = self._clock.monotonic()

    def next(self) -> str | None:
        """Return whose turn it is, and put it last."""
        tenant = self._tenants.popleft()
        self._tenants.append(tenant)
        return tenant

    def drop(self, tenant: str | None) -> None:
        """Take a tenant without due work off the list; another claim at the same time may have done so."""
        with suppress(ValueError):
            self._tenants.remove(tenant)
