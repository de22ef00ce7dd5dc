"""Logging in with a token, and out."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import RedirectResponse, Response

from kikwiflow_worker.management.authentication import SecretAuthenticator
from kikwiflow_worker.management.problems import UnauthenticatedError
from kikwiflow_worker.management.security.auditing import begin_change
from kikwiflow_worker.management.web.navigation import DASHBOARD_PATH, link
from kikwiflow_worker.management.web.pages import PostedForm, page_router, render, text_of
from kikwiflow_worker.management.web_session import check_csrf

router = page_router()

Next = Annotated[str, Query(alias="next", max_length=2000)]


@router.get("/login")
async def show(request: Request, after: Next = "") -> Response:
    """Ask for a token; where everybody is trusted there is nothing to ask for."""
    if _authenticator(request) is None:
        return RedirectResponse(link(request), status_code=303)
    return render(request, "login.html", caller=None, after=_own(request, after), problem=None)


@router.post("/login")
async def log_in(request: Request, form: PostedForm) -> Response:
    """Begin a session for whoever a token is of, and go to the page that was wanted.

    That no other site sent the form is known by what the browser says of it (``headers.Protection``): there is no session
    yet, whose token it could carry.
    """
    authenticator = _authenticator(request)
    after = _own(request, text_of(form, "next"))
    if authenticator is None:
        return RedirectResponse(after, status_code=303)
    try:
        credentials = await authenticator.verify(text_of(form, "token"))
    except UnauthenticatedError as error:
        return render(
            request, "login.html", caller=None, status=401, after=after, problem=str(error)
        )
    backend = request.app.state.backend
    await begin_change(
        request, credentials.identity, backend.access.audit, now=backend.services.runtime.now
    )
    await authenticator.sessions.open(request, credentials)
    return RedirectResponse(after, status_code=303)


@router.post("/logout")
async def log_out(request: Request, form: PostedForm) -> Response:  # noqa: ARG001 - its token is checked
    """End the session, for all processes at once."""
    authenticator = _authenticator(request)
    if authenticator is not None and (session := await authenticator.sessions.find(request)):
        await check_csrf(request, session.identity)
        await authenticator.sessions.close(request)
    return RedirectResponse(link(request, "login"), status_code=303)


def _authenticator(request: Request) -> SecretAuthenticator | None:
    found = request.app.state.backend.authenticator
    return found if isinstance(found, SecretAuthenticator) else None


def _own(request: Request, address: str) -> str:
    """Return an address if it is a page of ours, else the first page: a link to us must lead nowhere else."""
    root = f"{request.scope.get('root_path', '')}{DASHBOARD_PATH}"
    is_ours = address == root or address.startswith((f"{root}/", f"{root}?"))
    if is_ours and "\\" not in address and address.isprintable():
        return address
    return link(request)
