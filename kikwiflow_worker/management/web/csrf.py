"""The token that every form carries, so that no other site can post it."""

import secrets

from fastapi import Request
from starlette.datastructures import FormData

from kikwiflow_worker.management.problems import PermissionDeniedError

FIELD = "csrf"
_PROCESS_TOKEN = secrets.token_urlsafe(32)


def csrf_token(request: Request) -> str:  # noqa: ARG001 - until there are sessions
    """Return the token of the request's session."""
    return _PROCESS_TOKEN


def check_csrf(request: Request, form: FormData) -> None:
    """Refuse a form without the token of its session.

    Raises:
        PermissionDeniedError: It carries none, or another.
    """
    given = form.get(FIELD)
    if not isinstance(given, str) or not secrets.compare_digest(given, csrf_token(request)):
        raise PermissionDeniedError(
            "the form has no valid token: it was shown too long ago, or another site sent it; open the page again"
        )
