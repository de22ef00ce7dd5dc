"""Values of variables as people edit them: JSON, or one of the stored types that JSON does not have."""

import base64
import binascii
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from uuid import UUID

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.management.web.reading import read_value
from kikwiflow_worker.model.plain_json import iso, to_json
from kikwiflow_worker.model.variables import Value

KINDS = {
    "json": "JSON, or plain text",
    "text": "Text, exactly as typed",
    "decimal": "Decimal number",
    "instant": "Instant (ISO 8601)",
    "uuid": "UUID",
    "bytes": "Bytes (base64)",
}
"""How a typed value is read, in words."""


def kind_of(value: Value) -> str:
    """Return which of ``KINDS`` keeps the type of a value."""
    match value:
        case str():
            return "text"
        case Decimal():
            return "decimal"
        case datetime():
            return "instant"
        case UUID():
            return "uuid"
        case bytes():
            return "bytes"
        case _:
            return "json"


def typed_text(value: Value) -> str:
    """Return what a form shows of a value; ``read_typed`` with its kind gives the value back."""
    match value:
        case str():
            return value
        case datetime():
            return iso(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal() | UUID():
            return str(value)
        case _:
            return json.dumps(to_json(value), ensure_ascii=False, indent=2)


def read_typed(label: str, text: str, kind: str) -> object:
    """Return the value that was typed.

    Raises:
        OperationError: It is none of that kind.
    """
    if kind == "text":
        return text.replace("\r\n", "\n")
    reader = _READERS.get(kind)
    if reader is None:
        return read_value(label, text)
    try:
        return reader(text.strip())
    except (ValueError, InvalidOperation, binascii.Error):
        raise OperationError(f"{label} is not what was chosen: {KINDS[kind]}") from None


def _instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_READERS: dict[str, Callable[[str], object]] = {
    "decimal": Decimal,
    "instant": _instant,
    "uuid": UUID,
    "bytes": _bytes,
}
