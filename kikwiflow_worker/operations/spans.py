"""The spans of operations and steps, named as the messaging conventions of OpenTelemetry propose."""

from collections.abc import Mapping
from contextlib import AbstractContextManager

from kikwiflow_worker.model.runtime import ClaimedTask, ExecutableTask, ExternalTask
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.tracing.protocol import Span, SpanKind, Tracing

_SYSTEM = "kikwiflow"


def sending(
    services: Services, operation: str, task: ExecutableTask | ExternalTask
) -> AbstractContextManager[Span]:
    """Open a span around an operation that ends the wait of a task, and lets what follows begin."""
    attributes = {
        **destination(task.node_id, SpanKind.SEND, operation),
        "kikwiflow.instance.id": task.instance_id,
        "kikwiflow.node.id": task.node_id,
        "kikwiflow.task.id": task.id,
    }
    return services.tracing.span(
        f"{operation} {task.node_id}", SpanKind.SEND, cause=task.traceparent, attributes=attributes
    )


def starting(services: Services, key: str) -> AbstractContextManager[Span]:
    """Open a span around the start of an instance."""
    return services.tracing.span(
        f"start {key}", SpanKind.SEND, attributes=destination(key, SpanKind.SEND, "start")
    )


def keeping_message(services: Services) -> AbstractContextManager[Span]:
    """Open a span around the keeping of a message; its key stays out of it, which is a value."""
    return services.tracing.span(
        "keep message", SpanKind.SEND, attributes=destination("message", SpanKind.SEND, "keep")
    )


def processing(tracing: Tracing, claimed: ClaimedTask) -> AbstractContextManager[Span]:
    """Open a span around the run of a claimed task, linked to the span in which the task was created."""
    task, instance = claimed.task, claimed.instance
    # Without an instance the node names a message; a name for each would have no end.
    node = task.node_id if instance else task.type.value
    attributes: dict[str, str | int] = {
        **destination(node, SpanKind.PROCESS, "process"),
        "kikwiflow.task.id": task.id,
        "kikwiflow.task.type": task.type.value,
        "kikwiflow.task.attempt": task.attempts + 1,
        "kikwiflow.lease.epoch": claimed.claim.epoch,
        "kikwiflow.worker.id": claimed.claim.worker_id,
    }
    if instance is not None:
        attributes |= {
            "kikwiflow.instance.id": instance.id,
            "kikwiflow.definition.key": instance.definition_key,
            "kikwiflow.definition.version": instance.definition_version,
            "kikwiflow.node.id": task.node_id,
        }
    return tracing.span(
        f"process {node}", SpanKind.PROCESS, cause=task.traceparent, attributes=attributes
    )


def destination(name: str, kind: SpanKind, operation: str) -> Mapping[str, str]:
    """Return the attributes that say what is done with which node, definition or kind of task."""
    return {
        "messaging.system": _SYSTEM,
        "messaging.operation.type": kind.value,
        "messaging.operation.name": operation,
        "messaging.destination.name": name,
    }
