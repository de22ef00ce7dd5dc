"""Signals: the first asks to drain, the second to cancel, and a deadline ends what answers neither."""

import asyncio
import faulthandler
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from kikwiflow_worker.worker.daemon import StopResult

_REQUESTS = {signal.SIGTERM: 1, signal.SIGINT: 1, signal.SIGQUIT: 2}
"""How many requests to stop a signal stands for."""


def install_signal_handlers(
    loop: asyncio.AbstractEventLoop,
    request_stop: Callable[[], None],
    *,
    deadline_s: float,
    cold_deadline_s: float,
) -> None:
    """Let SIGTERM and SIGINT stop the worker, SIGQUIT stop it at once, and SIGUSR1 print all stacks.

    A thread of its own hears the signals, so a handler that blocks the event loop cannot keep the process alive: past
    the deadline it exits with code 75, and its locks lapse.

    Args:
        deadline_s: From the first request to the end.
        cold_deadline_s: From the second request to the end.
    """
    requests = 0

    def ask(times: int) -> None:
        nonlocal requests
        for _ in range(times):
            requests += 1
            with suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(request_stop)
        _exit_after(cold_deadline_s if requests > 1 else deadline_s)

    _listen(ask)
    for number in _REQUESTS:
        signal.signal(number, _noted)
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)


def exit_now(code: int) -> None:
    """End the process without waiting for threads of handlers that do not end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _listen(ask: Callable[[int], None]) -> None:
    """Hear of signals through the interpreter's wake-up descriptor.

    Python runs its own handlers between two instructions of the main thread, which is the event loop's: one that sits
    in a call can keep them waiting for as long as the call lasts.
    """
    hearing, telling = socket.socketpair()
    telling.settimeout(0)
    signal.set_wakeup_fd(telling.fileno(), warn_on_full_buffer=False)

    def hear() -> None:
        with hearing, telling:
            while True:
                for number in hearing.recv(64):
                    if number in _REQUESTS:
                        ask(_REQUESTS[signal.Signals(number)])

    threading.Thread(target=hear, name="signals", daemon=True).start()


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the signal was written to the wake-up descriptor when it came."""


def _exit_after(seconds: float) -> None:
    timer = threading.Timer(seconds, exit_now, args=(StopResult.DEADLINE_PASSED.value,))
    timer.daemon = True
    timer.start()
