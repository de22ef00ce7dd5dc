"""What the engine asks for, and what it is told: the only contact between a step and user code."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from kikwiflow_worker.handler import CorrelationItem, StepView
from kikwiflow_worker.model.capability import Capability
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.texts import storable
from kikwiflow_worker.model.unit_of_work import UnitOfWork
from kikwiflow_worker.model.variables import Value, VariableChange, Variables


@dataclass(frozen=True, slots=True)
class CallHandler:
    """Run a task handler; answer with ``HandlerReturned`` or ``Raised``.

    Attributes:
        variables: What the handler sees.
        transient: The names of those that are never stored.
    """

    capability: Capability
    view: StepView
    variables: Variables
    transient: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AskAnswer:
    """Ask an answer provider; answer with ``Answered`` (text or None) or ``Raised``."""

    capability: Capability
    view: StepView
    variables: Variables


@dataclass(frozen=True, slots=True)
class AskDueDate:
    """Ask a due-date provider; answer with ``DueDateGiven`` or ``Raised``."""

    capability: Capability
    view: StepView
    variables: Variables


@dataclass(frozen=True, slots=True)
class AskCorrelationKeys:
    """Ask a correlation-keys provider; answer with ``KeysGiven`` or ``Raised``."""

    capability: Capability
    view: StepView
    variables: Variables


@dataclass(frozen=True, slots=True)
class Deliver:
    """Deliver a message that a thrower throws; answer with ``Delivered``, or ``NobodyWaits``.

    Attributes:
        taken: External tasks that this step ends itself.
    """

    key: str
    tenant_id: str | None
    taken: frozenset[str]


@dataclass(frozen=True, slots=True)
class FindDefinition:
    """Find the latest version of a definition; answer with ``DefinitionFound`` (None if there is none)."""

    key: str


UserCode: TypeAlias = CallHandler | AskAnswer | AskDueDate | AskCorrelationKeys
"""What only user code can answer."""

Effect: TypeAlias = UserCode | Deliver | FindDefinition


class FailureKind(StrEnum):
    """How a failure is treated: see ``engine.retries``."""

    TECHNICAL = "technical"
    BUSINESS = "business"
    FATAL = "fatal"
    RETRY_LATER = "retry_later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong in a step, as plain data.

    Attributes:
        error_type: The exception's class name.
        code: The business error's code.
        delay: How long to wait, for RETRY_LATER.
        cause: The exception itself, for callers that want to raise it; never stored.
    """

    kind: FailureKind
    error_type: str
    message: str
    stack_trace: str = ""
    code: str | None = None
    delay: timedelta = timedelta(0)
    cause: BaseException | None = field(default=None, compare=False)


# Replies of user code say ``at`` which time the database had then: what follows is counted from there.


@dataclass(frozen=True, slots=True)
class HandlerReturned:
    """The handler is done; ``transient`` are all variables that stay in memory for the rest of this run."""

    changes: tuple[VariableChange, ...] = ()
    transient: Mapping[str, Value] = field(default_factory=dict)
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer provider's answer as text; None takes the flow that handles null."""

    answer: str | None
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DueDateGiven:
    """The due-date provider's answer: an ISO-8601 text, an instant, or a length of time from now."""

    value: str | datetime | timedelta
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KeysGiven:
    """The provider's correlation keys with their labels."""

    items: tuple[CorrelationItem, ...]
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """A waiting instance has taken the message; ``unit`` is what that changes, to be committed with the throw."""

    task_id: str
    unit: UnitOfWork


@dataclass(frozen=True, slots=True)
class NobodyWaits:
    """No instance waits for the key."""


@dataclass(frozen=True, slots=True)
class DefinitionFound:
    """The latest version, if there is one, and whether it must not be started now."""

    definition: ProcessDefinition | None
    is_suspended: bool = False


@dataclass(frozen=True, slots=True)
class Raised:
    """User code raised, or ran out of time.

    Attributes:
        changes: What a handler changed before; kept only if a boundary error handler takes over.
        transient: All transient variables at that moment.
    """

    failure: Failure
    changes: tuple[VariableChange, ...] = ()
    transient: Mapping[str, Value] = field(default_factory=dict)
    at: datetime | None = None


UserReply: TypeAlias = HandlerReturned | Answered | DueDateGiven | KeysGiven | Raised
"""What user code answers."""

Reply: TypeAlias = UserReply | Delivered | NobodyWaits | DefinitionFound


def fatal_failure(error: Exception, *, stack_trace: str = "") -> Failure:
    """Return the failure for an error that no repetition heals: a person has to change a variable or the definition."""
    return Failure(
        kind=FailureKind.FATAL,
        error_type=type(error).__name__,
        message=storable(str(error)),
        stack_trace=storable(stack_trace),
        cause=error,
    )


def technical_failure(error_type: str, message: str) -> Failure:
    """Return a failure of the engine's own that another attempt may heal."""
    return Failure(kind=FailureKind.TECHNICAL, error_type=error_type, message=message)


def waiting_failure(error_type: str, message: str, delay: timedelta) -> Failure:
    """Return a failure that is tried again after ``delay`` and uses no attempt."""
    return Failure(
        kind=FailureKind.RETRY_LATER, error_type=error_type, message=message, delay=delay
    )
