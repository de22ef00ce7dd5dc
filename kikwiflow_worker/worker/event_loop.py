"""Which event loop a worker runs on."""

import asyncio
from collections.abc import Callable
from enum import StrEnum

from kikwiflow_worker.errors import ConfigurationError


class EventLoop(StrEnum):
    """An implementation of the event loop; ``AUTO`` is ``UVLOOP`` where it is installed."""

    AUTO = "auto"
    ASYNCIO = "asyncio"
    UVLOOP = "uvloop"


def loop_factory(choice: EventLoop) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the event loop.

    Raises:
        ConfigurationError: uvloop is asked for and not installed.
    """
    if choice is EventLoop.ASYNCIO:
        return asyncio.new_event_loop
    try:
        import uvloop  # noqa: PLC0415 - an optional extra
    except ImportError:
        if choice is EventLoop.AUTO:
            return asyncio.new_event_loop
        raise ConfigurationError(
            "uvloop is not installed; add it with pip install 'kikwiflow-worker[uvloop]', or set event_loop to auto"
        ) from None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
