"""What the routes and pages work with, already narrowed to whoever asks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Request

from kikwiflow_worker.management.identity import Identity, Role
from kikwiflow_worker.management.problems import PermissionDeniedError
from kikwiflow_worker.operations.services import Invoker, Services


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
        scoped: Returns the services as one identity may use them: every port narrowed to its tenant.
        new_invoker: An invoker without handlers: what needs one is left to the workers.
    """

    scoped: Callable[[Identity], Services]
    new_invoker: Callable[[], Invoker]
    authenticator: Authenticator


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes the present request, with the services as they may use them."""

    identity: Identity
    services: Services
    invoker: Invoker


def requires(role: Role) -> Callable[..., object]:
    """Return a dependency that gives the ``Caller`` if it has ``role``, and refuses the request if not."""

    async def caller(request: Request) -> Caller:
        backend: Backend = request.app.state.backend
        identity = await backend.authenticator.identify(request)
        if not identity.may(role):
            raise PermissionDeniedError(
                f"{identity.actor} lacks the role {role}, which {request.method} {request.url.path} needs"
            )
        return Caller(identity, backend.scoped(identity), backend.new_invoker())

    return caller


Viewer = Annotated[Caller, Depends(requires(Role.VIEWER))]
Operator = Annotated[Caller, Depends(requires(Role.OPERATOR))]
Deployer = Annotated[Caller, Depends(requires(Role.DEPLOYER))]
Admin = Annotated[Caller, Depends(requires(Role.ADMIN))]
