"""The options that set a setting, made from the one settings class, and what an invocation was given."""

import difflib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import click

from kikwiflow_worker.settings import ENV_PREFIX, Settings, load_settings

_Decorated = TypeVar("_Decorated", bound=Callable[..., object])

CONNECTION = (
    "mongodb_uri",
    "mongodb_uri_file",
    "mongodb_database",
    "embedded",
    "mongod_path",
    "allow_standalone",
    "encryption_key_file",
)
"""Settings that say where the database is."""

MANAGEMENT = tuple(
    name for name in Settings.model_fields if name.startswith(("audit_", "authentication", "jwt_"))
)
"""Settings of the HTTP API and the dashboard."""

RELAY = tuple(name for name in Settings.model_fields if name.startswith("relay_"))
"""Settings of the relay of outbox events."""

WORKER = tuple(name for name in Settings.model_fields if name not in CONNECTION)
"""Settings that only a worker looks at."""

_COMMON = "Common options"

_SEVERAL = ("handlers", "relay_options", "authentication", "jwt_algorithms")
"""Settings whose flag may be repeated."""

_METAVARS = {
    "instance_name": "NAME",
    "mongodb_uri": "URI",
    "mongodb_uri_file": "FILE",
    "mongodb_database": "NAME",
    "embedded": "[DIR]",
    "mongod_path": "FILE",
    "encryption_key_file": "FILE",
    "health_address": "HOST:PORT",
    "management_port": "[HOST:]PORT",
    "handlers": "NAME[,NAME...]",
    "default_retry_interval": "DURATION",
    "history_ttl_days": "DAYS",
    "audit_ttl_days": "DAYS",
    "authentication": "tokens|jwt[,...]",
    "jwt_issuer": "TEXT",
    "jwt_audience": "TEXT",
    "jwt_jwks_url": "URL",
    "jwt_algorithms": "NAME[,NAME...]",
    "jwt_actor_claim": "NAME",
    "jwt_roles_claim": "NAME",
    "jwt_role_prefix": "TEXT",
    "jwt_tenant_claim": "NAME",
    "relay_sink": "NAME",
    "relay_options": "NAME=VALUE[,...]",
}


class SectionOption(click.Option):
    """An option that the help page lists under a heading of its own."""

    def __init__(self, *args: Any, section: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section = section


class SectionCommand(click.Command):
    """A command whose help page lists its own options first, then the sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                title = parameter.section if isinstance(parameter, SectionOption) else "Options"
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 - a line is wrapped, not cut
        """Return the first sentence of the help."""
        return super().get_short_help_str(limit=1000)


class SectionGroup(SectionCommand, click.Group):
    """A group with sections, which keeps its commands in the order in which they were added."""

    command_class = SectionCommand

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was probably meant."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], self.commands, n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@dataclass(slots=True)
class Invocation:
    """What the command line gave, collected from the group and the subcommand alike; the latter wins."""

    flags: dict[str, object] = field(default_factory=dict)
    config: Path | None = None
    debug: bool = False

    def settings(self) -> Settings:
        """Return the settings from flags, environment and file.

        Raises:
            ConfigurationError: One message that lists each mistake.
        """
        return load_settings(flags=self.flags, environ=os.environ, config=self.config)


def settings_options(names: Sequence[str]) -> Callable[[_Decorated], _Decorated]:
    """Add an option for each of the settings ``names``; they reach the command through its ``Invocation``."""

    def decorate(command: _Decorated) -> _Decorated:
        for name in reversed(names):
            command = _setting_option(name)(command)
        return command

    return decorate


def connection_options(command: _Decorated) -> _Decorated:
    """Add the options that say where the database is, ``--config`` and ``--debug``."""
    command = common_options(command)
    return settings_options(CONNECTION)(command)


def common_options(command: _Decorated) -> _Decorated:
    """Add ``--config`` and ``--debug``."""
    command = click.option(
        "--debug",
        cls=SectionOption,
        section=_COMMON,
        is_flag=True,
        expose_value=False,
        callback=_note_debug,
        help="Show the traceback of an unexpected error.",
    )(command)
    return click.option(
        "--config",
        cls=SectionOption,
        section=_COMMON,
        metavar="FILE",
        type=click.Path(path_type=Path),
        expose_value=False,
        callback=_note_config,
        help=f"Read settings from this TOML file.  [env: {ENV_PREFIX}CONFIG]",
    )(command)


def invocation(context: click.Context) -> Invocation:
    """Return what this invocation was given."""
    return context.find_root().ensure_object(Invocation)


def _setting_option(name: str) -> Callable[[_Decorated], _Decorated]:
    info = Settings.model_fields[name]
    text = (info.description or "").replace("`", "")
    if info.default not in (None, (), False):
        text += f"  [default: {_plain(info.default)}]"
    shape: dict[str, object] = {"metavar": _METAVARS.get(name, "N")}
    if isinstance(info.annotation, type) and issubclass(info.annotation, StrEnum):
        shape["metavar"] = "|".join(info.annotation)
    if name.endswith("_seconds"):
        shape["metavar"] = "SECONDS"
    flag = "--" + name.replace("_", "-")
    if info.annotation is bool:
        flag, shape = (
            (f"{flag}/--no-{flag[2:]}", {}) if info.default else (flag, {"flag_value": True})
        )
    elif name in _SEVERAL:
        shape["multiple"] = True
    elif name == "embedded":
        shape |= {"is_flag": False, "flag_value": ""}
    return click.option(
        flag,
        name,
        cls=SectionOption,
        section=_section(name),
        default=None,
        expose_value=False,
        callback=_note,
        help=text,
        **shape,
    )


def _section(name: str) -> str:
    if name in CONNECTION:
        return "Database options"
    return "Management options" if name in MANAGEMENT else "Worker options"


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _note(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value is not None and value != () and parameter.name is not None:
        invocation(context).flags[parameter.name] = value


def _note_config(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:  # noqa: ARG001
    if value is not None:
        invocation(context).config = value


def _note_debug(context: click.Context, parameter: click.Parameter, value: object) -> None:  # noqa: ARG001
    if value:
        invocation(context).debug = True


class Seconds(click.FloatRange):
    """A length of time: a number as such, neither NaN nor infinite."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or refuse the option."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number of seconds", param, ctx)
        return number


def json_option(command: _Decorated) -> _Decorated:
    """Add ``--json``, as the parameter ``as_json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document, for programs."
    )(command)


def page_options(command: _Decorated) -> _Decorated:
    """Add ``--limit`` and ``--cursor``."""
    command = click.option(
        "--cursor", metavar="CURSOR", help="Where the page begins, as the page before said."
    )(command)
    return click.option(
        "--limit",
        metavar="N",
        type=click.IntRange(1, 500),
        default=50,
        show_default=True,
        help="How many to list, 1 to 500.",
    )(command)


def target_version_option(command: _Decorated) -> _Decorated:
    """Add ``--version``, the version that instances are moved to."""
    return click.option(
        "--version",
        metavar="N",
        type=click.IntRange(1),
        help="The version to move to; the latest by default.",
    )(command)
