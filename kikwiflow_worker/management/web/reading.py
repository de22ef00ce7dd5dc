"""Values as people type them into forms."""

import json
import math
from datetime import UTC, datetime

from kikwiflow_worker.errors import OperationError

_JSON_BEGINNINGS = ("{", "[", '"')
MAX_VALUE = 1_000_000
"""Characters of one typed value."""


def read_value(label: str, text: str) -> object:
    """Return a typed value: JSON where it is JSON, such as ``150``, ``true`` or ``{"a": 1}``; else the text itself.

    Raises:
        OperationError: It begins like JSON and is not.
    """
    stripped = text.strip()
    if len(stripped) > MAX_VALUE:
        raise OperationError(f"{label} is longer than {MAX_VALUE:,} characters")
    try:
        return json.loads(stripped, parse_constant=_refused, parse_float=_finite)
    except json.JSONDecodeError as error:
        if stripped.startswith(_JSON_BEGINNINGS):
            raise OperationError(
                f"{label} begins like JSON but is not valid at line {error.lineno}, column {error.colno}: "
                f"{error.msg}; correct it, or quote the whole as a JSON text"
            ) from None
        return stripped
    except ValueError:  # a constant such as NaN, or a number with thousands of digits
        return stripped
    except RecursionError:
        raise OperationError(f"{label} is nested too deeply") from None


def read_object(label: str, text: str) -> dict[str, object]:
    """Return a JSON object; nothing typed is an empty one.

    Raises:
        OperationError: It is something else.
    """
    if not text.strip():
        return {}
    value = read_value(label, text)
    if not isinstance(value, dict):
        raise OperationError(f'{label} must be a JSON object, such as {{"amount": 150}}')
    return value


def read_day(label: str, text: str) -> datetime | None:
    """Return the beginning of a day in UTC, as ``2026-11-30`` or with a time; None if nothing was typed.

    Raises:
        OperationError: It is no date.
    """
    if not text.strip():
        return None
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise OperationError(f"{label} must be a date such as 2026-11-30") from None
    return at.replace(tzinfo=at.tzinfo or UTC).astimezone(UTC)


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number
