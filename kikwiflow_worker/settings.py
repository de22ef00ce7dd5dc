"""The worker's settings, and where each of them comes from.

A flag wins over a ``KIKWIFLOW_*`` variable, that over the TOML file, that over the default. ``load_settings`` merges the
layers itself, because only then can an error name the place to correct; all mistakes are reported at once.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)

from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.model.texts import is_unicode
from kikwiflow_worker.setting_values import (
    ActorClaim,
    Authentication,
    BlockWarning,
    EventsTtl,
    JwksUrl,
    JwtAlgorithms,
    JwtAudience,
    JwtIssuer,
    JwtLeeway,
    RelayAttempts,
    RelayBeside,
    RelayOptions,
    RelaySink,
    RolePrefix,
    RolesClaim,
    TenantClaim,
    UserPath,
    as_text,
    checked_address,
    checked_database,
    checked_duration,
    checked_uri,
    kind_and_default,
    lowered,
    split_names,
    toml,
)
from kikwiflow_worker.telemetry import LogFormat, LogLevel, mask_credentials
from kikwiflow_worker.tracing.export import TraceExport
from kikwiflow_worker.worker.event_loop import EventLoop

ENV_PREFIX = "KIKWIFLOW_"
_CONFIG_VARIABLE = "KIKWIFLOW_CONFIG"
_TEST_PREFIX = "KIKWIFLOW_TEST_"
_DATABASE_KEYS = ("mongodb_uri", "mongodb_uri_file", "embedded")
_SECRET_KEYS = ("mongodb_uri", "mongodb_uri_file")
_LONGEST_SHOWN = 100
_SWITCH = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
# What Kubernetes sets in every pod beside a Service named kikwiflow or kikwiflow-something: not ours to refuse.
_SERVICE_LINK = re.compile(
    r"KIKWIFLOW_([A-Z0-9_]+_)?"
    r"(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)=|PORT=[a-z]+://|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=)"
)


class Settings(BaseModel):
    """All settings of a worker; immutable.

    Built directly it reads nothing but its arguments; ``load_settings`` reads the environment and the file.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )

    instance_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")] | None = (
        Field(None, description="Name of this worker in logs, metrics and the list of workers.")
    )
    mongodb_uri: Annotated[SecretStr, AfterValidator(checked_uri)] | None = Field(
        None, description="Where the database is. Excludes `mongodb_uri_file` and `embedded`."
    )
    mongodb_uri_file: UserPath | None = Field(
        None,
        description="File that holds nothing but the URI, for mounted secrets. Excludes `mongodb_uri` and `embedded`.",
    )
    mongodb_database: Annotated[str, AfterValidator(checked_database)] = Field(
        "kikwiflow", pattern=r'^[^/\\. "$*<>:|?\x00]{1,63}$', description="Name of the database."
    )
    embedded: UserPath | None = Field(
        None,
        description="Start a MongoDB server of its own with its data in this directory; `true`, or the bare flag, means "
        "`$XDG_STATE_HOME/kikwiflow/embedded`. For development. Excludes `mongodb_uri` and `mongodb_uri_file`.",
    )
    mongod_path: UserPath | None = Field(
        None, description="The `mongod` program that `embedded` starts."
    )
    encryption_key_file: UserPath | None = Field(
        None,
        description="File with the keys that values of variables and texts of errors are encrypted with, one on each line, the "
        "newest first. Needs the extra `crypto`.",
    )
    allow_standalone: bool = Field(
        default=False,
        description="Accept a server that is no replica set, which has no transactions. For experiments only.",
    )
    concurrency: int = Field(10, ge=1, le=1000, description="How many tasks run at the same time.")
    lock_seconds: float = Field(
        30.0,
        ge=1,
        le=86_400,
        description="How long a task of a crashed worker stays locked; renewed while the worker lives.",
    )
    poll_interval_seconds: float = Field(
        1.0, ge=0.01, le=3600, description="Wait between two looks for due tasks."
    )
    poll_max_seconds: float = Field(
        5.0, ge=0.01, le=3600, description="Longest wait between two looks while nothing is due."
    )
    change_streams: bool = Field(
        default=True,
        description="Let the database tell an idle worker of work that others make due; without it the next look finds it.",
    )
    claim_batch_size: int = Field(
        1000,
        ge=1,
        le=1000,
        description="How many tasks one look claims at most, as far as slots are free; 1 claims each by itself.",
    )
    commit_group_size: int = Field(
        64,
        ge=1,
        le=1000,
        description="How many tasks that end together share a transaction at most; 1 gives each its own.",
    )
    hand_on: bool = Field(
        default=True,
        description="Let a worker go on with the next task of a path without claiming it anew.",
    )
    traces: Annotated[TraceExport, BeforeValidator(lowered)] = Field(
        TraceExport.OFF,
        description="Where OpenTelemetry spans go: `provider` is what `opentelemetry-instrument` has set up, `otlp` an address "
        "of the `OTEL_EXPORTER_OTLP_*` variables, `lines` standard error.",
    )
    event_loop: Annotated[EventLoop, BeforeValidator(lowered)] = Field(
        EventLoop.AUTO,
        description="Event loop to run on; `auto` is `uvloop` where it is installed.",
    )
    grace_seconds: float = Field(
        25.0,
        ge=0,
        le=86_400,
        description="How long running tasks may take to finish when stopping.",
    )
    shutdown_cancel_seconds: float = Field(
        5.0,
        ge=0,
        le=3600,
        description="How long cancelled handlers may take to end after the grace.",
    )
    startup_timeout_seconds: float = Field(
        30.0, gt=0, le=3600, description="How long to wait for the database at start."
    )
    health_address: (
        Annotated[str, BeforeValidator(as_text), AfterValidator(checked_address)] | None
    ) = Field(
        None,
        description="`HOST:PORT` for `/livez`, `/readyz` and `/metrics`; a port alone is on 127.0.0.1.",
    )
    management_port: (
        Annotated[str, BeforeValidator(as_text), AfterValidator(checked_address)] | None
    ) = Field(
        None,
        description="`PORT` or `HOST:PORT` where a worker serves the HTTP API and the dashboard as well; a port alone is on "
        "127.0.0.1. Needs the extra `management`.",
    )
    handlers: Annotated[tuple[str, ...], BeforeValidator(split_names)] = Field(
        (),
        description="Load only these handler modules or distributions; empty loads all. Commas separate them outside TOML.",
    )
    default_max_retries: int = Field(
        3,
        ge=0,
        le=10_000,
        description="Attempts in total of a node without a retry policy; 0 or 1 is a single one.",
    )
    default_retry_interval: Annotated[str, AfterValidator(checked_duration)] = Field(
        "PT3M",
        description="Wait before a retry where the definition has no policy, as an ISO 8601 duration.",
    )
    history_ttl_days: int = Field(
        30, ge=1, le=36_500, description="How long finished instances are kept, in days."
    )
    events: Annotated[EventLevel, BeforeValidator(lowered)] = Field(
        EventLevel.OFF,
        description="Outbox events to store with each commit: none, those of instances, external tasks and incidents, or all.",
    )
    events_ttl_days: EventsTtl = 7
    relay: RelayBeside = False
    relay_sink: RelaySink = None
    relay_options: RelayOptions = ()
    relay_max_attempts: RelayAttempts = 10
    audit_ttl_days: int = Field(
        365,
        ge=1,
        le=36_500,
        description="How long the audit keeps who changed what over HTTP, in days.",
    )
    authentication: Authentication = ()
    jwt_issuer: JwtIssuer = None
    jwt_audience: JwtAudience = None
    jwt_jwks_url: JwksUrl = None
    jwt_algorithms: JwtAlgorithms = ("RS256", "ES256")
    jwt_leeway_seconds: JwtLeeway = 30.0
    jwt_actor_claim: ActorClaim = "sub"
    jwt_roles_claim: RolesClaim = "roles"
    jwt_role_prefix: RolePrefix = "kikwiflow-"
    jwt_tenant_claim: TenantClaim = None
    log_level: Annotated[LogLevel, BeforeValidator(lowered)] = Field(
        LogLevel.INFO, description="Least grave line to log."
    )
    log_format: Annotated[LogFormat, BeforeValidator(lowered)] = Field(
        LogFormat.AUTO,
        description="Shape of a log line; `auto` is `console` on a terminal and `json` elsewhere.",
    )
    handler_block_warning_seconds: BlockWarning = 1.0

    _sources: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _check_together(self) -> "Settings":
        chosen = [name for name in _DATABASE_KEYS if getattr(self, name) is not None]
        if len(chosen) > 1:
            raise ValueError(f"{' and '.join(chosen)} exclude each other; keep one")
        if self.poll_max_seconds < self.poll_interval_seconds:
            raise ValueError(
                "poll_max_seconds must not be less than poll_interval_seconds; raise it"
            )
        if self.relay and self.relay_sink is None:
            raise ValueError("relay needs relay_sink; name the sink, or leave relay out")
        return self

    @property
    def sources(self) -> Mapping[str, str]:
        """Where each value that is not a default came from, by name."""
        return self._sources

    def uri(self) -> str:
        """Return the database's URI, from the setting or its file, with its password.

        Raises:
            ConfigurationError: Neither is set, or the file cannot be read or holds no URI.
        """
        if self.mongodb_uri is not None:
            return self.mongodb_uri.get_secret_value()
        if self.mongodb_uri_file is None:
            raise ConfigurationError(
                "no database is configured; set mongodb_uri, mongodb_uri_file or embedded "
                "(flags --mongodb-uri, --mongodb-uri-file, --embedded)"
            )
        where = f"{self.sources.get('mongodb_uri_file', 'mongodb_uri_file')}: {mask_credentials(str(self.mongodb_uri_file))}"
        try:
            text = self.mongodb_uri_file.read_text(encoding="utf-8").strip()
            return checked_uri(SecretStr(text)).get_secret_value()
        except OSError as error:
            raise ConfigurationError(
                f"{where} cannot be read ({error.strerror}); check the path and its permissions"
            ) from error
        except ValueError:
            # Not chained: a decoding error quotes the bytes of the secret.
            raise ConfigurationError(
                f"{where} does not hold a MongoDB URI; write mongodb://... and nothing else into it"
            ) from None


@dataclass(frozen=True, slots=True)
class _Given:
    """A raw value and the place to correct it."""

    value: object
    source: str


def load_settings(
    *, flags: Mapping[str, object], environ: Mapping[str, str], config: Path | None
) -> Settings:
    """Merge flags, environment and file into settings.

    Args:
        flags: By setting name. ``None`` and an empty tuple mean not given; ``embedded`` is ``True`` or empty for the bare flag.
        environ: The environment; a variable that is empty counts as not set.
        config: The TOML file; without it the one that ``KIKWIFLOW_CONFIG`` names, if any.

    Raises:
        ConfigurationError: One message that lists each mistake with its place and remedy, and no secret.
    """
    if config is None and environ.get(_CONFIG_VARIABLE):
        config = Path(environ[_CONFIG_VARIABLE])
    problems: list[str] = []
    given: dict[str, _Given] = {}
    for name, found in (*_from_file(config), *_from_environment(environ), *_from_flags(flags)):
        if name not in Settings.model_fields:
            problems.append(_unknown(name, found.source))
            continue
        if not _is_readable(found.value):
            problems.append(f"{found.source}: is not valid Unicode; correct its bytes to UTF-8")
            continue
        value = _embedded_directory(found.value, environ) if name == "embedded" else found.value
        given[name] = _Given(value, found.source)
    problems += _take_out_conflicting(given)
    settings = _validate(given, problems)
    if settings is None or problems:
        raise ConfigurationError(
            "the settings are not valid:\n"
            + "\n".join(f"  - {mask_credentials(each)}" for each in problems)
        )
    return settings


def _is_readable(value: object) -> bool:
    texts = value if isinstance(value, list | tuple) else (value,)
    return all(is_unicode(text) for text in texts if isinstance(text, str))


def _validate(given: Mapping[str, _Given], problems: list[str]) -> Settings | None:
    """Return the settings, or ``None`` after adding a line for each bad value to ``problems``."""
    try:
        settings = Settings.model_validate({name: found.value for name, found in given.items()})
    except ValidationError as error:
        reported = set()
        for detail in error.errors(include_input=False, include_url=False, include_context=False):
            name = str(detail["loc"][0]) if detail["loc"] else ""
            if name and name in reported:
                continue
            reported.add(name)
            problems.append(_invalid(name, detail["msg"].removeprefix("Value error, "), given))
        return None
    settings._sources = {name: found.source for name, found in given.items()}
    return settings


def _from_file(config: Path | None) -> Iterator[tuple[str, _Given]]:
    if config is None:
        return
    try:
        content = tomllib.loads(config.read_bytes().decode())
    except OSError as error:
        raise ConfigurationError(
            f"settings file {config} cannot be read ({error.strerror}); check --config or {_CONFIG_VARIABLE}"
        ) from error
    except (ValueError, RecursionError) as error:
        reason = (
            "is not UTF-8"
            if isinstance(error, UnicodeDecodeError)
            else f"is not valid TOML: {error}"
        )
        raise ConfigurationError(f"settings file {config} {reason}; correct it") from None
    for key, value in content.items():
        yield key, _Given(value, f"file {config} key {key}")


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, _Given]]:
    for variable, value in environ.items():
        is_ours = (
            variable.startswith(ENV_PREFIX)
            and not variable.startswith(_TEST_PREFIX)
            and variable != _CONFIG_VARIABLE
        )
        if is_ours and value and not _SERVICE_LINK.match(f"{variable}={value}"):
            name = variable.removeprefix(ENV_PREFIX)
            # Variables are upper case: any other spelling stays unknown, so that no two name one setting.
            yield (
                (name.lower() if name.isupper() else name.upper()),
                _Given(value, f"env {variable}"),
            )


def _from_flags(flags: Mapping[str, object]) -> Iterator[tuple[str, _Given]]:
    for name, value in flags.items():
        if value is not None and value != ():
            yield name, _Given(value, f"flag {_flag(name)}")


def _flag(name: str, *, negated: bool = False) -> str:
    return ("--no-" if negated else "--") + name.replace("_", "-")


def _embedded_directory(value: object, environ: Mapping[str, str]) -> object:
    """Turn a switch into the default directory or into nothing; leave a path alone."""
    is_on = (
        _SWITCH.get(value.lower(), True if not value else None) if isinstance(value, str) else value
    )
    if is_on is False:
        return None
    if is_on is not True:
        return value
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():  # the XDG specification has relative paths ignored
        home = environ.get("HOME")
        state = (Path(home) if home else Path.home()) / ".local" / "state"
    return state / "kikwiflow" / "embedded"


def _take_out_conflicting(given: dict[str, _Given]) -> list[str]:
    """Remove settings that exclude each other, so that the others are still checked, and return the problem."""
    chosen = [name for name in _DATABASE_KEYS if name in given and given[name].value is not None]
    if len(chosen) < 2:
        return []
    sources = [given.pop(name).source for name in chosen]
    return [
        f"{' and '.join(sources)}: exclude each other, since each says where the database is; keep one"
    ]


def _unknown(name: str, source: str) -> str:
    close = difflib.get_close_matches(name.lower().replace("-", "_"), Settings.model_fields, n=1)
    if not close:
        return f"{source}: is not a setting; remove it, or see --help for all settings"
    spelled = close[0]
    if source.startswith("env "):
        spelled = ENV_PREFIX + spelled.upper()
    elif source.startswith("flag "):
        spelled = _flag(spelled)
    return f"{source}: is not a setting; did you mean {spelled}?"


def _invalid(name: str, message: str, given: Mapping[str, _Given]) -> str:
    if name not in given:
        return message
    found = given[name]
    kind, default = kind_and_default(Settings.model_json_schema(), name)
    shown = (
        ""
        if name in _SECRET_KEYS
        else f" (it is {_shortened(mask_credentials(repr(found.value)))})"
    )
    message = message.removeprefix("Input ")
    remedy = "correct it" if kind == "text" else f"give {kind}"
    return f"{found.source}: {message}{shown}; {remedy}, or remove it for the default ({default})"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def print_config(settings: Settings) -> str:
    """Return the effective settings as TOML, each with its source, and passwords masked.

    What is not set is a comment. A file that holds the URI is named and not read.
    """
    lines = []
    for name, value in settings.model_dump(mode="json").items():
        source = mask_credentials(settings.sources.get(name, "default"))
        if value is None:
            lines.append(f"# {name} is not set")
            continue
        secret = settings.mongodb_uri if name == "mongodb_uri" else None
        shown = secret.get_secret_value() if secret else value
        if isinstance(shown, str):
            shown = mask_credentials(shown)
        elif isinstance(shown, list):
            shown = [mask_credentials(item) for item in shown]
        lines.append(f"{name} = {toml(shown)}  # {source}")
    return "\n".join(lines) + "\n"


def settings_reference() -> str:
    """Return the Markdown table of all settings."""
    lines = [
        "| Setting (TOML key) | Flag | Environment | Takes | Default | Meaning |",
        "|---|---|---|---|---|---|",
    ]
    schema = Settings.model_json_schema()
    for name, field in Settings.model_fields.items():
        kind, default = kind_and_default(schema, name)
        variable = ENV_PREFIX + name.upper()
        lines.append(
            f"| `{name}` | `{_flag(name, negated=field.default is True)}` | `{variable}` | {kind} | `{default}` | {field.description} |"
        )
    return "\n".join(lines) + "\n"
