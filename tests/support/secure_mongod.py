"""A ``mongod`` that demands TLS and a user, its certificates, and users with the roles that a test gives them."""

import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlencode

import trustme
from pymongo import MongoClient

from tests.support.own_mongod import REPLICA_SET, OwnMongod, own_mongod
from tests.support.workers import Json, free_port

ROOT_PASSWORD = "r00t-passw0rd"
WORKER = "billing"
PASSWORD = "p@ss/w0rd:s3cr3t"
"""With characters that a URI must escape."""

LEAST_ACTIONS = (
    "find",
    "insert",
    "update",
    "remove",
    "createIndex",
    "listIndexes",
)
"""What a worker and every command but ``store upgrade`` need, as docs/howto/deploy.md says."""

LONG_PAST = datetime(2001, 1, 1, tzinfo=UTC), datetime(2002, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates of a site, as files in ``folder``."""

    folder: Path
    ca: trustme.CA

    @classmethod
    def make(cls, folder: Path) -> "Certificates":
        """Make those of the server and of a client, and a CA that nobody trusts."""
        made = cls(folder, trustme.CA())
        made.ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        trustme.CA().cert_pem.write_to_path(str(folder / "other-ca.pem"))
        made.issue("server", ca=made.ca)
        made.issue("impostor", ca=trustme.CA())
        made.issue("client", ca=made.ca)
        made.issue("expired", ca=made.ca, dates=LONG_PAST)
        return made

    def issue(
        self, name: str, *, ca: trustme.CA, dates: tuple[datetime, datetime] | None = None
    ) -> None:
        """Write a certificate with its key; its subject tells those of clients from those of servers."""
        before, after = dates or (None, None)
        leaf = ca.issue_cert(
            "127.0.0.1",
            common_name=name,
            organization_name="kikwiflow tests",
            organization_unit_name="servers" if name in {"server", "impostor"} else "workers",
            not_before=before,
            not_after=after,
        )
        leaf.private_key_and_cert_chain_pem.write_to_path(str(self.path(name)))

    def path(self, name: str) -> Path:
        """Return the file of a certificate."""
        return self.folder / f"{name}.pem"

    def present(self, name: str) -> None:
        """Let the server present another certificate from its next start on."""
        shutil.copy(self.path(name), self.path("presented"))


@dataclass(frozen=True, slots=True)
class SecureMongod:
    """A replica set with one member, which takes only TLS connections and knows only its users."""

    server: OwnMongod
    certificates: Certificates

    def uri(self, *, user: str = WORKER, password: str | None = PASSWORD, host: str = "127.0.0.1", **options: object) -> str:  # fmt: skip
        """Return a connection string; an option that is None is left out."""
        chosen = {
            "replicaSet": REPLICA_SET,
            "tls": "true",
            "tlsCAFile": self.certificates.path("ca"),
            "serverSelectionTimeoutMS": 500,
            "heartbeatFrequencyMS": 500,
            **options,
        }
        query = urlencode({name: value for name, value in chosen.items() if value is not None})
        login = quote(user, safe="") + (
            f":{quote(password, safe='')}" if password is not None else ""
        )
        return f"mongodb://{login}@{host}:{self.server.port}/?{query}"

    def grant(self, user: str, database: str, actions: Sequence[str], password: str = PASSWORD) -> None:  # fmt: skip
        """Let a user do this in a database, and nothing else anywhere."""
        resource = {"db": database, "collection": ""}
        privileges = [{"resource": resource, "actions": list(actions)}]
        role = f"role of {user}"
        with self.root() as client:
            client.admin.command("createRole", role, privileges=privileges, roles=[])
            client.admin.command("createUser", user, pwd=password, roles=[role])

    def set_password(self, user: str, password: str) -> None:
        """Change a password; connections that are open stay so."""
        with self.root() as client:
            client.admin.command("updateUser", user, pwd=password)

    def restart(self, *, presenting: str | None = None) -> None:
        """Stop the server and start it again, with another certificate if one is named."""
        self.server.stop(signal.SIGTERM)
        if presenting is not None:
            self.certificates.present(presenting)
        self.server.start()

    @contextmanager
    def root(self) -> Iterator[MongoClient[Json]]:
        """Connect as the administrator, whatever certificate the server presents."""
        with MongoClient[Json](
            f"mongodb://root:{ROOT_PASSWORD}@127.0.0.1:{self.server.port}/?directConnection=true",
            **_ADMIN_OPTIONS,
        ) as client:
            yield client


_ADMIN_OPTIONS: Mapping[str, object] = {"tls": True, "tlsAllowInvalidCertificates": True}


def secure_mongod(folder: Path) -> Iterator[SecureMongod]:
    """Run such a server, to be used by a fixture; everything of it is removed afterwards."""
    folder.mkdir()
    certificates = Certificates.make(folder)
    certificates.present("server")
    key = folder / "keyfile"
    key.write_text("shared secret of the members\n".replace(" ", ""))
    key.chmod(0o400)
    options = [
        "--keyFile", str(key),
        "--tlsMode", "requireTLS",
        "--tlsCertificateKeyFile", str(certificates.path("presented")),
        "--tlsCAFile", str(certificates.path("ca")),
        "--tlsAllowConnectionsWithoutCertificates",
        "--setParameter", "authenticationMechanisms=SCRAM-SHA-1,SCRAM-SHA-256,MONGODB-X509",
        "--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100",
    ]  # fmt: skip
    for server in own_mongod(folder / "server", options=options, admin_options=_ADMIN_OPTIONS):
        with server.admin() as client:  # the first user of all is made without one
            client.admin.command("createUser", "root", pwd=ROOT_PASSWORD, roles=["root"])
        yield SecureMongod(server, certificates)


__all__ = ["Certificates", "SecureMongod", "free_port", "secure_mongod"]
