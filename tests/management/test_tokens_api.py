"""Tokens over the API and on the dashboard: who has one, and taking it away; never a secret."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from pymongo.database import Database

from kikwiflow_worker.management.authentication import SecretAuthenticator
from kikwiflow_worker.management.identity import Role
from kikwiflow_worker.management.security.tokens import CACHED_S, TokenVerifier
from kikwiflow_worker.management.web_session import WebSessions
from kikwiflow_worker.operations.tokens import TokenDesk, hash_secret
from kikwiflow_worker.store.access import AuditQuery
from kikwiflow_worker.testing import ManualClock
from tests.support.management import Managed, manage
from tests.support.mongo import MongoServer
from tests.support.stores import new_id

pytestmark = pytest.mark.mongo


@dataclass
class House:
    """The application behind tokens; its time stands still until it is moved."""

    managed: Managed
    clock: ManualClock
    desk: TokenDesk

    async def token(self, name: str, *roles: Role, tenant_id: str | None = None) -> str:
        """Give out a token; return its secret."""
        issued = await self.desk.create(
            name, roles=frozenset(roles), tenant_id=tenant_id, lifetime=timedelta(days=30)
        )
        return issued.secret

    async def ask(self, secret: str, path: str = "/tokens", method: str = "GET") -> httpx.Response:
        headers = {"Authorization": f"Bearer {secret}"}
        return await self.managed.api.request(method, path, headers=headers)


@pytest.fixture
async def house(mongo_server: MongoServer, data: Database[dict[str, Any]]) -> AsyncIterator[House]:
    async with manage(mongo_server.uri, data) as managed:
        access, clock = managed.store.access, ManualClock(managed.services.runtime.now())
        tokens = TokenVerifier(access.tokens, clock.now, clock)
        door = SecretAuthenticator([tokens], tokens, WebSessions(access.sessions, clock.now))
        state = managed.app.state
        state.backend = replace(state.backend, authenticator=door)
        desk = TokenDesk(access=access, now=clock.now, new_id=new_id, by="cli:somebody")
        yield House(managed, clock, desk)


async def test_tokens_are_listed_without_any_secret_or_hash(house: House) -> None:
    root = await house.token("root", Role.ADMIN)
    shop = await house.token("shop", Role.OPERATOR, Role.DEPLOYER, tenant_id="shop")
    await house.desk.revoke("shop")

    answer = await house.ask(root)
    one = await house.ask(root, f"/tokens/{answer.json()['items'][1]['id']}")
    pages = [await house.ask(root, "/tokens?limit=1")]
    pages += [await house.ask(root, f"/tokens?limit=1&cursor={pages[0].json()['nextCursor']}")]

    by_name = {each["name"]: each for each in answer.json()["items"]}
    assert list(by_name) == ["root", "shop"]
    assert by_name["root"]["state"] == "valid"
    assert by_name["root"]["tenantId"] is None
    assert by_name["root"]["lastUsedAt"] is not None
    assert by_name["shop"]["state"] == "revoked"
    assert by_name["shop"]["roles"] == ["deployer", "operator"]
    assert by_name["shop"]["tenantId"] == "shop"
    assert one.json() == by_name["shop"]
    assert [page.json()["items"][0]["name"] for page in pages] == ["root", "shop"]
    assert pages[1].json()["nextCursor"] is None
    pages += [answer, one, await house.managed.http.get("/dashboard/tokens", headers={"Authorization": f"Bearer {root}"})]  # fmt: skip
    assert pages[-1].status_code == 200
    for page in pages:
        for secret in (root, shop):
            assert secret not in page.text
            assert hash_secret(secret) not in page.text


async def test_only_an_administrator_of_all_tenants_looks_after_tokens(house: House) -> None:
    secrets = [
        await house.token("viewer", Role.VIEWER, Role.OPERATOR, Role.DEPLOYER),
        await house.token("tenant-admin", Role.ADMIN, tenant_id="red"),
    ]
    (victim,) = [each for each in await house.managed.store.access.tokens.list() if each.name == "viewer"]  # fmt: skip

    for secret in secrets:
        answers = [
            await house.ask(secret),
            await house.ask(secret, f"/tokens/{victim.id}"),
            await house.ask(secret, f"/tokens/{victim.id}/revoke", "POST"),
            await house.managed.http.get(
                "/dashboard/tokens", headers={"Authorization": f"Bearer {secret}"}
            ),
        ]
        overview = await house.managed.http.get(
            "/dashboard/overview", headers={"Authorization": f"Bearer {secret}"}
        )
        assert [answer.status_code for answer in answers] == [403] * 4
        assert not any("viewer" in answer.text.replace("viewer lacks", "") for answer in answers)
        assert "/dashboard/tokens" not in overview.text

    (stored,) = [each for each in await house.managed.store.access.tokens.list() if each.id == victim.id]  # fmt: skip
    assert stored.revoked_at is None


async def test_a_revoked_token_is_refused_and_who_revoked_it_is_recorded(house: House) -> None:
    root, shop = await house.token("root", Role.ADMIN), await house.token("shop", Role.VIEWER)
    assert (await house.ask(shop, "/process-instances")).status_code == 200
    found = (await house.ask(root)).json()["items"][1]
    path = f"/tokens/{found['id']}/revoke"

    revoked = await house.ask(root, path, "POST")
    again = await house.ask(root, path, "POST")
    missing = await house.ask(root, "/tokens/nothing/revoke", "POST")
    house.clock.advance(timedelta(seconds=CACHED_S))

    assert (revoked.status_code, revoked.json()["state"]) == (200, "revoked")
    assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")
    assert (missing.status_code, missing.json()["code"]) == (404, "NOT_FOUND")
    assert (await house.ask(shop, "/process-instances")).status_code == 401
    audit = house.managed.store.access.audit
    entries = (await audit.list(AuditQuery(actor="root", subject=found["id"]))).items
    assert sorted((each.operation, each.result) for each in entries) == [
        ("revokeToken", "CONFLICT"),
        ("revokeToken", "DONE"),
    ]
    assert {each.subjects["name"] for each in entries} == {"shop"}


async def test_the_page_asks_before_it_revokes(house: House) -> None:
    root = await house.token("root", Role.ADMIN)
    await house.token("shop", Role.VIEWER)
    found = (await house.ask(root)).json()["items"][1]
    path = f"/dashboard/tokens/{found['id']}/revoke"
    http, bearer = house.managed.http, {"Authorization": f"Bearer {root}"}

    asked = await http.get(path, headers=bearer)
    still = (await house.ask(root, f"/tokens/{found['id']}")).json()
    done = await http.post(path, headers=bearer, data={})
    late = await http.post(path, headers=bearer, data={})

    assert "Revoke the token of shop?" in asked.text
    assert still["state"] == "valid"
    assert (done.status_code, late.status_code) == (303, 409)
    assert (await house.ask(root, f"/tokens/{found['id']}")).json()["state"] == "revoked"
