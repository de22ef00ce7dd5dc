"""Writes events to standard output, one JSON document in each line."""

import sys
from typing import BinaryIO

from kikwiflow_worker.relay.message import Message
from kikwiflow_worker.relay.sinks import Options, check_options


class StdoutSink:
    """Writes lines to a stream. It writes at once, so a pipe that nobody reads stops the relay, and nothing is lost."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    async def open(self) -> None:
        """Do nothing."""

    async def deliver(self, message: Message) -> None:
        """Write the event and flush."""
        self._stream.write(message.body + b"\n")
        self._stream.flush()

    async def close(self) -> None:
        """Leave the stream open: it is the process's."""


def open_sink(options: Options) -> StdoutSink:
    """Return a sink on standard output; it has no options."""
    check_options("stdout", options, required=set(), optional=set())
    return StdoutSink(sys.stdout.buffer)
