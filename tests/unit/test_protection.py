"""What requests must keep to before anything looks at them, and what responses tell browsers."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.management.headers import LOOPBACK_HOSTS, Protection, is_loopback
from kikwiflow_worker.management.problems import add_problem_handlers
from kikwiflow_worker.management.request_log import RequestLog, RequestMetrics

SMALL = 1000


def client_of(app: FastAPI, base: str = "http://127.0.0.1:8090") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base)


def protected(hosts: frozenset[str] | None = None) -> FastAPI:
    app = FastAPI()
    add_problem_handlers(app, lambda _: [])

    @app.get("/thing")
    async def read() -> str:
        return "read"

    @app.post("/thing")
    async def change(request: Request) -> int:
        return len(await request.body())

    app.add_middleware(Protection, hosts=hosts, max_body=SMALL)
    app.add_middleware(RequestLog, clock=SystemClock(), metrics=RequestMetrics(CollectorRegistry()))
    return app


async def test_every_response_tells_the_browser_to_run_nothing_of_others() -> None:
    async with client_of(protected()) as http:
        answers = [await http.get("/thing"), await http.get("/nothing"), await http.put("/thing")]

    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://127.0.0.1:8090"}, 200),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        # What the browser says of itself counts more than what it compares.
        ({"Origin": "http://127.0.0.1:8090", "Sec-Fetch-Site": "cross-site"}, 403),
        # A browser adds no bearer token by itself; it does add the credentials of the scheme Basic.
        ({"Origin": "https://shop.example", "Authorization": "Bearer kwf_x"}, 200),
        ({"Origin": "https://evil.example", "Authorization": "Basic YTpi"}, 403),
    ],
)
async def test_a_page_of_another_site_changes_nothing(headers: dict[str, str], status: int) -> None:
    async with client_of(protected()) as http:
        changing = await http.post("/thing", headers=headers)
        reading = await http.get("/thing", headers=headers)

    assert changing.status_code == status
    assert reading.status_code == 200  # its answer is kept from the other site by the browser


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8090", 200),
        ("localhost", 200),
        ("LOCALHOST:80", 200),
        ("[::1]:8090", 200),
        ("evil.example", 421),
        ("evil.example:8090", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("localhost:80:80", 421),
        ("", 421),
    ],
)
async def test_where_everybody_is_trusted_only_names_of_loopback_are_answered(
    host: str, status: int
) -> None:
    async with client_of(protected(LOOPBACK_HOSTS)) as http:
        answer = await http.get("/thing", headers={"Host": host})

    assert answer.status_code == status


async def test_a_body_may_be_so_long_and_no_longer() -> None:
    async with client_of(protected()) as http:
        fits = await http.post("/thing", content=b"x" * SMALL)
        announced = await http.post("/thing", content=b"x" * (SMALL + 1))

    assert (fits.status_code, fits.json()) == (200, SMALL)
    assert (announced.status_code, announced.json()["code"]) == (413, "TOO_LARGE")


async def test_a_body_without_a_length_is_cut_off() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1
            yield b"x" * 100

    async with client_of(protected()) as http:
        answer = await http.post("/thing", content=endless())

    assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")
    assert sent <= SMALL // 100 + 2


@pytest.mark.parametrize("given", ["abc-1.2:3", "a" * 128])
async def test_a_request_id_is_given_back(given: str) -> None:
    async with client_of(protected()) as http:
        answer = await http.get("/thing", headers={"X-Request-Id": given})

    assert answer.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["a b", "a" * 129, "<script>", ""])
async def test_a_request_id_that_could_be_anything_is_replaced(given: str) -> None:
    async with client_of(protected()) as http:
        answer = await http.get("/thing", headers={"X-Request-Id": given})

    assert answer.headers["x-request-id"] not in {given, ""}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("localhost", True),
        ("[::1]", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("[::]", False),
        ("10.0.0.1", False),
        ("127.0.0.1.example", False),
        ("", False),
    ],
)
def test_loopback_is_this_host_alone(host: str, expected: Any) -> None:
    assert is_loopback(host) is expected
