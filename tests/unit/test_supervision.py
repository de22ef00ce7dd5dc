import asyncio
from contextlib import suppress

import pytest
import structlog
from structlog.testing import capture_logs

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import StoreRefusedError
from kikwiflow_worker.telemetry import Event
from kikwiflow_worker.worker.supervision import end, supervised


async def test_a_part_that_swallows_a_cancellation_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kikwiflow_worker.worker.supervision._CANCEL_AGAIN_S", 0.01)
    swallowed = []

    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        swallowed.append(True)
        await asyncio.Event().wait()

    async def obedient() -> None:
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        parts = [group.create_task(stubborn()), group.create_task(obedient())]
        await asyncio.sleep(0)
        await asyncio.wait_for(end(parts), 5)

    assert swallowed == [True]
    assert all(part.cancelled() for part in parts)


async def test_a_database_that_keeps_a_part_out_is_no_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kikwiflow_worker.worker.supervision._PAUSE_S", 0)
    structlog.reset_defaults()
    runs = []

    async def part() -> None:
        runs.append(True)
        if len(runs) == 1:
            raise StoreRefusedError("recording this worker was refused")

    with capture_logs() as lines:
        await supervised("worker record", part, SystemClock())

    (line,) = lines
    assert line["event"] == Event.STORE_UNAVAILABLE
    assert line["doing"] == "worker record"
    assert len(runs) == 2
