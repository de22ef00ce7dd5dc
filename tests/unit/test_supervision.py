"""A part of the worker that fails is started again, and only what is unexpected is reported as a failure."""

from collections.abc import Awaitable, Callable

import pytest
import structlog

from kikwiflow_worker.errors import StoreError, StoreUnavailableError
from kikwiflow_worker.worker.supervision import supervised


class PassingClock:
    """A clock whose waits are over at once."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def failing_once(error: Exception) -> Callable[[], Awaitable[None]]:
    errors = [error]

    async def run() -> None:
        if errors:
            raise errors.pop()

    return run


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (StoreUnavailableError("measuring the queue failed, the database is not available"), []),
        (StoreError("measuring the queue failed: not allowed"), ["service.crashed"]),
        (ValueError("a mistake"), ["service.crashed"]),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_part_that_fails_is_started_again_after_a_pause(
    error: Exception, reported: list[str]
) -> None:
    clock = PassingClock()

    with structlog.testing.capture_logs() as lines:
        await supervised("queue measures", failing_once(error), clock)  # type: ignore[arg-type]

    assert [line["event"] for line in lines] == reported
    assert clock.slept == [1.0]
