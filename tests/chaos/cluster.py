"""A replica set of three real ``mongod`` processes on loopback, each behind a proxy."""

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError

from kikwiflow_worker.embedded import find_mongod
from tests.chaos.proxy import Network
from tests.support.workers import free_port

REPLICA_SET = "chaos"
MEMBERS = 3
ELECTION_TIMEOUT_S = 5.0
"""Half of the server's default: the time in which nobody notices that a primary is gone is only waiting."""

TRANSACTION_LIFETIME_S = 3
"""Below the lock of the workers, as ``docs/howto/operate.md`` advises."""

PATIENCE_S = 60.0
_LOOK_S = 0.05

Json = dict[str, Any]


class NotInTimeError(Exception):
    """Something that happens soon when all is well did not."""


def wait_for(is_true: Callable[[], object], what: str, *, within_s: float = PATIENCE_S) -> float:
    """Look often until ``is_true``; return how many seconds it took.

    Raises:
        NotInTimeError: It did not come true.
    """
    begun = time.monotonic()
    while not is_true():
        if time.monotonic() - begun > within_s:
            raise NotInTimeError(f"not within {within_s:g} s: {what}")
        time.sleep(_LOOK_S)
    return time.monotonic() - begun


@dataclass(slots=True)
class Member:
    """One ``mongod``, a child process."""

    index: int
    port: int
    folder: Path
    guard: Callable[[int], None]
    process: subprocess.Popen[bytes] | None = None
    is_frozen: bool = False
    _client: MongoClient[Json] | None = None

    def start(self) -> None:
        """Start it on the data it had, and return at once."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        parameters = {
            "enableTestCommands": 1,
            "transactionLifetimeLimitSeconds": TRANSACTION_LIFETIME_S,
            "diagnosticDataCollectionEnabled": "false",
        }
        options: dict[str, object] = {
            "--replSet": REPLICA_SET,
            "--bind_ip": "127.0.0.1",
            "--port": self.port,
            "--dbpath": data,
            "--wiredTigerCacheSizeGB": 0.5,
            "--oplogSize": 4096,
        }
        arguments = [str(part) for option in options.items() for part in option]
        for name, value in parameters.items():
            arguments += ["--setParameter", f"{name}={value}"]
        with (self.folder / "mongod.log").open("ab") as log:
            self.process = subprocess.Popen(
                [find_mongod(), "--nounixsocket", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.guard(self.process.pid)
        self.is_frozen = False

    @property
    def is_up(self) -> bool:
        """Whether its process lives and is not frozen."""
        return self.process is not None and self.process.poll() is None and not self.is_frozen

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.is_frozen = False

    def stop(self) -> None:
        """End it in good order: a primary steps down first."""
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    def freeze(self) -> None:
        """Stop the process where it stands."""
        assert self.process is not None
        self.is_frozen = True
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        if self.process is not None and self.is_frozen:
            self.process.send_signal(signal.SIGCONT)
            self.is_frozen = False

    @property
    def admin(self) -> Database[Json]:
        """Its database ``admin``, past the proxy, whatever its role."""
        return self.connection.admin

    @property
    def connection(self) -> MongoClient[Json]:
        """A connection past the proxy, kept until the member is closed."""
        if self._client is None:
            self._client = MongoClient[Json](
                f"mongodb://127.0.0.1:{self.port}",
                directConnection=True,
                serverSelectionTimeoutMS=300,
                connectTimeoutMS=1_000,
                socketTimeoutMS=2_000,
            )
        return self._client

    def close(self) -> None:
        """End the process and the connection."""
        self.kill()
        if self._client is not None:
            self._client.close()

    def says(self) -> Json:
        """Return its answer to ``hello``; empty if it does not answer."""
        if self.is_up:
            with suppress(PyMongoError):
                return self.admin.command("hello")
        return {}


class Cluster:
    """Three members and their proxies."""

    def __init__(self, folder: Path) -> None:
        ports = [free_port() for _ in range(MEMBERS)]
        self.network = Network(ports)
        self.members = [
            Member(index, port, folder / f"member-{index}", self.network.guard)
            for index, port in enumerate(ports)
        ]

    @property
    def uri(self) -> str:
        """The connection string through the proxies, without a database."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.network.ports)
        return f"mongodb://{hosts}/?replicaSet={REPLICA_SET}"

    def start(self) -> None:
        """Start all members, make them a replica set, and wait for a primary."""
        for member in self.members:
            member.start()
        for member in self.members:
            wait_for(member.says, f"member {member.index} answers")
        members = [
            {"_id": member.index, "host": f"127.0.0.1:{self.network.ports[member.index]}"}
            for member in self.members
        ]
        settings = {
            "electionTimeoutMillis": int(ELECTION_TIMEOUT_S * 1_000),
            "heartbeatIntervalMillis": 1_000,
        }
        config = {"_id": REPLICA_SET, "members": members, "settings": settings}
        self.members[0].admin.command("replSetInitiate", config)
        wait_for(self.primary, "a primary is elected")
        wait_for(self.is_whole, "all members follow")

    def primary(self) -> Member | None:
        """Return the member that takes writes; of two for a moment, that of the later election."""
        found = [(member.says(), member) for member in self.members]
        writable = [
            (said["electionId"], member.index)
            for said, member in found
            if said.get("isWritablePrimary")
        ]
        return self.members[max(writable)[1]] if writable else None

    def is_whole(self) -> bool:
        """Whether there is a primary and the others are secondaries."""
        said = [member.says() for member in self.members]
        return (
            sum(bool(each.get("isWritablePrimary")) for each in said) == 1
            and sum(bool(each.get("secondary")) for each in said) == len(said) - 1
        )

    def wait_primary(self, *, other_than: Member | None = None) -> Member:
        """Wait until a member, another than this one, takes writes; return it."""

        def look() -> bool:
            found = self.primary()
            return found is not None and found is not other_than

        wait_for(look, "a primary is elected")
        primary = self.primary()
        return primary if primary is not None else self.wait_primary(other_than=other_than)

    def stop(self) -> None:
        """End all processes, whatever state they are in."""
        for member in self.members:
            member.close()
        self.network.stop()
