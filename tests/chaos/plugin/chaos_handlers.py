"""The handlers of the chaos run: what one does is in its node's extension property ``chaos.do``.

Each call leaves a line when it begins and one when it ends. Unless it is quiet, it also leaves an entry in the instance's
variable ``trail``, which is committed with its outcome: node, idempotency key, and the call that wrote it. So the database
itself tells in which order which calls were committed, and ``tests.chaos.verify`` compares the two.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import count
from zlib import crc32

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.handler import ExecutionContext, ProcessError, task_handler

SKEW = timedelta(seconds=float(os.environ.get("KIKWIFLOW_TEST_SKEW_S", "0")))
"""How far the clock of this host is off."""

_LOG = os.open(os.environ["KIKWIFLOW_TEST_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
_PID = os.getpid()
_PROCESS = f"{_PID:x}-{int(time.monotonic() * 1000):x}"
"""Unlike the pid alone, it is never given to a second process."""

_CALLS = count(1)
_JITTER = random.Random(_PID)


class _WrongClock(SystemClock):
    def now(self) -> datetime:
        return super().now() + SKEW


if SKEW:
    from kikwiflow_worker.cli import worker_process

    worker_process.SystemClock = _WrongClock


class FailsOnPurposeError(Exception):
    """An attempt that is meant to fail."""


@task_handler
async def chaos_step(context: ExecutionContext) -> None:
    """Do what the node says."""
    await act(context)


async def act(context: ExecutionContext) -> None:
    """Do what ``chaos.do`` says: words such as ``quiet``, ``fold``, ``sleep=0.3``, ``fail=2``, ``code=LATE``."""
    orders = orders_of(context.view.extension_properties)
    call = f"{_PROCESS}-{next(_CALLS)}"
    write(context, call, "start")
    if "sleep" in orders:
        await asyncio.sleep(_JITTER.uniform(0, float(orders["sleep"])))
    if context.attempt <= int(orders.get("fail", "0")):
        write(context, call, "raised")
        raise FailsOnPurposeError(f"attempt {context.attempt} of {orders['fail']} that fail")
    if "quiet" not in orders:
        context.append("trail", f"{context.node_id} {context.idempotency_key} {call}")
        context.increment("total", weight_of(context.node_id))
    if "fold" in orders:
        context.set("fold", folded(context.get("fold"), context.node_id))
    write(context, call, "end")
    if "code" in orders:
        raise ProcessError(orders["code"])


def orders_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the words of ``chaos.do`` and their values."""
    words = properties.get("chaos.do", "").split()
    return {word: value for word, _, value in (each.partition("=") for each in words)}


def weight_of(node_id: str) -> int:
    """Return what a node adds to ``total``."""
    return crc32(node_id.encode()) % 1000 + 1


def folded(before: object, node_id: str) -> int:
    """Return ``fold`` after a node: it differs for every order of nodes and for every one that is missing."""
    return crc32(f"{before} {node_id}".encode())


def write(context: ExecutionContext, call: str, phase: str) -> None:
    """Append a line to the effects log, in one write that nothing can tear."""
    line = {
        "key": context.idempotency_key,
        "node": context.node_id,
        "instance": context.instance_id,
        "pid": _PID,
        "phase": phase,
        "at": time.monotonic(),
        "attempt": context.attempt,
        "call": call,
    }
    os.write(_LOG, json.dumps(line, separators=(",", ":")).encode() + b"\n")
