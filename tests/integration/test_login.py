"""The dashboard's sessions and the audit, on a real database, as a browser and as a program meet them."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from pymongo.database import Database

from kikwiflow_worker.management.app import BASE_PATH
from kikwiflow_worker.management.authentication import SecretAuthenticator
from kikwiflow_worker.management.identity import Identity, Role
from kikwiflow_worker.management.security.credentials import Credentials
from kikwiflow_worker.management.security.tokens import CACHED_S, TokenVerifier
from kikwiflow_worker.management.web_session import IDLE, LONGEST, OVERLAP, ROTATION, WebSessions
from kikwiflow_worker.operations.tokens import TokenDesk
from kikwiflow_worker.store.access import AuditEntry, AuditQuery
from kikwiflow_worker.testing import ManualClock
from tests.support.management import Managed, manage
from tests.support.mongo import MongoServer
from tests.support.stores import new_id

HOME = "/dashboard/overview"
COOKIE = "kikwiflow_session"
SECURE_COOKIE = "__Host-kikwiflow_session"
BROWSER = {"Sec-Fetch-Site": "same-origin"}


class JwtOfAna:
    """Knows one JWT, which ends in ten minutes."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def accepts(self, secret: str) -> bool:
        return secret == "a.b.c"

    async def verify(self, secret: str) -> Credentials:
        identity = Identity(actor="ana@id.example", roles=frozenset({Role.OPERATOR}))
        return Credentials(identity=identity, expires_at=self._clock.now() + timedelta(minutes=10))


@dataclass
class House:
    """The application behind a login; its time stands still until it is moved."""

    managed: Managed
    clock: ManualClock
    desk: TokenDesk
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    def browser(self, base: str = "https://kikwiflow.test") -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.managed.app)
        client = httpx.AsyncClient(transport=transport, base_url=base, headers=BROWSER)
        self.clients.append(client)
        return client

    async def a_secret(self, name: str = "ana", **fields: Any) -> str:
        chosen = {
            "roles": frozenset({Role.OPERATOR}),
            "tenant_id": None,
            "lifetime": timedelta(days=90),
            **fields,
        }
        return (await self.desk.create(name, **chosen)).secret

    async def logged_in(self, **fields: Any) -> httpx.AsyncClient:
        browser = self.browser()
        answer = await log_in(browser, await self.a_secret(**fields))
        assert answer.status_code == 303, answer.text
        return browser

    def wait(self, by: timedelta) -> None:
        self.clock.advance(by)

    async def audit(self, **query: Any) -> tuple[AuditEntry, ...]:
        return (await self.managed.store.access.audit.list(AuditQuery(**query))).items


@pytest.fixture
async def house(mongo_server: MongoServer, data: Database[dict[str, Any]]) -> AsyncIterator[House]:
    async with manage(mongo_server.uri, data) as managed:
        access, clock = managed.store.access, ManualClock()
        tokens = TokenVerifier(access.tokens, clock.now, clock)
        sessions = WebSessions(access.sessions, clock.now)
        authenticator = SecretAuthenticator([tokens, JwtOfAna(clock)], tokens, sessions)
        state = managed.app.state
        state.backend = replace(state.backend, authenticator=authenticator)
        desk = TokenDesk(access=access, now=clock.now, new_id=new_id, by="cli:somebody")
        built = House(managed, clock, desk)
        yield built
        for client in built.clients:
            await client.aclose()


async def log_in(
    browser: httpx.AsyncClient, secret: str, after: str = "", **headers: str
) -> httpx.Response:
    form = {"token": secret, "next": after}
    return await browser.post("/dashboard/login", data=form, headers=headers)


async def sees_the_dashboard(browser: httpx.AsyncClient) -> bool:
    answer = await browser.get(HOME)
    assert answer.status_code in {200, 303}
    return answer.status_code == 200


async def csrf_of(browser: httpx.AsyncClient) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', (await browser.get(HOME)).text)
    assert found
    return found[1]


async def cancel(browser: httpx.AsyncClient, instance_id: str, **headers: str) -> httpx.Response:
    path = f"{BASE_PATH}/process-instances/{instance_id}/cancel"
    return await browser.post(path, headers=headers)


async def test_a_token_opens_a_session_whose_cookie_no_script_and_no_other_site_gets(
    house: House,
) -> None:
    browser = house.browser()
    assert not await sees_the_dashboard(browser)

    secret = await house.a_secret()
    answer = await log_in(browser, secret)

    (cookie,) = answer.headers.get_list("set-cookie")
    name, _, rest = cookie.partition("=")
    value, *attributes = rest.split("; ")
    assert name == SECURE_COOKIE
    assert set(attributes) >= {"HttpOnly", "Secure", "SameSite=Strict", "Path=/", "Max-Age=43200"}
    assert not any(attribute.startswith("Domain") for attribute in attributes)
    assert secret not in answer.text + cookie
    assert await sees_the_dashboard(browser)
    assert "Log out" in (await browser.get(HOME)).text
    (entry,) = await house.audit(actor="ana")
    assert (entry.operation, entry.result) == ("POST /dashboard/login", "DONE")
    stored = str(list(house.managed.data.web_sessions.find()))
    assert value not in stored
    assert secret not in stored


async def test_on_loopback_the_cookie_needs_no_tls(house: House) -> None:
    browser = house.browser("http://127.0.0.1:8090")

    answer = await log_in(browser, await house.a_secret())

    (cookie,) = answer.headers.get_list("set-cookie")
    assert cookie.startswith(f"{COOKIE}=")
    assert "Secure" not in cookie
    assert "SameSite=Strict" in cookie
    assert await sees_the_dashboard(browser)


async def test_under_another_name_the_cookie_needs_tls_even_where_a_proxy_does_not_say_so(
    house: House,
) -> None:
    answer = await log_in(house.browser("http://kikwiflow.test"), await house.a_secret())

    (cookie,) = answer.headers.get_list("set-cookie")
    assert cookie.startswith(SECURE_COOKIE)
    assert "Secure" in cookie


async def test_a_wrong_token_opens_nothing_and_is_not_shown_again(house: House) -> None:
    browser = house.browser()

    for wrong in ("", "kwf_x", "a.b.d", "' OR 1=1 --", "<script>alert(1)</script>"):
        answer = await log_in(browser, wrong)

        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert not wrong or wrong not in answer.text
        assert not await sees_the_dashboard(browser)


async def test_a_login_leads_to_a_page_of_ours_only(house: House) -> None:
    secret = await house.a_secret()
    browser = house.browser()

    for after, leads_to in (
        ("/dashboard/incidents?status=OPEN", "/dashboard/incidents?status=OPEN"),
        ("https://evil.example/dashboard/", "/dashboard"),
        ("//evil.example/dashboard/", "/dashboard"),
        ("/\\evil.example", "/dashboard"),
        ("/dashboard/\\evil", "/dashboard"),
        ("/dashboardevil.example", "/dashboard"),
        ("javascript:alert(1)", "/dashboard"),
        ("/dashboard/\r\nSet-Cookie: a=b", "/dashboard"),
    ):
        answer = await log_in(browser, secret, after)

        assert answer.headers["location"] == leads_to, after


async def test_another_site_cannot_log_anybody_in(house: House) -> None:
    browser = house.browser()

    answer = await log_in(browser, await house.a_secret(), **{"Sec-Fetch-Site": "cross-site"})

    assert answer.status_code == 403
    assert not await sees_the_dashboard(browser)


async def test_a_login_ends_the_session_before_it(house: House) -> None:
    browser = await house.logged_in()
    before = dict(browser.cookies)

    await log_in(browser, await house.a_secret("bob"))

    assert dict(browser.cookies) != before
    thief = house.browser()
    thief.cookies.update(before)
    assert not await sees_the_dashboard(thief)


async def test_logging_out_ends_the_session_for_whoever_has_the_cookie(house: House) -> None:
    browser = await house.logged_in()
    thief = house.browser()
    thief.cookies.update(browser.cookies)
    assert await sees_the_dashboard(thief)

    without = await browser.post("/dashboard/logout", data={})
    assert without.status_code == 403
    answer = await browser.post("/dashboard/logout", data={"csrf": await csrf_of(browser)})

    assert answer.status_code == 303
    assert not browser.cookies
    assert not await sees_the_dashboard(thief)


async def test_a_session_ends_within_seconds_of_its_token(house: House) -> None:
    browser = await house.logged_in()
    assert await sees_the_dashboard(browser)

    await house.desk.revoke("ana")
    house.wait(timedelta(seconds=CACHED_S))

    assert not await sees_the_dashboard(browser)


async def test_a_session_that_a_jwt_opened_ends_with_it(house: House) -> None:
    browser = house.browser()
    assert (await log_in(browser, "a.b.c")).status_code == 303
    assert await sees_the_dashboard(browser)

    house.wait(timedelta(minutes=10))

    assert not await sees_the_dashboard(browser)


async def test_an_idle_session_ends(house: House) -> None:
    browser = await house.logged_in()

    house.wait(IDLE)

    assert not await sees_the_dashboard(browser)


async def test_a_session_in_use_gets_new_cookies_and_still_ends_after_hours(house: House) -> None:
    browser = await house.logged_in()
    csrf = await csrf_of(browser)
    first = dict(browser.cookies)
    values, step, waited = set(), 2 * ROTATION - timedelta(minutes=1), timedelta(0)
    while waited + step < LONGEST:
        house.wait(step)
        waited += step
        # A page that was open all the while can still post its form.
        assert await csrf_of(browser) == csrf
        values.add(browser.cookies[SECURE_COOKIE])

    house.wait(step)

    assert len(values) == waited // step
    assert not await sees_the_dashboard(browser)
    thief = house.browser()
    thief.cookies.update(first)
    assert not await sees_the_dashboard(thief)


async def test_a_replaced_cookie_is_good_for_requests_under_way_and_no_longer(
    house: House,
) -> None:
    browser = await house.logged_in()
    old = house.browser()
    old.cookies.update(browser.cookies)
    house.wait(ROTATION)
    assert await sees_the_dashboard(browser)

    house.wait(OVERLAP - timedelta(seconds=1))
    assert await sees_the_dashboard(old)
    fresh = house.browser()
    fresh.cookies.update(browser.cookies)
    house.wait(timedelta(seconds=1))

    assert not await sees_the_dashboard(old)
    assert await sees_the_dashboard(fresh)


async def test_a_session_changes_nothing_without_its_own_token(house: House) -> None:
    browser = await house.logged_in()
    other = await house.logged_in(name="bob")
    parcel = await house.managed.a_waiting_parcel()
    csrf = await csrf_of(browser)

    refused = [
        await cancel(browser, parcel.id),
        await cancel(browser, parcel.id, **{"X-CSRF-Token": ""}),
        await cancel(browser, parcel.id, **{"X-CSRF-Token": "wrong"}),
        await cancel(browser, parcel.id, **{"X-CSRF-Token": await csrf_of(other)}),
        # A header that no browser would send does not make a session a program's.
        await cancel(browser, parcel.id, Authorization="Basic YTpi"),
    ]

    assert [answer.status_code for answer in refused] == [403, 403, 403, 403, 401]
    assert (await cancel(browser, parcel.id, **{"X-CSRF-Token": csrf})).status_code == 204


async def test_wrong_tokens_are_counted_wherever_they_are_tried(house: House) -> None:
    wrong = {"Authorization": "Bearer kwf_wrong"}
    browser = house.browser()

    answers = [
        await browser.get(f"{BASE_PATH}/incidents", headers=wrong),
        await browser.get(HOME, headers=wrong),
        await log_in(browser, "kwf_wrong"),
    ]
    metrics = (await browser.get("/metrics")).text

    assert [answer.status_code for answer in answers] == [401, 401, 401]
    assert [answer.headers.get("www-authenticate") for answer in answers[:2]] == ["Bearer"] * 2
    counted = re.findall(r'kikwiflow_http_requests_total{.*status="401"} (\S+)', metrics)
    assert counted == ["1.0", "1.0", "1.0"]
    assert "kwf_wrong" not in metrics


async def test_a_wrong_bearer_token_is_not_helped_by_a_session(house: House) -> None:
    browser = await house.logged_in()

    answer = await browser.get(
        f"{BASE_PATH}/process-instances", headers={"Authorization": "Bearer kwf_wrong"}
    )

    assert answer.status_code == 401


async def test_the_audit_has_who_changed_what_and_how_it_ended(house: House) -> None:
    secret = await house.a_secret("ana", tenant_id="shop")
    viewer = await house.a_secret("viewer", roles=frozenset({Role.VIEWER}), tenant_id="shop")
    parcel = await house.managed.a_waiting_parcel(tenant_id="shop")
    http = house.browser()
    http.headers.pop("Sec-Fetch-Site")
    as_ana = {"Authorization": f"Bearer {secret}"}
    path = f"{BASE_PATH}/process-instances/{parcel.id}"

    variables = {"variables": {"iban": {"value": "DE-VERY-SECRET"}}}
    await http.put(f"{path}/variables", json=variables, headers={**as_ana, "X-Request-Id": "r-1"})
    await http.post(f"{path}/cancel", headers={"Authorization": f"Bearer {viewer}"})
    await http.post(f"{path}/cancel", headers=as_ana)
    await http.post(f"{path}/cancel", headers=as_ana)
    await http.put(f"{path}/variables", json={"variables": 7}, headers=as_ana)
    await http.get(path, headers=as_ana)
    await http.post(f"{path}/cancel", headers={"Authorization": "Bearer kwf_nobody"})

    entries = await house.audit(subject=parcel.id)
    assert [(each.operation, each.actor, each.result) for each in entries] == [
        ("setVariables", "ana", "BAD_REQUEST"),
        ("cancelInstance", "ana", "CONFLICT"),
        ("cancelInstance", "ana", "DONE"),
        ("cancelInstance", "viewer", "FORBIDDEN"),
        ("setVariables", "ana", "DONE"),
    ]
    assert {each.tenant_id for each in entries} == {"shop"}
    assert entries[-1].request_id == "r-1"
    assert entries[-1].subjects["instance_id"] == parcel.id
    assert "DE-VERY-SECRET" not in str(list(house.managed.data.audit_log.find()))


async def test_a_poll_that_finds_no_work_leaves_no_trace(house: House) -> None:
    headers = {"Authorization": f"Bearer {await house.a_secret()}"}
    http = house.browser()
    path = f"{BASE_PATH}/external-work/fetch-and-lock"
    body = {"workerId": "poller", "topics": ["weigh_parcel"]}

    assert (await http.post(path, json=body, headers=headers)).json() == {"tasks": []}
    assert await house.audit(operation="fetchAndLock") == ()

    await house.managed.a_parcel()
    (task,) = (await http.post(path, json=body, headers=headers)).json()["tasks"]
    (entry,) = await house.audit(subject=task["id"])
    assert (entry.actor, entry.result) == ("ana", "DONE")


async def test_a_tenant_reads_its_own_part_of_the_audit(house: House) -> None:
    everywhere = frozenset({Role.ADMIN})
    secrets = {
        name: await house.a_secret(name, roles=everywhere, tenant_id=tenant)
        for name, tenant in (("shop-admin", "shop"), ("bank-admin", "bank"), ("root", None))
    }
    operator = await house.a_secret("operator", tenant_id="shop")
    http = house.browser()
    for name, tenant in (("shop-admin", "shop"), ("bank-admin", "bank")):
        parcel = await house.managed.a_waiting_parcel(f"PARCEL-{tenant}", tenant_id=tenant)
        headers = {"Authorization": f"Bearer {secrets[name]}"}
        path = f"{BASE_PATH}/process-instances/{parcel.id}/cancel"
        assert (await http.post(path, headers=headers)).status_code == 204

    async def actors(secret: str, **query: str) -> set[str]:
        headers = {"Authorization": f"Bearer {secret}"}
        answer = await http.get(f"{BASE_PATH}/audit", headers=headers, params=query)
        assert answer.status_code == 200, answer.text
        return {entry["actor"] for entry in answer.json()["items"]}

    assert await actors(secrets["shop-admin"]) == {"shop-admin"}
    assert await actors(secrets["bank-admin"]) == {"bank-admin"}
    assert await actors(secrets["shop-admin"], actor="bank-admin") == set()
    assert await actors(secrets["root"]) == {"shop-admin", "bank-admin", "cli:somebody"}
    refused = await http.get(f"{BASE_PATH}/audit", headers={"Authorization": f"Bearer {operator}"})
    assert refused.status_code == 403


async def test_nothing_is_changed_that_cannot_be_recorded(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kikwiflow_worker.errors import StoreUnavailableError

    secret = await house.a_secret()
    parcel = await house.managed.a_waiting_parcel()

    async def fails(*_: object) -> None:
        raise StoreUnavailableError("the database is away")

    audit = house.managed.app.state.backend.access.audit
    monkeypatch.setattr(audit, "begin", fails)
    http = house.browser()
    headers = {"Authorization": f"Bearer {secret}"}

    answer = await cancel(http, parcel.id, **headers)
    assert (answer.status_code, answer.json()["code"]) == (503, "STORE_UNAVAILABLE")
    still = await house.managed.kikwiflow.get_instance(parcel.id)
    assert still.ended_at is None

    monkeypatch.undo()
    monkeypatch.setattr(audit, "end", fails)
    assert (await cancel(http, parcel.id, **headers)).status_code == 204
    (entry,) = await house.audit(operation="cancelInstance")
    assert entry.result is None
