"""Routes of bearer tokens, for administrators of all tenants. Secrets are given out by the command line only.

They are shown once, and a terminal is where nobody keeps them.
"""

from datetime import datetime

from fastapi import APIRouter

from kikwiflow_worker.management.api.paging import paged
from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import Cursor, Id, Limit, PageOf, Shape
from kikwiflow_worker.management.backend import Admin
from kikwiflow_worker.management.identity import Role
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.operations.tokens import get_token, revoke_token
from kikwiflow_worker.store.access import ApiToken, TokenState

router = APIRouter(prefix="/tokens", tags=["tokens"])


class TokenShape(Shape):
    """A bearer token, without its secret and what is stored of it; ``tenantId`` is null if it crosses all tenants."""

    id: str
    name: str
    roles: list[Role]
    tenant_id: str | None
    state: TokenState
    created_at: datetime
    rotated_at: datetime | None
    last_used_at: datetime | None
    expires_at: datetime
    revoked_at: datetime | None

    @classmethod
    def of(cls, token: ApiToken, now: datetime) -> "TokenShape":
        """Return the document of ``token``."""
        return cls(
            id=token.id,
            name=token.name,
            roles=sorted(token.roles),
            tenant_id=token.tenant_id,
            state=token.state(now),
            created_at=token.created_at,
            rotated_at=token.rotated_at,
            last_used_at=token.last_used_at,
            expires_at=token.expires_at,
            revoked_at=token.revoked_at,
        )


@router.get("", operation_id="listTokens")
async def list_tokens(
    caller: Admin, limit: Limit = 20, cursor: Cursor = None
) -> PageOf[TokenShape]:
    """List tokens by name, those that ended or were revoked within the last weeks included."""
    found = await caller.tokens.list()
    page = paged(found, limit=limit, cursor=cursor, key=lambda token: (token.name, token.id))
    now = caller.services.runtime.now()
    items = [TokenShape.of(token, now) for token in page.items]
    return PageOf(items=items, next_cursor=page.next_cursor)


@router.get("/{token_id}", operation_id="getToken", responses=refuses(Code.NOT_FOUND))
async def get(caller: Admin, token_id: Id) -> TokenShape:
    """Return a token, without its secret."""
    token = await get_token(caller.tokens, token_id)
    return TokenShape.of(token, caller.services.runtime.now())


@router.post(
    "/{token_id}/revoke",
    operation_id="revokeToken",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT),
)
async def revoke(caller: Admin, token_id: Id) -> TokenShape:
    """End a token for good, with the dashboard's sessions that were opened with it; refused everywhere within 5 seconds."""
    token = await get_token(caller.tokens, token_id)
    caller.concerns(name=token.name)
    now = caller.services.runtime.now()
    return TokenShape.of(await revoke_token(caller.tokens, token, at=now), now)
