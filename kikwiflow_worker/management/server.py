"""Serves the application with uvicorn."""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.management.feeds import Feeds

DRAIN_S = 10
"""Seconds that open requests may take to finish when the server stops."""


class ManagementServer:
    """One HTTP server on one address.

    Args:
        address: ``HOST:PORT``, an IPv6 host in brackets; port 0 takes a free one.
    """

    def __init__(self, app: FastAPI, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = _listen(host.strip("[]"), int(port))
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_S,
        )
        self._app = app
        self._server = _Server(config)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._socket.getsockname()[1])

    async def serve(self) -> None:
        """Answer requests until ``stop``; open requests are finished, for up to ten seconds."""
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """Let ``serve`` return."""
        feeds: Feeds = self._app.state.feeds
        feeds.stop()
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """Leaves the signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"management address {host}:{port} cannot be used: {error}; choose another or stop what holds it"
        ) from error
    listener.settimeout(0)
    return listener
