"""Which index leads to what somebody looks for, and what is left to be tested row by row."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import prod
from typing import Any

from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.store.mongo.driver import Collection, Document
from kikwiflow_worker.store.mongo.keyset import Order
from kikwiflow_worker.store.mongo.windows import MAX_RANGES, Look, every


@dataclass(frozen=True, slots=True)
class Condition:
    """What one field must be.

    Attributes:
        ranges: How many ranges of an index hold that.
        is_in_keys: Whether the keys of an index tell; they do not tell a field that is null from one that is not there.
    """

    wanted: Any
    ranges: int = 1
    is_in_keys: bool = True


Conditions = Mapping[str, Condition]
"""By stored field name."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the rows must be.

    Attributes:
        conditions: On fields.
        defaults: On fields that are not asked for but lead an index; every row meets them.
        span: The range of what orders the list.
    """

    conditions: Conditions
    defaults: Conditions = field(default_factory=dict)
    span: Document = field(default_factory=dict)

    def leading(self) -> Conditions:
        """Return what an index may be entered with."""
        return {**self.defaults, **self.conditions}

    def also(self, conditions: Conditions) -> "Wanted":
        """Return it with further conditions."""
        return replace(self, conditions={**self.conditions, **conditions})


@dataclass(frozen=True, slots=True)
class Way:
    """An index that may lead to rows.

    Attributes:
        lead: The fields before the one that orders the list; it leads if all of them are known.
        tail: Fields behind that one: decided by the keys, but no way in.
    """

    index: str
    lead: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()

    def leads_to(self, wanted: Wanted) -> bool:
        """Return whether the index can be entered, with few enough ranges."""
        leading = wanted.leading()
        if not all(name in leading for name in self.lead):
            return False
        return prod(leading[name].ranges for name in self.lead) <= MAX_RANGES

    def look(self, collection: Collection, order: Order, wanted: Wanted) -> Look:
        """Return the look through this index."""
        others = [name for name in wanted.conditions if name not in (*self.lead, *self.tail)]
        return Look(
            collection=collection,
            index=self.index,
            order=order,
            found=every(_filter(wanted.leading(), self.lead), wanted.span),
            tail=_filter(wanted.conditions, self.tail),
            rest=_filter(wanted.conditions, others),
            is_covered=all(
                wanted.leading()[name].is_in_keys
                for name in (*self.lead, *self.tail)
                if name in wanted.leading()
            ),
        )


def choose(ways: Sequence[Way], wanted: Wanted) -> Way:
    """Return the first way that leads to what is asked for; the last one always does."""
    return next((way for way in ways if way.leads_to(wanted)), ways[-1])


def given(**fields: str | None) -> dict[str, Condition]:
    """Return conditions for the texts that are given; each is a text, so none is an operator."""
    check_texts(**fields)
    return {name: Condition(value) for name, value in fields.items() if value is not None}


def among(**fields: Iterable[str]) -> dict[str, Condition]:
    """Return conditions for fields that must be one of some texts; no texts, no condition."""
    conditions = {}
    for name, values in fields.items():
        texts = sorted(set(values))
        for text in texts:
            check_texts(**{name: text})
        if texts:
            conditions[name] = one_of(texts)
    return conditions


def one_of(values: Sequence[str]) -> Condition:
    """Return the condition to be one of ``values``, which are not empty."""
    if len(values) == 1:
        return Condition(values[0])
    return Condition({"$in": list(values)}, len(values))


def within(after: datetime | None, before: datetime | None) -> Document:
    """Return the condition for an instant from ``after`` on and before ``before``, where they are given."""
    bounds = {"$gte": after, "$lt": before}
    return {operator: at for operator, at in bounds.items() if at is not None}


def _filter(conditions: Conditions, names: Iterable[str]) -> Document:
    return {name: conditions[name].wanted for name in names if name in conditions}
