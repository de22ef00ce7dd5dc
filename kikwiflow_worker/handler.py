"""What authors of handlers import.

    from kikwiflow_worker.handler import ExecutionContext, ProcessError, task_handler

    @task_handler("calculateRisk")
    async def calculate_risk(ctx: ExecutionContext) -> None:
        ctx.set("riskScore", await score(ctx["customerId"], key=ctx.idempotency_key))

A handler is a plain function, ``async`` or not; one that is not runs in a thread. It is found by its exact name: the
definition's ``executor`` or ``providerBean``. It may run more than once for one step (design I4): pass
``ctx.idempotency_key`` to whatever it changes outside.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import TypeVar, overload

from kikwiflow_worker.errors import VariableError
from kikwiflow_worker.model.capability import Capability, HandlerKind
from kikwiflow_worker.model.variables import (
    LIST_ITEM_BYTES,
    AppendToVariable,
    IncrementVariable,
    SetVariable,
    UnsetVariable,
    Value,
    VariableChange,
    Variables,
    apply_change,
    check_name,
    check_size,
    normalize,
    size_of,
)

T = TypeVar("T")

_MARK = "__kikwiflow_handler__"


@dataclass(frozen=True, slots=True)
class CorrelationItem:
    """One correlation key, and the label that people see in its place."""

    key: str
    display_name: str


class HandlerSignal(Exception):  # noqa: N818 - these are requests of a handler, not errors of the engine
    """The base of what a handler may raise to ask for something."""


class ProcessError(HandlerSignal):
    """A business error: it goes to the nearest boundary error handler that matches, else it becomes an incident at once.

    Attributes:
        code: Compared with a boundary error handler's ``errorCode``.
    """

    def __init__(self, code: str, message: str = "") -> None:
        self.code = code
        super().__init__(message or code)


class RetryLater(HandlerSignal):
    """Run this step again after ``delay``, without using one of its attempts."""

    def __init__(self, delay: timedelta, reason: str = "") -> None:
        if delay < timedelta(0):
            raise ValueError("RetryLater needs a delay that is not negative")
        self.delay = delay
        super().__init__(reason or f"retry in {delay}")


class Fatal(HandlerSignal):
    """No further attempt can help: open an incident at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """What a step may know about where it runs; all of it is read-only.

    Attributes:
        idempotency_key: The same for every attempt of this visit to the node, and for no other visit (protocol R5).
        attempt: 1 for the first.
        extension_properties: The node's, as in the definition.
    """

    instance_id: str
    business_key: str
    business_value: Decimal | None
    tenant_id: str | None
    definition_key: str
    definition_version: int
    node_id: str
    node_name: str | None
    attempt: int
    idempotency_key: str
    extension_properties: Mapping[str, str] = field(default_factory=dict)


class EvaluationContext(Mapping[str, Value]):
    """What a provider sees: the variables, read-only, and where it runs.

    The context is itself the mapping of the instance's variables.
    """

    def __init__(self, view: StepView, variables: Variables) -> None:
        self.view = view
        """Where this step runs."""
        self._variables = dict(variables)
        self._copied: set[str] = set()

    def __getitem__(self, name: str) -> Value:
        # A list or dict belongs to the engine: changing it in place would change nothing that is stored. So this step
        # gets a copy, but only of what it looks at.
        if name not in self._copied:
            self._variables[name] = _copy(self._variables[name])
            self._copied.add(name)
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} node={self.view.node_id} instance={self.view.instance_id}>"

    @property
    def variables(self) -> Variables:
        """A read-only view of all variables."""
        return MappingProxyType(self)

    @property
    def instance_id(self) -> str:
        """The id of the process instance."""
        return self.view.instance_id

    @property
    def business_key(self) -> str:
        """The business key that the instance was started with."""
        return self.view.business_key

    @property
    def tenant_id(self) -> str | None:
        """The tenant of the instance, if it has one."""
        return self.view.tenant_id

    @property
    def node_id(self) -> str:
        """The id of the node that is being run."""
        return self.view.node_id

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.view.attempt

    @property
    def idempotency_key(self) -> str:
        """A key for side effects: equal for all attempts of this step, different for any other."""
        return self.view.idempotency_key


class ExecutionContext(EvaluationContext):
    """What a task handler sees, and how it changes variables.

    Changes are visible at once to this handler, and stored together with the end of the step; a step that fails stores
    none of them.
    """

    def __init__(
        self, view: StepView, variables: Variables, transient: Collection[str] = ()
    ) -> None:
        super().__init__(view, variables)
        self._changes: list[VariableChange] = []
        self._transient = set(transient)
        self._list_sizes: dict[str, int] = {}
        self._is_cancelled = False

    def set(self, name: str, value: object, *, transient: bool = False) -> None:
        """Give a variable a value.

        Args:
            name: At most 255 characters; dots and dollar signs are fine.
            value: None, bool, int (64 bits), float, str, bytes, an aware datetime (kept to the millisecond), Decimal,
                UUID, list or dict with text keys; enums, dataclasses and pydantic models are converted.
            transient: Keep it for the rest of this run in memory and never store it.

        Raises:
            VariableError: The value cannot be stored. Nothing is changed.
        """
        normal = normalize(name, value)
        (self._transient.add if transient else self._transient.discard)(name)
        self._apply(SetVariable(name, normal))

    def unset(self, name: str) -> None:
        """Remove a variable; removing one that does not exist is no error."""
        check_name(name)
        self._transient.discard(name)
        self._apply(UnsetVariable(name))

    def increment(self, name: str, by: float = 1) -> None:
        """Add to a number (a missing one counts as 0). Parallel steps never lose an increment.

        Raises:
            VariableError: The variable does not hold a number.
        """
        check_name(name)
        if isinstance(by, bool):
            raise VariableError(name, "cannot be incremented by a truth value")
        self._apply(IncrementVariable(name, by))

    def append(self, name: str, value: object) -> None:
        """Append to a list (a missing one counts as empty). Parallel steps never lose an element.

        Raises:
            VariableError: The variable does not hold a list, the value cannot be stored, or the list would be too large.
        """
        normal = normalize(name, value)
        # Counted along: the size of the whole list anew for each element would be quadratic.
        before = self._list_sizes.get(name) or size_of(self._variables.get(name, []))
        size = before + size_of(normal) + LIST_ITEM_BYTES
        check_size(name, size)
        self._apply(AppendToVariable(name, normal))
        self._list_sizes[name] = size

    @property
    def is_cancelled(self) -> bool:
        """Whether this step no longer matters: its claim is lost or the worker stops. Long handlers should look."""
        return self._is_cancelled

    @property
    def changes(self) -> tuple[VariableChange, ...]:
        """The changes so far, in order, without those of transient variables."""
        return tuple(self._changes)

    @property
    def transient(self) -> dict[str, Value]:
        """All transient variables as they are now."""
        return {name: self._variables[name] for name in self._transient if name in self._variables}

    def cancel(self) -> None:
        """Tell the handler that its step no longer matters; called by the worker, from any thread."""
        self._is_cancelled = True

    def _apply(self, change: VariableChange) -> None:
        self._list_sizes.pop(change.name, None)
        apply_change(self._variables, change)
        self._copied.discard(change.name)
        if change.name not in self._transient:
            self._changes.append(change)


def _copy(value: Value) -> Value:
    match value:
        case list():
            return [_copy(item) for item in value]
        case dict():
            return {key: _copy(item) for key, item in value.items()}
        case _:
            return value


TaskHandler = Callable[
    [ExecutionContext], Awaitable[Mapping[str, object] | None] | Mapping[str, object] | None
]
AnswerProvider = Callable[[EvaluationContext], Awaitable[object] | object]
DueDateProvider = Callable[
    [EvaluationContext], Awaitable[str | datetime | timedelta] | str | datetime | timedelta
]


CorrelationKeysProvider = Callable[
    [EvaluationContext],
    Awaitable[Iterable[CorrelationItem | str]] | Iterable[CorrelationItem | str],
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSpec:
    """What a decorator notes on a function.

    Attributes:
        timeout_s: Seconds after which an attempt counts as failed; None is never. A handler that is not ``async``
            cannot be stopped: its thread goes on, its result is ignored.
    """

    capability: Capability
    timeout_s: float | None = None


@overload
def task_handler(name: str, *, timeout_s: float | None = None) -> Callable[[T], T]: ...
@overload
def task_handler(name: T) -> T: ...
def task_handler(name: object, *, timeout_s: float | None = None) -> object:
    """Mark a function as the handler of executable tasks whose ``executor`` is ``name``.

    It takes an ``ExecutionContext``. A mapping that it returns is set as variables. Without a name
    (``@task_handler``) the function's own name is used.
    """
    return _marker(HandlerKind.TASK_HANDLER, name, timeout_s)


@overload
def answer_provider(name: str, *, timeout_s: float | None = None) -> Callable[[T], T]: ...
@overload
def answer_provider(name: T) -> T: ...
def answer_provider(name: object, *, timeout_s: float | None = None) -> object:
    """Mark a function as the answer provider of exclusive gateways whose ``providerBean`` is ``name``.

    It takes an ``EvaluationContext`` and returns the answer; None takes the flow with ``handlesNull``.
    """
    return _marker(HandlerKind.ANSWER_PROVIDER, name, timeout_s)


@overload
def due_date_provider(name: str, *, timeout_s: float | None = None) -> Callable[[T], T]: ...
@overload
def due_date_provider(name: T) -> T: ...
def due_date_provider(name: object, *, timeout_s: float | None = None) -> object:
    """Mark a function as the due-date provider of timers whose ``providerBean`` is ``name``.

    It takes an ``EvaluationContext`` and returns an ISO-8601 instant or duration, an aware ``datetime`` or a
    ``timedelta``.
    """
    return _marker(HandlerKind.DUE_DATE_PROVIDER, name, timeout_s)


@overload
def correlation_keys_provider(name: str, *, timeout_s: float | None = None) -> Callable[[T], T]: ...
@overload
def correlation_keys_provider(name: T) -> T: ...
def correlation_keys_provider(name: object, *, timeout_s: float | None = None) -> object:
    """Mark a function as the provider of correlation keys for nodes whose ``providerBean`` is ``name``.

    It takes an ``EvaluationContext`` and returns a list of keys, as text or as ``CorrelationItem`` with a label.
    """
    return _marker(HandlerKind.CORRELATION_KEYS_PROVIDER, name, timeout_s)


def find_spec(candidate: object) -> HandlerSpec | None:
    """Return what a decorator noted on ``candidate``, or None if it is no handler."""
    spec = getattr(candidate, _MARK, None)
    return spec if isinstance(spec, HandlerSpec) else None


def _marker(kind: HandlerKind, name: object, timeout_s: float | None) -> object:
    if not isinstance(name, str):
        return _mark(name, HandlerSpec(capability=Capability(kind, getattr(name, "__name__", ""))))
    if not name.strip() or ":" in name:
        raise ValueError(f"{name!r} cannot name a {kind}: a name is not blank and has no colon")
    spec = HandlerSpec(capability=Capability(kind, name), timeout_s=timeout_s)
    return lambda function: _mark(function, spec)


def _mark(function: object, spec: HandlerSpec) -> object:
    if not callable(function):
        raise TypeError(f"only a function can be a {spec.capability.kind}, got {function!r}")
    setattr(function, _MARK, spec)
    return function
