"""Giving out bearer tokens for the HTTP API, renewing and revoking them; each change is recorded in the audit.

A secret is 256 random bits behind a prefix by which scanners find it in code. It is shown once: what is stored is its
SHA-256. A slow hash, as for passwords, would win nothing, since nobody can try 2^256 secrets, and would cost each request
its time.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from kikwiflow_worker.errors import ConflictError, NotFoundError, OperationError
from kikwiflow_worker.model.identity import Role
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.store.access import Access, ApiToken, AuditEntry, TokenStore

PREFIX = "kwf_"
SHORTEST = timedelta(minutes=1)
LONGEST = timedelta(days=3660)
_SECRET_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token with its secret, which nobody can show again."""

    token: ApiToken
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDesk:
    """Where tokens are given out.

    Attributes:
        by: Who gives them out, for the audit.
    """

    access: Access
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    by: str

    async def create(
        self, name: str, *, roles: frozenset[Role], tenant_id: str | None, lifetime: timedelta
    ) -> IssuedToken:
        """Give out a token.

        Raises:
            OperationError: The name, the roles or the lifetime cannot be used.
            ConflictError: A token that is not revoked has this name.
        """
        check_texts(name=name, tenant=tenant_id)
        if not _NAME.fullmatch(name):
            raise OperationError(
                f"a token cannot be named {name!r}; use up to 100 letters, digits and ._@-"
            )
        if not roles:
            raise OperationError("a token without a role can do nothing; give at least one")
        if tenant_id == "":
            raise OperationError("the tenant is empty; name it, or let the token cross all tenants")
        now = self.now()
        token = ApiToken(
            id=self.new_id(),
            name=name,
            roles=roles,
            tenant_id=tenant_id,
            created_at=now,
            expires_at=now + _checked(lifetime),
        )
        secret = new_secret()
        await self._record("createToken", token)
        if not await self.access.tokens.insert(token, hash_secret(secret)):
            raise ConflictError(
                f"there is a token named {name!r}; rotate it for a new secret, or revoke it first"
            )
        return IssuedToken(token, secret)

    async def rotate(self, name: str, *, lifetime: timedelta, overlap: timedelta) -> IssuedToken:
        """Give a token a new secret, and a new end of its life.

        Args:
            overlap: How long the present secret is still accepted, so that whoever uses it can change over.

        Raises:
            NotFoundError: No token that is not revoked has this name.
            OperationError: The lifetime or the overlap cannot be used.
        """
        token = await self._get(name)
        now = self.now()
        expires_at = now + _checked(lifetime)
        if not timedelta(0) <= overlap <= lifetime:
            raise OperationError("the overlap is negative or longer than the token's new life")
        secret = new_secret()
        await self._record("rotateToken", token)
        rotated = await self.access.tokens.rotate(
            token.id,
            hash_secret(secret),
            at=now,
            expires_at=expires_at,
            previous_until=min(now + overlap, token.expires_at) if overlap else None,
        )
        if not rotated:
            raise _gone(name)
        return IssuedToken(replace(token, expires_at=expires_at, rotated_at=now), secret)

    async def revoke(self, name: str) -> ApiToken:
        """End a token for good, with the sessions that were opened with it.

        Raises:
            NotFoundError: No token that is not revoked has this name.
        """
        token = await self._get(name)
        now = self.now()
        await self._record("revokeToken", token)
        if not await self.access.tokens.revoke(token.id, at=now):
            raise _gone(name)
        return replace(token, revoked_at=now)

    async def _get(self, name: str) -> ApiToken:
        token = await self.access.tokens.find_by_name(name)
        if token is None:
            raise _gone(name)
        return token

    async def _record(self, operation: str, token: ApiToken) -> None:
        subjects: Mapping[str, str] = {"token_id": token.id, "name": token.name}
        entry = AuditEntry(
            id=self.new_id(),
            at=self.now(),
            actor=self.by,
            tenant_id=None,
            operation=operation,
            request_id="",
            subjects=subjects,
            result="DONE",
        )
        await self.access.audit.begin(entry)


async def get_token(tokens: TokenStore, token_id: str) -> ApiToken:
    """Return a token by its id, whatever has become of it.

    Raises:
        NotFoundError: There is none, or it ended more than 30 days ago.
    """
    token = await tokens.find(token_id)
    if token is None:
        raise NotFoundError(f"there is no token {token_id}")
    return token


async def revoke_token(tokens: TokenStore, token: ApiToken, *, at: datetime) -> ApiToken:
    """End a token for good, with the sessions that were opened with it, for a caller who records that.

    Raises:
        ConflictError: It is revoked already.
    """
    if not await tokens.revoke(token.id, at=at):
        raise ConflictError(f"the token of {token.name} is revoked already")
    return replace(token, revoked_at=at)


def new_secret() -> str:
    """Return the secret of a new token."""
    return PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def hash_secret(secret: str) -> str:
    """Return what is stored of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _checked(lifetime: timedelta) -> timedelta:
    if not SHORTEST <= lifetime <= LONGEST:
        raise OperationError("a token lives for at least a minute and at most ten years")
    return lifetime


def _gone(name: str) -> NotFoundError:
    return NotFoundError(
        f"there is no token named {name!r}, or it is revoked; see: kikwiflow-worker tokens list"
    )
