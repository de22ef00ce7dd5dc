"""Holds what one instance did against the shape of its definition."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from tests.chaos.load_shape import Beside, Called, OneOf, Reminded, Row, Shape, Step
from tests.chaos.verify_effects import Calls, Steps
from tests.chaos.verify_report import Kind, Violation


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a trail: an outcome that was committed.

    Attributes:
        place: Its place in the trail, which is the order of the commits.
    """

    place: int
    node: str
    key: str
    call: str


@dataclass(slots=True)
class Children:
    """The children that an instance had of one definition.

    Attributes:
        total: The variable of the last one that completed.
        items: The elements for which one completed.
    """

    completed: int = 0
    cancelled: int = 0
    first_start: float = inf
    last_end: float = -inf
    total: float | None = None
    items: set[int] = field(default_factory=set)


Mark = tuple[float, str]
"""A place in the trail or a time, and the node that is there."""

NEVER: Mark = (inf, "")
NOT_YET: Mark = (-inf, "")


@dataclass(frozen=True, slots=True)
class Span:
    """From where to where a part reaches, in the trail and in time.

    Attributes:
        ran: Whether anything of it was committed.
        began: Whether a handler of it was called.
    """

    ran: bool = False
    began: bool = False
    first: Mark = NEVER
    last: Mark = NOT_YET
    started: Mark = NEVER
    ended: Mark = NOT_YET

    def with_(self, other: "Span") -> "Span":
        """Return the span of both."""
        return Span(
            self.ran or other.ran,
            self.began or other.began,
            min(self.first, other.first),
            max(self.last, other.last),
            min(self.started, other.started),
            max(self.ended, other.ended),
        )


@dataclass(slots=True)
class Inspector:
    """Walks through a shape and notes what does not fit.

    Args:
        where: The instance in words.
        is_complete: It has come to its end, so nothing may be missing.
        children: By the key of their definition.
    """

    where: str
    is_complete: bool
    children: Mapping[str, Children]
    violations: list[Violation] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    """The nodes of the shape."""

    _entries: dict[str, list[Entry]] = field(default_factory=dict)
    _calls: dict[str, list[Calls]] = field(default_factory=dict)

    def inspect(self, shape: Shape, entries: list[Entry], steps: Steps) -> None:
        """Note all that is wrong with the trail's ``entries`` and the handlers' ``steps``."""
        for entry in entries:
            self._entries.setdefault(entry.node, []).append(entry)
        for calls in steps.values():
            self._calls.setdefault(calls.node, []).append(calls)
        self._span(shape, needed=self.is_complete)
        for node in (self._entries.keys() | self._calls.keys()) - self.seen:
            self._note(Kind.OTHER, f"node {node} is not in the definition of {self.where}")

    def _note(self, kind: Kind, words: str) -> None:
        self.violations.append(Violation(kind, words))

    def _span(self, shape: Shape, *, needed: bool) -> Span:
        match shape:
            case Step():
                return self._step(shape, needed=needed)
            case Reminded():
                return self._reminded(shape)
            case Row(parts):
                return self._row(parts, needed=needed)
            case Beside(parts):
                span = Span()
                for part in parts:
                    span = span.with_(self._span(part, needed=needed))
                return span
            case OneOf(parts):
                return self._one_of(parts, needed=needed)
            case Called():
                return self._called(shape, needed=needed)

    def _step(self, step: Step, *, needed: bool) -> Span:
        self.seen.add(step.node)
        entries, calls = self._entries.get(step.node, []), self._calls.get(step.node, [])
        at = f"node {step.node} of {self.where}"
        if len(calls) > 1:
            self._note(Kind.DOUBLED, f"{at} ran under {len(calls)} idempotency keys, not one")
        if len(entries) > 1:
            keys = ", ".join(sorted({entry.key for entry in entries}))
            self._note(Kind.DOUBLED, f"{at} was committed {len(entries)} times, under {keys}")
        if needed and step.is_quiet and not any(each.ended for each in calls):
            self._note(Kind.LOST, f"{at} was passed, and its handler never ended")
        if needed and not step.is_quiet and not entries:
            ended = ", though its handler ended" if any(each.ended for each in calls) else ""
            self._note(Kind.LOST, f"{at} was never committed{ended}")
        if step.is_quiet and entries:
            self._note(Kind.OTHER, f"{at} is quiet, and is on the trail")
        ran = bool(entries) or (step.is_quiet and any(each.ended for each in calls))
        return self._span_of(step.node, entries, calls, ran=ran)

    def _reminded(self, reminded: Reminded) -> Span:
        self.seen.add(reminded.node)
        entries = self._entries.get(reminded.node, [])
        calls = self._calls.get(reminded.node, [])
        at = f"node {reminded.node} of {self.where}"
        if len(entries) > reminded.most:
            count = len(entries)
            self._note(
                Kind.DOUBLED,
                f"{at} was committed {count} times; its timer fires {reminded.most} times",
            )
        unsettled = sum(bool(each.ended) for each in calls) - len(entries)
        if self.is_complete and unsettled > 0:
            self._note(Kind.LOST, f"{at} ended {unsettled} times more than it was committed")
        return self._span_of(reminded.node, entries, calls, ran=bool(entries))

    def _span_of(self, node: str, entries: list[Entry], calls: list[Calls], *, ran: bool) -> Span:
        return Span(
            ran,
            bool(calls),
            min(((entry.place, node) for entry in entries), default=NEVER),
            max(((entry.place, node) for entry in entries), default=NOT_YET),
            min(((each.first_start, node) for each in calls), default=NEVER),
            max(((each.first_end, node) for each in calls if each.ended), default=NOT_YET),
        )

    def _row(self, parts: tuple[Shape, ...], *, needed: bool) -> Span:
        spans = [(part, self._span(part, needed=needed)) for part in parts]
        whole = Span()
        for index, (part, span) in enumerate(spans):
            self._compare(whole, span)
            if not needed and any(later.ran for _, later in spans[index + 1 :]):
                self._span(part, needed=True)
            # A reminder may still run beside what follows: only where it begins is bounded.
            begins = replace(span, ran=False, last=NOT_YET, ended=NOT_YET)
            whole = whole.with_(begins if isinstance(part, Reminded) else span)
        return whole

    def _compare(self, before: Span, after: Span) -> None:
        if after.first < before.last:
            self._note(
                Kind.OTHER,
                f"node {after.first[1]} of {self.where} was committed before "
                f"node {before.last[1]}, which comes first",
            )
        (started, late), (ended, early) = after.started, before.ended
        if started < ended:
            self._note(
                Kind.OTHER,
                f"node {late} of {self.where} began {ended - started:.6f} s before "
                f"node {early} had ended, which comes first",
            )

    def _one_of(self, parts: tuple[Shape, ...], *, needed: bool) -> Span:
        spans = [self._span(part, needed=False) for part in parts]
        ran = [part for part, span in zip(parts, spans, strict=True) if span.ran]
        names = " and ".join(self._name(part) for part in (ran or parts))
        if len(ran) > 1:
            self._note(Kind.DOUBLED, f"{names} of {self.where} both ran; only one can")
        if needed and not ran:
            self._note(Kind.LOST, f"neither {names} of {self.where} was committed")
        if needed and len(ran) == 1:
            self._span(ran[0], needed=True)
        for part, span in zip(parts, spans, strict=True):
            if needed and span.began and not span.ran:
                self._note(
                    Kind.OTHER, f"{self._name(part)} of {self.where} ran and was not the way taken"
                )
        whole = Span()
        for span in spans:
            whole = whole.with_(span) if span.ran else whole
        return whole

    def _called(self, called: Called, *, needed: bool) -> Span:
        found = self.children.get(called.key, Children())
        at = f"call activity {called.node} of {self.where}"
        if needed and not called.is_doomed and found.completed != called.count:
            kind = Kind.LOST if found.completed < called.count else Kind.DOUBLED
            self._note(kind, f"{at} has {found.completed} completed children, not {called.count}")
        if found.completed + found.cancelled > called.count:
            total = found.completed + found.cancelled
            self._note(Kind.DOUBLED, f"{at} had {total} children, not {called.count}")
        if called.is_doomed:
            return Span()
        return Span(started=(found.first_start, called.node), ended=(found.last_end, called.node))

    def _name(self, part: Shape) -> str:
        match part:
            case Step(node) | Reminded(node) | Called(node):
                return f"node {node}"
            case Row(parts) | Beside(parts) | OneOf(parts):
                return self._name(parts[-1])
