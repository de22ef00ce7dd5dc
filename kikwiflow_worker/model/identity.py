"""Who asks, and what they may do."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What an identity may do.

    VIEWER sees, OPERATOR changes what runs, DEPLOYER deploys definitions, ADMIN does all of it and reads the audit.
    """

    VIEWER = "viewer"
    OPERATOR = "operator"
    DEPLOYER = "deployer"
    ADMIN = "admin"


_INCLUDES = {
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.OPERATOR: frozenset({Role.VIEWER, Role.OPERATOR}),
    Role.DEPLOYER: frozenset({Role.VIEWER, Role.DEPLOYER}),
    Role.ADMIN: frozenset(Role),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who makes a request.

    Attributes:
        actor: Who it is, for the audit and the events.
        tenant_id: The only tenant it sees and changes; None may cross all of them.
    """

    actor: str
    roles: frozenset[Role]
    tenant_id: str | None = None

    def may(self, role: Role) -> bool:
        """Return whether it has ``role``, or one that includes it."""
        return any(role in _INCLUDES[own] for own in self.roles)
