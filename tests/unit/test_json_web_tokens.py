"""JWTs: what is accepted, and an attack for each thing that must not be."""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.management.identity import Identity, Role
from kikwiflow_worker.management.problems import KeysUnavailableError, UnauthenticatedError
from kikwiflow_worker.management.security.json_web_tokens import JwtOptions, JwtVerifier
from kikwiflow_worker.management.security.jwks import (
    FRESH_S,
    PAUSE_S,
    STALE_S,
    KeySet,
    checked_url,
)
from kikwiflow_worker.testing import ManualClock

ISSUER = "https://id.example/realms/shop"
AUDIENCE = "kikwiflow"
URL = "https://id.example/keys"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def public_jwk(key: Any, key_id: str, algorithm: str) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if algorithm.startswith("RS") else jwt.algorithms.ECAlgorithm
    return {
        **json.loads(kind.to_jwk(key.public_key())),
        "kid": key_id,
        "alg": algorithm,
        "use": "sig",
    }


JWKS = {
    "keys": [
        public_jwk(RSA_KEY, "rsa-1", "RS256"),
        public_jwk(EC_KEY, "ec-1", "ES256"),
        # An issuer that publishes a shared secret by mistake must not make everybody an issuer.
        {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "kid": "oct-1"},
    ]
}


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    chosen = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ana",
        "iat": now,
        "exp": now + 300,
        "roles": ["kikwiflow-operator", "something-else"],
        **changes,
    }
    return {name: value for name, value in chosen.items() if value is not None}


def signed(
    key: Any = RSA_KEY, *, algorithm: str = "RS256", key_id: str | None = "rsa-1", **changes: Any
) -> str:
    headers = {"kid": key_id} if key_id else {}
    return jwt.encode(claims(**changes), key, algorithm=algorithm, headers=headers)


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def without_signature(algorithm: str = "none") -> str:
    return f"{part({'alg': algorithm, 'kid': 'rsa-1', 'typ': 'JWT'})}.{part(claims())}."


def signed_with_the_public_key() -> str:
    """The oldest trick: HS256, with the issuer's public key as the secret that everybody knows."""
    pem = RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    text = f"{part({'alg': 'HS256', 'kid': 'rsa-1', 'typ': 'JWT'})}.{part(claims())}"
    signature = hmac.new(pem, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def tampered() -> str:
    head, _, signature = signed().split(".")
    return f"{head}.{part(claims(roles=['kikwiflow-admin']))}.{signature}"


def with_a_key_of_its_own() -> str:
    """The header brings the key: whoever believes it believes anybody."""
    headers = {"kid": "rsa-1", "jwk": public_jwk(OTHER_RSA_KEY, "rsa-1", "RS256"), "jku": "https://evil.example"}  # fmt: skip
    return jwt.encode(claims(), OTHER_RSA_KEY, algorithm="RS256", headers=headers)


def verifier(fetch: Any = None, **options: Any) -> JwtVerifier:
    async def keys(_: str) -> bytes:
        return json.dumps(JWKS).encode()

    chosen = JwtOptions(issuer=ISSUER, audience=AUDIENCE, jwks_url=URL, **options)
    return JwtVerifier(chosen, KeySet(URL, SystemClock(), fetch or keys))


async def test_a_jwt_of_the_issuer_says_who_it_is_and_what_they_may() -> None:
    found = await verifier().verify(signed())

    assert found.identity == Identity(actor="ana", roles=frozenset({Role.OPERATOR}))
    assert found.token_id is None


async def test_a_key_of_another_allowed_algorithm_is_taken() -> None:
    secret = signed(EC_KEY, algorithm="ES256", key_id="ec-1")

    assert (await verifier().verify(secret)).identity.actor == "ana"


ATTACKS: dict[str, Callable[[], str]] = {
    "no signature": without_signature,
    "no signature, in capitals": lambda: without_signature("NONE"),
    "signed with the public key as a secret": signed_with_the_public_key,
    "tampered with": tampered,
    "another key under the same id": lambda: signed(OTHER_RSA_KEY),
    "another key that comes with it": with_a_key_of_its_own,
    "a key that nobody knows": lambda: signed(key_id="rsa-9"),
    "no key id": lambda: signed(key_id=None),
    "a shared secret that was published": lambda: jwt.encode(
        claims(),
        base64.urlsafe_b64decode("c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA=="),
        algorithm="HS256",
        headers={"kid": "oct-1"},
    ),
    "an algorithm that is not allowed": lambda: signed(algorithm="RS512"),
    "the key of another kind": lambda: signed(RSA_KEY, key_id="ec-1"),
    "expired": lambda: signed(exp=int(time.time()) - 120),
    "not valid yet": lambda: signed(nbf=int(time.time()) + 600),
    "issued in the future": lambda: signed(iat=int(time.time()) + 600),
    "without an end": lambda: signed(exp=None),
    "for somebody else": lambda: signed(aud="billing"),
    "for nobody": lambda: signed(aud=None),
    "of another issuer": lambda: signed(iss="https://id.example/realms/other"),
    "of no issuer": lambda: signed(iss=None),
    "without a name": lambda: signed(sub=None),
    "with a name that is blank": lambda: signed(sub="  "),
    "with a name that has no end": lambda: signed(sub="a" * 1000),
    "without the last part": lambda: signed().rpartition(".")[0] + ".",
    "not base64": lambda: "%%%.%%%.%%%",
    "empty": lambda: "..",
    "not JSON": lambda: "bm90.anNvbg.c2ln",
    "huge": lambda: signed(filler="a" * 20_000),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_what_the_issuer_did_not_say_is_refused_without_a_reason(
    attack: Callable[[], str],
) -> None:
    with pytest.raises(UnauthenticatedError) as caught:
        await verifier().verify(attack())

    assert str(caught.value) == "the JWT is not accepted here"


@pytest.mark.parametrize(
    "attack", ["no signature", "signed with the public key as a secret", "no key id", "huge"]
)
async def test_what_could_never_be_accepted_costs_the_issuer_nothing(attack: str) -> None:
    issuer = Issuer()

    with pytest.raises(UnauthenticatedError):
        await verifier(issuer.fetch).verify(ATTACKS[attack]())

    assert issuer.fetches == 0


async def test_the_clock_of_the_issuer_may_be_off_by_the_leeway() -> None:
    late = signed(exp=int(time.time()) - 20)

    assert (await verifier(leeway_s=30).verify(late)).identity.actor == "ana"
    with pytest.raises(UnauthenticatedError):
        await verifier(leeway_s=5).verify(late)


@pytest.mark.parametrize(
    ("value", "roles"),
    [
        (["kikwiflow-viewer", "kikwiflow-deployer"], {Role.VIEWER, Role.DEPLOYER}),
        ("openid kikwiflow-admin email", {Role.ADMIN}),
        (["admin", "operator"], set()),
        (["kikwiflow-root"], set()),
        ({"kikwiflow-admin": True}, set()),
        ([["kikwiflow-admin"], 7], set()),
        (None, set()),
    ],
)
async def test_only_roles_that_are_meant_for_us_count(value: object, roles: set[Role]) -> None:
    found = await verifier().verify(signed(roles=value))

    assert found.identity.roles == roles


async def test_claims_are_found_by_their_path_and_by_names_with_dots() -> None:
    secret = signed(
        sub=None,
        realm_access={"roles": ["kikwiflow-viewer"]},
        **{"https://shop.example/tenant": "shop", "email": "ana@shop.example"},
    )

    found = await verifier(
        actor_claim="email",
        roles_claim="realm_access.roles",
        tenant_claim="https://shop.example/tenant",
    ).verify(secret)

    assert found.identity == Identity(
        actor="ana@shop.example", roles=frozenset({Role.VIEWER}), tenant_id="shop"
    )


@pytest.mark.parametrize("tenant", [None, "", 7, ["shop"]])
async def test_where_there_are_tenants_a_jwt_without_one_is_refused(tenant: object) -> None:
    with pytest.raises(UnauthenticatedError):
        await verifier(tenant_claim="tenant").verify(signed(tenant=tenant))


async def test_a_star_may_cross_all_tenants() -> None:
    found = await verifier(tenant_claim="tenant").verify(signed(tenant="*"))

    assert found.identity.tenant_id is None


class Issuer:
    """Counts how often its keys are asked for."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [JWKS["keys"][0]]  # type: ignore[list-item]
        self.fetches = 0
        self.answer: bytes | None = None
        self.is_down = False

    async def fetch(self, _: str) -> bytes:
        self.fetches += 1
        await asyncio.sleep(0)
        if self.is_down:
            raise OSError("no route to host")
        return self.answer if self.answer is not None else json.dumps({"keys": self.keys}).encode()


async def test_a_shared_secret_among_the_keys_is_no_key() -> None:
    issuer = Issuer()
    issuer.keys = JWKS["keys"]  # type: ignore[assignment]
    keys = KeySet(URL, ManualClock(), issuer.fetch)

    assert await keys.find("rsa-1")
    assert await keys.find("oct-1") is None


async def test_keys_are_fetched_once_however_many_ask() -> None:
    issuer = Issuer()
    keys = KeySet(URL, ManualClock(), issuer.fetch)

    found = await asyncio.gather(*(keys.find("rsa-1") for _ in range(50)))

    assert all(found)
    assert issuer.fetches == 1


async def test_made_up_key_ids_do_not_flood_the_issuer() -> None:
    issuer, clock = Issuer(), ManualClock()
    keys = KeySet(URL, clock, issuer.fetch)

    for number in range(100):
        assert await keys.find(f"made-up-{number}") is None
    clock.advance(timedelta(seconds=PAUSE_S))
    for number in range(100):
        assert await keys.find(f"made-up-{number}") is None

    assert issuer.fetches == 2


async def test_a_rotated_key_is_picked_up_and_a_withdrawn_one_is_dropped() -> None:
    issuer, clock = Issuer(), ManualClock()
    keys = KeySet(URL, clock, issuer.fetch)
    assert await keys.find("rsa-1")

    issuer.keys = [public_jwk(OTHER_RSA_KEY, "rsa-2", "RS256")]
    clock.advance(timedelta(seconds=PAUSE_S))

    assert await keys.find("rsa-2")
    assert await keys.find("rsa-1") is None


async def test_a_withdrawn_key_is_dropped_although_nobody_asks_for_a_new_one() -> None:
    issuer, clock = Issuer(), ManualClock()
    keys = KeySet(URL, clock, issuer.fetch)
    assert await keys.find("rsa-1")

    issuer.keys = [public_jwk(OTHER_RSA_KEY, "rsa-2", "RS256")]
    clock.advance(timedelta(seconds=FRESH_S + 1))

    assert await keys.find("rsa-1") is None


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b"[]", b'{"keys": 7}', b'{"keys": []}', b"null"]
)
async def test_an_issuer_that_fails_is_forgiven_for_an_hour(answer: bytes) -> None:
    issuer, clock = Issuer(), ManualClock()
    keys = KeySet(URL, clock, issuer.fetch)
    assert await keys.find("rsa-1")

    issuer.answer = answer
    clock.advance(timedelta(seconds=STALE_S - 1))
    assert await keys.find("rsa-1")
    clock.advance(timedelta(seconds=2 + PAUSE_S))
    with pytest.raises(KeysUnavailableError):
        await keys.find("rsa-1")


async def test_an_issuer_that_never_answered_lets_nobody_in() -> None:
    issuer = Issuer()
    issuer.is_down = True

    with pytest.raises(KeysUnavailableError):
        await verifier(issuer.fetch).verify(signed())


class _Server(ThreadingHTTPServer):
    routes: dict[str, tuple[int, dict[str, str], bytes]]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        status, headers, body = self.server.routes[self.path]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def issuer_server() -> Iterator[_Server]:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.routes = {
        "/keys": (200, {"Content-Type": "application/json"}, json.dumps(JWKS).encode()),
        "/moved": (302, {"Location": "/keys"}, b""),
        "/large": (200, {}, b" " * (1024 * 1024 + 1)),
        "/error": (500, {}, b""),
    }
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_keys_come_over_http_from_loopback(issuer_server: _Server) -> None:
    url = checked_url(f"http://127.0.0.1:{issuer_server.server_port}/keys")
    options = JwtOptions(issuer=ISSUER, audience=AUDIENCE, jwks_url=url)

    found = await JwtVerifier(options, KeySet(url, SystemClock())).verify(signed())

    assert found.identity.actor == "ana"


@pytest.mark.parametrize("path", ["/moved", "/large", "/error"])
async def test_an_answer_that_is_no_plain_list_of_keys_is_not_taken(
    issuer_server: _Server, path: str
) -> None:
    keys = KeySet(f"http://127.0.0.1:{issuer_server.server_port}{path}", SystemClock())

    with pytest.raises(KeysUnavailableError):
        await keys.find("rsa-1")


@pytest.mark.parametrize(
    "url",
    ["http://id.example/keys", "ftp://id.example/keys", "file:///etc/keys", "https://", "keys"],
)
def test_keys_that_could_be_changed_on_their_way_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="https"):
        checked_url(url)
