"""A process with a small TCP proxy before every member, which damages the network as it is told.

Orders come as lines of JSON on standard input, and each is answered by one line; the first line of output names the
ports. The process ends when its input does, and so never outlives the run; it then takes the processes with it that it
was told to guard, so that a run that is killed leaves nothing behind.
"""

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from typing_extensions import override

HOST = "127.0.0.1"

_COMMAND_NAME_AT = 26
"""Where the name of the command stands in an OP_MSG: header 16, flags 4, kind 1, length 4, type 1."""


class Mode(StrEnum):
    """What a proxy does with what it is given."""

    PASS = "pass"
    REFUSE = "refuse"
    """Connections are broken and new ones refused: the host is down."""
    HOLD = "hold"
    """Connections are accepted, nothing gets through, and all of it arrives when the network is healed."""
    LOSE_REPLIES = "lose_replies"
    """One way: requests get through and are carried out, no reply comes back."""
    SLOW = "slow"
    """Everything arrives late, in order."""


@dataclass(slots=True)
class Gate:
    """What the links of one proxy share."""

    target: int
    mode: Mode = Mode.PASS
    delay_s: float = 0.0
    lost_replies: dict[bytes, int] = field(default_factory=dict)
    links: set["Link"] = field(default_factory=set)

    def loses_reply_to(self, request: bytes) -> bool:
        """Whether the reply to this request is one of those to be lost; counts it."""
        for command, left in self.lost_replies.items():
            if left and request.startswith(command + b"\0", _COMMAND_NAME_AT):
                self.lost_replies[command] = left - 1
                return True
        return False


class Link:
    """A connection of a client together with ours to the member."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.client = Side(self, is_client=True)
        self.member = Side(self, is_client=False)
        self.has_lost = False
        self.loses_next_reply = False

    def carry(self, data: bytes, source: "Side") -> None:
        """Take what one side sent, and do with it what the mode says."""
        gate = self.gate
        if source is self.client:
            self.loses_next_reply |= gate.loses_reply_to(data)
        elif self.loses_next_reply:
            self.break_off()
            return
        elif gate.mode is Mode.LOSE_REPLIES:
            self.has_lost = True
            return
        other = self.member if source is self.client else self.client
        other.send(data, gate)

    def break_off(self) -> None:
        """Reset both connections."""
        self.gate.links.discard(self)
        self.client.reset()
        self.member.reset()

    def healed(self) -> None:
        """Send on what was held; a stream that has lost something is of no use any more."""
        if self.has_lost:
            self.break_off()
        else:
            self.client.flush()
            self.member.flush()


class Side(asyncio.Protocol):
    """One of the two connections of a link."""

    def __init__(self, link: Link, *, is_client: bool) -> None:
        self._link = link
        self._is_client = is_client
        self._transport: asyncio.Transport | None = None
        self._late: deque[bytes] = deque()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._is_client:
            self._link.gate.links.add(self._link)
            self._transport.pause_reading()
            _connect(self._link)
        elif self._link in self._link.gate.links:
            self._link.client.resume()
        else:
            self.reset()

    @override
    def data_received(self, data: bytes) -> None:
        self._link.carry(data, self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._link.break_off()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def send(self, data: bytes, gate: Gate) -> None:
        """Send to this side, now or late, never out of order."""
        if gate.mode is Mode.PASS and not self._late:
            self._write(data)
            return
        self._late.append(data)
        if gate.mode is not Mode.HOLD:
            asyncio.get_running_loop().call_later(gate.delay_s, self._send_oldest)

    def flush(self) -> None:
        """Send all that is late."""
        while self._late:
            self._send_oldest()

    def reset(self) -> None:
        """Break the connection off as a dying host would: with a reset, not in good order."""
        if self._transport is None or self._transport.is_closing():
            return
        raw: socket.socket = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _send_oldest(self) -> None:
        if self._late:
            self._write(self._late.popleft())

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


_connecting: set[asyncio.Task[None]] = set()


def _connect(link: Link) -> None:
    async def connect() -> None:
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: link.member, HOST, link.gate.target)
        except OSError:
            link.break_off()

    task = asyncio.get_running_loop().create_task(connect())
    _connecting.add(task)
    task.add_done_callback(_connecting.discard)


class Proxy:
    """Listens for one member."""

    def __init__(self, target: int) -> None:
        self.gate = Gate(target)
        self.port = 0
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Accept connections, always on the same port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Link(self.gate).client, HOST, self.port, backlog=512
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def set_mode(self, mode: Mode, delay_s: float) -> None:
        """Change what happens from now on, to open connections too."""
        self.gate.mode, self.gate.delay_s = mode, delay_s
        if mode is Mode.REFUSE and self._server is not None:
            self._server.close()
            self._server = None
            self.reset()
        elif mode is not Mode.REFUSE and self._server is None:
            await self.listen()
        if mode is Mode.PASS:
            for link in list(self.gate.links):
                link.healed()

    def reset(self) -> None:
        """Break off all connections."""
        for link in list(self.gate.links):
            link.break_off()

    async def obey(self, order: dict[str, Any]) -> object:
        """Carry out one order; return the answer."""
        match order["do"]:
            case "mode":
                await self.set_mode(Mode(order["mode"]), order.get("delay_s", 0.0))
            case "reset":
                self.reset()
            case "lose_replies_to":
                self.gate.lost_replies[order["command"].encode()] = order["times"]
            case "still_to_lose":
                return sum(self.gate.lost_replies.values())
            case unknown:
                raise ValueError(f"no such order: {unknown}")
        return "done"


async def serve(targets: Sequence[int]) -> None:
    """Run proxies for these ports until standard input ends."""
    proxies = [Proxy(target) for target in targets]
    for proxy in proxies:
        await proxy.listen()
    _say([proxy.port for proxy in proxies])
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    guarded: dict[int, str] = {}
    while line := await orders.readline():
        match json.loads(line):
            case {"do": "guard", "pid": pid}:
                guarded[pid] = _born(pid)
                _say("done")
            case {"do": "forget"}:
                guarded.clear()
                _say("done")
            case order:
                _say(await proxies[order["proxy"]].obey(order))
    for pid, born in guarded.items():
        if born and _born(pid) == born:
            os.kill(pid, signal.SIGKILL)


def _born(pid: int) -> str:
    """Return when a process was started, which tells it from a later one with its id; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


class Network:
    """The proxies of a cluster, in a process of their own. Its methods may be called from any thread."""

    def __init__(self, targets: Sequence[int]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.proxy", *map(str, targets)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self.ports: list[int] = self._hear()

    def set_mode(self, proxy: int, mode: Mode, *, delay_s: float = 0.0) -> None:
        """Let a proxy do this from now on."""
        self._order(proxy=proxy, do="mode", mode=mode, delay_s=delay_s)

    def reset(self, proxy: int) -> None:
        """Break off all connections to a member, once."""
        self._order(proxy=proxy, do="reset")

    def lose_replies_to(self, proxy: int, command: str, times: int) -> None:
        """Let the member carry out the next so many of these commands, and break off instead of passing the reply."""
        self._order(proxy=proxy, do="lose_replies_to", command=command, times=times)

    def still_to_lose(self, proxy: int) -> int:
        """Return how many replies are yet to be lost."""
        return int(self._order(proxy=proxy, do="still_to_lose"))

    def guard(self, pid: int) -> None:
        """Let a process be killed if the run ends without ``stop``."""
        self._order(do="guard", pid=pid)

    def stop(self) -> None:
        """End the process, and nothing else."""
        self._order(do="forget")
        self.abandon()

    def abandon(self) -> None:
        """End the process as the end of the run would."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _order(self, **order: object) -> Any:
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            return self._hear()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the proxies' process has ended; its error output is above")
        return json.loads(line)


if __name__ == "__main__":
    asyncio.run(serve([int(port) for port in sys.argv[1:]]))
