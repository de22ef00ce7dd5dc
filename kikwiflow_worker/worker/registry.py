"""Finding handlers: modules through entry points, functions by their decorators."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from kikwiflow_worker.errors import HandlerLoadError
from kikwiflow_worker.handler import HandlerSpec, find_spec
from kikwiflow_worker.model.capability import Capabilities, Capability

ENTRY_POINT_GROUP = "kikwiflow_worker.handlers"
"""Each entry names a module; its decorated functions are the handlers."""


@dataclass(frozen=True, slots=True)
class RegisteredHandler:
    """A function that can be called for a capability, and where it comes from.

    Attributes:
        is_coroutine: Whether it runs on the event loop; looked up once, since that takes longer than many a step.
    """

    spec: HandlerSpec
    function: Callable[..., object]
    origin: str
    is_coroutine: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_coroutine", inspect.iscoroutinefunction(self.function))

    @property
    def capability(self) -> Capability:
        """What definitions call it by."""
        return self.spec.capability


class HandlerRegistry:
    """The handlers and providers of this process, by kind and exact name; immutable."""

    def __init__(self, handlers: Iterable[RegisteredHandler] = ()) -> None:
        self._handlers: dict[Capability, RegisteredHandler] = {}
        problems: list[str] = []
        for handler in handlers:
            earlier = self._handlers.setdefault(handler.capability, handler)
            if earlier.function is not handler.function:
                problems.append(
                    f"{handler.capability} is defined by {earlier.origin} and by {handler.origin}"
                )
        if problems:
            raise HandlerLoadError(problems)
        self.capabilities = Capabilities(self._handlers)

    def find(self, capability: Capability) -> RegisteredHandler | None:
        """Return the handler for a capability."""
        return self._handlers.get(capability)

    def __iter__(self) -> Iterator[RegisteredHandler]:
        return iter(sorted(self._handlers.values(), key=lambda handler: str(handler.capability)))

    def __len__(self) -> int:
        return len(self._handlers)


def load_registry(only: Sequence[str] = ()) -> HandlerRegistry:
    """Load all handler modules that installed distributions offer.

    Args:
        only: Names of entry points, modules or distributions; empty loads all.

    Raises:
        HandlerLoadError: A module cannot be imported, a name is used twice, or a name in ``only`` is not installed. All
            problems are listed at once.
    """
    offered = list(entry_points(group=ENTRY_POINT_GROUP))
    chosen = [point for point in offered if not only or not _names(point).isdisjoint(only)]
    known: set[str] = set().union(*(_names(point) for point in offered))
    problems = [
        f"no installed distribution offers handlers named {name!r}; installed: {', '.join(sorted(known)) or 'none'}"
        for name in only
        if name not in known
    ]
    handlers: list[RegisteredHandler] = []
    for point in chosen:
        try:
            handlers += find_handlers(importlib.import_module(point.value), origin=_origin(point))
        except Exception as error:
            problems.append(f"{_origin(point)} cannot be imported: {type(error).__name__}: {error}")
    try:
        registry = HandlerRegistry(handlers)
    except HandlerLoadError as error:
        problems += error.problems
    if problems:
        raise HandlerLoadError(problems)
    return registry


def registry_of(sources: Iterable[ModuleType | Callable[..., object]]) -> HandlerRegistry:
    """Return the registry of the decorated functions given, or found in the modules given.

    Raises:
        HandlerLoadError: A name is used twice, or a function has no decorator.
    """
    handlers: list[RegisteredHandler] = []
    for source in sources:
        if isinstance(source, ModuleType):
            handlers += find_handlers(source, origin=f"module {source.__name__}")
            continue
        spec = find_spec(source)
        if spec is None:
            raise HandlerLoadError([f"{source!r} has no decorator such as @task_handler"])
        handlers.append(RegisteredHandler(spec, source, f"function {source.__qualname__}"))
    return HandlerRegistry(handlers)


def find_handlers(module: ModuleType, *, origin: str) -> list[RegisteredHandler]:
    """Return the decorated functions of a module."""
    found = []
    for function in vars(module).values():
        spec = find_spec(function)
        if spec is not None:
            found.append(RegisteredHandler(spec, function, origin))
    return found


def _names(point: EntryPoint) -> set[str]:
    names = {point.name, point.value}
    return names | {point.dist.name} if point.dist else names


def _origin(point: EntryPoint) -> str:
    dist = f"{point.dist.name} {point.dist.version}" if point.dist else "unknown distribution"
    return f"module {point.value} ({dist})"
