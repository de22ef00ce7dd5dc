"""Knows the JWTs of an OpenID Connect provider, by PyJWT."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import jwt
from jwt.exceptions import PyJWTError

from kikwiflow_worker.management.identity import Identity, Role
from kikwiflow_worker.management.problems import UnauthenticatedError
from kikwiflow_worker.management.security.credentials import Credentials
from kikwiflow_worker.management.security.jwks import KeySet
from kikwiflow_worker.operations.tokens import PREFIX

ALL_TENANTS = "*"
"""Of the tenant's claim: the identity may cross all tenants."""

_LONGEST = 16 * 1024
_LONGEST_ACTOR = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtOptions:
    """Which JWTs are accepted, and what their claims mean.

    Attributes:
        leeway_s: How far the issuer's clock may be off.
        role_prefix: Of the values of ``roles_claim`` that are roles here: ``kikwiflow-operator`` is OPERATOR.
        tenant_claim: None if there are no tenants: every identity may cross them then. Else a JWT without it is refused.
    """

    issuer: str
    audience: str
    jwks_url: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway_s: float = 30.0
    actor_claim: str = "sub"
    roles_claim: str = "roles"
    role_prefix: str = "kikwiflow-"
    tenant_claim: str | None = None


@dataclass(frozen=True, slots=True)
class JwtVerifier:
    """The JWTs of one issuer."""

    options: JwtOptions
    keys: KeySet

    def accepts(self, secret: str) -> bool:
        """Return whether ``secret`` has the three parts of a signed JWT."""
        return secret.count(".") == 2 and not secret.startswith(PREFIX)

    async def verify(self, secret: str) -> Credentials:
        """Return what a JWT proves.

        Raises:
            UnauthenticatedError: Its signature, its time, its issuer, its audience or a claim is not as it should be.
            KeysUnavailableError: The issuer's keys cannot be fetched.
        """
        claims = await self._claims(secret)
        identity = Identity(
            actor=self._actor(claims), roles=self._roles(claims), tenant_id=self._tenant(claims)
        )
        return Credentials(
            identity=identity, expires_at=datetime.fromtimestamp(claims["exp"], tz=UTC)
        )

    async def _claims(self, secret: str) -> Mapping[str, Any]:
        options = self.options
        if len(secret) > _LONGEST:
            raise _refused()
        try:
            header = jwt.get_unverified_header(secret)
            key_id = header.get("kid")
            # Before any key is asked for: a token that could never be accepted costs the issuer nothing.
            if header.get("alg") not in options.algorithms or not isinstance(key_id, str):
                raise _refused()
            key = await self.keys.find(key_id)
            if key is None:
                raise _refused()
            claims: dict[str, Any] = jwt.decode(
                secret,
                key,
                algorithms=options.algorithms,
                audience=options.audience,
                issuer=options.issuer,
                leeway=options.leeway_s,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (PyJWTError, ValueError, TypeError, OverflowError) as error:
            raise _refused() from error
        return claims

    def _actor(self, claims: Mapping[str, Any]) -> str:
        actor = _claim(claims, self.options.actor_claim)
        if not isinstance(actor, str) or not actor.strip() or len(actor) > _LONGEST_ACTOR:
            raise _refused()
        return actor

    def _roles(self, claims: Mapping[str, Any]) -> frozenset[Role]:
        found = _claim(claims, self.options.roles_claim)
        values = found.split() if isinstance(found, str) else found
        if not isinstance(values, list):
            return frozenset()
        named = {f"{self.options.role_prefix}{role}": role for role in Role}
        return frozenset(
            named[value] for value in values if isinstance(value, str) and value in named
        )

    def _tenant(self, claims: Mapping[str, Any]) -> str | None:
        if self.options.tenant_claim is None:
            return None
        tenant = _claim(claims, self.options.tenant_claim)
        if not isinstance(tenant, str) or not tenant:
            raise _refused()
        return None if tenant == ALL_TENANTS else tenant


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by the path to it, as ``realm_access.roles``."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _refused() -> UnauthenticatedError:
    return UnauthenticatedError("the JWT is not accepted here")
