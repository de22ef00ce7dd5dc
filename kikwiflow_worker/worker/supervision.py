"""Keeping the parts of the worker alive: none may stop another."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import CancelledError

import structlog

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.telemetry import Event, emit

_PAUSE_S = 1.0

_CANCEL_AGAIN_S = 0.5

_TURN_S = 1.0
"""How long another thread waits for what it lets run on the event loop."""


def run_on(
    loop: asyncio.AbstractEventLoop, action: Callable[[], Coroutine[object, object, None]]
) -> None:
    """Run ``action`` on an event loop from another thread, and wait for its end.

    It is not waited for longer than a second, nor at all if the loop has ended: it must still be possible to ask a worker
    how it is when its loop stands still.
    """
    running = action()
    try:
        asyncio.run_coroutine_threadsafe(running, loop).result(_TURN_S)
    except RuntimeError:
        running.close()
    except (TimeoutError, CancelledError):
        pass


async def supervised(name: str, run: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run a part until it returns; if it fails, report it and start it again after a pause.

    A database that is away is no failure of a part; the one that watches it says so.
    """
    while True:
        try:
            await run()
            return
        except StoreUnavailableError as error:
            emit(Event.STORE_UNAVAILABLE, doing=name, error=str(error))
        except Exception:
            structlog.get_logger().exception(
                Event.SERVICE_CRASHED, service=name, restarts_in_s=_PAUSE_S
            )
        await clock.sleep(_PAUSE_S)


async def end(parts: Iterable[asyncio.Task[None]]) -> None:
    """Cancel parts and wait until they have ended.

    They are cancelled until then: ``asyncio.wait_for`` of Python 3.11, which the driver uses, swallows a cancellation
    that comes just as what it waits for is done, and the part would go on for ever.
    """
    running = set(parts)
    while running:
        for part in running:
            part.cancel()
        _, running = await asyncio.wait(running, timeout=_CANCEL_AGAIN_S)
