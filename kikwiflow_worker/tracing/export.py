"""Where spans go."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.tracing.protocol import NO_TRACING, Tracing


class TraceExport(StrEnum):
    """Where spans go.

    OFF makes none. PROVIDER leaves it to what is set up around the process, such as by ``opentelemetry-instrument``. OTLP
    sends them over HTTP to where the ``OTEL_EXPORTER_OTLP_*`` variables say, LINES writes each as a line of JSON to
    standard error.
    """

    OFF = "off"
    PROVIDER = "provider"
    OTLP = "otlp"
    LINES = "lines"


@contextmanager
def tracing_to(
    export: TraceExport, *, service: str, version: str, instance: str | None = None
) -> Iterator[Tracing]:
    """Return what makes spans for the block, and send what is left at its end.

    Open it before a client of the database: the driver's own spans, where its instrumentation is installed, are of the
    clients that are opened after it.

    Args:
        service: What kind of process this is, as ``service.name``.
        instance: Which of them, as ``service.instance.id``; by default there is only one.

    Raises:
        ConfigurationError: The extra is not installed.
    """
    if export is TraceExport.OFF:
        yield NO_TRACING
        return
    try:
        from kikwiflow_worker.tracing import otel  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"traces = {export.value!r} needs the package {error.name}: pip install 'kikwiflow-worker[otel]', or set traces to off"
        ) from error
    if export is TraceExport.PROVIDER:
        yield otel.OpenTelemetryTracing(version=version)
        return
    exporter = otel.otlp_exporter() if export is TraceExport.OTLP else otel.line_exporter()
    provider = otel.set_up_provider(exporter, service=service, instance=instance, version=version)
    otel.instrument_driver(provider)
    try:
        yield otel.OpenTelemetryTracing(version=version, provider=provider)
    finally:
        provider.shutdown()
