"""Signals: the first asks to drain, the second to cancel, and a deadline ends what answers neither."""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from kikwiflow_worker.worker.daemon import StopResult


def install_signal_handlers(
    loop: asyncio.AbstractEventLoop,
    request_stop: Callable[[], None],
    *,
    deadline_s: float,
    cold_deadline_s: float,
) -> None:
    """Let SIGTERM and SIGINT stop the worker, SIGQUIT stop it at once, and SIGUSR1 print all stacks.

    The handlers do not run on the event loop, so a handler that blocks the loop cannot keep the process alive: past the
    deadline it exits with code 75, and its locks lapse.

    Args:
        deadline_s: From the first request to the end.
        cold_deadline_s: From the second request to the end.
    """
    requests = 0

    def ask(times: int) -> None:
        nonlocal requests
        for _ in range(times):
            requests += 1
            loop.call_soon_threadsafe(request_stop)
        _exit_after(cold_deadline_s if requests > 1 else deadline_s)

    def stop(_number: int, _frame: FrameType | None) -> None:
        ask(1)

    def stop_at_once(_number: int, _frame: FrameType | None) -> None:
        ask(2)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGQUIT, stop_at_once)
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)


def exit_now(code: int) -> None:
    """End the process without waiting for threads of handlers that do not end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _exit_after(seconds: float) -> None:
    timer = threading.Timer(seconds, exit_now, args=(StopResult.DEADLINE_PASSED.value,))
    timer.daemon = True
    timer.start()
