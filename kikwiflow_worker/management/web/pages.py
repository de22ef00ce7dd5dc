"""What all pages have in common: rendering, forms, messages about what was done, errors as pages."""

import base64
import binascii
import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException

from kikwiflow_worker import __version__
from kikwiflow_worker.errors import KikwiflowError
from kikwiflow_worker.management.backend import Caller
from kikwiflow_worker.management.identity import Role
from kikwiflow_worker.management.problems import UnauthenticatedError, problem_of
from kikwiflow_worker.management.web import formats
from kikwiflow_worker.management.web.navigation import (
    DASHBOARD_PATH,
    is_within,
    link,
    link_here,
    places_for,
)
from kikwiflow_worker.management.web_session import csrf_token, has_session, read_form

_FLASH = "kikwiflow_flash"
_FLASH_S = 60
_FLASH_CHARACTERS = 1_000

_templates = Environment(
    loader=PackageLoader("kikwiflow_worker.management.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(
    count=formats.count,
    cut=formats.cut,
    instant=formats.instant,
    length_of_time=formats.length,
    plain=formats.plain,
    shortened=formats.shortened,
    words=formats.words,
)


def render(
    request: Request, template: str, *, caller: Caller | None, status: int = 200, **context: Any
) -> HTMLResponse:
    """Return a page.

    Templates get what ``context`` holds and: ``request``, ``identity`` (who looks), ``may_operate``, ``may_deploy``, ``now``
    (of the database), ``link`` and ``here`` (addresses), ``csrf`` (the value of the field that every form carries),
    ``has_session`` (whether there is something to log out of),
    ``places`` and ``flash``, and the macros of ``macros.html`` as ``ui``. Everything is escaped.
    """
    message = _flash_of(request)
    common = {
        "request": request,
        "version": __version__,
        "root": f"{request.scope.get('root_path', '')}{DASHBOARD_PATH}",
        "link": lambda *parts, **query: link(request, *parts, **query),
        "here": lambda **changes: link_here(request, **changes),
        "csrf": csrf_token(request),
        "has_session": has_session(request),
        "places": [
            (place, is_within(request, place))
            for place in places_for(caller.identity if caller else None)
        ],
        "flash": message,
        **_about(caller),
    }
    macros = _templates.get_template("macros.html").make_module(common)
    html = _templates.get_template(template).render({**common, "ui": macros, **context})
    response = HTMLResponse(html, status)
    if message is not None:
        response.delete_cookie(_FLASH, path=_cookie_path(request))
    return response


def done(request: Request, message: str, *parts: object, **query: object) -> Response:
    """Return the answer to a form that changed something: the page at ``parts``, with a message on it."""
    response = RedirectResponse(link(request, *parts, **query), status_code=303)
    text = json.dumps(message[:_FLASH_CHARACTERS]).encode()
    response.set_cookie(
        _FLASH,
        base64.urlsafe_b64encode(text).decode(),
        max_age=_FLASH_S,
        path=_cookie_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


PostedForm = Annotated[FormData, Depends(read_form)]
"""The fields of a form that was posted; its token is checked with the role of whoever posts (``backend.Requires``)."""


def text_of(form: FormData, name: str) -> str:
    """Return a field of a form without the blanks around it; empty if it is missing or a file."""
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


class _PageRoute(APIRoute):
    """Answers errors with a page instead of a problem document."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except UnauthenticatedError as error:
                if "authorization" in request.headers:  # no browser: a form to log in is no answer
                    page = error_page(request, error.code.status, str(error))
                    page.headers.update(error.headers)
                    return page
                return RedirectResponse(_login(request), status_code=303)
            except KikwiflowError as error:
                problem = problem_of(error)
                return error_page(request, problem.status, problem.detail)
            except RequestValidationError as error:
                wrong = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors())
                return error_page(request, 400, wrong)
            except HTTPException as error:
                return error_page(request, error.status_code, error.detail)

        return handle


def page_router() -> APIRouter:
    """Return a router for pages; they are no part of the API's description."""
    return APIRouter(
        route_class=_PageRoute, default_response_class=HTMLResponse, include_in_schema=False
    )


def error_page(request: Request, status: int, detail: str) -> HTMLResponse:
    """Return a page that says what went wrong."""
    return render(
        request, "error.html", caller=None, status=int(status), code=int(status), detail=detail
    )


def _login(request: Request) -> str:
    """Return the page that asks for a token, which leads back to the present page unless that was a form."""
    own = link_here(request) if request.method == "GET" else None
    return link(request, "login", next=own)


def _about(caller: Caller | None) -> dict[str, object]:
    if caller is None:
        return {
            "identity": None,
            "may_operate": False,
            "may_deploy": False,
            "now": None,
            "since": lambda _: "",
        }
    identity, now = caller.identity, caller.services.runtime.now()
    return {
        "identity": identity,
        "may_operate": identity.may(Role.OPERATOR),
        "may_deploy": identity.may(Role.DEPLOYER),
        "now": now,
        "since": lambda at: formats.since(at, now),
    }


def _cookie_path(request: Request) -> str:
    return f"{request.scope.get('root_path', '')}{DASHBOARD_PATH}"


def _flash_of(request: Request) -> str | None:
    try:
        text = json.loads(base64.urlsafe_b64decode(request.cookies.get(_FLASH, "")))
    except (binascii.Error, ValueError):
        return None
    return text[:_FLASH_CHARACTERS] if isinstance(text, str) else None
