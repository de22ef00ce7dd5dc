"""A span around each request, in the trace that its ``traceparent`` header names."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kikwiflow_worker.management.request_log import QUIET_PATHS, route_of
from kikwiflow_worker.tracing.protocol import SpanKind, Tracing

_HEADER = "traceparent"


@dataclass(frozen=True, slots=True)
class RequestSpans:
    """The middleware; what a request creates belongs to the trace of whoever made it.

    Attributes:
        prefixes: Paths under which routes are served.
    """

    app: ASGIApp
    tracing: Tracing
    prefixes: Sequence[str] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"] in QUIET_PATHS:
            await self.app(scope, receive, send)
            return
        method = str(scope["method"])
        caller = Headers(scope=scope).get(_HEADER)
        attributes = {"http.request.method": method}
        with self.tracing.span(
            method, SpanKind.REQUEST, cause=caller, attributes=attributes
        ) as span:

            async def answer(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status = int(message["status"])
                    span.note({"http.response.status_code": status})
                    if status >= 500:
                        span.failed(str(status), "the request was answered with an error")
                await send(message)

            await self.app(scope, receive, answer)
            span.note({"http.route": route_of(scope, self.prefixes)})
