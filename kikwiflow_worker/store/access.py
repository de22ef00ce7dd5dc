"""The ports of who may use the HTTP API: tokens, sessions of the dashboard, and the record of what was changed.

All instants are aware, in UTC. Secrets never reach a store: it knows their SHA-256 only. A fast hash is right for them,
unlike for passwords: a secret has 256 random bits, so that nobody finds one by trying, and every request needs a look-up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from kikwiflow_worker.model.identity import Identity, Role
from kikwiflow_worker.store.views import Page


class TokenState(StrEnum):
    """What has become of a token."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """A bearer token, without its secret.

    Attributes:
        name: Who uses it, for the audit; one token at a time has it.
        tenant_id: The only tenant it sees and changes; None may cross all of them.
        last_used_at: To about ten minutes.
        previous_until: Until when the secret before the last rotation is accepted too; None once it never is again.
    """

    id: str
    name: str
    roles: frozenset[Role]
    tenant_id: str | None
    created_at: datetime
    expires_at: datetime
    rotated_at: datetime | None = None
    previous_until: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Return whether it is accepted at ``now``."""
        return self.state(now) is TokenState.VALID

    def state(self, now: datetime) -> TokenState:
        """Return what has become of it by ``now``."""
        if self.revoked_at is not None:
            return TokenState.REVOKED
        return TokenState.VALID if now < self.expires_at else TokenState.EXPIRED

    @property
    def identity(self) -> Identity:
        """Who presents it."""
        return Identity(actor=self.name, roles=self.roles, tenant_id=self.tenant_id)


class TokenStore(Protocol):
    """The tokens of one database."""

    async def insert(self, token: ApiToken, secret_hash: str) -> bool:
        """Store a new token; False if one that is not revoked has its name."""
        ...

    async def find_by_secret(self, secret_hash: str, *, now: datetime) -> ApiToken | None:
        """Return the token with this secret, or that had it until a rotation whose overlap lasts; valid or not."""
        ...

    async def find(self, token_id: str) -> ApiToken | None:
        """Return one token by its id."""
        ...

    async def find_by_name(self, name: str) -> ApiToken | None:
        """Return the token that is not revoked and has this name."""
        ...

    async def list(self) -> tuple[ApiToken, ...]:
        """Return all tokens, revoked and expired ones of the last 30 days included, by name."""
        ...

    async def rotate(
        self,
        token_id: str,
        secret_hash: str,
        *,
        at: datetime,
        expires_at: datetime,
        previous_until: datetime | None,
    ) -> bool:
        """Replace a secret, and the end of its life; False if the token is revoked or gone.

        Args:
            previous_until: How long the secret of now is still accepted; None refuses it at once.
        """
        ...

    async def revoke(self, token_id: str, *, at: datetime) -> bool:
        """End a token for good; False if it is revoked already or gone."""
        ...

    async def touch(self, token_id: str, *, at: datetime) -> None:
        """Note that a token was used."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSession:
    """A person who logged in at the dashboard.

    Attributes:
        csrf_token: What forms of this session must carry; survives rotation, so that an open page stays usable.
        token_id: The bearer token it was opened with: a session ends with its token. None for one opened with a JWT.
        issued_at: Of the present cookie.
        expires_at: The end unless a new cookie is issued before.
        ends_at: The end in any case.
    """

    identity: Identity
    csrf_token: str
    token_id: str | None
    issued_at: datetime
    expires_at: datetime
    ends_at: datetime


class SessionStore(Protocol):
    """The dashboard's sessions, by the SHA-256 of their cookie."""

    async def insert(self, cookie_hash: str, session: LoginSession) -> None:
        """Store a session."""
        ...

    async def find(self, cookie_hash: str) -> LoginSession | None:
        """Return a session, over or not."""
        ...

    async def replace(
        self, cookie_hash: str, new_hash: str, session: LoginSession, *, until: datetime
    ) -> None:
        """Store a session under a new cookie; the old one is accepted until ``until``, for requests under way."""
        ...

    async def remove(self, cookie_hash: str) -> None:
        """End a session, also under the cookie that replaced this one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One call that was to change something.

    Attributes:
        operation: The operation of the API, as in its OpenAPI document, or a page of the dashboard.
        subjects: Ids of what it was about, such as ``instance_id``; never a variable's value.
        result: ``DONE`` or the code of the problem it was answered with; None while it is under way, and for ever if the
            process died meanwhile: then look whether the change was made.
    """

    id: str
    at: datetime
    actor: str
    tenant_id: str | None
    operation: str
    request_id: str
    subjects: Mapping[str, str] = field(default_factory=dict)
    result: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Which entries to list; a field that is None does not matter.

    Attributes:
        subject: The id of anything that an entry is about.
    """

    actor: str | None = None
    operation: str | None = None
    subject: str | None = None
    tenant_id: str | None = None


class AuditLog(Protocol):
    """What was changed by whom."""

    async def begin(self, entry: AuditEntry) -> None:
        """Note that a change is about to be made; acknowledged by the majority before it is made."""
        ...

    async def end(self, entry: AuditEntry) -> None:
        """Note what became of it: the ``result`` and the ``subjects`` of the entry."""
        ...

    async def withdraw(self, entry: AuditEntry) -> None:
        """Remove the entry of a call that found nothing to change, such as a worker's poll."""
        ...

    async def list(
        self, query: AuditQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[AuditEntry]:
        """Return entries, newest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The three ports of one database."""

    tokens: TokenStore
    sessions: SessionStore
    audit: AuditLog
