"""The token that every form carries, so that no other site can post it; see ``management.web_session``."""

import secrets

from fastapi import Request
from starlette.datastructures import FormData

from kikwiflow_worker.management.problems import PermissionDeniedError
from kikwiflow_worker.management.web_session import CSRF_FIELD as FIELD
from kikwiflow_worker.management.web_session import csrf_token

__all__ = ["FIELD", "check_csrf", "csrf_token"]


def check_csrf(request: Request, form: FormData) -> None:
    """Refuse a form without the token of its session.

    Raises:
        PermissionDeniedError: It carries none, or another.
    """
    given = form.get(FIELD)
    if not isinstance(given, str) or not secrets.compare_digest(
        given.encode(), csrf_token(request).encode()
    ):
        raise PermissionDeniedError(
            "the form has no valid token: it was shown too long ago, or another site sent it; open the page again"
        )
