"""The handlers of the acceptance tests, loaded by worker processes through an entry point like any plug-in.

Each call leaves lines in the effects log, and counts itself in a variable of the instance that is committed with its
outcome: ``tests.support.verifier`` compares the two. What a handler does besides is in its name.
"""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.handler import ExecutionContext, task_handler

EFFECTS = Path(os.environ["KIKWIFLOW_TEST_EFFECTS"])
"""Where to write what was done; a gate is a file beside it."""

SKEW = timedelta(seconds=float(os.environ.get("KIKWIFLOW_TEST_SKEW_S", "0")))
"""How far the clock of this host is off."""

GATE_POLL_S = 0.02


class _WrongClock(SystemClock):
    def now(self) -> datetime:
        return super().now() + SKEW


if SKEW:
    from kikwiflow_worker.cli import worker_process

    worker_process.SystemClock = _WrongClock


@contextmanager
def effect(context: ExecutionContext) -> Iterator[None]:
    """Write that the call starts, count it, and write that it ends."""
    _write(context, "start")
    context.increment(f"done {context.node_id}")
    yield
    _write(context, "end")


def _write(context: ExecutionContext, phase: str) -> None:
    line = {
        "key": context.idempotency_key,
        "node": context.node_id,
        "instance": context.instance_id,
        "pid": os.getpid(),
        "phase": phase,
        "at": time.monotonic(),
    }
    target = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(target, json.dumps(line).encode() + b"\n")
    finally:
        os.close(target)


def _is_open(context: ExecutionContext) -> bool:
    """Return whether the gate of this process or of this node was opened."""
    gates = EFFECTS.parent
    return any(
        (gates / name).exists() for name in (f"gate-{os.getpid()}", f"gate-{context.node_id}")
    )


@task_handler
async def at_once(context: ExecutionContext) -> None:
    with effect(context):
        pass


@task_handler
async def after_20_ms(context: ExecutionContext) -> None:
    with effect(context):
        await asyncio.sleep(0.02)


@task_handler
async def at_gate(context: ExecutionContext) -> None:
    with effect(context):
        while not _is_open(context):
            await asyncio.sleep(GATE_POLL_S)


@task_handler
def at_gate_in_thread(context: ExecutionContext) -> None:
    with effect(context):
        while not _is_open(context) and not context.is_cancelled:
            time.sleep(GATE_POLL_S)


@task_handler
async def blocks_the_loop(context: ExecutionContext) -> None:
    """Block it for as many seconds as variable ``block_s`` says."""
    with effect(context):
        time.sleep(context.get("block_s", 3))  # noqa: ASYNC251 - that is its fault


@task_handler
async def kills_its_process(context: ExecutionContext) -> None:
    with effect(context):
        os._exit(9)
