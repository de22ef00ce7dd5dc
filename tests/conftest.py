"""Fixtures that every test may ask for."""

import signal
from types import FrameType

from tests.support.mongo import database_name, mongo_server, mongo_uri

__all__ = ["database_name", "mongo_server", "mongo_uri"]


def pytest_configure() -> None:
    """Let SIGTERM end the run as SIGINT does: fixtures stop the servers and workers that they started.

    A shell starts what it runs in the background with SIGINT ignored; such a run must end as well.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)
