"""Whatever is sent: it is refused in words, or it is taken and comes back as documented. No traceback reaches a person.

``KIKWIFLOW_TEST_DEEP=1`` runs each with 20,000 examples.
"""

import json
import math
import os
import tomllib
from decimal import Decimal
from typing import Any

import bson
import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from kikwiflow_worker.errors import ConfigurationError, InvalidDefinitionError, VariableError
from kikwiflow_worker.model.definition import parse_definition
from kikwiflow_worker.model.variables import normalize, size_of, to_text
from kikwiflow_worker.operations.deployment import check_definition
from kikwiflow_worker.settings import Settings, load_settings, print_config
from kikwiflow_worker.store.mongo.driver import CODEC_OPTIONS
from kikwiflow_worker.store.mongo.value_codec import (
    decode_value,
    encode_value,
    escape_key,
    unescape_key,
)
from tests.support.bad_input import (
    SECRET,
    arguments,
    broken_definitions,
    command_lines,
    deeply_nested,
    json_values,
    leaf_commands,
    numbers,
    python_values,
    raw_definitions,
    texts,
)
from tests.support.cli import CommandLine, restored_logging
from tests.support.definitions import PROCESS_FOLDER
from tests.support.stores import leaking_driver

__all__ = ["leaking_driver", "restored_logging"]

DEEP = os.environ.get("KIKWIFLOW_TEST_DEEP") == "1"
pytestmark = [
    pytest.mark.usefixtures("restored_logging"),
    *([pytest.mark.deep, pytest.mark.timeout(3600)] if DEEP else []),
]

EXIT_CODES = {0, 1, 2, 69, 78}
NOWHERE = f"mongodb://user:{SECRET}@127.0.0.1:1/?serverSelectionTimeoutMS=1"


def bounded(examples: int) -> settings:
    return settings(
        max_examples=20_000 if DEEP else examples,
        deadline=None,
        derandomize=not DEEP,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@bounded(300)
@given(source=st.one_of(broken_definitions(), raw_definitions))
@example(source=b'{"key": "\\ud800", "flowNodes": {}}')
@example(source=b"\xff\xfe{}")
def test_a_definition_is_checked_or_refused_with_a_place_and_a_remedy(source: bytes) -> None:
    try:
        checked = check_definition(source, name="fuzzed.kikwi")
    except InvalidDefinitionError as error:
        refused = error.problems
    else:
        refused = ()
    if refused:
        assert any(problem.is_error for problem in refused)
        assert all(problem.message and problem.hint for problem in refused)
        return
    again = parse_definition(checked.file.source).file
    assert again == checked.file
    assert checked.file.source.encode()


@bounded(500)
@given(value=python_values)
@example(value=deeply_nested(61, in_list=True))
@example(value=deeply_nested(60, in_list=False))
@example(value=Decimal("sNaN123"))
def test_a_variable_comes_back_as_it_was_taken_or_is_refused_by_name(value: object) -> None:
    try:
        taken = normalize("x", value)
    except VariableError as error:
        event(type(error).__name__)
        return
    document = bson.encode({"v": encode_value(taken)}, codec_options=CODEC_OPTIONS)
    stored = bson.decode(document, CODEC_OPTIONS)["v"]
    assert same(decode_value(stored), taken)
    assert same(normalize("x", taken), taken)
    assert size_of(taken) >= 0
    text = to_text(taken)
    assert text is None or text.encode() is not None


@pytest.mark.parametrize("in_list", [True, False])
def test_a_variable_nested_a_hundred_thousand_deep_is_refused(in_list: bool) -> None:
    with pytest.raises(VariableError, match="nested deeper than 60 levels"):
        normalize("x", deeply_nested(100_000, in_list=in_list))


@bounded(300)
@given(key=texts)
def test_a_key_of_an_object_comes_back_and_is_a_plain_field_name(key: str) -> None:
    escaped = escape_key(key)

    assert escaped
    assert not set(escaped) & set("$.\0")
    assert unescape_key(escaped) == key


@bounded(300)
@given(
    file=st.dictionaries(
        st.one_of(st.sampled_from(sorted(Settings.model_fields)), texts), json_values, max_size=4
    ),
    environ=st.dictionaries(
        st.one_of(st.sampled_from(sorted(Settings.model_fields)), texts).map(
            lambda name: f"KIKWIFLOW_{name.upper()}"
        ),
        st.one_of(arguments, numbers.map(str)),
        max_size=3,
    ),
    flags=st.dictionaries(
        st.sampled_from(sorted(Settings.model_fields)),
        st.one_of(arguments, numbers.map(str), st.lists(arguments, max_size=2).map(tuple)),
        max_size=3,
    ),
    broken=st.booleans(),
)
def test_settings_are_read_or_refused_with_their_place_and_without_a_secret(
    tmp_path_factory: pytest.TempPathFactory,
    file: dict[str, Any],
    environ: dict[str, str],
    flags: dict[str, object],
    broken: bool,
) -> None:
    config = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in file.items()]
    config.write_bytes(("\n".join(lines) + ("\n]" if broken else "")).encode())
    environ.pop("KIKWIFLOW_CONFIG", None)
    try:
        read = load_settings(flags=flags, environ=environ, config=config)
    except ConfigurationError as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert SECRET not in said
        assert any(place in said for place in ("file ", "env ", "flag "))
        return
    shown = print_config(read)
    assert SECRET not in shown
    values = {name: value for name, value in tomllib.loads(shown).items() if name != "mongodb_uri"}
    again = load_settings(flags=values, environ={}, config=None).model_dump()
    assert again == {**read.model_dump(), "mongodb_uri": None}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return files to give to a command: definitions and variables, good and bad ones."""
    folder = tmp_path_factory.mktemp("input")
    contents = {
        "good.kikwi": next(iter(sorted(PROCESS_FOLDER.glob("*.kikwi")))).read_bytes(),
        "bad.kikwi": b'{"key": 7, "flowNodes": []}',
        "bytes.kikwi": b"\xff\x00\xfe",
        "empty": b"",
        "vars.json": b'{"a": 1, "a.b": {"$gt": ""}}',
        "twice.json": b'{"a": 1, "a": 2}',
        "huge.json": b'{"a": 1e999, "b": ' + b"9" * 5000 + b"}",
        "deep.json": b"[" * 100_000,
        "deep.toml": b"handlers = " + b"[" * 100_000,
        "wrong.toml": b'concurrency = "many"\nmongodb_url = "x"',
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    paths = {name: str(folder / name) for name in contents}
    return {**paths, "folder": str(folder), "missing": "/nowhere/at all"}


@pytest.mark.usefixtures("leaking_driver")
@bounded(60)
@given(data=st.data())
@pytest.mark.filterwarnings(
    # The driver leaves sockets behind of a server that is not there.
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
def test_a_command_without_a_database_says_what_is_wrong(
    files: dict[str, str], data: st.DataObject
) -> None:
    line = data.draw(command_lines(files))
    result = CommandLine(KIKWIFLOW_MONGODB_URI=NOWHERE).run(*line)

    assert_told(result, may_trace="--debug" in line)


def test_every_command_is_fuzzed() -> None:
    words = {" ".join(path) for path, _ in leaf_commands()}

    assert {"deploy", "instances set", "incidents retry", "store upgrade", "doctor"} <= words
    assert len(words) >= 32


def assert_told(result: Any, *, may_trace: bool) -> None:
    """The command ended as documented, with a message where it failed, and without a traceback or a password."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code in EXIT_CODES, result.output
    assert may_trace or "Traceback" not in result.output
    assert "unexpected" not in result.output.replace("unexpected extra argument", "")
    assert SECRET not in result.output
    if result.exit_code:
        assert result.output.strip()


def same(one: object, other: object) -> bool:
    """Return whether two values are the same, NaN included."""
    match one, other:
        case (list(), list()):
            return len(one) == len(other) and all(map(same, one, other))
        case (dict(), dict()):
            return list(one) == list(other) and all(map(same, one.values(), other.values()))
        case (float(), float()) if math.isnan(one):
            return math.isnan(other)
        case (Decimal(), Decimal()):
            return one.as_tuple() == other.as_tuple()
        case _:
            return type(one) is type(other) and one == other
