"""Process variables: which values can be stored, how large they are, and how they read as text.

A value is normalised once, when it is set, so that what a handler sees in the same step is what the database gives
back later: instants lose their microseconds and their zone, tuples become lists, enums their value, dataclasses and
pydantic models a mapping. What cannot be stored is refused then, by name.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Protocol, TypeAlias, runtime_checkable
from uuid import UUID

from kikwiflow_worker.errors import VariableError, VariableTooLargeError
from kikwiflow_worker.model.limits import (
    MAX_INSTANCE_BYTES,
    MAX_VALUE_DEPTH,
    MAX_VARIABLE_BYTES,
)
from kikwiflow_worker.model.texts import is_unicode

Value: TypeAlias = "bool | int | float | str | bytes | datetime | Decimal | UUID | list[Value] | dict[str, Value] | None"
Variables: TypeAlias = Mapping[str, Value]

LIST_ITEM_BYTES = 6
"""What an element of a list takes besides itself, about: its type and its index as text."""

_INT64 = range(-(2**63), 2**63)
_MAX_DECIMAL_DIGITS = 34


@runtime_checkable
class _PydanticModel(Protocol):
    def model_dump(self) -> dict[str, object]: ...


def normalize(name: str, value: object) -> Value:
    """Return ``value`` as it will be stored.

    Raises:
        VariableError: The name or the value cannot be stored; the message says which part and why.
        VariableTooLargeError: The value is larger than ``MAX_VARIABLE_BYTES``.
    """
    check_name(name)
    normal = _normal(name, value, "", 0)
    check_size(name, size_of(normal))
    return normal


def check_size(name: str, size: int) -> None:
    """Refuse a variable of ``size`` bytes.

    Raises:
        VariableTooLargeError: It is larger than ``MAX_VARIABLE_BYTES``.
    """
    if size > MAX_VARIABLE_BYTES:
        raise VariableTooLargeError(
            name,
            f"has {size:,} bytes, the limit is {MAX_VARIABLE_BYTES:,} (MAX_VARIABLE_BYTES); store it elsewhere and keep a reference",
        )


def normalize_all(values: Mapping[str, object]) -> dict[str, Value]:
    """Return all ``values`` as they will be stored.

    Raises:
        VariableError: One of them cannot be stored, or all together pass ``MAX_INSTANCE_BYTES``.
    """
    normal = {name: normalize(name, value) for name, value in values.items()}
    check_total(normal)
    return normal


def check_name(name: object) -> None:
    """Refuse a variable name that cannot be stored.

    Raises:
        VariableError: The name is not text, is empty, is longer than 255 characters, or is not valid Unicode.
    """
    if not isinstance(name, str) or not name:
        raise VariableError(str(name), "needs a name that is a non-empty text")
    if len(name) > 255 or "\0" in name or not is_unicode(name):
        raise VariableError(
            name[:40], "needs a name of at most 255 valid characters without the NUL character"
        )


def check_total(variables: Variables, *, before: Variables | None = None) -> None:
    """Refuse variables that are too large together.

    Args:
        before: What there was: parallel branches together may have passed the limit, and a step that adds nothing is
            let through.

    Raises:
        VariableTooLargeError: They pass ``MAX_INSTANCE_BYTES``; the largest variable is named.
    """
    sizes = _sizes(variables)
    total = sum(sizes.values())
    if total <= MAX_INSTANCE_BYTES:
        return
    if before is not None and total <= sum(_sizes(before).values()):
        return
    largest = max(sizes, key=lambda name: sizes[name])
    raise VariableTooLargeError(
        largest,
        f"is the largest of variables that have {total:,} bytes together, the limit of an instance is "
        f"{MAX_INSTANCE_BYTES:,} (MAX_INSTANCE_BYTES); unset what is no longer needed or keep references",
    )


def _sizes(variables: Variables) -> dict[str, int]:
    return {name: size_of(value) + len(name) * 2 for name, value in variables.items()}


def size_of(value: Value) -> int:
    """Return about how many bytes the value takes in the database; never less than a tenth below."""
    match value:
        case str():
            return len(value.encode("utf-8", "surrogatepass")) + 6
        case bytes():
            return len(value) + 6
        case list():
            return 8 + sum(size_of(item) + LIST_ITEM_BYTES for item in value)
        case dict():
            return 8 + sum(
                size_of(item) + len(key.encode("utf-8", "surrogatepass")) + 2
                for key, item in value.items()
            )
        case Decimal() | UUID():
            return 22
        case _:
            return 9


def to_text(value: Value) -> str | None:
    """Return the value as the Java engine writes it, or None for None.

    Gateways, correlation keys and timers compare and parse this text: ``true``, ``7``, ``50.0``, ``1.0E7``,
    ``[a, b]``, ``{k=v}`` (core reference 9.1, item 5).
    """
    return None if value is None else _text(value)


def _text(value: Value) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return _float_text(value)
        case datetime():
            precision = "milliseconds" if value.microsecond else "seconds"
            return value.isoformat(timespec=precision).replace("+00:00", "Z")
        case list():
            return "[" + ", ".join(_text(item) for item in value) + "]"
        case dict():
            return "{" + ", ".join(f"{key}={_text(item)}" for key, item in value.items()) + "}"
        case bytes():
            return value.hex()
        case _:
            return str(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else text + ".0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    shift = len(digits) - 1 + int(exponent)
    fraction = "".join(str(digit) for digit in digits[1:]) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{shift}"


def _normal(name: str, value: object, path: str, depth: int) -> Value:  # noqa: C901, PLR0912 - one case per type
    if depth > MAX_VALUE_DEPTH:
        raise VariableError(
            name, f"is nested deeper than {MAX_VALUE_DEPTH} levels (MAX_VALUE_DEPTH)"
        )
    match value:
        case None | bool():
            return value
        case Enum():
            return _normal(name, value.value, path, depth + 1)
        case int():
            if value not in _INT64:
                raise VariableError(
                    name,
                    f"holds a whole number outside 64 bits{_at(path)}; use a text or a Decimal",
                )
            return int(value)
        case float() | UUID() | bytes():
            return value
        case str():
            if not is_unicode(value):
                raise VariableError(name, f"holds a text that is not valid Unicode{_at(path)}")
            return str(value)
        case datetime():
            if value.tzinfo is None:
                raise VariableError(
                    name, f"holds an instant without a time zone{_at(path)}; use an aware datetime"
                )
            utc = value.astimezone(UTC)
            return utc.replace(microsecond=utc.microsecond // 1000 * 1000)
        case Decimal():
            return _normal_decimal(name, value, path)
        case bytearray() | memoryview():
            return bytes(value)
        case Mapping():
            return _normal_items(name, value.items(), path, depth)
        case list() | tuple():
            return [
                _normal(name, item, f"{path}[{index}]", depth + 1)
                for index, item in enumerate(value)
            ]
        case _PydanticModel():
            return _normal(name, value.model_dump(), path, depth + 1)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [
                (field.name, getattr(value, field.name)) for field in dataclasses.fields(value)
            ]
            return _normal_items(name, fields, path, depth)
        case _:
            raise VariableError(
                name,
                f"holds a {type(value).__qualname__}{_at(path)}, which cannot be stored; use None, bool, int, float, "
                "str, bytes, an aware datetime, Decimal, UUID, list or dict",
            )


def _normal_items(
    name: str, items: Iterable[tuple[object, object]], path: str, depth: int
) -> dict[str, Value]:
    normal: dict[str, Value] = {}
    for key, item in items:
        if not isinstance(key, str) or not is_unicode(key):
            raise VariableError(name, f"holds a dict whose key {key!r} is not a text{_at(path)}")
        normal[str(key)] = _normal(name, item, f"{path}.{key}", depth + 1)
    return normal


def _normal_decimal(name: str, value: Decimal, path: str) -> Decimal:
    if value.is_nan():  # of its kinds the database knows one
        return Decimal("NaN")
    if value.is_finite():
        digits = value.as_tuple()
        exponent = int(digits.exponent)
        if len(digits.digits) > _MAX_DECIMAL_DIGITS or not -6176 <= exponent <= 6111:
            raise VariableError(
                name, f"holds a Decimal beyond {_MAX_DECIMAL_DIGITS} digits{_at(path)}"
            )
    return value


def _at(path: str) -> str:
    return f" at {path}" if path else ""


class UnreadableVariables(Mapping[str, Value]):
    """Variables that this process cannot decrypt: their names are known, and what asks for a value gets the error.

    Attributes:
        stored: As the store has them, to write them elsewhere unchanged.
        error: Why they cannot be read.
    """

    def __init__(
        self, names: Iterable[str], stored: Mapping[str, object], error: Exception
    ) -> None:
        self._names = dict.fromkeys(names)
        self.stored = stored
        self.error = error

    def __getitem__(self, name: str) -> Value:
        if name not in self._names:
            raise KeyError(name)
        raise self.error

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def check_readable(variables: Variables) -> None:
    """Refuse to go on with variables that cannot be decrypted.

    Raises:
        EncryptionError: They cannot be.
    """
    if isinstance(variables, UnreadableVariables):
        raise variables.error


def readable(variables: Variables) -> dict[str, Value]:
    """Return a copy of ``variables``, for records that must not fail: empty if they cannot be read."""
    return {} if isinstance(variables, UnreadableVariables) else dict(variables)


@dataclasses.dataclass(frozen=True, slots=True)
class SetVariable:
    """Give a variable a value; the last commit wins (protocol R17)."""

    name: str
    value: Value


@dataclasses.dataclass(frozen=True, slots=True)
class UnsetVariable:
    """Remove a variable."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class IncrementVariable:
    """Add to a number, in the commit itself, so that parallel branches never lose an increment."""

    name: str
    by: int | float


@dataclasses.dataclass(frozen=True, slots=True)
class AppendToVariable:
    """Append to a list, in the commit itself, so that parallel branches never lose an element."""

    name: str
    value: Value


VariableChange: TypeAlias = SetVariable | UnsetVariable | IncrementVariable | AppendToVariable


def apply_change(variables: dict[str, Value], change: VariableChange) -> None:
    """Apply one change to ``variables`` in place, as the store will.

    What a list of many appends comes to is for the caller to check, once (``check_size``).

    Raises:
        VariableError: Incrementing what is not a number, or appending to what is not a list.
    """
    match change:
        case SetVariable(name, value):
            variables[name] = value
        case UnsetVariable(name):
            variables.pop(name, None)
        case IncrementVariable(name, by):
            old = variables.get(name, 0)
            if isinstance(old, bool) or not isinstance(old, int | float):
                raise VariableError(name, f"cannot be incremented: it holds a {type(old).__name__}")
            variables[name] = normalize(name, old + by)
        case AppendToVariable(name, value):
            items = variables.get(name, [])
            if not isinstance(items, list):
                raise VariableError(
                    name, f"cannot be appended to: it holds a {type(items).__name__}"
                )
            variables[name] = [*items, value]


def net_changes(changes: Sequence[VariableChange]) -> tuple[VariableChange, ...]:
    """Return what ``changes`` come to, at most one kind of change per variable, in first-touched order.

    A set or unset swallows what went before it, and what follows a set is folded into the set: a store can then write
    each variable once.
    """
    known: dict[str, dict[str, Value]] = {}
    pending: dict[str, list[VariableChange]] = {}
    for change in changes:
        name = change.name
        match change:
            case SetVariable() | UnsetVariable():
                known[name] = {}
                apply_change(known[name], change)
                pending[name] = []
            case _ if name in known:
                apply_change(known[name], change)
            case _:
                pending.setdefault(name, []).append(change)
    net: list[VariableChange] = []
    for name, later in pending.items():
        if name in known:
            value = known[name]
            net.append(SetVariable(name, value[name]) if name in value else UnsetVariable(name))
        else:
            net.extend(_merged(later))
    return tuple(net)


def _merged(changes: Sequence[VariableChange]) -> list[VariableChange]:
    increments = [change for change in changes if isinstance(change, IncrementVariable)]
    appends = [change for change in changes if isinstance(change, AppendToVariable)]
    if increments and appends:
        raise VariableError(increments[0].name, "cannot be incremented and appended to in one step")
    if increments:
        return [_summed(increments)]
    return [*appends]


def _summed(increments: Sequence[IncrementVariable]) -> IncrementVariable:
    name = increments[0].name
    total = normalize(name, sum(change.by for change in increments))
    if not isinstance(total, int | float):
        raise TypeError("a sum of numbers is a number")
    return IncrementVariable(name, total)
