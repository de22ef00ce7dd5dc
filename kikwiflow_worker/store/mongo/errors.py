"""Translates the driver's exceptions; no other module looks at them."""

import re
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
    ServerSelectionTimeoutError,
    WTimeoutError,
)
from pymongo.errors import (
    ConfigurationError as MongoConfigurationError,
)

from kikwiflow_worker.errors import (
    ConfigurationError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
    VariableTooLargeError,
)

_NOT_ALLOWED = 13
_WRONG_CREDENTIALS = {11, 18, 334}
_TLS_REFUSALS = (
    "CERTIFICATE_VERIFY_FAILED",
    "CERTIFICATE_REQUIRED",
    "ALERT_",
    "WRONG_VERSION_NUMBER",
)
"""What OpenSSL says when one side does not accept the other, or one of them speaks no TLS."""

_TOO_LARGE = {10334, 17419, 17420}
_LARGER_THAN_CACHE = 388
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

_CLOSED = re.compile(r"connection (is already )?closed")
_DNS_OUTAGES = {"Timeout", "LifetimeTimeout", "NoNameservers"}
"""Causes, in dnspython, of the driver's complaint that a ``mongodb+srv`` URI is wrong: the name servers are away."""
_CONFLICTS = {24, 112}

_NOT_YET = "Sessions are not supported"
"""What the driver takes for a wrong set-up when it meets a member that is only starting and does not know its set yet."""

TRANSIENT_TRANSACTION = "TransientTransactionError"
UNKNOWN_COMMIT = "UnknownTransactionCommitResult"


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise our errors instead of the driver's.

    Args:
        doing: What was being done, for the message, as ``claiming a task``.

    Raises:
        StoreUnavailableError: The database was away, slow or busy; the call can be repeated.
        StoreRefusedError: It refuses the credentials, a role is missing, or a certificate is not accepted.
        VariableTooLargeError: A document passed the database's limit, or a transaction its cache.
        ConfigurationError: The address cannot be used.
        StoreError: Anything else the database refused.
    """
    try:
        yield
    except PyMongoError as error:
        raise translate(error, doing) from error
    except (BSONError, OverflowError, UnicodeEncodeError) as error:
        # Neither its text nor itself is passed on: it may repeat the whole document.
        reason = type(error).__name__
        raise StoreError(
            f"{doing} failed: a value of it cannot be stored as BSON ({reason})"
        ) from None


@contextmanager
def translated_opening() -> Iterator[None]:
    """Raise our errors instead of those about a URI, and about the files that it names.

    Raises:
        ConfigurationError: The URI, or a certificate's file, cannot be read.
    """
    try:
        with translated("opening the connection"):
            yield
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"the MongoDB URI cannot be used: {error}") from error
    except OSError as error:  # so is an SSLError
        raise ConfigurationError(
            f"the MongoDB URI names a file for TLS that cannot be used: {error}; "
            "check tlsCAFile, tlsCertificateKeyFile and its password"
        ) from error


def translate(error: PyMongoError, doing: str) -> Exception:
    """Return our error for the driver's."""
    code = error.code if isinstance(error, OperationFailure) else None
    if type(error.__cause__).__name__ in _DNS_OUTAGES:
        return StoreUnavailableError(f"{doing} failed, its name cannot be resolved: {error}")
    if isinstance(error, MongoConfigurationError) and str(error).startswith(_NOT_YET):
        return StoreUnavailableError(f"{doing} failed, the database is only starting: {error}")
    if isinstance(error, MongoConfigurationError | InvalidURI):
        return ConfigurationError(f"the MongoDB URI cannot be used: {error}")
    refusal = _refusal(error, code)
    if refusal is not None:
        return StoreRefusedError(f"{doing} was refused: {refusal}")
    if isinstance(error, DocumentTooLarge) or code in _TOO_LARGE:
        return VariableTooLargeError(
            "(all together)", "pass the 16 MB that one MongoDB document can hold"
        )
    if code == _LARGER_THAN_CACHE:
        return VariableTooLargeError(
            "(all together)",
            "make this commit larger than the cache of the server takes in one transaction; give MongoDB a larger cache "
            "(--wiredTigerCacheSizeGB), or unset what is no longer needed, then retry",
        )
    if is_passing(error):
        return StoreUnavailableError(
            f"{doing} failed, the database is not available: {_short(error)}"
        )
    return StoreError(f"{doing} failed: {_short(error)}")


def _refusal(error: PyMongoError, code: int | None) -> str | None:
    """Return why the database, or its certificate, keeps us out, and what to check; None if it does not.

    The server's own words are left out: they quote the command, with the values in it.
    """
    is_connecting = isinstance(error, ConnectionFailure)
    # The driver repeats an earlier refusal as the reason why it finds no server.
    if code in _WRONG_CREDENTIALS or (is_connecting and "Authentication failed" in str(error)):
        code = code or 18
        return f"MongoDB does not know the user or its password or certificate (code {code}); check the user, its password and authSource"
    if code == _NOT_ALLOWED:
        return f"the user lacks a role for it (code {code}); check the user, it needs readWrite on the database"
    if is_connecting and any(mark in str(error) for mark in _TLS_REFUSALS):
        return f"no TLS connection: {_short(error)}; check tlsCAFile, tlsCertificateKeyFile, the host name and the dates of the certificates"
    return None


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
    text = text if len(text) <= 300 else text[:300] + "…"
    if isinstance(error, ServerSelectionTimeoutError) and _CLOSED.search(text):
        text += "; a server that requires TLS (tls=true) or a client certificate closes connections at once"
    return text
