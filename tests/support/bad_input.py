"""Input that nobody should send: strategies for values, definition files, settings and command lines."""

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
from hypothesis import strategies as st

from kikwiflow_worker.cli.app import cli
from tests.support.definitions import PROCESS_FOLDER

CONFORMANCE = Path(__file__).parents[3] / "shared" / "conformance"

SECRET = "s3cr3t"

NASTY_TEXTS = (
    "", " ", "$", "$where", "$gt", "a.b", "\0", "a\0b", "_id", "__proto__", "constructor", "\ud800", "\udfff",
    "%", "%2E", "-", "--", "=", "a=b", "NaN", "null", "\n", "\u202e", "\U0001f600", "x" * 300, "9" * 30, "1e999",
    f"mongodb://user:{SECRET}@host/",
)  # fmt: skip

NASTY_NUMBERS = (0, -1, 2**31, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**400)

texts = st.one_of(st.sampled_from(NASTY_TEXTS), st.text(st.characters(codec=None), max_size=20))
numbers = st.one_of(st.sampled_from(NASTY_NUMBERS), st.integers(), st.floats())
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)

_offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
python_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        numbers,
        texts,
        st.binary(max_size=20),
        st.binary(max_size=20).map(bytearray),
        st.decimals(),
        st.sampled_from([Decimal("sNaN"), Decimal("-0"), Decimal("1E+6111"), Decimal("9" * 34 + "E+6111"), Decimal("1E-6176"), Decimal("1E+6144"), Decimal("-Infinity")]),
        st.uuids(),
        st.datetimes(timezones=st.one_of(st.none(), _offsets)),
        st.sampled_from([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
        st.sampled_from([object(), 1j, {1, 2}, range(3), timedelta(1), int, len, math]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(texts, st.integers()), inner, max_size=4),
    ),
    max_leaves=12,
)  # fmt: skip


def deeply_nested(depth: int, *, in_list: bool) -> object:
    """Return a value nested so deep."""
    value: object = 1
    for _ in range(depth):
        value = [value] if in_list else {"a": value}
    return value


def definition_files() -> list[bytes]:
    """Return all valid definition files there are, our own and those of the conformance suite if it is at hand."""
    own = sorted(PROCESS_FOLDER.glob("*.kikwi"))
    return [path.read_bytes() for path in (*own, *sorted(CONFORMANCE.rglob("*.kikwi")))]


def places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything in a JSON value."""
    yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield from places(item, (*path, key))


@st.composite
def broken_definitions(draw: st.DrawFn) -> bytes:
    """Return a valid file in which some things are replaced, removed, renamed or repeated."""
    data = json.loads(draw(st.sampled_from(_FILES)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(data))))
        if not path:
            continue
        parent = data
        for part in path[:-1]:
            parent = parent[part]
        match draw(st.integers(0, 3)):
            case 0:
                parent[path[-1]] = draw(json_values)
            case 1:
                del parent[path[-1]]
            case 2 if isinstance(parent, dict):
                parent[draw(texts)] = parent.pop(path[-1])
            case _ if isinstance(parent, dict):  # make cycles, and flows that lead anywhere
                parent[path[-1]] = draw(st.sampled_from(list(data.get("flowNodes") or {"x": 1}))) if isinstance(data.get("flowNodes"), dict) else None  # fmt: skip
            case _:
                parent.insert(0, draw(json_values))
    text = json.dumps(data, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 4)) == 0:  # break the bytes too
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.binary(max_size=3)) + text[at + draw(st.integers(0, 3)) :]
    return text


_FILES = definition_files()

raw_definitions = st.one_of(
    st.binary(max_size=60),
    json_values.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass")),
    st.builds(lambda depth, opener: opener * depth, st.integers(1, 200_000), st.sampled_from([b"[", b'{"a":', b'{"flowNodes":'])),
    st.builds(lambda digits: b'{"key": ' + b"9" * digits + b"}", st.integers(1, 10_000)),
    st.just(b'{"key": "a", "key": "b"}'),
    st.just(b'{"key": 1e999}'),
)  # fmt: skip


def leaf_commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:  # fmt: skip
    """Yield every command that does something, with its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaf_commands(command, (*path, name))
        else:
            yield (*path, name), command


# A process gets no NUL in its arguments: the operating system ends each at it.
arguments = texts.map(lambda text: text.replace("\0", ""))
_numbers = st.one_of(numbers.map(str), arguments)


@st.composite
def command_lines(draw: st.DrawFn, files: Mapping[str, str], known: tuple[str, ...] = ()) -> list[str]:  # fmt: skip
    """Return a command with options and arguments, most of them senseless.

    Args:
        files: Paths that may be given as files, by a word for what is in them.
        known: Values that mean something, such as ids.
    """
    path, command = draw(st.sampled_from(_COMMANDS))
    sensible = st.sampled_from(known) if known else arguments
    words = st.one_of(sensible, arguments)
    given = list(path)
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            count = draw(st.integers(0, 2)) if parameter.nargs == -1 else int(draw(st.integers(0, 9)) > 0)  # fmt: skip
            is_file = parameter.name == "files"
            values = st.sampled_from([*files.values()]) if is_file else words
            given += draw(st.lists(values, min_size=count, max_size=count))
        elif isinstance(parameter, click.Option) and draw(st.integers(0, 4)) == 0:
            given += _option(draw, parameter, files, words)
        elif isinstance(parameter, click.Option) and parameter.required:
            given += [parameter.opts[0], draw(words)]
    return given


def _option(draw: st.DrawFn, option: click.Option, files: Mapping[str, str], words: st.SearchStrategy[str]) -> list[str]:  # fmt: skip
    flag = option.opts[0]
    if flag in _LEFT_ALONE:
        return []
    if option.is_flag or flag == "--allow-standalone":
        return [flag]
    match option.type:
        case click.IntRange() | click.FloatRange():
            value = draw(_numbers)
        case click.Choice():
            value = draw(st.one_of(st.sampled_from([str(each) for each in option.type.choices]), arguments))  # fmt: skip
        case _ if flag in {"--vars-file", "--config"}:
            value = draw(st.sampled_from([*files.values(), "/nowhere"]))
        case _ if flag == "--var":
            value = draw(st.builds(lambda name, text: f"{name}={text}", words, st.one_of(words, json_values.map(json.dumps))))  # fmt: skip
        case _:
            value = draw(words)
    return [f"{flag}={value}"]


# They start a server, or say where the one of the test is.
_LEFT_ALONE = {"--embedded", "--mongod-path", "--mongodb-uri", "--mongodb-uri-file", "--mongodb-database", "--help", "--wait"}  # fmt: skip
# These run until they are stopped.
_SERVICES = {("serve",), ("relay",)}
_COMMANDS = [(path, command) for path, command in leaf_commands() if tuple(path) not in _SERVICES]
