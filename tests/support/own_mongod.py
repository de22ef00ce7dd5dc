"""A ``mongod`` that a test may stop, kill and start again on the same port, or run without a replica set."""

import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from kikwiflow_worker.embedded import find_mongod
from kikwiflow_worker.errors import ConfigurationError
from tests.support.workers import Json, free_port, wait_until

REPLICA_SET = "acceptance"


@dataclass(slots=True)
class OwnMongod:
    """One server of this test alone, a child process.

    Attributes:
        options: More of its command line.
        admin_options: What a client needs to reach it, such as TLS.
    """

    program: Path
    folder: Path
    replica_set: str | None
    options: Sequence[str] = ()
    admin_options: Mapping[str, object] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """Its connection string, without a database."""
        suffix = f"?replicaSet={self.replica_set}" if self.replica_set else ""
        return f"mongodb://127.0.0.1:{self.port}/{suffix}"

    def start(self) -> None:
        """Start it, on the data it had, and wait until it takes writes."""
        self.launch()
        with self.admin() as client:
            wait_until(
                lambda: self._is_writable(client), f"mongod on port {self.port} takes writes"
            )

    def launch(self) -> None:
        """Start it, on the data it had, and return at once."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        options = ["--port", str(self.port), "--bind_ip", "127.0.0.1", "--dbpath", str(data)]
        options += ["--wiredTigerCacheSizeGB", "0.25", "--nounixsocket"]
        options += ["--replSet", self.replica_set] if self.replica_set else []
        with (self.folder / "mongod.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.program, *options, *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, number: signal.Signals) -> None:
        """Send it a signal and wait until it is gone."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(30)

    @contextmanager
    def admin(self) -> Iterator[MongoClient[Json]]:
        """Connect to it, whatever its role."""
        with MongoClient[Json](
            f"mongodb://127.0.0.1:{self.port}",
            directConnection=True,
            serverSelectionTimeoutMS=500,
            **self.admin_options,
        ) as client:
            yield client

    def _is_writable(self, client: MongoClient[Json]) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"mongod has exited; its log is in {self.folder}"
        with suppress(PyMongoError):
            hello = client.admin.command("hello")
            if self.replica_set and hello.get("isreplicaset"):
                member = {"_id": 0, "host": f"127.0.0.1:{self.port}"}
                client.admin.command(
                    "replSetInitiate", {"_id": self.replica_set, "members": [member]}
                )
            return bool(hello["isWritablePrimary"])
        return False


def find_program() -> Path:
    """Return the ``mongod`` to run; skip the test if there is none."""
    try:
        return find_mongod()
    except ConfigurationError as error:
        pytest.skip(str(error))


def own_mongod(
    folder: Path,
    *,
    replica_set: str | None = REPLICA_SET,
    options: Sequence[str] = (),
    admin_options: Mapping[str, object] | None = None,
) -> Iterator[OwnMongod]:
    """Run a server of this test's own, to be used by a fixture; its data is removed afterwards."""
    server = OwnMongod(find_program(), folder, replica_set, options, admin_options or {})
    try:
        server.start()
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.stop(signal.SIGKILL)
        shutil.rmtree(folder)
