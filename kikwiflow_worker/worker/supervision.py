"""Keeping the parts of the worker alive: none may stop another."""

from collections.abc import Awaitable, Callable

import structlog

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.telemetry import Event

_PAUSE_S = 1.0


async def supervised(name: str, run: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run a part until it returns; if it fails, report it and start it again after a pause.

    A database that is away is no failure of a part; the one that watches it says so.
    """
    while True:
        try:
            await run()
            return
        except StoreUnavailableError:
            pass
        except Exception:
            structlog.get_logger().exception(
                Event.SERVICE_CRASHED, service=name, restarts_in_s=_PAUSE_S
            )
        await clock.sleep(_PAUSE_S)
