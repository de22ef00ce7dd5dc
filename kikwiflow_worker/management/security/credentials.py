"""What proves who somebody is."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from kikwiflow_worker.management.identity import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """An identity that was proved.

    Attributes:
        expires_at: Until when the proof is accepted.
        token_id: Of the API token it was proved with; None for a JWT.
    """

    identity: Identity
    expires_at: datetime
    token_id: str | None = None


class Verifier(Protocol):
    """Knows one kind of secret."""

    def accepts(self, secret: str) -> bool:
        """Return whether ``secret`` looks like one of its kind."""
        ...

    async def verify(self, secret: str) -> Credentials:
        """Return what ``secret`` proves.

        Raises:
            UnauthenticatedError: Nothing; it never says more than that to whoever sent it.
        """
        ...
