"""What every request must keep to and every response carries, whoever answers it.

A request may not come from another site's page, name a host that is not ours while everybody is trusted, or be larger than
the limit. A response tells the browser to run nothing that was not served as a file, and to keep nothing.
"""

import re
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kikwiflow_worker.management.problems import Code, Problem
from kikwiflow_worker.management.request_log import REQUEST_ID
from kikwiflow_worker.model.limits import MAX_DEFINITION_BYTES

MAX_BODY_BYTES = MAX_DEFINITION_BYTES + 1024 * 1024
"""Of one request: the largest definition, and room for what surrounds it."""

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HAS_BEGUN = "answer_has_begun"
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Protection:
    """The middleware; it stands before everything else.

    Attributes:
        hosts: The only values of the header ``Host``, without the port; None for any. Where everybody is trusted, this
            keeps a page on the web from reaching us under a name of its own that it lets point to loopback.
    """

    app: ASGIApp
    hosts: frozenset[str] | None = None
    max_body: int = MAX_BODY_BYTES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        answer = _Answer(send, scope.setdefault("state", {}))
        problem = self._problem(scope["method"], headers)
        if problem is not None:
            await problem.response(Request(scope))(scope, receive, answer)
            return
        await self.app(scope, _Limited(receive, self.max_body), answer)

    def _problem(self, method: str, headers: Headers) -> Problem | None:
        if self.hosts is not None and _host_of(headers.get("host", "")) not in self.hosts:
            return Problem(
                code=Code.UNKNOWN_HOST,
                detail="without authentication only requests to localhost are answered; configure authentication "
                "to be reached under another name",
            )
        if method not in SAFE_METHODS and _is_of_another_site(headers):
            return Problem(
                code=Code.CROSS_SITE,
                detail="a page of another site sent this request",
            )
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self.max_body:
            return Problem(
                code=Code.TOO_LARGE,
                detail=_too_large(self.max_body),
            )
        return None


@dataclass(slots=True)
class _Limited:
    """Receives a body as long as it stays below a limit, whatever its length is said to be."""

    receive: Receive
    left: int

    async def __call__(self) -> Message:
        message = await self.receive()
        self.left -= len(message.get("body", b""))
        if self.left < 0:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body of the request is too large"
            )
        return message


@dataclass(frozen=True, slots=True)
class _Answer:
    """Sends a response with our headers, and the session's cookie if it changed."""

    send: Send
    state: MutableMapping[str, Any]

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers[REQUEST_ID] = request_id_in(self.state)
            if "etag" not in headers:
                headers.setdefault("Cache-Control", "no-store")
            for cookie in _cookies(self.state):
                headers.append("Set-Cookie", cookie)
            self.state[_HAS_BEGUN] = True
        await self.send(message)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is only reached from this host."""
    return host.strip("[]").lower() in LOOPBACK_HOSTS or bool(
        re.fullmatch(r"127(\.\d{1,3}){3}", host)
    )


def has_bearer(headers: Headers) -> bool:
    """Return whether a request carries a bearer token, which no browser adds by itself."""
    return headers.get("authorization", "").lower().startswith("bearer ")


def set_cookie(request: Request, cookie: str) -> None:
    """Let the response to ``request`` set a cookie, given as the value of ``Set-Cookie``, whichever response it is."""
    request.scope["state"].setdefault("cookies", []).append(cookie)


def can_set_cookie(request: Request) -> bool:
    """Return whether ``set_cookie`` still reaches the browser: not once the response is under way, as a stream is."""
    return not request.scope["state"].get(_HAS_BEGUN, False)


def request_id_of(request: Request) -> str:
    """Return the id of a request: the caller's own, or one that ``RequestLog`` made for it."""
    return request_id_in(request.scope["state"])


def request_id_in(state: MutableMapping[str, Any]) -> str:
    """Return the id of the request with this state."""
    return str(state["request_id"])


def _cookies(state: MutableMapping[str, Any]) -> Iterable[str]:
    cookies: list[str] = state.get("cookies", [])
    return cookies


def _is_of_another_site(headers: Headers) -> bool:
    """Return whether a browser says so; programs say nothing, and a bearer token is nothing that a browser adds."""
    if has_bearer(headers):
        return False
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")


def _host_of(host: str) -> str:
    """Return the header ``Host`` without its port, and an IPv6 address without brackets."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(:\d{1,5})?", host)
    return found[1].strip("[]").lower() if found else ""


def _too_large(most: int) -> str:
    return f"the body of a request may have {most:,} bytes"
