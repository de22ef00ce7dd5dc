"""From the bytes of a definition file to plain JSON values, with a place for everything that is wrong.

The text that comes out is canonical: sorted keys, no white space, nothing lost. Two files that differ in layout, in the
order of keys, or in what the engine itself assigns have the same canonical text.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NoReturn

from kikwiflow_worker.errors import InvalidDefinitionError, Problem
from kikwiflow_worker.model.limits import MAX_DEFINITION_BYTES

ASSIGNED_FIELDS = frozenset({"id", "version", "checksum"})
"""Top-level fields that the engine assigns at deploy; those of a file are ignored."""

_BYTE_ORDER_MARK = "\ufeff"


class _ParsedObject(dict[str, object]):
    """A JSON object that remembers which keys its text repeats."""

    repeated: tuple[str, ...] = ()


def canonical_source(data: Mapping[str, object]) -> str:
    """Return the canonical JSON text of a definition, without what the engine assigns.

    Args:
        data: The top-level object of a definition file, as JSON values.

    Raises:
        ValueError: A number is not finite.
    """
    kept = {key: value for key, value in data.items() if key not in ASSIGNED_FIELDS}
    return json.dumps(
        kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def checksum(source: str) -> str:
    """Return the lower-case hex SHA-256 of a canonical text."""
    return hashlib.sha256(source.encode()).hexdigest()


def read_object(source: str | bytes, *, name: str) -> tuple[dict[str, object], str]:
    """Return the top-level object of a definition file and its canonical text.

    Args:
        source: The file's content, UTF-8 if bytes; a byte order mark is skipped.
        name: What messages call the file.

    Raises:
        InvalidDefinitionError: Too long, not UTF-8, not JSON, not an object, or keys that occur twice.
    """
    size = len(source) if isinstance(source, bytes) else len(source.encode(errors="replace"))
    if size > MAX_DEFINITION_BYTES:
        _refuse(
            f"has {size:,} bytes, the limit is {MAX_DEFINITION_BYTES:,} (MAX_DEFINITION_BYTES)",
            "split the process with call activities",
            name=name,
        )
    text = _decoded(source, name=name)
    try:
        data: object = json.loads(
            text, object_pairs_hook=_as_object, parse_constant=_refuse_constant
        )
        repeated = _repeated_keys(data)
        canonical = canonical_source(data) if isinstance(data, dict) else ""
        canonical.encode()
    except json.JSONDecodeError as error:
        _refuse(
            f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            _syntax_hint(text, error),
            name=name,
        )
    except RecursionError:
        _refuse("is nested too deeply", "write a definition as one flat map of nodes", name=name)
    except UnicodeEncodeError:
        _refuse("has half of a surrogate pair", r"write both halves, as in \ud83d\ude00", name=name)
    except ValueError as error:
        _refuse(
            f"has a value that JSON does not allow: {error}", "write a finite number", name=name
        )
    if not isinstance(data, dict):
        _refuse(
            f"is {json_kind(data)} at the top level",
            'write one object: {"key": ..., "defaultStartPoint": ..., "flowNodes": {...}}',
            name=name,
        )
    if repeated:
        raise InvalidDefinitionError(repeated, name=name)
    return data, canonical


def json_kind(value: object) -> str:
    """Return what JSON calls a value, with its article."""
    kinds: Mapping[type, str] = {
        bool: "a boolean",
        str: "a text",
        int: "a number",
        float: "a number",
        type(None): "null",
        list: "a list",
    }
    return kinds.get(type(value), "an object")


def json_path(parts: Sequence[str | int]) -> str:
    """Return ``flowNodes.A.outgoing[0]`` for the keys and positions that lead to a value."""
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def _decoded(source: str | bytes, *, name: str) -> str:
    if isinstance(source, str):
        return source.removeprefix(_BYTE_ORDER_MARK)
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        _refuse(
            f"is not UTF-8: byte 0x{source[error.start]:02x} at line {line}",
            "save the file as UTF-8",
            name=name,
        )


def _as_object(pairs: list[tuple[str, object]]) -> _ParsedObject:
    parsed = _ParsedObject(pairs)
    if len(parsed) < len(pairs):
        times = Counter(key for key, _ in pairs)
        parsed.repeated = tuple(key for key in parsed if times[key] > 1)
    return parsed


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


def _repeated_keys(data: object) -> list[Problem]:
    problems: list[Problem] = []
    waiting: list[tuple[tuple[str | int, ...], object]] = [((), data)]
    while waiting:
        parts, value = waiting.pop()
        if isinstance(value, _ParsedObject):
            problems += [
                Problem(
                    json_path((*parts, key)),
                    f"the key {key!r} occurs more than once in the same object",
                    "keep one of them, or give them different names",
                )
                for key in value.repeated
            ]
            waiting += [((*parts, key), entry) for key, entry in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [((*parts, index), entry) for index, entry in enumerate(value)]
    return problems


def _syntax_hint(text: str, error: json.JSONDecodeError) -> str:
    if not text.strip():
        return "the file is empty; write a definition"
    line = text.splitlines()[error.lineno - 1 : error.lineno]
    shown = line[0].strip()[:80] if line else ""
    return f"look at the end of the line before and at: {shown}" if shown else "complete the file"


def _refuse(message: str, hint: str, *, name: str) -> NoReturn:
    raise InvalidDefinitionError([Problem("", message, hint)], name=name) from None
