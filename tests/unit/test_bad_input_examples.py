"""The smallest input of each kind that once ended in a traceback, a leak or something stored that should not be."""

import json
from decimal import Decimal
from pathlib import Path
from typing import NoReturn

import dns.exception
import dns.resolver
import pytest
from bson.errors import InvalidDocument
from pymongo.errors import ConfigurationError as MongoConfigurationError
from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError

from kikwiflow_worker.engine.effects import fatal_failure
from kikwiflow_worker.errors import (
    ConfigurationError,
    OperationError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kikwiflow_worker.model.limits import MAX_DEFINITION_BYTES
from kikwiflow_worker.model.texts import MAX_TEXT_BYTES, check_texts, tenant_scoped
from kikwiflow_worker.model.variables import normalize
from kikwiflow_worker.settings import load_settings, print_config
from kikwiflow_worker.store.mongo.errors import translate, translated, translated_opening
from kikwiflow_worker.telemetry import mask_credentials
from kikwiflow_worker.worker.invoker import failure_of
from tests.support.cli import CommandLine, restored_logging
from tests.support.definitions import a_file

__all__ = ["restored_logging"]

pytestmark = pytest.mark.usefixtures("restored_logging")

command_line = CommandLine()
URI = "mongodb://user:s3cr3t@host/"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["messages", "correlate", "k", "--keep-for", "nan"], "finite number of seconds"),
        (["messages", "correlate", "k", "--keep-for", "inf"], "not in the range"),
        (["messages", "correlate", "k", "--keep-for", "1e300"], "not in the range"),
        (["start", "k", "--business-key", "b", "--wait", "nan"], "finite number of seconds"),
        (["definitions", "migrate", "k", "--version", "-1"], "not in the range"),
        (["instances", "list", URI], "mongodb://user:***@host/"),
        ([URI], "mongodb://user:***@host/"),
        (["instances", "list", "--limit", URI], "mongodb://user:***@host/"),
    ],
)
def test_a_wrong_argument_is_wrong_usage(line: list[str], words: str) -> None:
    result = command_line.run(*line)

    assert result.exit_code == 2
    assert words in result.stderr
    assert "s3cr3t" not in result.output


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"mongodb_uri_file": "~nobody-has-this-name/x"}, "does not know"),
        ({"embedded": "~nobody-has-this-name/x"}, "does not know"),
        ({"embedded": "a\0b"}, "NUL"),
        ({"embedded": URI}, "URI where a path belongs"),
        ({"mongod_path": URI}, "URI where a path belongs"),
        ({"default_retry_interval": "P" + "9" * 400 + "D"}, "not an ISO 8601 duration"),
        ({"default_retry_interval": "P99999Y"}, "not an ISO 8601 duration"),
        ({"default_retry_interval": "P101Y"}, "longer than a hundred years"),
        ({"mongodb_database": "é" * 40}, "more than 63 bytes"),
        ({"mongodb_database": "local"}, "of MongoDB itself"),
        ({"handlers": ("\udcff",)}, "not valid Unicode"),
        ({"mongodb_uri": "mongodb://a:s3cr3t\udcff@h"}, "not valid Unicode"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(flags: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refused:
        load_settings(flags=flags, environ={}, config=None)

    assert "flag --" in str(refused.value)
    assert "s3cr3t" not in str(refused.value)
    assert str(refused.value).isprintable() or "\n" in str(refused.value)


def test_a_long_wrong_value_is_shortened_in_the_message() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_settings(flags={"concurrency": "9" * 5000}, environ={}, config=None)

    assert len(str(refused.value)) < 400


def test_a_settings_file_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "deep.toml"
    config.write_text("handlers = " + "[" * 100_000)

    with pytest.raises(ConfigurationError, match="is not valid TOML"):
        load_settings(flags={}, environ={}, config=config)


def test_a_file_that_is_named_by_a_uri_is_shown_without_its_password() -> None:
    result = command_line.run("--print-config", "--config", URI)

    assert result.exit_code == 78
    assert "mongodb:/user:***@host" in result.stderr


@pytest.mark.parametrize(
    "text",
    [
        "?ssl_pem_passphrase=s3cr3t",
        "x://h/?tlsCertificateKeyFilePassword=s3cr3t&a=b",
        "proxyPassword=s3cr3t",
        "authMechanismProperties=AWS_SESSION_TOKEN:s3cr3t",
        "mongodb:/u:s3cr3t@h",
    ],
)
def test_secrets_are_masked_outside_a_whole_uri_too(text: str) -> None:
    assert "s3cr3t" not in mask_credentials(text)
    assert "***" in mask_credentials(text)


def test_a_number_of_the_command_line_is_stored_as_it_was_written(tmp_path: Path) -> None:
    """A number that no float can hold would be stored as Infinity, which no JSON can give back."""
    huge, twice = tmp_path / "huge.json", tmp_path / "twice.json"
    huge.write_text('{"a": 1e999}')
    twice.write_text('{"a": {"b": 1, "b": 2}}')
    start = ("start", "k", "--business-key", "b")

    for path, words in ((huge, "1e999 are no JSON numbers"), (twice, "has the key 'b' twice")):
        result = command_line.run(*start, "--vars-file", str(path))
        assert result.exit_code == 2
        assert words in result.stderr


def test_the_name_of_a_file_that_is_not_unicode_can_be_printed() -> None:
    result = command_line.run("validate", "\udcff.kikwi", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["items"][0]["file"] == "\udcff.kikwi"


@pytest.mark.parametrize("text", [{"$gt": ""}, 7, ["x"], b"x", "\ud800", "x" * (MAX_TEXT_BYTES + 1)])  # fmt: skip
def test_what_is_no_text_is_refused_by_its_name(text: object) -> None:
    with pytest.raises(OperationError, match="the business key"):
        check_texts(business_key=text)

    check_texts(business_key="x" * MAX_TEXT_BYTES, tenant=None)


def test_a_definition_that_no_document_can_hold_is_refused_with_the_limit(tmp_path: Path) -> None:
    large = tmp_path / "large.kikwi"
    large.write_text(json.dumps(a_file(description="x" * MAX_DEFINITION_BYTES)))

    result = command_line.run("validate", str(large))

    assert result.exit_code == 1
    assert f"the limit is {MAX_DEFINITION_BYTES:,}" in result.stdout


def test_a_plain_name_has_the_id_that_it_always_had() -> None:
    assert tenant_scoped("m-1", None) == "\nm-1"
    assert tenant_scoped("m-1", "acme") == "acme\nm-1"


@pytest.mark.parametrize("nan", [Decimal("NaN"), Decimal("sNaN"), Decimal("-NaN123")])
def test_every_nan_of_a_decimal_is_the_one_that_the_database_knows(nan: Decimal) -> None:
    taken = normalize("x", nan)

    assert isinstance(taken, Decimal)
    assert str(taken) == "NaN"


def test_the_message_of_an_exception_can_always_be_stored() -> None:
    for failure in (failure_of(ValueError("a\ud800b")), fatal_failure(ValueError("a\ud800b"))):
        assert failure.message == r"a\ud800b"
        assert failure.stack_trace.encode() is not None


def test_what_bson_cannot_hold_is_said_without_the_value() -> None:
    for error in (InvalidDocument("cannot encode s3cr3t"), OverflowError("s3cr3t"), _no_unicode()):
        with pytest.raises(StoreError) as refused, translated("committing"):
            raise error
        assert "committing failed" in str(refused.value)
        assert "s3cr3t" not in str(refused.value)
        assert refused.value.__cause__ is None
        assert refused.value.__suppress_context__


def test_a_file_for_tls_that_is_missing_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigurationError, match="check tlsCAFile"), translated_opening():
        raise FileNotFoundError(2, "The tlscafile file is not readable")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OperationFailure("not authorized to run { x: 's3cr3t' }", 13), StoreRefusedError),
        (OperationFailure("Authentication failed.", 18), StoreRefusedError),
        (OperationFailure("mechanism SCRAM-SHA-1 which is not enabled", 334), StoreRefusedError),
        (ServerSelectionTimeoutError("Authentication failed."), StoreRefusedError),
        (ServerSelectionTimeoutError("[SSL: CERTIFICATE_VERIFY_FAILED]"), StoreRefusedError),
        (ServerSelectionTimeoutError("h:1: connection closed"), StoreUnavailableError),
        (MongoConfigurationError("The DNS query name does not exist"), ConfigurationError),
    ],
)
def test_a_refusal_is_told_from_an_outage(error: PyMongoError, kind: type[Exception]) -> None:
    told = translate(error, "claiming a task")

    assert type(told) is kind
    assert "s3cr3t" not in str(told)


@pytest.mark.parametrize("cause", [dns.resolver.NoNameservers(), dns.exception.Timeout()])
def test_name_servers_that_are_away_are_an_outage(cause: Exception) -> None:
    def resolve() -> NoReturn:
        raise MongoConfigurationError(str(cause)) from cause

    with pytest.raises(StoreUnavailableError, match="cannot be resolved"), translated("connecting"):
        resolve()


def test_printed_settings_can_be_read_again() -> None:
    shown = print_config(load_settings(flags={"mongodb_uri": URI}, environ={}, config=None))

    assert "s3cr3t" not in shown


def _no_unicode() -> UnicodeEncodeError:
    return UnicodeEncodeError("utf-8", "s3cr3t\ud800", 6, 7, "surrogates not allowed")


def test_a_member_that_does_not_know_its_set_yet_is_an_outage() -> None:
    # Seen while a member was restarted: its connection knows of no sessions until it has found its set.
    error = MongoConfigurationError("Sessions are not supported by this MongoDB deployment")

    assert isinstance(translate(error, "committing"), StoreUnavailableError)
    assert isinstance(
        translate(MongoConfigurationError("no hosts"), "committing"), ConfigurationError
    )
