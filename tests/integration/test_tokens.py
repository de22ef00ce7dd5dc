"""Bearer tokens on a real database: given out once, cached for seconds, rotated, revoked, and never stored."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from kikwiflow_worker.errors import ConflictError, NotFoundError, OperationError
from kikwiflow_worker.management.authentication import SecretAuthenticator
from kikwiflow_worker.management.identity import Identity, Role
from kikwiflow_worker.management.problems import UnauthenticatedError
from kikwiflow_worker.management.security.tokens import CACHED_S, TokenVerifier
from kikwiflow_worker.management.web_session import WebSessions
from kikwiflow_worker.operations.tokens import TokenDesk
from kikwiflow_worker.store.access import Access, AuditQuery
from kikwiflow_worker.testing import ManualClock
from tests.support.management import Managed, manage
from tests.support.mongo import MongoServer
from tests.support.stores import new_id

DAY = timedelta(days=1)
OPERATOR = frozenset({Role.OPERATOR})


@dataclass
class Door:
    """Where tokens are shown; its time stands still until it is moved."""

    access: Access
    data: Database[dict[str, Any]]
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.verifier = self.another()
        self.desk = TokenDesk(
            access=self.access, now=self.clock.now, new_id=new_id, by="cli:somebody"
        )

    def another(self) -> TokenVerifier:
        """Return what another process would look with."""
        return TokenVerifier(self.access.tokens, self.clock.now, self.clock)

    async def a_token(self, name: str = "ana", **fields: Any) -> str:
        chosen = {"roles": OPERATOR, "tenant_id": "shop", "lifetime": DAY, **fields}
        return (await self.desk.create(name, **chosen)).secret

    async def admits(self, secret: str) -> bool:
        try:
            await self.verifier.verify(secret)
        except UnauthenticatedError:
            return False
        return True

    def wait(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


@pytest.fixture
async def managed(
    mongo_server: MongoServer, data: Database[dict[str, Any]]
) -> AsyncIterator[Managed]:
    async with manage(mongo_server.uri, data) as opened:
        yield opened


@pytest.fixture
def door(managed: Managed) -> Door:
    return Door(managed.store.access, managed.data)


async def test_a_token_says_who_it_is_and_is_stored_as_a_hash_alone(door: Door) -> None:
    secret = await door.a_token()

    found = await door.verifier.verify(secret)

    assert found.identity == Identity(actor="ana", roles=OPERATOR, tenant_id="shop")
    assert found.expires_at == door.clock.now() + DAY
    assert secret.startswith("kwf_")
    assert len(secret) == len("kwf_") + 43  # 256 bits
    stored = str(list(door.data.api_tokens.find()) + list(door.data.audit_log.find()))
    assert secret not in stored
    assert secret.removeprefix("kwf_") not in stored


async def test_what_was_never_given_out_proves_nothing(door: Door) -> None:
    await door.a_token()

    for secret in ("", "kwf_", "kwf_" + "x" * 43, "KWF_x", "kwf_\ud800", "kwf_" + "a" * 100_000):
        assert not await door.admits(secret)


async def test_a_revoked_token_is_refused_within_seconds_by_every_process(door: Door) -> None:
    secret = await door.a_token()
    other = door.another()
    await other.verify(secret)
    assert await door.admits(secret)

    await door.desk.revoke("ana")
    door.wait(CACHED_S)

    assert not await door.admits(secret)
    with pytest.raises(UnauthenticatedError):
        await other.verify(secret)


async def test_a_token_is_looked_up_once_in_a_few_seconds(door: Door) -> None:
    secret = await door.a_token()
    assert await door.admits(secret)
    door.data.api_tokens.delete_many({})

    door.wait(CACHED_S - 0.1)
    assert await door.admits(secret)
    door.wait(0.1)
    assert not await door.admits(secret)


async def test_an_expired_token_is_refused_at_once_although_it_is_known(door: Door) -> None:
    secret = await door.a_token(lifetime=timedelta(minutes=1))
    door.wait(59)
    assert await door.admits(secret)

    door.wait(1)

    assert not await door.admits(secret)


async def test_after_a_rotation_the_old_secret_is_refused(door: Door) -> None:
    old = await door.a_token()
    new = (await door.desk.rotate("ana", lifetime=2 * DAY, overlap=timedelta(0))).secret

    assert not await door.admits(old)
    assert (await door.verifier.verify(new)).expires_at == door.clock.now() + 2 * DAY


async def test_with_an_overlap_both_secrets_are_good_until_it_ends(door: Door) -> None:
    old = await door.a_token()
    new = (await door.desk.rotate("ana", lifetime=DAY, overlap=timedelta(hours=1))).secret

    assert await door.admits(old)
    assert await door.admits(new)
    door.wait(3600)
    assert not await door.admits(old)
    assert await door.admits(new)


async def test_a_second_rotation_and_a_revocation_end_the_overlap(door: Door) -> None:
    first = await door.a_token()
    second = (await door.desk.rotate("ana", lifetime=DAY, overlap=timedelta(hours=1))).secret
    await door.desk.rotate("ana", lifetime=DAY, overlap=timedelta(hours=1))

    assert not await door.admits(first)
    assert await door.admits(second)
    await door.desk.revoke("ana")
    door.wait(CACHED_S)
    assert not await door.admits(second)


async def test_an_overlap_does_not_lengthen_the_life_of_the_old_secret(door: Door) -> None:
    old = await door.a_token(lifetime=timedelta(minutes=5))
    await door.desk.rotate("ana", lifetime=DAY, overlap=timedelta(hours=1))

    door.wait(300)

    assert not await door.admits(old)


async def test_the_last_use_is_noted_every_ten_minutes(door: Door) -> None:
    secret = await door.a_token()
    used = []
    for _ in range(4):
        assert await door.admits(secret)
        (token,) = await door.access.tokens.list()
        used.append(token.last_used_at)
        door.wait(240)

    assert used[0] == used[1] == used[2]
    assert used[3] is not None
    assert used[0] is not None
    assert used[3] - used[0] == timedelta(seconds=720)


async def test_a_name_is_used_by_one_token_at_a_time(door: Door) -> None:
    await door.a_token("ana")
    with pytest.raises(ConflictError, match="ana"):
        await door.a_token("ana")

    await door.desk.revoke("ana")
    await door.a_token("ana")

    assert [token.revoked_at is None for token in await door.access.tokens.list()].count(True) == 1


async def test_a_token_that_makes_no_sense_is_not_given_out(door: Door) -> None:
    wrong: tuple[tuple[str, dict[str, Any]], ...] = (
        ("", {}),
        ("a b", {}),
        ("-a", {}),
        ("a" * 101, {}),
        ("ana", {"roles": frozenset()}),
        ("ana", {"tenant_id": ""}),
        ("ana", {"lifetime": timedelta(seconds=59)}),
        ("ana", {"lifetime": timedelta(days=3661)}),
        ("ana", {"lifetime": timedelta(days=-1)}),
    )
    for name, fields in wrong:
        with pytest.raises(OperationError):
            await door.a_token(name, **fields)

    assert await door.access.tokens.list() == ()


async def test_what_is_not_there_cannot_be_rotated_or_revoked(door: Door) -> None:
    await door.a_token("ana")
    await door.desk.revoke("ana")

    for gone in ("ana", "bob"):
        with pytest.raises(NotFoundError):
            await door.desk.rotate(gone, lifetime=DAY, overlap=timedelta(0))
        with pytest.raises(NotFoundError):
            await door.desk.revoke(gone)


async def test_every_change_of_tokens_is_in_the_audit(door: Door) -> None:
    await door.a_token("ana")
    await door.desk.rotate("ana", lifetime=DAY, overlap=timedelta(0))
    await door.desk.revoke("ana")

    entries = (await door.access.audit.list(AuditQuery(subject="ana"))).items

    assert {entry.operation for entry in entries} == {"createToken", "rotateToken", "revokeToken"}
    assert {entry.actor for entry in entries} == {"cli:somebody"}


async def test_made_up_tokens_fill_no_memory(door: Door) -> None:
    for number in range(50):
        await door.admits(f"kwf_made-up-{number}")

    assert not door.verifier._known


async def test_a_bearer_token_opens_the_api_and_its_role_and_tenant_hold(
    mongo_server: MongoServer, data: Database[dict[str, Any]], managed: Managed
) -> None:
    door = Door(managed.store.access, data)
    viewer = await door.a_token("viewer", roles=frozenset({Role.VIEWER}))
    operator = await door.a_token("operator")
    authenticator = SecretAuthenticator(
        [door.verifier], door.verifier, WebSessions(door.access.sessions, door.clock.now)
    )
    parcel = await managed.a_waiting_parcel(tenant_id="shop")
    other = await managed.a_waiting_parcel("PARCEL-2", tenant_id="bank")

    async with manage(mongo_server.uri, data, authenticator=authenticator) as closed:

        async def get(path: str, authorization: str | None) -> int:
            headers = {"Authorization": authorization} if authorization is not None else {}
            return (await closed.api.get(path, headers=headers)).status_code

        async def cancel(instance_id: str, secret: str) -> int:
            headers = {"Authorization": f"Bearer {secret}"}
            path = f"/process-instances/{instance_id}/cancel"
            return (await closed.api.post(path, headers=headers)).status_code

        path = f"/process-instances/{parcel.id}"
        assert await get(path, None) == 401
        for wrong in ("", "Bearer", "Bearer ", "Bearer kwf_x", f"Basic {viewer}", viewer):
            assert await get(path, wrong) == 401, wrong
        assert await get(path, f"Bearer {viewer}") == 200
        assert await get(path, f"bearer {viewer}") == 200
        assert await get(f"/process-instances/{other.id}", f"Bearer {viewer}") == 404
        assert await cancel(parcel.id, viewer) == 403
        assert await cancel(other.id, operator) == 404
        assert await cancel(parcel.id, operator) == 204
        # A page leads to the login, and a token in the address is no token.
        page = await closed.http.get("/dashboard/overview")
        assert (page.status_code, page.headers["location"]) == (
            303,
            "/dashboard/login?next=%2Fdashboard%2Foverview",
        )
        assert await get(f"{path}?access_token={viewer}", None) in {400, 401}
