"""Values of the model in the types that JSON has, the same in every output."""

import base64
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID


def to_json(value: object) -> object:
    """Return ``value`` in JSON's types: instants as ISO 8601 in UTC, Decimals as text, bytes as base64.

    A dataclass becomes an object with its field names as keys; a float that JSON does not know becomes its name.
    """
    match value:
        case Enum():
            return to_json(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            return iso(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal() | UUID():
            return str(value)
        case Mapping():
            return {str(key): to_json(item) for key, item in value.items()}
        case list() | tuple() | frozenset():
            return [to_json(item) for item in value]
        case _ if is_dataclass(value):
            return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
        case _:
            return str(value)


def iso(at: datetime) -> str:
    """Return an instant as ISO 8601 text in UTC."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
