"""A replica set of three ``mongod`` processes that a test may take apart."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pymongo.errors import PyMongoError

from tests.support.own_mongod import OwnMongod, find_program
from tests.support.workers import wait_until

NAME = "failover"
ELECTION_S = 2
"""Without a primary for so long, the others elect one; 10 s by default."""


class OwnReplicaSet:
    """Three members, all on this host, each a child process."""

    def __init__(self, folder: Path, members: int = 3) -> None:
        program = find_program()
        self.folder = folder
        self.members = [OwnMongod(program, folder / str(n), NAME) for n in range(members)]

    @property
    def uri(self) -> str:
        """Its connection string, without a database."""
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"mongodb://{hosts}/?replicaSet={NAME}"

    def start(self) -> None:
        """Start all members and wait for a primary that the others follow."""
        for member in self.members:
            member.launch()
        hosts = [
            {"_id": number, "host": f"127.0.0.1:{member.port}"}
            for number, member in enumerate(self.members)
        ]
        settings = {"electionTimeoutMillis": ELECTION_S * 1000, "heartbeatIntervalMillis": 500}
        config = {"_id": NAME, "members": hosts, "settings": settings}
        with self.members[0].admin() as client:

            def initiated() -> bool:
                with suppress(PyMongoError):
                    client.admin.command("replSetInitiate", config)
                    return True
                return False

            wait_until(initiated, "the replica set is initiated")
        self.wait_healthy()

    def wait_healthy(self) -> None:
        """Wait until all members run and there is a primary."""

        def is_healthy() -> bool:
            return sorted(map(_role, self.members)) == ["primary", "secondary", "secondary"]

        wait_until(
            is_healthy, lambda: f"one primary, two secondaries: {list(map(_role, self.members))}"
        )

    def repair(self) -> None:
        """Bring back what a test has stopped, killed or frozen."""
        for member in self.members:
            assert member.process is not None
            member.process.send_signal(signal.SIGCONT)
            if _role(member) in {"gone", "silent"}:
                member.process.wait(30)
                member.launch()
        self.wait_healthy()

    def primary(self) -> OwnMongod | None:
        """Return the member that takes writes now."""
        return next((member for member in self.members if _role(member) == "primary"), None)


def own_replica_set(folder: Path) -> Iterator[OwnReplicaSet]:
    """Run a replica set, to be used by a fixture; its data is removed afterwards."""
    found = OwnReplicaSet(folder)
    try:
        found.start()
        yield found
    finally:
        for member in found.members:
            if member.process is not None and member.process.poll() is None:
                member.stop(signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _role(member: OwnMongod) -> str:
    if member.process is None or member.process.poll() is not None:
        return "gone"
    with suppress(PyMongoError), member.admin() as client:
        hello = client.admin.command("hello")
        if hello.get("isWritablePrimary"):
            return "primary"
        return "secondary" if hello.get("secondary") else "starting"
    return "silent"
