"""What the values of single settings may be, and what is made of them; each fault is a ``ValueError`` in words."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from kikwiflow_worker.engine.time_values import delay_after
from kikwiflow_worker.errors import ExecutionError

_SYSTEM_DATABASES = ("admin", "config", "local")
_LONGEST_DATABASE_NAME = 63
_LONGEST_INTERVAL = timedelta(days=36_500)
SIGNATURES = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")  # fmt: skip
"""That a JWT may have. With a shared secret, as HS256, whoever checks it could make one; ``none`` is no signature at all."""

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


def checked_authentication(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a way to authenticate that there is not."""
    return _among(values, ("tokens", "jwt"))


def checked_algorithms(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an algorithm that proves nothing, or that whoever checks a signature could also sign with."""
    if not values:
        raise ValueError("names no algorithm; give at least one")
    return _among(values, SIGNATURES)


def _among(values: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [value for value in values if value not in known]
    if unknown:
        raise ValueError(f"is not one of {', '.join(known)}")
    return values


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


def split_options(value: object) -> object:
    """Accept ``a=1,b=2`` as well as a list; a comma inside a value, as between hosts, separates nothing."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        return value
    parts = (part for item in items for part in re.split(r",(?=\s*[a-z][a-z0-9_]*=)", item))
    return tuple(part.strip() for part in parts if part.strip())


UserPath = Annotated[Path, BeforeValidator(_no_uri), AfterValidator(_expanded)]
"""A path, with ``~`` for a home."""

Authentication = Annotated[
    tuple[str, ...],
    BeforeValidator(split_names),
    AfterValidator(checked_authentication),
    Field(
        description="How callers of the HTTP API and the dashboard prove who they are: `tokens` (of "
        "`kikwiflow-worker tokens`), `jwt` (of an OpenID Connect provider), or both; with neither, everybody who reaches it "
        "is an administrator, and it listens on this host only."
    ),
]
JwtIssuer = Annotated[
    str | None, Field(description="Who must have issued a JWT: its claim `iss`.", min_length=1)
]
JwtAudience = Annotated[
    str | None, Field(description="For whom a JWT must be: one of its claim `aud`.", min_length=1)
]
JwksUrl = Annotated[
    str | None,
    Field(
        description="Where the issuer's public keys are, by https: its `jwks_uri`.", min_length=1
    ),
]
JwtAlgorithms = Annotated[
    tuple[str, ...],
    BeforeValidator(split_names),
    AfterValidator(checked_algorithms),
    Field(description="Algorithms that JWTs may be signed with; none with a shared secret."),
]
JwtLeeway = Annotated[
    float, Field(ge=0, le=300, description="How far the issuer's clock may be off.")
]
ActorClaim = Annotated[
    str, Field(min_length=1, description="The claim that names who it is, for the audit.")
]
RolesClaim = Annotated[
    str,
    Field(
        min_length=1,
        description="The claim that lists the roles; dots lead into objects, as in `realm_access.roles`.",
    ),
]
RolePrefix = Annotated[
    str,
    Field(
        description="Begins the roles in that claim that are meant for us, as in `kikwiflow-operator`."
    ),
]
TenantClaim = Annotated[
    str | None,
    Field(
        min_length=1,
        description="The claim that names the only tenant an identity sees, or `*` for all. Without the setting there are no "
        "tenants; with it, a JWT without the claim is refused.",
    ),
]
EventsTtl = Annotated[
    int,
    Field(
        ge=1,
        le=36_500,
        description="How long outbox events are kept, in days; from their delivery if they are relayed.",
    ),
]
RelayBeside = Annotated[
    bool,
    Field(description="Relay outbox events from within this worker; needs `relay_sink`."),
]
RelaySink = Annotated[
    Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")] | None,
    Field(
        description="Where outbox events are relayed to: `webhook`, `kafka`, `stdout`, or a sink of your own."
    ),
]
RelayOptions = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*=.")], ...],
    BeforeValidator(split_options),
    Field(
        description="What the sink needs to know, each as NAME=VALUE. Commas separate them outside TOML."
    ),
]
RelayAttempts = Annotated[
    int,
    Field(
        ge=1,
        le=1000,
        description="How often delivering an event may fail, while the sink takes others, before it is a dead letter.",
    ),
]
BlockWarning = Annotated[
    float,
    Field(ge=0.01, le=3600, description="Warn when a handler blocks the event loop for this long."),
]


def kind_and_default(schema: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return what a setting takes and its default, in words, by the JSON schema of all settings."""
    field = schema["properties"][name]
    kind = next((each for each in field.get("anyOf", ()) if each.get("type") != "null"), field)
    if "$ref" in kind:
        kind = schema["$defs"][kind["$ref"].rpartition("/")[2]]
    if "enum" in kind:
        text = " or ".join(kind["enum"])
    elif kind["type"] in ("integer", "number"):
        least = kind.get("minimum", kind.get("exclusiveMinimum"))
        text = f"{kind['type']} {'from' if 'minimum' in kind else 'above'} {least:g} to {kind['maximum']:g}"
    else:
        listed = "names" if "pattern" not in kind.get("items", {}) else "NAME=VALUE"
        words = {"array": f"list of {listed}", "boolean": "true or false"}
        text = words.get(kind["type"], "path" if kind.get("format") == "path" else "text")
    default = field.get("default")
    return text, "none" if default in (None, [], ()) else toml(default)


def toml(value: object) -> str:
    """Return a value of JSON's types as TOML, which writes them the same way."""
    return json.dumps(value, ensure_ascii=False)
