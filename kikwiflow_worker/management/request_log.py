"""One log line and one count for each request, and an answer where an error was not expected.

A line has the request id, the route as it is written in the API's description, the status and how long it took: never an id,
a key or a parameter, since those may be values of variables.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import structlog
from fastapi import Request
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import KikwiflowError
from kikwiflow_worker.management.problems import INTERNAL_PROBLEM, problem_of
from kikwiflow_worker.step_metrics import metric_row, metrics_table
from kikwiflow_worker.telemetry import Event, emit

REQUEST_ID = "X-Request-Id"
QUIET_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
"""A probe every few seconds is no event."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_UNKNOWN_ROUTE = "(none)"


_REQUESTS = ("kikwiflow_http_requests_total", "Requests that the management server answered.")
_REQUEST_LABELS = ("method", "route", "status")
_DURATION = (
    "kikwiflow_http_request_duration_seconds",
    "Time from a request to the end of its answer; streams are not counted.",
)
_DURATION_LABELS = ("route",)


class RequestMetrics:
    """How many requests were answered, and how long that took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(*_REQUESTS, _REQUEST_LABELS, registry=registry)
        self.duration = Histogram(*_DURATION, _DURATION_LABELS, registry=registry, buckets=_BUCKETS)


def request_metrics_reference() -> str:
    """Return the Markdown table of these metrics."""
    rows = (
        metric_row(*_REQUESTS, "counter", *_REQUEST_LABELS),
        metric_row(*_DURATION, "histogram", *_DURATION_LABELS),
    )
    return metrics_table(rows)


def new_request_id() -> str:
    """Return the id of a request that brings none."""
    return str(uuid4())


@dataclass(frozen=True, slots=True)
class RequestLog:
    """The middleware; it stands before everything else.

    Attributes:
        new_id: Gives the id of a request that brings none, or none that can be logged.
        prefixes: Paths under which routes are served.
    """

    app: ASGIApp
    clock: Clock
    metrics: RequestMetrics
    new_id: Callable[[], str] = new_request_id
    prefixes: tuple[str, ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state: dict[str, Any] = scope.setdefault("state", {})
        given = Headers(scope=scope).get(REQUEST_ID, "")
        state["request_id"] = given if _REQUEST_ID.fullmatch(given) else self.new_id()
        begun = self.clock.monotonic()
        answer = _Answer(send)
        with structlog.contextvars.bound_contextvars(request_id=state["request_id"]):
            try:
                await self.app(scope, receive, answer)
            except Exception as error:
                await self._failed(error, scope, receive, answer)
            self._note(scope, answer, self.clock.monotonic() - begun)

    async def _failed(
        self, error: Exception, scope: Scope, receive: Receive, answer: "_Answer"
    ) -> None:
        problem = problem_of(error) if isinstance(error, KikwiflowError) else INTERNAL_PROBLEM
        if problem is INTERNAL_PROBLEM:
            emit(
                Event.REQUEST_FAILED,
                method=scope["method"],
                route=route_of(scope, self.prefixes),
                exc_info=error,
            )
        if answer.status is not None:
            raise error  # half an answer is out: all that is left is to break off
        await problem.response(Request(scope))(scope, receive, answer)

    def _note(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        route = route_of(scope, self.prefixes)
        if scope["path"] in QUIET_PATHS:
            return
        status = answer.status or HTTPStatus.INTERNAL_SERVER_ERROR.value
        self.metrics.requests.labels(scope["method"], route, str(status)).inc()
        if not answer.is_stream:
            self.metrics.duration.labels(route).observe(seconds)
        emit(
            Event.REQUEST_ANSWERED,
            method=scope["method"],
            route=route,
            status=status,
            duration_ms=round(seconds * 1000, 1),
            actor=scope["state"].get("actor"),
        )


def route_of(scope: Scope, prefixes: Sequence[str] = ()) -> str:
    """Return the path of the route that took a request, with the names of its parameters instead of their values."""
    route = scope.get("route")
    inner = getattr(route, "path_format", None) or getattr(route, "path", None)
    if not inner:
        return _UNKNOWN_ROUTE
    # A route knows its path within its router only.
    found = (each for each in prefixes if scope["path"].startswith(f"{each}/"))
    prefix = next(found, "")
    return str(inner) if inner.startswith(prefix) else f"{prefix}{inner}"


@dataclass(slots=True)
class _Answer:
    """Sends an answer with the request's id, and remembers its status."""

    send: Send
    status: int | None = None
    is_stream: bool = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            media_type = Headers(raw=message["headers"]).get("content-type", "")
            self.is_stream = media_type.startswith("text/event-stream")
        await self.send(message)
