"""Translates the driver's exceptions; no other module looks at them."""

from collections.abc import Iterator
from contextlib import contextmanager

from bson.errors import BSONError
from pymongo.errors import (
    AutoReconnect,
    ConnectionFailure,
    DocumentTooLarge,
    ExecutionTimeout,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)
from pymongo.errors import (
    ConfigurationError as MongoConfigurationError,
)

from kikwiflow_worker.errors import (
    ConfigurationError,
    StoreError,
    StoreUnavailableError,
    VariableTooLargeError,
)

_NOT_ALLOWED = {13, 18}
_TOO_LARGE = {10334, 17419, 17420}
_PASSING = {
    6,
    7,
    24,
    50,
    64,
    89,
    91,
    112,
    189,
    202,
    246,
    251,
    262,
    9001,
    10058,
    10107,
    11600,
    11602,
    13435,
    13436,
}
"""Server errors that heal by themselves: no primary, shutting down, conflicts, time-outs."""

_CONFLICTS = {24, 112}

TRANSIENT_TRANSACTION = "TransientTransactionError"
UNKNOWN_COMMIT = "UnknownTransactionCommitResult"


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise our errors instead of the driver's.

    Args:
        doing: What was being done, for the message, as ``claiming a task``.

    Raises:
        StoreUnavailableError: The database was away, slow or busy; the call can be repeated.
        VariableTooLargeError: A document passed the database's limit.
        ConfigurationError: The credentials are refused, or the address cannot be used.
        StoreError: Anything else the database refused.
    """
    try:
        yield
    except PyMongoError as error:
        raise translate(error, doing) from error
    except BSONError as error:
        raise StoreError(f"{doing} failed: {error}") from error


@contextmanager
def translated_opening() -> Iterator[None]:
    """Raise our errors instead of those about a URI.

    Raises:
        ConfigurationError: The URI cannot be read.
    """
    try:
        with translated("opening the connection"):
            yield
    except ValueError as error:
        raise ConfigurationError(f"the MongoDB URI cannot be used: {error}") from error


def translate(error: PyMongoError, doing: str) -> Exception:
    """Return our error for the driver's."""
    code = error.code if isinstance(error, OperationFailure) else None
    if isinstance(error, MongoConfigurationError | InvalidURI):
        return ConfigurationError(f"the MongoDB URI cannot be used: {error}")
    if code in _NOT_ALLOWED:
        return ConfigurationError(
            f"{doing} was refused by MongoDB (code {code}); check the user, its password and its roles"
        )
    if isinstance(error, DocumentTooLarge) or code in _TOO_LARGE:
        return VariableTooLargeError(
            "(all together)", "pass the 16 MB that one MongoDB document can hold"
        )
    if is_passing(error):
        return StoreUnavailableError(
            f"{doing} failed, the database is not available: {_short(error)}"
        )
    return StoreError(f"{doing} failed: {_short(error)}")


def is_conflict(error: PyMongoError) -> bool:
    """Return whether another transaction was in the way, as against a server that was away."""
    return isinstance(error, OperationFailure) and error.code in _CONFLICTS


def is_passing(error: PyMongoError) -> bool:
    """Return whether the same call can succeed later."""
    if isinstance(error, ConnectionFailure | AutoReconnect | ExecutionTimeout | WTimeoutError):
        return True
    if (
        error.timeout
        or error.has_error_label(TRANSIENT_TRANSACTION)
        or error.has_error_label(UNKNOWN_COMMIT)
    ):
        return True
    return isinstance(error, OperationFailure) and error.code in _PASSING


def _short(error: PyMongoError) -> str:
    text = str(error).split(", full error:")[0].split(", Timeout:")[0]
    return text if len(text) <= 300 else text[:300] + "…"
