"""Whoever follows a stream is asked for again: it ends when they would not be let in any more, and nothing is told before."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from pymongo.database import Database

from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.management.api import streams
from kikwiflow_worker.management.authentication import SecretAuthenticator
from kikwiflow_worker.management.identity import Role
from kikwiflow_worker.management.security.json_web_tokens import JwtOptions, JwtVerifier
from kikwiflow_worker.management.security.jwks import KeySet
from kikwiflow_worker.management.security.tokens import CACHED_S, TokenVerifier
from kikwiflow_worker.management.web_session import OVERLAP, ROTATION, WebSessions
from kikwiflow_worker.operations.tokens import TokenDesk
from kikwiflow_worker.testing import ManualClock
from tests.support.mongo import MongoServer
from tests.support.stores import new_id
from tests.support.streams import Served, serve

pytestmark = pytest.mark.mongo

KEY = ec.generate_private_key(ec.SECP256R1())
JWT = JwtOptions(issuer="https://id.example", audience="kikwiflow", jwks_url="-", leeway_s=0.0)
KINDS = (
    "/process-instances/{instance}/stream",
    "/process-instances/{instance}/stream?events=false",
    "/process-definitions/{definition}/stream",
    "/pulse/process-definition/{definition}/snapshot/stream",
    "/incidents/stream",
)
INCIDENTS = KINDS[-1]


async def keys(_: str) -> bytes:
    public = jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key())
    return f'{{"keys": [{public[:-1]}, "kid": "1"}}]}}'.encode()


@dataclass
class House:
    """The server behind a login, whose time stands still until it is moved."""

    served: Served
    desk: TokenDesk
    clock: ManualClock

    async def bearer(self, name: str = "ana") -> dict[str, str]:
        issued = await self.desk.create(
            name, roles=frozenset({Role.VIEWER}), tenant_id=None, lifetime=timedelta(days=1)
        )
        return {"Authorization": f"Bearer {issued.secret}"}

    async def log_in(self) -> None:
        secret = (await self.bearer())["Authorization"].partition(" ")[2]
        answer = await self.served.http.post(self.dashboard("login"), data={"token": secret})
        assert answer.status_code == 303, answer.text

    def dashboard(self, page: str) -> str:
        return f"http://127.0.0.1:{self.served.server.port}/dashboard/{page}"


@pytest.fixture
async def house(mongo_server: MongoServer, data: Database[dict[str, Any]]) -> AsyncIterator[House]:
    async with serve(mongo_server, data) as served:
        access, clock = served.managed.store.access, ManualClock()
        tokens = TokenVerifier(access.tokens, clock.now, clock)
        verifiers = [tokens, JwtVerifier(JWT, KeySet("-", clock, keys))]
        sessions = WebSessions(access.sessions, clock.now)
        door = SecretAuthenticator(verifiers, tokens, sessions)
        state = served.managed.app.state
        state.backend = replace(state.backend, authenticator=door)
        desk = TokenDesk(access=access, now=clock.now, new_id=new_id, by="cli:somebody")
        yield House(served, desk, clock)


@dataclass
class Failing:
    """A database that is away for some calls."""

    times: int

    def then(self, known: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def function(*given: Any, **named: Any) -> Any:
            if self.times:
                self.times -= 1
                raise StoreUnavailableError("away")
            return await known(*given, **named)

        return function


async def paths(house: House) -> list[str]:
    parcel = await house.served.managed.a_waiting_parcel()
    ids = {"instance": parcel.id, "definition": parcel.definition_id}
    return [kind.format(**ids) for kind in KINDS]


async def revoked(house: House) -> None:
    await house.desk.revoke("ana")
    house.clock.advance(timedelta(seconds=CACHED_S))


@pytest.mark.parametrize("kind", range(len(KINDS)))
async def test_a_stream_of_every_kind_ends_with_the_token_and_tells_nothing_after_it(
    house: House, kind: int
) -> None:
    path = (await paths(house))[kind]
    async with house.served.follow(path, **await house.bearer()) as reader:
        await reader.until("state")

        await revoked(house)
        await house.served.managed.a_failed_parcel("PARCEL-2")

        assert "PARCEL-2" not in str(await reader.rest())


async def role_taken(house: House) -> None:
    house.served.managed.data.api_tokens.update_one({"name": "ana"}, {"$set": {"roles": []}})
    house.clock.advance(timedelta(seconds=CACHED_S))


async def tenant_given(house: House) -> None:
    house.served.managed.data.api_tokens.update_one({"name": "ana"}, {"$set": {"tenantId": "red"}})
    house.clock.advance(timedelta(seconds=CACHED_S))


async def token_ended(house: House) -> None:
    house.clock.advance(timedelta(days=1))


@pytest.mark.parametrize("change", [role_taken, tenant_given, token_ended])
async def test_a_stream_ends_when_its_reader_may_not_see_any_more_what_it_tells(
    house: House, change: Callable[[House], Awaitable[None]]
) -> None:
    async with house.served.follow(INCIDENTS, **await house.bearer()) as reader:
        await reader.until("state")

        await change(house)
        await house.served.managed.a_failed_parcel()

        assert await reader.rest() == []


async def logged_out(house: House) -> None:
    house.served.managed.data.web_sessions.delete_many({})


async def idle(house: House) -> None:
    house.clock.advance(timedelta(hours=1))


@pytest.mark.parametrize("change", [logged_out, idle, revoked])
async def test_a_stream_ends_with_the_session(
    house: House, change: Callable[[House], Awaitable[None]]
) -> None:
    await house.log_in()
    async with house.served.follow(INCIDENTS) as reader:
        await reader.until("state")

        await change(house)
        await house.served.managed.a_failed_parcel()

        assert await reader.rest() == []


async def test_a_stream_ends_with_its_jwt(house: House) -> None:
    claims = {"iss": JWT.issuer, "aud": JWT.audience, "sub": "ana", "roles": "kikwiflow-viewer"}
    secret = jwt.encode({**claims, "exp": int(time.time()) + 2}, KEY, "ES256", {"kid": "1"})
    async with house.served.follow(INCIDENTS, Authorization=f"Bearer {secret}") as reader:
        await reader.until("state")

        assert await reader.rest() == []


async def test_a_stream_keeps_no_session_alive_and_takes_no_cookie_away(house: House) -> None:
    """A new cookie could not reach the browser any more, and the old one would end."""
    await house.log_in()
    async with house.served.follow(INCIDENTS) as reader:
        await reader.until("state")
        house.clock.advance(ROTATION)
        await house.served.managed.a_failed_parcel()
        await reader.until("state")

    house.clock.advance(OVERLAP)

    answer = await house.served.http.get(house.dashboard("overview"))
    assert answer.status_code == 200


async def test_a_stream_is_silent_while_nobody_knows_who_reads_it_and_goes_on_later(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(times=3)
    async with house.served.follow(INCIDENTS, **await house.bearer()) as reader:
        await reader.until("state")
        tokens = house.served.managed.store.access.tokens
        monkeypatch.setattr(tokens, "find_by_secret", failing.then(tokens.find_by_secret))
        house.clock.advance(timedelta(seconds=CACHED_S))
        await house.served.until(lambda: failing.times < 3)
        await house.served.managed.a_failed_parcel()

        await reader.until("state", lambda data: data["open"]["total"] == 1)

    assert failing.times == 0


async def test_being_asked_after_each_look_costs_a_token_s_reader_no_look_up_more(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, asked = house.served.managed.store.access.tokens, 0

    async def find_by_secret(*given: Any, **named: Any) -> Any:
        nonlocal asked
        asked += 1
        return await known(*given, **named)

    known = tokens.find_by_secret
    monkeypatch.setattr(tokens, "find_by_secret", find_by_secret)
    async with house.served.follow(INCIDENTS, **await house.bearer()) as reader:
        for number in range(3):
            await house.served.managed.a_failed_parcel(f"PARCEL-{number}")
            await reader.until("state", lambda data, n=number: data["open"]["total"] > n)

    assert asked == 1


async def test_a_stream_goes_on_after_the_database_was_away_between_a_look_and_its_telling(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, _, _, _, incidents = await paths(house)
    for name in ("policy_of", "shown_page"):
        monkeypatch.setattr(streams, name, Failing(times=1).then(getattr(streams, name)))
    bearer = await house.bearer()

    async with house.served.follow(instance, **bearer) as reader:
        assert await reader.until("state")
    async with house.served.follow(incidents, **bearer) as reader:
        assert await reader.until("state")
