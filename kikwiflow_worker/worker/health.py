"""Answers whether the worker lives and is ready, and serves its metrics, over HTTP.

The server has threads of its own, so that it still answers when the event loop is blocked, which is exactly when
somebody asks.
"""

import json
import socket
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from typing_extensions import override

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.telemetry import Metrics

_MAX_CONNECTIONS = 16
_SOCKET_TIMEOUT_SECONDS = 5.0
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The answer to one probe.

    Attributes:
        reasons: Why the answer is no; empty if it is yes.
    """

    reasons: tuple[str, ...]

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.reasons


class HealthState:
    """What the worker's parts report about themselves; thread-safe.

    Liveness never depends on the database: a restart does not repair an outage. An acquirer that backs off during
    one therefore reports each step as progress.

    Args:
        clock: Measures how long ago a report came.
        beat_limit_s: How long the event loop may stand still.
        progress_limit_s: How long the acquirer may take between two steps.
    """

    def __init__(
        self, clock: Clock, *, beat_limit_s: float = 10.0, progress_limit_s: float = 60.0
    ) -> None:
        self._clock = clock
        self._beat_limit_s = beat_limit_s
        self._progress_limit_s = progress_limit_s
        self._lock = threading.Lock()
        self._beat_at = self._progress_at = clock.monotonic()
        self._is_started = False
        self._is_draining = False
        self._is_store_reachable = False
        self._look: Callable[[], None] | None = None

    def before_readiness(self, look: Callable[[], None] | None) -> None:
        """Let ``look`` run before readiness is answered, on the thread of whoever asks; it may take a second."""
        with self._lock:
            self._look = look

    def beat(self) -> None:
        """Report that the event loop turns."""
        with self._lock:
            self._beat_at = self._clock.monotonic()

    def progress(self) -> None:
        """Report that the acquirer completed a poll or a step of its back-off."""
        with self._lock:
            self._progress_at = self._clock.monotonic()

    def set_started(self) -> None:
        """Report that start-up is over; from now on progress is expected."""
        with self._lock:
            self._is_started = True
            self._progress_at = self._clock.monotonic()

    def set_draining(self) -> None:
        """Report that the worker takes nothing new; progress is no longer expected."""
        with self._lock:
            self._is_draining = True

    def set_store_reachable(self, *, is_reachable: bool) -> None:
        """Report whether the database answers."""
        with self._lock:
            self._is_store_reachable = is_reachable

    def liveness(self) -> HealthReport:
        """Return whether the process works; if not, only a restart helps."""
        with self._lock:
            now = self._clock.monotonic()
            reasons = []
            if now - self._beat_at > self._beat_limit_s:
                reasons.append(f"the event loop has been blocked for {now - self._beat_at:.0f} s")
            is_acquiring = self._is_started and not self._is_draining
            if is_acquiring and now - self._progress_at > self._progress_limit_s:
                reasons.append(
                    f"the acquirer has made no progress for {now - self._progress_at:.0f} s"
                )
            return HealthReport(tuple(reasons))

    def readiness(self) -> HealthReport:
        """Return whether the worker takes tasks now, after a look at the database if it has been silent."""
        look = self._look
        if look is not None:
            look()
        return self.last_readiness()

    def last_readiness(self) -> HealthReport:
        """Return whether the worker takes tasks, as far as it knows."""
        with self._lock:
            reasons = []
            if not self._is_started:
                reasons.append("the worker has not started yet")
            if self._is_draining:
                reasons.append("the worker is draining")
            if not self._is_store_reachable:
                reasons.append("the database is not reachable")
            return HealthReport(tuple(reasons))


class HealthServer:
    """Serves ``/livez``, ``/readyz`` and ``/metrics`` from daemon threads.

    Args:
        address: ``HOST:PORT``, an IPv6 host in brackets; port 0 takes a free one.
        state: What the probes report.
        metrics: What ``/metrics`` shows.
    """

    def __init__(self, address: str, state: HealthState, metrics: Metrics) -> None:
        self._address = address
        self._state = state
        self._metrics = metrics
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; 0 while stopped."""
        return self._server.port if self._server else 0

    def start(self) -> None:
        """Listen and serve; does nothing if started already.

        Raises:
            ConfigurationError: The address is malformed, in use or not of this host.
        """
        if self._server is not None:
            return
        host, separator, port = self._address.rpartition(":")
        if not separator or not port.isdecimal():
            raise ConfigurationError(
                f"health address {self._address!r} is not HOST:PORT; write it as 127.0.0.1:8080"
            )
        try:
            server = _Server(host.strip("[]"), int(port), self._state, self._metrics)
        except (OSError, OverflowError) as error:
            raise ConfigurationError(
                f"health address {self._address} cannot be used: {error}; choose another health_address or stop what holds it"
            ) from error
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, args=(0.1,), name="health", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the port; does nothing if stopped already."""
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is None or thread is None:
            return
        server.shutdown()
        server.server_close()
        thread.join(timeout=_SOCKET_TIMEOUT_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request and closes the connection, so that idle clients hold no thread."""

    protocol_version = "HTTP/1.1"
    server_version = "kikwiflow-worker"
    sys_version = ""
    timeout = _SOCKET_TIMEOUT_SECONDS
    server: "_Server"

    def do_GET(self) -> None:
        state = self.server.state
        match urlsplit(self.path).path:
            case "/livez":
                self._report(state.liveness())
            case "/readyz":
                self._report(state.readiness())
            case "/metrics":
                self._answer(HTTPStatus.OK, _METRICS_TYPE, self.server.metrics.render())
            case _:
                self._refuse(
                    HTTPStatus.NOT_FOUND, "not found; there are /livez, /readyz and /metrics"
                )

    do_HEAD = do_GET  # noqa: N815 - the names come from http.server

    def _not_allowed(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "use GET or HEAD")

    do_POST = do_PUT = do_PATCH = do_DELETE = _not_allowed  # noqa: N815
    do_OPTIONS = do_TRACE = do_CONNECT = _not_allowed  # noqa: N815

    def _report(self, report: HealthReport) -> None:
        status = HTTPStatus.OK if report.is_ok else HTTPStatus.SERVICE_UNAVAILABLE
        body = {"status": "ok" if report.is_ok else "unavailable", "reasons": report.reasons}
        self._answer(status, "application/json", json.dumps(body).encode())

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self._answer(status, "text/plain; charset=utf-8", text.encode() + b"\n")

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a probe every few seconds is no event."""


class _Server(socketserver.ThreadingTCPServer):
    """Serves a bounded number of connections; more are closed at once.

    Not ``http.server.HTTPServer``, which asks the name service for its own name before it listens.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = _MAX_CONNECTIONS

    def __init__(self, host: str, port: int, state: HealthState, metrics: Metrics) -> None:
        self.state = state
        self.metrics = metrics
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__((host, port), _Handler)

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    @override
    def verify_request(self, request: object, client_address: object) -> bool:
        return self._free.acquire(blocking=False)

    @override
    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore it: the client has gone, and the next probe asks again."""
