"""Tracing by OpenTelemetry; the only module that imports it (the extra ``otel``)."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TextIO

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Link, SpanContext, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kikwiflow_worker.tracing.protocol import Span, SpanKind

_HEADER = "traceparent"
_KINDS = {
    SpanKind.PROCESS: trace.SpanKind.CONSUMER,
    SpanKind.SEND: trace.SpanKind.PRODUCER,
    SpanKind.REQUEST: trace.SpanKind.SERVER,
}
_WRITTEN_ONLY = TraceContextTextMapPropagator()


class OpenTelemetryTracing:
    """Makes spans with a provider.

    Args:
        provider: None is the one that the process has set up, by ``opentelemetry-instrument`` for instance.
    """

    def __init__(self, *, version: str, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("kikwiflow_worker", version, provider)

    @contextmanager
    def span(
        self,
        name: str,
        kind: SpanKind,
        *,
        cause: str | None = None,
        attributes: Mapping[str, str | int] | None = None,
    ) -> Iterator[Span]:
        """Open a span around a block; see ``Tracing.span``."""
        led_here = _context_of(cause)
        around = trace.get_current_span().get_span_context().is_valid
        parent = (
            None if around or led_here is None else trace.set_span_in_context(_remote(led_here))
        )
        with self._tracer.start_as_current_span(
            name,
            parent,
            _KINDS[kind],
            attributes,
            links=[Link(led_here)]
            if led_here is not None and kind is not SpanKind.REQUEST
            else None,
        ) as span:
            yield _Span(span)

    def link(self, cause: str | None) -> None:
        """Link the span around to one more cause; see ``Tracing.link``."""
        led_here = _context_of(cause)
        if led_here is not None:
            trace.get_current_span().add_link(led_here)

    def current(self) -> str | None:
        """Return the context of the span around; see ``Tracing.current``."""
        carrier: dict[str, str] = {}
        _WRITTEN_ONLY.inject(carrier)
        return carrier.get(_HEADER)


class _Span:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    @property
    def trace_id(self) -> str | None:
        found = self._span.get_span_context()
        return trace.format_trace_id(found.trace_id) if found.is_valid else None

    def note(self, attributes: Mapping[str, str | int]) -> None:
        self._span.set_attributes(attributes)

    def failed(self, error_type: str, message: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, error_type))
        self._span.set_attribute("error.type", error_type)
        self._span.add_event(
            "exception", {"exception.type": error_type, "exception.message": message}
        )


def _context_of(traceparent: str | None) -> SpanContext | None:
    """Return the span that a context names; None if it names none, such as a header that somebody made up."""
    if traceparent is None:
        return None
    read = _WRITTEN_ONLY.extract({_HEADER: traceparent}, contexts.Context())
    found = trace.get_current_span(read).get_span_context()
    return found if found.is_valid else None


def _remote(context: SpanContext) -> trace.Span:
    return trace.NonRecordingSpan(context)


def set_up_provider(
    exporter: SpanExporter, *, service: str, instance: str | None, version: str
) -> TracerProvider:
    """Set up the provider of this process, so that handlers use it too; it sends spans to ``exporter`` in the background.

    ``OTEL_SERVICE_NAME`` wins over ``service``.
    """
    attributes = {
        "service.name": os.environ.get("OTEL_SERVICE_NAME", service),
        "service.version": version,
        **({"service.instance.id": instance} if instance else {}),
    }
    provider = TracerProvider(resource=Resource.create(attributes))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def otlp_exporter() -> SpanExporter:
    """Return what sends spans by OTLP over HTTP, to where the ``OTEL_EXPORTER_OTLP_*`` variables say."""
    return OTLPSpanExporter()


def line_exporter(out: TextIO | None = None) -> SpanExporter:
    """Return what writes each span as a line of JSON, to standard error by default."""
    return ConsoleSpanExporter(out=out or sys.stderr, formatter=_line)


def instrument_driver(provider: TracerProvider) -> bool:
    """Let PyMongo's commands be spans too if its instrumentation is installed; return whether it is."""
    if find_spec("opentelemetry.instrumentation.pymongo") is None:
        return False
    from opentelemetry.instrumentation.pymongo import PymongoInstrumentor  # noqa: PLC0415 - optional

    PymongoInstrumentor().instrument(tracer_provider=provider)
    return True


def _line(span: ReadableSpan) -> str:
    return str(span.to_json(indent=None)) + "\n"
