"""Knows bearer tokens of ours."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.management.problems import UnauthenticatedError
from kikwiflow_worker.management.security.credentials import Credentials
from kikwiflow_worker.operations.tokens import PREFIX, hash_secret
from kikwiflow_worker.store.access import ApiToken, TokenStore

CACHED_S = 5.0
"""How long a process goes by what it knows of a token: a revoked one is refused within this time everywhere."""

_MOST_CACHED = 1000
_USE_IS_OLD = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class _Known:
    token: ApiToken
    since: float


@dataclass(frozen=True, slots=True)
class TokenVerifier:
    """The tokens of one database. What is not a token is looked up anew each time, so that it fills no memory."""

    store: TokenStore
    now: Callable[[], datetime]
    clock: Clock
    _known: dict[str, _Known] = field(default_factory=dict)

    def accepts(self, secret: str) -> bool:
        """Return whether ``secret`` has our prefix."""
        return secret.startswith(PREFIX)

    async def verify(self, secret: str) -> Credentials:
        """Return what a token proves.

        Raises:
            UnauthenticatedError: It is unknown, revoked or expired; which of them is not said.
        """
        key = hash_secret(secret)
        token = self._cached(key)
        if token is None:
            token = await self.store.find_by_secret(key, now=self.now())
            if token is not None:
                await self._remember(key, token)
        return self._credentials(token)

    async def verify_id(self, token_id: str) -> Credentials:
        """Return what a token proves that was presented at a login.

        Raises:
            UnauthenticatedError: It is revoked or expired by now.
        """
        token = self._cached(token_id)
        if token is None:
            token = await self.store.find(token_id)
            if token is not None:
                await self._remember(token_id, token)
        return self._credentials(token)

    def _credentials(self, token: ApiToken | None) -> Credentials:
        if token is None or not token.is_valid(self.now()):
            raise UnauthenticatedError("the token is not valid, or not any more")
        return Credentials(identity=token.identity, expires_at=token.expires_at, token_id=token.id)

    def _cached(self, key: str) -> ApiToken | None:
        known = self._known.get(key)
        if known is None or known.since + CACHED_S <= self.clock.monotonic():
            return None
        return known.token

    async def _remember(self, key: str, token: ApiToken) -> None:
        self._known.pop(key, None)
        if len(self._known) >= _MOST_CACHED:
            self._known.pop(next(iter(self._known)))
        self._known[key] = _Known(token, self.clock.monotonic())
        now = self.now()
        if token.is_valid(now) and (
            token.last_used_at is None or token.last_used_at + _USE_IS_OLD <= now
        ):
            with suppress(StoreUnavailableError):  # for people only: nobody is refused for it
                await self.store.touch(token.id, at=now)
