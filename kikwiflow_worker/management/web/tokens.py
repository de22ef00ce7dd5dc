"""Bearer tokens: who has one, who needs it still, and taking it away. Secrets are given out by the command line only."""

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from kikwiflow_worker.errors import ConflictError
from kikwiflow_worker.management.api.paging import paged
from kikwiflow_worker.management.api.shapes import Cursor
from kikwiflow_worker.management.backend import Admin
from kikwiflow_worker.management.web.pages import PostedForm, done, page_router, render
from kikwiflow_worker.operations.tokens import get_token, revoke_token

router = page_router()

ROWS = 25


@router.get("/tokens")
async def list_tokens(request: Request, caller: Admin, cursor: Cursor = None) -> HTMLResponse:
    """List tokens by name."""
    found = await caller.tokens.list()
    page = paged(found, limit=ROWS, cursor=cursor, key=lambda token: (token.name, token.id))
    return render(
        request, "tokens.html", caller=caller, tokens=page.items, next_cursor=page.next_cursor
    )


@router.get("/tokens/{token_id}/revoke")
async def ask_revoke(request: Request, caller: Admin, token_id: str) -> HTMLResponse:
    """Ask whether a token is to be revoked."""
    token = await get_token(caller.tokens, token_id)
    return render(request, "token_revoke.html", caller=caller, token=token, problem=None)


@router.post("/tokens/{token_id}/revoke")
async def revoke(request: Request, caller: Admin, _: PostedForm, token_id: str) -> Response:
    """End a token for good."""
    token = await get_token(caller.tokens, token_id)
    caller.concerns(name=token.name)
    try:
        await revoke_token(caller.tokens, token, at=caller.services.runtime.now())
    except ConflictError as error:
        return render(
            request,
            "token_revoke.html",
            caller=caller,
            status=409,
            token=token,
            problem=str(error),
        )
    return done(request, f"The token of {token.name} is refused within 5 seconds.", "tokens")
