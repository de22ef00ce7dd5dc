"""What concerns all tenants together, as one tenant has it: every method refuses. See ``kikwiflow_worker.store.tenancy``."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kikwiflow_worker.store.access import ApiToken
from kikwiflow_worker.store.relay import EventQuery, RelayMeasures, SliceState, StoredEvent
from kikwiflow_worker.store.search import Count
from kikwiflow_worker.store.tenancy import refusal
from kikwiflow_worker.store.views import Page

_RELAY = "looking after the relay"
_TOKENS = "looking after tokens"


@dataclass(frozen=True, slots=True)
class TenantRelayCare:
    """``RelayCare`` for one tenant: slices, and the order of events, are those of all tenants."""

    async def find_sink(self) -> str | None:
        """Refuse."""
        raise refusal(_RELAY)

    async def measure(self) -> RelayMeasures:
        """Refuse."""
        raise refusal(_RELAY)

    async def list_slices(self) -> tuple[SliceState, ...]:
        """Refuse."""
        raise refusal(_RELAY)

    async def count_events(self, query: EventQuery) -> Count:
        """Refuse."""
        raise refusal(_RELAY)

    async def find_event(self, event_id: str) -> StoredEvent | None:
        """Refuse."""
        raise refusal(_RELAY)

    async def list_events(
        self, query: EventQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[StoredEvent]:
        """Refuse."""
        raise refusal(_RELAY)

    async def resend(self, event_ids: Sequence[str]) -> int:
        """Refuse."""
        raise refusal(_RELAY)

    async def drop(self, event_id: str, *, by: str | None) -> bool:
        """Refuse."""
        raise refusal(_RELAY)


@dataclass(frozen=True, slots=True)
class TenantTokenStore:
    """``TokenStore`` for one tenant: whoever gives out tokens could give one of any tenant."""

    async def insert(self, token: ApiToken, secret_hash: str) -> bool:
        """Refuse."""
        raise refusal(_TOKENS)

    async def find_by_secret(self, secret_hash: str, *, now: datetime) -> ApiToken | None:
        """Refuse."""
        raise refusal(_TOKENS)

    async def find(self, token_id: str) -> ApiToken | None:
        """Refuse."""
        raise refusal(_TOKENS)

    async def find_by_name(self, name: str) -> ApiToken | None:
        """Refuse."""
        raise refusal(_TOKENS)

    async def list(self) -> tuple[ApiToken, ...]:
        """Refuse."""
        raise refusal(_TOKENS)

    async def rotate(
        self,
        token_id: str,
        secret_hash: str,
        *,
        at: datetime,
        expires_at: datetime,
        previous_until: datetime | None,
    ) -> bool:
        """Refuse."""
        raise refusal(_TOKENS)

    async def revoke(self, token_id: str, *, at: datetime) -> bool:
        """Refuse."""
        raise refusal(_TOKENS)

    async def touch(self, token_id: str, *, at: datetime) -> None:
        """Refuse."""
        raise refusal(_TOKENS)
