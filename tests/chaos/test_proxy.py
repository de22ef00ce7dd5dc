"""What the proxies do to a connection, seen by a client and a server that echoes."""

import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.chaos.proxy import HOST, Mode, Network

SHORT_S = 0.3


class Echo:
    """Sends back what it is sent, and remembers it."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while data := connection.recv(4096):
                self.heard += data
                connection.sendall(data)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def network(echo: Echo) -> Iterator[Network]:
    proxies = Network([echo.port])
    yield proxies
    proxies.stop()


@pytest.fixture
def client(network: Network) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, network.ports[0]), timeout=5) as connection:
        connection.sendall(b"hello")
        assert connection.recv(99) == b"hello"
        yield connection


def hears_nothing(client: socket.socket) -> bool:
    client.settimeout(SHORT_S)
    try:
        client.recv(99)
    except TimeoutError:
        return True
    finally:
        client.settimeout(5)
    return False


def test_what_was_held_back_arrives_in_order_when_the_network_is_healed(
    network: Network, client: socket.socket, echo: Echo
) -> None:
    network.set_mode(0, Mode.HOLD)
    client.sendall(b"one ")
    assert hears_nothing(client)
    client.sendall(b"two")
    assert echo.heard == b"hello"

    network.set_mode(0, Mode.PASS)

    assert receive(client, 7) == b"one two"


def test_a_half_open_network_accepts_connections(network: Network) -> None:
    network.set_mode(0, Mode.HOLD)
    with socket.create_connection((HOST, network.ports[0]), timeout=5) as late:
        late.sendall(b"anybody?")
        assert hears_nothing(late)
        network.set_mode(0, Mode.PASS)
        assert late.recv(99) == b"anybody?"


def test_one_way_the_request_is_carried_out_and_the_connection_is_of_no_use_afterwards(
    network: Network, client: socket.socket, echo: Echo
) -> None:
    network.set_mode(0, Mode.LOSE_REPLIES)
    client.sendall(b" you")
    assert hears_nothing(client)
    assert echo.heard == b"hello you"

    network.set_mode(0, Mode.PASS)

    with pytest.raises(ConnectionResetError):
        client.recv(99)


def test_refused_connections_are_broken_and_work_again_on_the_same_port(
    network: Network, client: socket.socket
) -> None:
    network.set_mode(0, Mode.REFUSE)
    with pytest.raises(ConnectionResetError):
        client.recv(99)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, network.ports[0]), timeout=5)

    network.set_mode(0, Mode.PASS)

    with socket.create_connection((HOST, network.ports[0]), timeout=5) as again:
        again.sendall(b"back")
        assert again.recv(99) == b"back"


def test_a_slow_network_delivers_late(network: Network, client: socket.socket) -> None:
    network.set_mode(0, Mode.SLOW, delay_s=SHORT_S)
    begun = time.monotonic()
    client.sendall(b"slow")

    assert client.recv(99) == b"slow"
    assert time.monotonic() - begun > 2 * SHORT_S * 0.9


def test_a_reset_breaks_open_connections_and_no_new_ones(
    network: Network, client: socket.socket
) -> None:
    network.reset(0)
    with pytest.raises(ConnectionResetError):
        client.recv(99)
    with socket.create_connection((HOST, network.ports[0]), timeout=5) as again:
        again.sendall(b"new")
        assert again.recv(99) == b"new"


def test_the_reply_to_a_chosen_command_is_lost_after_it_was_carried_out(
    network: Network, client: socket.socket, echo: Echo
) -> None:
    network.lose_replies_to(0, "commitTransaction", 1)
    other, chosen = a_message("update"), a_message("commitTransaction")

    client.sendall(other)
    assert client.recv(999) == other
    assert network.still_to_lose(0) == 1
    client.sendall(chosen)
    with pytest.raises(ConnectionResetError):
        client.recv(999)

    assert echo.heard.endswith(other + chosen)
    assert network.still_to_lose(0) == 0


def test_what_it_guards_is_killed_if_its_input_ends_without_a_word(echo: Echo) -> None:
    guarded, spared = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    network = Network([echo.port])
    network.guard(guarded.pid)
    try:
        network.abandon()

        assert guarded.wait(5) == -signal.SIGKILL
        assert spared.poll() is None
    finally:
        guarded.kill()
        spared.kill()
        spared.wait()


def test_what_it_guards_is_left_alone_if_it_is_stopped(echo: Echo) -> None:
    guarded = subprocess.Popen(["sleep", "60"])
    network = Network([echo.port])
    network.guard(guarded.pid)
    try:
        network.stop()

        assert guarded.poll() is None
    finally:
        guarded.kill()
        guarded.wait()


def receive(client: socket.socket, count: int) -> bytes:
    """Return so many bytes, in however many pieces they come."""
    received = b""
    while len(received) < count:
        received += client.recv(count - len(received))
    return received


def a_message(command: str) -> bytes:
    """Return the beginning of an OP_MSG with this command, as drivers send it."""
    document = b"\x10" + command.encode() + b"\0" + struct.pack("<i", 1) + b"\0"
    body = b"\0\0\0\0" + b"\0" + struct.pack("<i", 4 + len(document)) + document
    return struct.pack("<iiii", 16 + len(body), 1, 0, 2013) + body
