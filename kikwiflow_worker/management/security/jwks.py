"""The public keys of an issuer, fetched when they are needed and as often as is decent."""

import asyncio
import json
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from jwt import PyJWK, PyJWKSet
from jwt.exceptions import PyJWTError

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.management.headers import is_loopback
from kikwiflow_worker.management.problems import KeysUnavailableError

FRESH_S = 300.0
"""Keys are fetched again after this time, so that one that was withdrawn is not accepted for long."""

STALE_S = 3600.0
"""How long keys are still good while the issuer does not answer."""

PAUSE_S = 10.0
"""Between two fetches at least, whatever key is asked for: nobody makes us flood the issuer with made-up ones."""

_TIMEOUT_S = 5.0
_MOST_BYTES = 1024 * 1024

Fetch = Callable[[str], Awaitable[bytes]]


async def fetch(url: str) -> bytes:
    """Return what is at ``url``, at most a megabyte.

    Raises:
        OSError: It does not answer in time, or not with what was asked for.
    """
    return await asyncio.to_thread(_fetch, url)


def _fetch(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - see checked_url
    with _OPENER.open(request, timeout=_TIMEOUT_S) as response:
        content: bytes = response.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OSError(f"{url} answers with more than {_MOST_BYTES:,} bytes")
    return content


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it could lead from TLS to none, or into our own network."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def checked_url(url: str) -> str:
    """Return the address of keys, which must come by TLS, except from this host.

    Raises:
        ConfigurationError: It is another.
    """
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return url
    if parts.scheme == "http" and is_loopback(parts.hostname or ""):
        return url
    raise ConfigurationError(
        "jwt_jwks_url must begin with https://: who can change the keys on their way can be anybody"
    )


@dataclass(slots=True)
class KeySet:
    """The keys at one address."""

    url: str
    clock: Clock
    fetch: Fetch = fetch
    _keys: dict[str, PyJWK] = field(default_factory=dict)
    _fetched_at: float | None = None
    _tried_at: float | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def find(self, key_id: str) -> PyJWK | None:
        """Return the key with an id; one that is not known is asked for at the issuer.

        Raises:
            KeysUnavailableError: The issuer does not answer, and what is known is too old.
        """
        if self._is_fresh() and key_id in self._keys:
            return self._keys[key_id]
        async with self._lock:  # the first of many asks for all of them
            if not (self._is_fresh() and key_id in self._keys) and self._may_try():
                await self._renew()
        if self._age() > STALE_S:
            raise KeysUnavailableError(
                "the keys of the issuer of JWTs cannot be fetched; try again later"
            )
        return self._keys.get(key_id)

    def _is_fresh(self) -> bool:
        return self._age() <= FRESH_S

    def _age(self) -> float:
        return (
            float("inf") if self._fetched_at is None else self.clock.monotonic() - self._fetched_at
        )

    def _may_try(self) -> bool:
        return self._tried_at is None or self.clock.monotonic() - self._tried_at >= PAUSE_S

    async def _renew(self) -> None:
        self._tried_at = self.clock.monotonic()
        try:
            found = PyJWKSet.from_dict(json.loads(await self.fetch(self.url)))
        except (OSError, ValueError, TypeError, AttributeError, PyJWTError):
            return  # what is known stays good for a while
        self._keys = {key.key_id: key for key in found.keys if key.key_id and _is_public(key)}
        self._fetched_at = self._tried_at


def _is_public(key: PyJWK) -> bool:
    """Return whether a key can only check signatures: a shared secret has no place in a public list."""
    return key.key_type in {"RSA", "EC", "OKP"} and key.public_key_use in {None, "sig"}
