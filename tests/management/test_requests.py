"""What holds for every request: its id, its log line, its limits, and how it is refused."""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import structlog
from fastapi import APIRouter

from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.management.app import BASE_PATH
from kikwiflow_worker.management.headers import MAX_BODY_BYTES
from kikwiflow_worker.management.openapi import allowed_methods
from kikwiflow_worker.management.probes import DatabaseWatch
from kikwiflow_worker.management.problems import Code
from tests.support.management import Managed

pytestmark = pytest.mark.mongo

CORRELATE = "/events/correlate/secret-customer-7"


@pytest.fixture
async def broken(managed: Managed) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of the application with a route that has a fault, and one whose database is away."""
    router = APIRouter()

    @router.get("/fault")
    async def fault() -> None:
        raise ZeroDivisionError("secret-customer-7")

    @router.get("/outage")
    async def outage() -> None:
        raise StoreUnavailableError("mongodb://user:s3cr3t@db is away")

    managed.app.include_router(router)
    transport = httpx.ASGITransport(managed.app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def test_a_request_keeps_its_id_or_gets_one(managed: Managed) -> None:
    own = await managed.api.get("/workers", headers={"X-Request-Id": "mine-1"})
    bad = await managed.api.get("/workers", headers={"X-Request-Id": "two words\x7f"})
    refused = await managed.api.get("/incidents/unknown", headers={"X-Request-Id": "mine-2"})

    assert own.headers["X-Request-Id"] == "mine-1"
    assert re.fullmatch(r"[0-9a-f-]{36}", bad.headers["X-Request-Id"])
    assert refused.json()["requestId"] == refused.headers["X-Request-Id"] == "mine-2"


async def test_a_request_is_one_line_without_what_it_is_about(managed: Managed) -> None:
    with structlog.testing.capture_logs(
        processors=[structlog.contextvars.merge_contextvars]
    ) as lines:
        await managed.api.post(
            f"{CORRELATE}?bogus=secret-customer-7", headers={"X-Request-Id": "mine"}
        )
        await managed.http.get("/livez")

    (line,) = [each for each in lines if each["event"] == "request.answered"]
    assert line["route"] == f"{BASE_PATH}/events/correlate/{{correlation_key}}"
    assert (line["method"], line["status"], line["request_id"]) == ("POST", 400, "mine")
    assert "secret-customer-7" not in str(line)


async def test_a_fault_of_ours_tells_the_caller_nothing_but_where_to_look(
    broken: httpx.AsyncClient,
) -> None:
    with structlog.testing.capture_logs() as lines:
        response = await broken.get("/fault", headers={"X-Request-Id": "mine"})

    assert (response.status_code, response.json()["code"]) == (500, "INTERNAL")
    assert response.json()["requestId"] == "mine"
    assert "secret-customer-7" not in response.text
    assert "Traceback" not in response.text
    assert any(line["event"] == "request.failed" and line.get("exc_info") for line in lines)


async def test_an_outage_of_the_database_says_when_to_come_again(
    broken: httpx.AsyncClient,
) -> None:
    response = await broken.get("/outage")

    assert (response.status_code, response.json()["code"]) == (503, "STORE_UNAVAILABLE")
    assert response.headers["Retry-After"] == "2"
    assert "s3cr3t" not in response.text


@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_body_beyond_the_limit_is_not_read(managed: Managed, *, is_announced: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 2**20 + 2):
            yield b" " * 2**20

    content: Any = b" " * (MAX_BODY_BYTES + 1) if is_announced else chunks()
    response = await managed.api.post(
        "/process-definitions", content=content, headers={"Content-Type": "application/json"}
    )

    assert (response.status_code, response.json()["code"]) == (413, "TOO_LARGE")


async def test_a_path_that_is_not_there_is_a_problem_too(managed: Managed) -> None:
    response = await managed.api.get("/nothing")

    assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND")
    assert response.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/process-instances", "GET, POST"),
        ("POST", "/process-instances/x", "DELETE, GET, PUT"),
        ("GET", "/process-instances/search", "POST"),
        ("GET", "/process-definitions/by-key/a/b/suspend", "POST"),
    ],
)
async def test_a_method_that_is_not_there_names_those_that_are(
    managed: Managed, method: str, path: str, allowed: str
) -> None:
    if method == "GET":
        document = managed.app.openapi()
        assert ", ".join(allowed_methods(document, BASE_PATH + path)) == allowed
        return
    response = await managed.api.request(method, path)

    assert (response.status_code, response.json()["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert response.headers["Allow"] == allowed


async def test_a_problem_is_a_problem_document(managed: Managed) -> None:
    problem = (await managed.api.get("/process-instances/a b")).json()

    assert problem["type"] == "urn:kikwiflow:problem:not-found"
    assert (problem["title"], problem["status"]) == ("Not found", 404)
    assert problem["instance"] == f"{BASE_PATH}/process-instances/a%20b"


def test_codes_have_statuses_of_their_kind() -> None:
    for code in Code:
        assert 400 <= code.status < 600
        assert code.meaning.endswith(".")


async def test_probes_and_metrics_are_open(managed: Managed) -> None:
    await managed.api.get("/workers")

    live = await managed.http.get("/livez")
    ready = await managed.http.get("/readyz")
    metrics = await managed.http.get("/metrics")

    assert (live.json(), ready.json()) == ({"status": "ok", "reasons": []},) * 2
    line = f'kikwiflow_http_requests_total{{method="GET",route="{BASE_PATH}/workers",status="200"}}'
    assert f"{line} 1.0" in metrics.text


async def test_readiness_follows_the_database(managed: Managed) -> None:
    answers: list[bool] = [True, False, False, True]

    async def ping() -> None:
        if not answers.pop(0):
            raise StoreUnavailableError("away")

    watch = DatabaseWatch(ping, None)  # type: ignore[arg-type]
    seen = []
    with structlog.testing.capture_logs() as lines:
        for _ in range(4):
            await watch.look()
            seen.append(not await watch.readiness())

    assert seen == [True, False, False, True]
    assert [line["event"] for line in lines] == ["store.unavailable", "store.recovered"]
