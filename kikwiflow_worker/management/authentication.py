"""Ways to find out who makes a request."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request

from kikwiflow_worker.management.identity import Identity, Role
from kikwiflow_worker.management.problems import UnauthenticatedError
from kikwiflow_worker.management.security.credentials import Credentials, Verifier
from kikwiflow_worker.management.security.tokens import TokenVerifier
from kikwiflow_worker.management.web_session import WebSessions

TENANT_HEADER = "X-Tenant-Id"


class OpenAuthenticator:
    """Trusts everybody: only for an address of loopback, where whoever asks has an account on this host anyway.

    A caller may bind itself to a tenant with the header ``X-Tenant-Id``, as in Kikwiflow.
    """

    async def identify(self, request: Request) -> Identity:
        """Return an administrator named ``anonymous``."""
        tenant_id = request.headers.get(TENANT_HEADER) or None
        return Identity(actor="anonymous", roles=frozenset({Role.ADMIN}), tenant_id=tenant_id)


@dataclass(frozen=True, slots=True)
class SecretAuthenticator:
    """Asks for a bearer token, a JWT or a session of the dashboard.

    A header ``Authorization`` decides alone: if it proves nothing, a session's cookie beside it does not help.

    Attributes:
        verifiers: Of the kinds of secrets that are accepted.
        tokens: By which the sessions of tokens are checked; None if there are none.
    """

    verifiers: Sequence[Verifier]
    tokens: TokenVerifier | None
    sessions: WebSessions

    async def identify(self, request: Request) -> Identity:
        """Return who makes ``request``.

        Raises:
            UnauthenticatedError: It carries no valid credentials.
        """
        header = request.headers.get("authorization")
        if header is not None:
            scheme, _, secret = header.partition(" ")
            if scheme.lower() != "bearer":
                raise UnauthenticatedError(
                    "only the scheme Bearer is known: Authorization: Bearer TOKEN"
                )
            return (await self.verify(secret.strip())).identity
        session = await self.sessions.find(request)
        if session is None:
            raise UnauthenticatedError(
                "it needs a token: Authorization: Bearer TOKEN; or log in at the dashboard"
            )
        if session.token_id is None:
            return session.identity
        if self.tokens is None:
            raise UnauthenticatedError("tokens are not accepted any more")
        return (await self.tokens.verify_id(session.token_id)).identity

    async def verify(self, secret: str) -> Credentials:
        """Return what a secret proves.

        Raises:
            UnauthenticatedError: Nothing.
        """
        for verifier in self.verifiers:
            if verifier.accepts(secret):
                return await verifier.verify(secret)
        raise UnauthenticatedError("the token is not valid, or not any more")
