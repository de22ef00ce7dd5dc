"""What an HTTP request creates belongs to the trace of whoever made it."""

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from kikwiflow_worker.management.app import BASE_PATH, create_app
from kikwiflow_worker.tracing.otel import OpenTelemetryTracing
from tests.support.management import PARCEL, Managed

pytestmark = pytest.mark.mongo

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = CALLER.split("-")[1]


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def api(managed: Managed, exported: InMemorySpanExporter) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of the API of a server that makes spans."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    tracing = OpenTelemetryTracing(version="1", provider=provider)
    backend = managed.app.state.backend
    app = create_app(replace(backend, services=replace(backend.services, tracing=tracing)))
    base = f"http://kikwiflow.test{BASE_PATH}"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base) as client:
        yield client
    provider.shutdown()


async def test_an_instance_belongs_to_the_trace_of_the_request(
    managed: Managed, api: httpx.AsyncClient, exported: InMemorySpanExporter
) -> None:
    await managed.deploy()

    answer = await api.post(
        "/process-instances",
        json={"processDefinitionKey": PARCEL, "businessKey": "P-1"},
        headers={"traceparent": CALLER},
    )

    assert answer.status_code == 201, answer.text
    (task,) = (await managed.kikwiflow.list_tasks()).items
    spans = {span.name: span for span in exported.get_finished_spans()}
    start, request = spans[f"start {PARCEL}"], spans["POST"]
    assert start.context is not None
    assert task.traceparent == f"00-{TRACE_ID}-{start.context.span_id:016x}-01"
    assert start.parent == request.context
    assert request.attributes == {
        "http.request.method": "POST",
        "http.response.status_code": 201,
        "http.route": f"{BASE_PATH}/process-instances",
    }


async def test_a_mistake_of_the_caller_is_no_error_of_the_server(
    api: httpx.AsyncClient, exported: InMemorySpanExporter
) -> None:
    await api.get("/process-instances/nobody", headers={"traceparent": "nonsense"})

    (span,) = exported.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 404
    assert span.status.status_code is StatusCode.UNSET
    assert span.parent is None


async def test_probes_make_no_spans(
    managed: Managed, api: httpx.AsyncClient, exported: InMemorySpanExporter
) -> None:
    await api.get("http://kikwiflow.test/livez")

    assert not exported.get_finished_spans()
