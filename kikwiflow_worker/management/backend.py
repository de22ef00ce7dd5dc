"""What the routes and pages work with, already narrowed to whoever asks."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from fastapi import Depends, Request

from kikwiflow_worker.management.headers import SAFE_METHODS
from kikwiflow_worker.management.idempotency import reserve
from kikwiflow_worker.management.identity import Identity, Role
from kikwiflow_worker.management.problems import PermissionDeniedError, UnauthenticatedError
from kikwiflow_worker.management.security.auditing import Audited, begin_change
from kikwiflow_worker.management.web_session import check_csrf
from kikwiflow_worker.operations.scoping import scoped
from kikwiflow_worker.operations.services import Invoker, Services
from kikwiflow_worker.store.access import Access, AuditLog, TokenStore
from kikwiflow_worker.store.answers import AnswerStore
from kikwiflow_worker.store.tenant_care import TenantTokenStore
from kikwiflow_worker.store.tenant_reads import TenantAuditLog


class Authenticator(Protocol):
    """Finds out who makes a request."""

    async def identify(self, request: Request) -> Identity:
        """Return who makes ``request``.

        Raises:
            UnauthenticatedError: It carries no valid credentials.
        """
        ...


@dataclass(frozen=True, slots=True)
class Backend:
    """The database and who may use it.

    Attributes:
        services: Of the system, narrowed to nobody: ``scoped`` is what a request may use.
        new_invoker: An invoker without handlers: what needs one is left to the workers.
        access: Tokens, sessions and the audit.
        answers: Those of requests that carried an idempotency key.
    """

    services: Services
    new_invoker: Callable[[], Invoker]
    authenticator: Authenticator
    access: Access
    answers: AnswerStore

    def scoped(self, identity: Identity) -> Services:
        """Return the services as one identity may use them: every port narrowed to its tenant."""
        return scoped(self.services, identity.tenant_id)

    def tokens(self, identity: Identity) -> TokenStore:
        """Return the tokens as one identity may look after them."""
        return self.access.tokens if identity.tenant_id is None else TenantTokenStore()

    def audit_log(self, identity: Identity) -> AuditLog:
        """Return the audit as one identity may read it."""
        log = self.access.audit
        return log if identity.tenant_id is None else TenantAuditLog(log, identity.tenant_id)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes the present request, with the services as they may use them.

    Attributes:
        tokens: As they may look after them.
        audit_log: What was changed, as they may read it.
        identify: Finds out anew who makes the request, as it was found out when it came.
        audited: The entry of the present change; None for a request that changes nothing.
    """

    identity: Identity
    services: Services
    invoker: Invoker
    tokens: TokenStore
    audit_log: AuditLog
    identify: Callable[[], Awaitable[Identity]]
    audited: Audited | None = field(default=None)

    async def is_still_let_in(self) -> bool:
        """Return whether the request, if it came now, would be of the same identity, with the same roles and tenant.

        Raises:
            StoreUnavailableError: It cannot be found out now.
            KeysUnavailableError: It cannot be found out now.
        """
        try:
            return await self.identify() == self.identity
        except UnauthenticatedError:
            return False

    def concerns(self, **subjects: str) -> None:
        """Note the ids of what the present change is about, beside those in its path; never a variable's value."""
        if self.audited is not None:
            self.audited.subjects.update(subjects)

    def changes_nothing(self) -> None:
        """Note that there was nothing to change, so that a poll leaves no trace in the audit."""
        if self.audited is not None:
            self.audited.changed_nothing = True


@dataclass(frozen=True, slots=True)
class Requires:
    """A dependency that gives the ``Caller`` if it has ``role``, and refuses the request if not.

    What changes something is checked to come from a page of ours or a program, and recorded: nothing is changed unless the
    record of it was written before. What a viewer may do changes nothing, even if it is asked by a POST.
    """

    role: Role

    async def __call__(self, request: Request) -> Caller:
        """Return who makes ``request``."""
        backend: Backend = request.app.state.backend
        identity = await backend.authenticator.identify(request)
        request.state.actor = identity.actor
        is_allowed = identity.may(self.role)
        audited = None
        if request.method not in SAFE_METHODS:
            await check_csrf(request, identity)
            if is_allowed:
                await reserve(request, identity, backend.answers)
            if self.role is not Role.VIEWER:
                audited = await begin_change(
                    request, identity, backend.access.audit, now=backend.services.runtime.now
                )
        if not is_allowed:
            raise PermissionDeniedError(
                f"{identity.actor} lacks the role {self.role}, which {request.method} {request.url.path} needs"
            )
        return Caller(
            identity,
            backend.scoped(identity),
            backend.new_invoker(),
            backend.tokens(identity),
            backend.audit_log(identity),
            lambda: backend.authenticator.identify(request),
            audited,
        )


Viewer = Annotated[Caller, Depends(Requires(Role.VIEWER))]
Operator = Annotated[Caller, Depends(Requires(Role.OPERATOR))]
Deployer = Annotated[Caller, Depends(Requires(Role.DEPLOYER))]
Admin = Annotated[Caller, Depends(Requires(Role.ADMIN))]
