"""Plays the systems that a real handler would call.

Their speed is an extension property of the node, ``simulatedSeconds``; without it they answer at once.
"""

import threading

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.handler import EvaluationContext

_CLOCK = SystemClock()


async def remote_call(ctx: EvaluationContext) -> None:
    """Wait as for the answer of a remote system, without occupying anything."""
    await _CLOCK.sleep(_seconds(ctx))


def blocking_call(ctx: EvaluationContext) -> None:
    """Wait as a client library that blocks its thread; only for handlers that are not ``async``."""
    threading.Event().wait(_seconds(ctx))


def _seconds(ctx: EvaluationContext) -> float:
    return float(ctx.view.extension_properties.get("simulatedSeconds", "0"))
