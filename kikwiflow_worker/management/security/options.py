"""How callers prove who they are, and when they need not."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.management.authentication import OpenAuthenticator, SecretAuthenticator
from kikwiflow_worker.management.headers import LOOPBACK_HOSTS, is_loopback
from kikwiflow_worker.management.security.credentials import Verifier
from kikwiflow_worker.management.security.json_web_tokens import JwtOptions, JwtVerifier
from kikwiflow_worker.management.security.jwks import KeySet, checked_url
from kikwiflow_worker.management.security.tokens import TokenVerifier
from kikwiflow_worker.management.web_session import WebSessions
from kikwiflow_worker.store.access import Access


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationOptions:
    """What is accepted; with neither, everybody is trusted who reaches the address, which must be of loopback then."""

    tokens: bool = False
    jwt: JwtOptions | None = None

    @property
    def is_open(self) -> bool:
        """Whether nothing is asked for."""
        return not self.tokens and self.jwt is None

    def hosts(self) -> frozenset[str] | None:
        """Return the names that the server may be called by; None for any."""
        return LOOPBACK_HOSTS if self.is_open else None

    def check(self, address: str) -> None:
        """Refuse what would let in whoever comes.

        Raises:
            ConfigurationError: Everybody would be an administrator on an address that others reach, or keys would come
                by a way on which they can be changed.
        """
        host = address.rpartition(":")[0]
        if self.is_open and not is_loopback(host):
            raise ConfigurationError(
                f"the management address {address} can be reached from other hosts, and everybody who reaches it would be "
                "an administrator: set authentication to tokens or jwt (KIKWIFLOW_AUTHENTICATION=tokens, then "
                "kikwiflow-worker tokens create), or listen on 127.0.0.1"
            )
        if self.jwt is not None:
            checked_url(self.jwt.jwks_url)

    def authenticator(
        self, access: Access, *, now: Callable[[], datetime], clock: Clock
    ) -> OpenAuthenticator | SecretAuthenticator:
        """Return who finds out who makes a request."""
        if self.is_open:
            return OpenAuthenticator()
        tokens = TokenVerifier(access.tokens, now, clock) if self.tokens else None
        verifiers: list[Verifier] = [tokens] if tokens else []
        if self.jwt is not None:
            verifiers.append(JwtVerifier(self.jwt, KeySet(self.jwt.jwks_url, clock)))
        return SecretAuthenticator(verifiers, tokens, WebSessions(access.sessions, now))
