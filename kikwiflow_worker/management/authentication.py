"""Ways to find out who makes a request."""

from fastapi import Request

from kikwiflow_worker.management.identity import Identity, Role

TENANT_HEADER = "X-Tenant-Id"


class OpenAuthenticator:
    """Trusts everybody: only for an address of loopback, where whoever asks has an account on this host anyway.

    A caller may bind itself to a tenant with the header ``X-Tenant-Id``, as in Kikwiflow.
    """

    async def identify(self, request: Request) -> Identity:
        """Return an administrator named ``anonymous``."""
        tenant_id = request.headers.get(TENANT_HEADER) or None
        return Identity(actor="anonymous", roles=frozenset({Role.ADMIN}), tenant_id=tenant_id)
