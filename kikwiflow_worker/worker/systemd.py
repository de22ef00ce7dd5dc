"""Tells systemd how the worker is doing (``sd_notify``), if systemd started it."""

import os
import socket
from collections.abc import Mapping
from typing import Self

_SEND_TIMEOUT_SECONDS = 0.5
_MICROSECONDS = 1_000_000


class Notifier:
    """Sends state to the service manager; does nothing where there is none.

    No method raises: a service manager that does not listen must not stop the worker.

    Attributes:
        watchdog_interval_s: How often ``watchdog`` must be called, in seconds: half of what systemd allows. ``None``
            if no watchdog waits for this process.
    """

    def __init__(self, address: str | None, *, watchdog_interval_s: float | None = None) -> None:
        self._address = address
        self.watchdog_interval_s = watchdog_interval_s

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Return a notifier for the socket and watchdog that systemd announces in ``environ``."""
        address = environ.get("NOTIFY_SOCKET") or None
        return cls(address, watchdog_interval_s=_watchdog_interval(environ) if address else None)

    def ready(self) -> None:
        """Say that start-up is over."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Show ``text`` as the state in ``systemctl status``; line breaks become spaces."""
        self._send("STATUS=" + " ".join(text.split()))

    def watchdog(self) -> None:
        """Say that the worker makes progress."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the worker drains."""
        self._send("STOPPING=1")

    def extend_timeout(self, seconds: float) -> None:
        """Ask for ``seconds`` more, from now, before start-up or stop is taken for failed."""
        bounded = min(max(seconds, 0.0), 86_400.0)
        self._send(f"EXTEND_TIMEOUT_USEC={round(bounded * _MICROSECONDS)}")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        # A leading @ stands for the NUL byte of Linux' abstract namespace.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(_SEND_TIMEOUT_SECONDS)
                sender.connect(address)
                sender.send(message.encode(errors="replace"))
        except (OSError, ValueError):
            return


def _watchdog_interval(environ: Mapping[str, str]) -> float | None:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    allowed = environ.get("WATCHDOG_USEC", "")
    if not allowed.isascii() or not allowed.isdigit() or int(allowed) == 0:
        return None
    return int(allowed) / _MICROSECONDS / 2
