"""The dashboard's sessions: a secret is shown once, a cookie stands for it afterwards.

The session is kept in the database, so that any process answers it, and ends at once for all of them. The cookie is random
and means nothing by itself; its SHA-256 is what is stored. A new one is issued every quarter of an hour, and forms carry a
token that only a page of ours can know.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http.cookies import Morsel, SimpleCookie

from fastapi import Request
from starlette.datastructures import FormData

from kikwiflow_worker.management.headers import (
    MAX_BODY_BYTES,
    SAFE_METHODS,
    can_set_cookie,
    has_bearer,
    is_loopback,
    set_cookie,
)
from kikwiflow_worker.management.identity import Identity
from kikwiflow_worker.management.problems import PermissionDeniedError
from kikwiflow_worker.management.security.credentials import Credentials
from kikwiflow_worker.store.access import LoginSession, SessionStore

CSRF_FIELD = "csrf"
CSRF_HEADER = "X-CSRF-Token"
LONGEST = timedelta(hours=12)
"""After a login; then another is needed."""

IDLE = timedelta(minutes=30)
"""Without a request that issues a new cookie."""

ROTATION = timedelta(minutes=15)
OVERLAP = timedelta(seconds=30)
"""How long a replaced cookie is still good, for requests that were under way."""

_COOKIE = "kikwiflow_session"
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_PROCESS_TOKEN = secrets.token_urlsafe(32)
"""For forms where everybody is trusted: another site cannot know it either."""


@dataclass(frozen=True, slots=True)
class WebSessions:
    """The sessions of one database.

    Attributes:
        now: The database's time.
    """

    store: SessionStore
    now: Callable[[], datetime]

    async def open(self, request: Request, credentials: Credentials) -> None:
        """Begin a session for whoever proved to be somebody; the response sets its cookie. One before it ends."""
        await self.close(request)
        now = self.now()
        ends_at = min(now + LONGEST, credentials.expires_at)
        session = LoginSession(
            identity=credentials.identity,
            csrf_token=secrets.token_urlsafe(32),
            token_id=credentials.token_id,
            issued_at=now,
            expires_at=min(now + IDLE, ends_at),
            ends_at=ends_at,
        )
        cookie = secrets.token_urlsafe(32)
        await self.store.insert(_hashed(cookie), session)
        set_cookie(request, _set(request, cookie, session.ends_at - now))

    async def find(self, request: Request) -> LoginSession | None:
        """Return the session of a request that is not over; the response sets a new cookie from time to time."""
        cookie = request.cookies.get(_cookie_name(request))
        if not cookie:
            return None
        session = await self.store.find(_hashed(cookie))
        now = self.now()
        if session is None or now >= min(session.expires_at, session.ends_at):
            return None
        if session.issued_at + ROTATION <= now and can_set_cookie(request):
            await self._rotate(request, cookie, session)
        request.state.csrf_token = session.csrf_token
        return session

    async def close(self, request: Request) -> None:
        """End the session of a request, if it has one; the response takes its cookie away."""
        cookie = request.cookies.get(_cookie_name(request))
        if cookie:
            await self.store.remove(_hashed(cookie))
            set_cookie(request, _set(request, "", timedelta(0)))

    async def _rotate(self, request: Request, cookie: str, session: LoginSession) -> None:
        now, new_cookie = self.now(), secrets.token_urlsafe(32)
        renewed = replace(session, issued_at=now, expires_at=min(now + IDLE, session.ends_at))
        await self.store.replace(_hashed(cookie), _hashed(new_cookie), renewed, until=now + OVERLAP)
        set_cookie(request, _set(request, new_cookie, session.ends_at - now))


def csrf_token(request: Request) -> str:
    """Return what forms on the page that answers ``request`` must carry in the field ``CSRF_FIELD``."""
    return str(getattr(request.state, "csrf_token", _PROCESS_TOKEN))


def has_session(request: Request) -> bool:
    """Return whether somebody logged in looks at the page that answers ``request``."""
    return hasattr(request.state, "csrf_token")


async def check_csrf(request: Request, identity: Identity) -> None:
    """Refuse a request of a browser that changes something and does not come from a page of ours.

    A program that sends a bearer token, or nothing where everybody is trusted, is no browser: nothing of it can be ridden.

    Raises:
        PermissionDeniedError: Neither the header ``X-CSRF-Token`` nor the form's field ``csrf`` holds the session's token.
    """
    if request.method in SAFE_METHODS or not _is_browser(request):
        return
    given: object = request.headers.get(CSRF_HEADER)
    if given is None and request.headers.get("content-type", "").startswith(_FORMS):
        given = (await read_form(request)).get(CSRF_FIELD)
    expected = csrf_token(request)
    if not isinstance(given, str) or not secrets.compare_digest(given.encode(), expected.encode()):
        raise PermissionDeniedError(
            f"{identity.actor}'s request carries no valid token of a page: it was shown too long ago, or another site "
            "sent it; open the page again"
        )


async def read_form(request: Request) -> FormData:
    """Return the fields of a form, with at most one file; read once, however often it is asked for."""
    return await request.form(max_files=1, max_fields=200, max_part_size=MAX_BODY_BYTES)


def _is_browser(request: Request) -> bool:
    if has_bearer(request.headers):
        return False
    said = ("origin", "sec-fetch-site")
    return _cookie_name(request) in request.cookies or any(name in request.headers for name in said)


def _hashed(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()


def _is_secure(request: Request) -> bool:
    """Return whether the cookie may travel by TLS only: always, except to this host itself."""
    return request.url.scheme == "https" or not is_loopback(request.url.hostname or "")


def _cookie_name(request: Request) -> str:
    """Return the cookie's name; the prefix lets the browser refuse it from another host or without TLS."""
    return f"__Host-{_COOKIE}" if _is_secure(request) else _COOKIE


def _set(request: Request, value: str, lifetime: timedelta) -> str:
    jar: SimpleCookie = SimpleCookie()
    jar[_cookie_name(request)] = value
    morsel: Morsel[str] = jar[_cookie_name(request)]
    morsel["path"] = "/"
    morsel["max-age"] = int(lifetime.total_seconds())
    morsel["samesite"] = "Strict"
    morsel["httponly"] = True
    if _is_secure(request):
        morsel["secure"] = True
    return morsel.OutputString()
