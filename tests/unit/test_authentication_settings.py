"""Which settings let a server start, and who is asked for what."""

from collections.abc import Mapping
from typing import Any

import pytest

from kikwiflow_worker.cli.serving import authentication_options
from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.management.authentication import OpenAuthenticator, SecretAuthenticator
from kikwiflow_worker.management.headers import LOOPBACK_HOSTS
from kikwiflow_worker.management.security.options import AuthenticationOptions
from kikwiflow_worker.settings import load_settings
from kikwiflow_worker.store.access import Access
from kikwiflow_worker.testing import ManualClock
from tests.support.cli import CommandLine, restored_logging

__all__ = ["restored_logging"]

pytestmark = pytest.mark.usefixtures("restored_logging")

JWT = {
    "jwt_issuer": "https://id.example",
    "jwt_audience": "kikwiflow",
    "jwt_jwks_url": "https://id.example/keys",
}
ACCESS = Access(tokens=None, sessions=None, audit=None)  # type: ignore[arg-type]


def options(**flags: Any) -> AuthenticationOptions:
    return authentication_options(load_settings(flags=flags, environ={}, config=None))


def authenticator(chosen: AuthenticationOptions) -> OpenAuthenticator | SecretAuthenticator:
    clock = ManualClock()
    return chosen.authenticator(ACCESS, now=clock.now, clock=clock)


@pytest.mark.parametrize("address", ["127.0.0.1:8090", "localhost:0", "[::1]:8090", "127.1.2.3:1"])
def test_on_loopback_nobody_needs_to_say_who_they_are(address: str) -> None:
    chosen = options()

    chosen.check(address)

    assert isinstance(authenticator(chosen), OpenAuthenticator)
    assert chosen.hosts() == LOOPBACK_HOSTS


@pytest.mark.parametrize(
    "address", ["0.0.0.0:8090", "[::]:8090", "10.0.0.7:80", "kikwiflow.example:80", ":8090"]
)
def test_elsewhere_a_server_without_authentication_does_not_start(address: str) -> None:
    with pytest.raises(ConfigurationError, match="KIKWIFLOW_AUTHENTICATION=tokens"):
        options().check(address)


@pytest.mark.parametrize(
    "flags", [{"authentication": "tokens"}, {"authentication": "jwt", **JWT}], ids=["tokens", "jwt"]
)
def test_with_authentication_it_starts_anywhere(flags: Mapping[str, str]) -> None:
    chosen = options(**flags)

    chosen.check("0.0.0.0:8090")

    assert isinstance(authenticator(chosen), SecretAuthenticator)
    assert chosen.hosts() is None


def test_what_a_jwt_needs_is_said_all_at_once() -> None:
    with pytest.raises(ConfigurationError, match="jwt_issuer and jwt_audience and jwt_jwks_url"):
        options(authentication="jwt")


def test_keys_must_come_by_tls() -> None:
    chosen = options(authentication="jwt", **{**JWT, "jwt_jwks_url": "http://id.example/keys"})

    with pytest.raises(ConfigurationError, match="https"):
        chosen.check("127.0.0.1:8090")


@pytest.mark.parametrize(
    "flags",
    [
        {"authentication": "basic"},
        {"authentication": "token"},
        {"jwt_algorithms": "none"},
        {"jwt_algorithms": "RS256,HS256"},
        {"jwt_algorithms": ","},
        {"jwt_leeway_seconds": 301},
        {"jwt_issuer": ""},
    ],
    ids=str,
)
def test_a_setting_that_would_let_anybody_in_is_refused(flags: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(flags)).replace("_", "[-_]")):
        options(**flags)


def test_serve_refuses_before_it_looks_for_the_database() -> None:
    result = CommandLine().run(
        "serve", "--address", "0.0.0.0:8090", "--mongodb-uri", "mongodb://127.0.0.1:1/"
    )

    assert result.exit_code == 78
    assert "everybody who reaches it would be an administrator" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
