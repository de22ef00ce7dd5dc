"""What the values of single settings may be, and what is made of them; each fault is a ``ValueError`` in words."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, SecretStr

from kikwiflow_worker.engine.time_values import delay_after
from kikwiflow_worker.errors import ExecutionError

_SYSTEM_DATABASES = ("admin", "config", "local")
_LONGEST_DATABASE_NAME = 63
_LONGEST_INTERVAL = timedelta(days=36_500)
_SOME_DAY = datetime(2000, 1, 1, tzinfo=UTC)


def checked_uri(value: SecretStr) -> SecretStr:
    """Refuse what is no MongoDB URI."""
    if not re.fullmatch(r"mongodb(\+srv)?://\S+", value.get_secret_value()):
        raise ValueError(
            "is not a MongoDB URI; it starts with mongodb:// or mongodb+srv:// and has no spaces"
        )
    return value


def _no_uri(value: object) -> object:
    # Path("a://b") is "a:/b", in which nothing would recognise and mask the password any more.
    if re.match(r"mongodb(\+srv)?:/", str(value)):
        raise ValueError("is a URI where a path belongs; give it as mongodb_uri")
    return value


def _expanded(value: Path) -> Path:
    if "\0" in str(value):
        raise ValueError("is not a path: it holds a NUL character")
    try:
        return value.expanduser()
    except RuntimeError as error:
        raise ValueError("names the home of a user that this host does not know") from error


def checked_database(value: str) -> str:
    """Refuse a name that no database of ours can have."""
    if len(value.encode()) > _LONGEST_DATABASE_NAME:
        raise ValueError(f"has more than {_LONGEST_DATABASE_NAME} bytes; shorten it")
    if value in _SYSTEM_DATABASES:
        raise ValueError("is a database of MongoDB itself; name another")
    return value


def checked_address(value: str) -> str:
    """Return ``HOST:PORT``; a port alone is on loopback."""
    host, separator, port = value.rpartition(":")
    host = host if separator else "127.0.0.1"
    is_host = re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", host)
    if not is_host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError("is not HOST:PORT or PORT; write an IPv6 host in brackets")
    return f"{host}:{port}"


def checked_duration(value: str) -> str:
    """Refuse what is no ISO 8601 duration, is negative or senselessly long."""
    try:
        length = delay_after(value, _SOME_DAY) - _SOME_DAY
    except ExecutionError as error:
        raise ValueError("is not an ISO 8601 duration; write it as PT3M or P1D") from error
    if not timedelta(0) <= length <= _LONGEST_INTERVAL:
        raise ValueError("is negative or longer than a hundred years; write it as PT3M or P1D")
    return value


def as_text(value: object) -> object:
    """Return a number as text, anything else as it is."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def lowered(value: object) -> object:
    """Return a text in lower case, anything else as it is."""
    return value.lower() if isinstance(value, str) else value


def split_names(value: object) -> object:
    """Accept ``a,b`` as well as a list, whose items may be ``a,b`` too (a repeated flag)."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        return value
    return tuple(name.strip() for item in items for name in item.split(",") if name.strip())


UserPath = Annotated[Path, BeforeValidator(_no_uri), AfterValidator(_expanded)]
"""A path, with ``~`` for a home."""
