import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kikwiflow_worker.worker.systemd import Notifier


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "n"))
        receiver.settimeout(2)
        yield receiver


def test_each_method_sends_its_message(listener: socket.socket) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": listener.getsockname()})

    notifier.ready()
    notifier.status("12 running\nREADY=0")
    notifier.watchdog()
    notifier.stopping()
    notifier.extend_timeout(2.5)

    assert [listener.recv(100).decode() for _ in range(5)] == [
        "READY=1",
        "STATUS=12 running READY=0",
        "WATCHDOG=1",
        "STOPPING=1",
        "EXTEND_TIMEOUT_USEC=2500000",
    ]


def test_an_abstract_socket_is_reached() -> None:
    name = f"kikwiflow-test-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        receiver.settimeout(2)

        Notifier.from_environment({"NOTIFY_SOCKET": "@" + name}).ready()

        assert receiver.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    "address", [None, "", "absent/socket", "x" * 300, "bad\0name", "vsock:2:1234"]
)
def test_nobody_who_listens_is_no_error(address: str | None) -> None:
    notifier = Notifier.from_environment({} if address is None else {"NOTIFY_SOCKET": address})

    notifier.ready()
    notifier.status("bad \udcff text")
    notifier.extend_timeout(float("inf"))


def test_the_watchdog_is_fed_at_half_its_time() -> None:
    environ = {"NOTIFY_SOCKET": "s", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}

    assert Notifier.from_environment(environ).watchdog_interval_s == 15.0


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "-5"},
        {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"},
    ],
)
def test_no_watchdog_waits_for_this_process(environ: dict[str, str]) -> None:
    assert Notifier.from_environment({"NOTIFY_SOCKET": "s", **environ}).watchdog_interval_s is None


def test_a_watchdog_without_a_socket_is_no_watchdog() -> None:
    assert Notifier.from_environment({"WATCHDOG_USEC": "30000000"}).watchdog_interval_s is None
