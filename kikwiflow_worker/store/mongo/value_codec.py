"""Maps values of variables and payloads of events to what is stored of them, and back; sealed if encryption is on (``sealing``)."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from bson.binary import Binary
from bson.decimal128 import Decimal128, create_decimal128_context

from kikwiflow_worker.errors import EncryptionError
from kikwiflow_worker.model.events import EVENT_TEXTS
from kikwiflow_worker.model.variables import UnreadableVariables, Value, Variables
from kikwiflow_worker.store.mongo.driver import Document
from kikwiflow_worker.store.mongo.sealing import Sealing, open_sealed

_ESCAPES = str.maketrans({"%": "%25", ".": "%2E", "$": "%24", "\0": "%00"})


def escape_key(key: str) -> str:
    """Return ``key`` in a form that MongoDB takes as a plain field name; ``unescape_key`` gives it back."""
    return key.translate(_ESCAPES) or "%"


def unescape_key(key: str) -> str:
    """Return the key that ``escape_key`` was given."""
    return "" if key == "%" else unquote(key) if "%" in key else key


def encode_value(value: Value) -> Any:
    """Return the value as BSON can hold it."""
    match value:
        case Decimal():
            return Decimal128(create_decimal128_context().create_decimal(value))
        case list():
            return [encode_value(item) for item in value]
        case dict():
            return {escape_key(key): encode_value(item) for key, item in value.items()}
        case _:
            return value


def decode_value(stored: Any) -> Value:
    """Return the value that ``encode_value`` was given."""
    match stored:
        case None | bool() | float() | datetime() | UUID():
            return stored
        case int():
            return int(stored)
        case str():
            return stored
        case bytes():
            return bytes(stored)
        case Decimal128():
            return stored.to_decimal()
        case list():
            return [decode_value(item) for item in stored]
        case Mapping():
            return {unescape_key(key): decode_value(item) for key, item in stored.items()}
        case _:
            return str(stored)


def encode_variables(
    variables: Variables, owner: str = "", sealing: Sealing | None = None
) -> Document:
    """Return the ``variables`` field of an instance or a message; what could not be decrypted stays as it was.

    Args:
        owner: The ``_id`` of the document, which sealed values are bound to.
    """
    if isinstance(variables, UnreadableVariables):
        return dict(variables.stored)
    return {
        escape_key(name): encode_variable(name, value, owner, sealing)
        for name, value in variables.items()
    }


def encode_variable(name: str, value: Value, owner: str, sealing: Sealing | None) -> Document:
    """Return one entry of the ``variables`` field."""
    stored = encode_value(value)
    return {"name": name, "value": sealing.seal(owner, name, stored) if sealing else stored}


def decode_variables(
    stored: Mapping[str, Any], owner: str = "", sealing: Sealing | None = None
) -> Variables:
    """Return the variables of an instance or a message; ``UnreadableVariables`` if one cannot be decrypted."""
    try:
        return {
            (name := unescape_key(key)): decode_variable(name, entry.get("value"), owner, sealing)
            for key, entry in stored.items()
        }
    except EncryptionError as error:
        return UnreadableVariables(map(unescape_key, stored), stored, error)


def decode_variable(name: str, stored: Any, owner: str, sealing: Sealing | None) -> Value:
    """Return the value of one entry.

    Raises:
        EncryptionError: It is sealed and cannot be opened.
    """
    plain = open_sealed(sealing, owner, name, stored) if type(stored) is Binary else stored
    return decode_value(plain)


_PAYLOAD_VALUES = ("value", "resolvedAnswer", *EVENT_TEXTS)
"""Fields of events that hold a variable's value, or a text that may quote one, beside the ``variables``."""


def encode_payload(
    payload: Mapping[str, Value], event_id: str, sealing: Sealing | None
) -> Document:
    """Return the payload of an outbox event; what it tells of variables, and may quote of them, is sealed."""
    stored = {name: encode_value(value) for name, value in payload.items()}
    return _each_value(stored, event_id, sealing.seal) if sealing else stored


def decode_payload(
    stored: Mapping[str, Any], event_id: str, sealing: Sealing | None = None
) -> dict[str, Value]:
    """Return the payload of an outbox event.

    Raises:
        EncryptionError: A value is sealed and cannot be opened.
    """
    opened = _each_value(stored, event_id, partial(open_sealed, sealing))
    return {name: decode_value(value) for name, value in opened.items()}


def payload_values(payload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what of a stored payload is to be sealed: its path in the payload, and the value."""
    for field in _PAYLOAD_VALUES:
        if payload.get(field) is not None:
            yield field, payload[field]
    variables = payload.get("variables")
    if isinstance(variables, Mapping):
        for key, value in variables.items():
            yield f"variables.{key}", value


def _each_value(
    payload: Mapping[str, Any], event_id: str, change: Callable[[str, str, Any], Any]
) -> Document:
    """Return a payload with ``change`` made to each value that is to be sealed."""
    changed = dict(payload)
    if isinstance(payload.get("variables"), Mapping):
        changed["variables"] = dict(payload["variables"])
    for path, value in payload_values(payload):
        where, _, key = path.partition(".")
        within = changed[where] if key else changed
        within[key or where] = change(event_id, path, value)
    return changed
