"""One trace from the start of an instance to its end, whoever runs its steps: contexts are carried by rows."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.handler import ExecutionContext, ProcessError, task_handler
from kikwiflow_worker.model.unit_of_work import Committed, UnitOfWork
from kikwiflow_worker.operations import external_workers
from kikwiflow_worker.operations.execution import execute_task
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.telemetry import Metrics
from kikwiflow_worker.tracing.otel import OpenTelemetryTracing
from kikwiflow_worker.tracing.protocol import NO_TRACING, SpanKind, Tracing
from kikwiflow_worker.worker.reporting import StepReport
from tests.support.definitions import Json, a_file, a_node, a_start, a_task, an_end
from tests.support.stores import LOCK, claim_next

pytestmark = pytest.mark.mongo

_seen: list[str] = []


@task_handler("weigh")
async def weigh(context: ExecutionContext) -> None:
    """Note the span around."""
    _seen.append(_span_around())


@task_handler("pack")
def pack(context: ExecutionContext) -> None:
    """Note the span around, in a thread."""
    _seen.append(_span_around())


@task_handler("fail_once")
async def fail_once(context: ExecutionContext) -> None:
    """Fail on the first attempt."""
    if context.attempt == 1:
        raise ValueError("the scales are broken")


@task_handler("refuse")
async def refuse(context: ExecutionContext) -> None:
    """End with a business error that nobody handles."""
    raise ProcessError("REFUSED", "no such parcel")


HANDLERS = (weigh, pack, fail_once, refuse)


def _span_around() -> str:
    return trace.format_span_id(trace.get_current_span().get_span_context().span_id)


@dataclass(frozen=True)
class Traced:
    """The spans of one process."""

    tracing: Tracing
    exported: InMemorySpanExporter

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """The spans that have ended, by their names; the last of each name."""
        return {span.name: span for span in self.exported.get_finished_spans()}


@pytest.fixture
def traced() -> Iterator[Traced]:
    exported, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    _seen.clear()
    yield Traced(OpenTelemetryTracing(version="1", provider=provider), exported)
    provider.shutdown()


async def a_client(
    store: MongoStore, tracing: Tracing, *nodes: Json, key: str = "parcel"
) -> Kikwiflow:
    client = Kikwiflow(store, handlers=HANDLERS, tracing=tracing)
    await client.deploy(json.dumps(a_file(*nodes, key=key)), name=f"{key}.kikwi")
    return client


async def work(client: Kikwiflow, store: MongoStore, worker_id: str = "worker-1") -> None:
    """Run what is due until nothing is."""
    metrics = Metrics(CollectorRegistry(), version="1", instance=worker_id)
    report = StepReport(SystemClock(), metrics, client.services.tracing)
    invoker = client.new_invoker()
    while claimed := await claim_next(store, invoker.capabilities, worker_id=worker_id):

        async def commit(unit: UnitOfWork) -> Committed:
            return await store.runtime.commit(report.traced(claimed, unit))

        with report.step(claimed) as running:
            running.ended(await execute_task(client.services, invoker, claimed, commit))


def causes(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def assert_one_trace(traced: Traced) -> None:
    trace_ids = {
        span.context.trace_id for span in traced.exported.get_finished_spans() if span.context
    }
    assert len(trace_ids) == 1


def a_job(node_id: str, target: str, handler: str, **fields: object) -> Json:
    return a_task(node_id, target, executor=handler, commitBefore=True, **fields)


async def test_each_step_is_linked_to_the_one_that_created_its_row(
    store: MongoStore, traced: Traced
) -> None:
    split = a_node("SPLIT", "PARALLEL_GATEWAY", "A", "B", targetJoinId="JOIN")
    client = await a_client(
        store,
        traced.tracing,
        a_start("SPLIT"),
        split,
        a_job("A", "JOIN", "weigh"),
        a_job("B", "JOIN", "pack"),
        a_node("JOIN", "JOIN_GATEWAY", "LATER"),
        a_node("LATER", "TIMER_TASK", "RETRY", providerType="STATIC", staticValue="PT0.001S"),
        a_job(
            "RETRY",
            "END",
            "fail_once",
            retryPolicy={"strategy": "LINEAR", "maxRetries": 2, "intervals": ["PT0S", "PT0S"]},
        ),
        an_end(),
    )
    instance = await client.start("parcel", "P-1")

    await work(client, store)
    await client.wait_for_end(instance.id, timeout_s=0)

    spans = traced.spans
    start = id_of(spans["start parcel"])
    assert causes(spans["process A"]) == causes(spans["process B"]) == [start]
    assert causes(spans["process JOIN"]) == [start], "a join is created by its split"
    assert causes(spans["process LATER"]) == [id_of(spans["process JOIN"])]
    assert causes(spans["process RETRY"]) == [id_of(spans["process LATER"])]
    attempts = [s for s in traced.exported.get_finished_spans() if s.name == "process RETRY"]
    assert [s.attributes["kikwiflow.task.attempt"] for s in attempts if s.attributes] == [1, 2]
    assert [s.status.status_code for s in attempts] == [StatusCode.ERROR, StatusCode.UNSET]
    assert [event.attributes for event in attempts[0].events] == [
        {"exception.type": "ValueError", "exception.message": "the scales are broken"}
    ]
    assert_one_trace(traced)


async def test_the_span_of_a_step_is_around_its_handler_also_in_a_thread(
    store: MongoStore, traced: Traced
) -> None:
    client = await a_client(
        store,
        traced.tracing,
        a_start("A"),
        a_job("A", "B", "weigh"),
        a_job("B", "END", "pack"),
        an_end(),
    )
    await client.start("parcel", "P-1")

    await work(client, store)

    spans = traced.spans
    assert _seen == [
        trace.format_span_id(id_of(spans[name])) for name in ("process A", "process B")
    ]
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_a_child_its_end_and_a_message_belong_to_the_trace(
    store: MongoStore, traced: Traced
) -> None:
    child = await a_client(
        store,
        traced.tracing,
        a_start("INNER"),
        a_job("INNER", "END", "weigh"),
        an_end(),
        key="child",
    )
    client = await a_client(
        store,
        traced.tracing,
        a_start("CALL"),
        a_node("CALL", "CALL_ACTIVITY_COORDINATOR", "NEWS", calledElement="child"),
        a_node(
            "NEWS",
            "EVENT_CATCHER",
            "AFTER",
            catchType="STANDALONE",
            providerType="STATIC",
            staticKey="news",
        ),
        a_job("AFTER", "END", "pack"),
        an_end(),
    )
    await client.start("parcel", "P-1")
    await work(child, store)

    await client.correlate("news")
    await work(client, store)

    spans = traced.spans
    assert causes(spans["process AFTER"]) == [id_of(spans["deliver NEWS"])]
    assert "process INNER" in spans
    assert_one_trace(traced)


async def test_a_kept_message_links_its_sender_with_its_receiver(
    store: MongoStore, traced: Traced
) -> None:
    catch = a_node(
        "NEWS",
        "EVENT_CATCHER",
        "AFTER",
        catchType="STANDALONE",
        providerType="STATIC",
        staticKey="news",
    )
    client = await a_client(
        store, traced.tracing, a_start("NEWS"), catch, a_job("AFTER", "END", "weigh"), an_end()
    )
    await client.correlate("news", keep_for=LOCK)
    instance = await client.start("parcel", "P-1")

    await work(client, store)
    await client.wait_for_end(instance.id, timeout_s=0)

    spans = traced.spans
    delivery = spans["process KEPT_MESSAGE"]
    assert causes(delivery) == [id_of(spans["keep message"]), id_of(spans["start parcel"])]
    assert causes(spans["process AFTER"]) == [id_of(delivery)]


async def test_an_operation_belongs_to_the_trace_of_its_caller(
    store: MongoStore, traced: Traced
) -> None:
    client = await a_client(
        store,
        traced.tracing,
        a_start("CONFIRM"),
        a_node("CONFIRM", "EXTERNAL_TASK", "AFTER"),
        a_job("AFTER", "END", "weigh"),
        an_end(),
    )
    await client.start("parcel", "P-1")
    (task,) = (await client.list_external_tasks()).items
    caller = trace.NonRecordingSpan(
        trace.SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=trace.TraceFlags(1))
    )

    with trace.use_span(caller):
        await client.complete(task.id)
    await work(client, store)

    spans = traced.spans
    complete, after = spans["complete CONFIRM"], spans["process AFTER"]
    assert causes(complete) == [id_of(spans["start parcel"])]
    assert complete.parent is not None
    assert complete.parent.span_id == 0xDEF
    assert after.context is not None
    assert after.context.trace_id == 0xABC


async def test_who_makes_no_spans_hands_the_context_on(store: MongoStore, traced: Traced) -> None:
    nodes = (
        a_start("CONFIRM"),
        a_node("CONFIRM", "EXTERNAL_TASK", "A"),
        a_job("A", "B", "weigh"),
        a_job("B", "END", "weigh"),
        an_end(),
    )
    with_spans = await a_client(store, traced.tracing, *nodes)
    without = Kikwiflow(store, handlers=HANDLERS, tracing=NO_TRACING)
    await with_spans.start("parcel", "P-1")
    (task,) = (await without.list_external_tasks()).items

    await without.complete(task.id)
    (row,) = (await without.list_tasks()).items
    claimed = await claim_next(store, without.new_invoker().capabilities)
    assert claimed is not None
    report = StepReport(SystemClock(), Metrics(CollectorRegistry(), version="1", instance="w"))
    await execute_task(
        without.services,
        without.new_invoker(),
        claimed,
        lambda unit: store.runtime.commit(report.traced(claimed, unit)),
    )
    await work(with_spans, store)

    assert row.traceparent == task.traceparent is not None
    assert causes(traced.spans["process B"]) == [id_of(traced.spans["start parcel"])]


async def test_a_report_of_an_external_worker_goes_on_with_the_trace(
    store: MongoStore, traced: Traced
) -> None:
    client = await a_client(
        store,
        traced.tracing,
        a_start("BOOK"),
        a_node("BOOK", "EXTERNAL_TASK", "AFTER", extensionProperties={"kikwiflow.topic": "book"}),
        a_job("AFTER", "END", "weigh"),
        an_end(),
    )
    await client.start("parcel", "P-1")
    (fetched,) = await external_workers.fetch(
        client.services, actor="java", worker_id="java-1", topics=("book",), lock=LOCK, limit=1
    )

    await external_workers.complete(client.services, fetched.claim, variables={})
    await work(client, store)

    spans = traced.spans
    assert causes(spans["report BOOK"]) == [id_of(spans["start parcel"])]
    assert causes(spans["process AFTER"]) == [id_of(spans["report BOOK"])]


async def test_a_failure_that_opens_an_incident_is_recorded(
    store: MongoStore, traced: Traced
) -> None:
    client = await a_client(
        store, traced.tracing, a_start("A"), a_job("A", "END", "refuse"), an_end()
    )
    await client.start("parcel", "P-1")

    await work(client, store)

    span = traced.spans["process A"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ProcessError"
    assert span.attributes["kikwiflow.outcome"] == "incident_opened"


@pytest.mark.parametrize("header", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
async def test_a_context_that_names_no_span_is_none(traced: Traced, header: str) -> None:
    traced.tracing.link(header)
    with traced.tracing.span("work", SpanKind.SEND, cause=header):
        pass

    assert traced.spans["work"].parent is None
