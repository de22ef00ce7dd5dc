"""What user code a step needs, and what user code a process has."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class HandlerKind(StrEnum):
    """The contracts that user code can fulfil."""

    TASK_HANDLER = "task_handler"
    ANSWER_PROVIDER = "answer_provider"
    DUE_DATE_PROVIDER = "due_date_provider"
    CORRELATION_KEYS_PROVIDER = "correlation_keys_provider"


@dataclass(frozen=True, slots=True)
class Capability:
    """One handler or provider, by kind and by the name that definitions use."""

    kind: HandlerKind
    name: str

    @property
    def stored(self) -> str:
        """The form kept in a task's ``handlerName``: a task handler's plain name, a provider's with its kind."""
        return self.name if self.kind is HandlerKind.TASK_HANDLER else f"{self.kind}:{self.name}"

    def __str__(self) -> str:
        """Return words for people, as ``task handler 'calculateRisk'``."""
        return f"{self.kind.replace('_', ' ')} {self.name!r}"


class Capabilities:
    """The set of handlers and providers that this process can run; immutable."""

    __slots__ = ("_known", "stored")

    def __init__(self, known: Iterable[Capability] = ()) -> None:
        self._known = frozenset(known)
        self.stored = frozenset(capability.stored for capability in self._known)
        """What the claim filter compares with a task's ``handlerName``."""

    def __contains__(self, capability: Capability) -> bool:
        """Return whether this process can run it."""
        return capability in self._known


NO_CAPABILITIES = Capabilities()
"""Of a process without handlers: every step that needs one becomes a task for a worker."""
