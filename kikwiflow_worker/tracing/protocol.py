"""What the worker and the operations need of tracing."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Protocol


class SpanKind(StrEnum):
    """What a span stands for, in the words of the messaging conventions.

    PROCESS is a step that a worker runs, SEND an operation that creates work, REQUEST an HTTP request that is answered.
    """

    PROCESS = "process"
    SEND = "send"
    REQUEST = "request"


class Span(Protocol):
    """Something that takes time, while it lasts."""

    @property
    def trace_id(self) -> str | None:
        """The trace that it belongs to, as 32 hexadecimal digits."""
        ...

    def note(self, attributes: Mapping[str, str | int]) -> None:
        """Add attributes."""
        ...

    def failed(self, error_type: str, message: str) -> None:
        """Note that it failed; its end is still that of the block."""
        ...


class Tracing(Protocol):
    """Makes spans.

    A context is a W3C ``traceparent``, which rows and messages carry from where they were created to where they are run.
    """

    def span(
        self,
        name: str,
        kind: SpanKind,
        *,
        cause: str | None = None,
        attributes: Mapping[str, str | int] | None = None,
    ) -> AbstractContextManager[Span]:
        """Open a span around a block; what raises there fails it.

        Args:
            cause: The context of what led to it. The span is linked to it, and belongs to the same trace unless another
                span is around it.
        """
        ...

    def link(self, cause: str | None) -> None:
        """Link the span around to one more cause; None is no cause."""
        ...

    def current(self) -> str | None:
        """Return the context of the span around, for what is created now; None if there is none."""
        ...


class _NoSpan:
    trace_id: str | None = None

    def note(self, attributes: Mapping[str, str | int]) -> None:
        """Do nothing."""

    def failed(self, error_type: str, message: str) -> None:
        """Do nothing."""


class _NoTracing:
    def __init__(self) -> None:
        self._block: AbstractContextManager[Span] = nullcontext(_NoSpan())

    def span(
        self,
        name: str,  # noqa: ARG002 - nothing is made of it
        kind: SpanKind,  # noqa: ARG002
        *,
        cause: str | None = None,  # noqa: ARG002
        attributes: Mapping[str, str | int] | None = None,  # noqa: ARG002
    ) -> AbstractContextManager[Span]:
        """Do nothing around the block."""
        return self._block

    def link(self, cause: str | None) -> None:
        """Do nothing."""

    def current(self) -> str | None:
        """Return None."""
        return None


NO_TRACING: Tracing = _NoTracing()
"""Makes no spans."""
