"""The handlers that are measured, loaded by worker processes through an entry point like any plug-in."""

import asyncio
import time

from kikwiflow_worker.handler import ExecutionContext, task_handler

WAIT_S = 0.1


@task_handler
async def no_op(context: ExecutionContext) -> None:
    """Do nothing."""


@task_handler
async def set_one(context: ExecutionContext) -> None:
    """Set one small variable."""
    context.set("last", context.node_id)


@task_handler
async def note_time(context: ExecutionContext) -> None:
    """Set when it ran, in seconds on the clock that all processes of the host share."""
    context.set("ran_at", time.monotonic())


@task_handler
async def wait_100_ms(_context: ExecutionContext) -> None:
    """Wait as for a service elsewhere."""
    await asyncio.sleep(WAIT_S)


@task_handler
async def change_payload(context: ExecutionContext) -> None:
    """Give the variable ``payload`` other bytes of the same length."""
    payload = context["payload"]
    if isinstance(payload, bytes):
        context.set("payload", payload[1:] + payload[:1])
