"""Values as people read them; the templates' filters."""

import json
from datetime import UTC, datetime, timedelta

from kikwiflow_worker.model.plain_json import to_json

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_MANY = 100


def instant(at: datetime | None) -> str:
    """Return an instant to the second, in UTC; empty if there is none."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if at else ""


def length(span: timedelta | float | None) -> str:
    """Return a length of time with its one or two largest units, such as ``3 min 20 s``."""
    if span is None:
        return ""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 10 and seconds % 1:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for place, (size, unit) in enumerate(_UNITS):
        if whole >= size:
            first = f"{whole // size:,} {unit}"
            rest_size, rest_unit = _UNITS[min(place + 1, len(_UNITS) - 1)]
            rest = whole % size // rest_size
            return f"{first} {rest} {rest_unit}" if rest and whole // size < _MANY else first
    return "0 s"


def since(at: datetime | None, now: datetime) -> str:
    """Return how long ago an instant was, or how far ahead it is."""
    if at is None:
        return ""
    seconds = (now - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{length(_coarse(seconds))} ago" if seconds > 0 else f"in {length(_coarse(-seconds))}"


def count(number: int, cap: int | None = None) -> str:
    """Return a count with separators; one that stopped at ``cap`` has a plus behind it."""
    return f"{number:,}+" if cap is not None and number >= cap else f"{number:,}"


def plain(value: object) -> str:
    """Return any value as indented JSON; texts too, so that ``"5"`` and ``5`` can be told apart."""
    return json.dumps(to_json(value), ensure_ascii=False, indent=2)


def shortened(text: str | None, most: int = 160) -> str:
    """Return the first line of a text, cut at ``most`` characters."""
    first = (text or "").strip().partition("\n")[0]
    return first if len(first) <= most else f"{first[: most - 1]}…"


def words(name: object) -> str:
    """Return a stored name, such as ``AWAITING_BRANCHES``, in words."""
    return str(name).replace("_", " ").lower()


def _coarse(seconds: float) -> float:
    """Nobody wants the seconds of an hour ago."""
    return float(round(seconds))


def cut(text: str, most: int = 2_000) -> str:
    """Return a text of at most ``most`` characters, with how many were left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most:,} more characters)"
