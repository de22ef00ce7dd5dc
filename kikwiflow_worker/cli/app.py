"""The command ``kikwiflow-worker``: without a subcommand it runs a worker."""

import io
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

import click

from kikwiflow_worker import __version__
from kikwiflow_worker.cli.audit import audit
from kikwiflow_worker.cli.bulk import bulk
from kikwiflow_worker.cli.definitions import definitions
from kikwiflow_worker.cli.deploying import deploy, validate
from kikwiflow_worker.cli.doctor import doctor
from kikwiflow_worker.cli.errors import INTERRUPTED, report_error
from kikwiflow_worker.cli.events import events
from kikwiflow_worker.cli.external import external
from kikwiflow_worker.cli.handlers import handlers
from kikwiflow_worker.cli.incidents import incidents
from kikwiflow_worker.cli.instances import instances
from kikwiflow_worker.cli.messages import messages
from kikwiflow_worker.cli.options import (
    WORKER,
    SectionGroup,
    connection_options,
    invocation,
    settings_options,
)
from kikwiflow_worker.cli.output import clean
from kikwiflow_worker.cli.relay import relay
from kikwiflow_worker.cli.serve import serve
from kikwiflow_worker.cli.start import start
from kikwiflow_worker.cli.store import store
from kikwiflow_worker.cli.tasks import tasks
from kikwiflow_worker.cli.tokens import tokens
from kikwiflow_worker.cli.verify import verify
from kikwiflow_worker.cli.worker_process import run_worker_process
from kikwiflow_worker.cli.workers import workers
from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.settings import Settings, print_config

_NAME_MISSING = "a worker needs a name: give --instance-name NAME or KIKWIFLOW_INSTANCE_NAME"
_DATABASE_MISSING = (
    "no database is given; give --mongodb-uri URI, --mongodb-uri-file FILE or --embedded [DIR], "
    "or KIKWIFLOW_MONGODB_URI"
)


class CommandGroup(SectionGroup):
    """A group that turns our errors into one message and an exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep a bare ``--embedded`` from taking the subcommand after it for its directory."""
        for position, argument in enumerate(args[:-1]):
            if argument == "--embedded" and args[position + 1] in self.commands:
                args[position] = "--embedded="
        return super().parse_args(ctx, args)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        """Read the command line; what is wrong with it is said without the password in it."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.ClickException as error:
            raise _without_secrets(error) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; ``kikwiflow_worker.errors`` says which error has which exit code."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            raise _without_secrets(error) from None
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except Exception as error:
            ctx.exit(report_error(error, debug=invocation(ctx).debug))


def _without_secrets(error: click.ClickException) -> click.ClickException:
    """Return the error that says the same without a password, such as that of a URI given in a wrong place."""
    said = error.format_message()
    message = clean(said)
    if message == said:
        return error
    if isinstance(error, click.UsageError):
        return click.UsageError(message, error.ctx)
    return click.ClickException(message)


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  kikwiflow-worker --instance-name worker-1 --mongodb-uri 'mongodb://db/?replicaSet=rs0'
  kikwiflow-worker --instance-name dev --embedded
  kikwiflow-worker --config worker.toml --check-config
  kikwiflow-worker incidents list

Each setting is also an environment variable, as KIKWIFLOW_MONGODB_URI, and a key of the TOML file, as mongodb_uri.
An option wins over the environment, that over the file. Give --embedded its directory as --embedded=DIR where a word
follows that is not one.

Exit codes: 0 done, 1 failed, 2 wrong usage, 69 database not available, 78 wrong settings, 130 interrupted.
""",
)
@click.version_option(__version__, "--version", message="kikwiflow-worker %(version)s")
@click.option(
    "--print-config",
    "wants_config",
    is_flag=True,
    help="Print the settings, where each comes from, with passwords masked, and stop.",
)
@click.option(
    "--check-config",
    "wants_check",
    is_flag=True,
    help="Check the settings of a worker without connecting, and stop; exit with 78 if they are wrong.",
)
@settings_options(WORKER)
@connection_options
@click.pass_context
def cli(context: click.Context, *, wants_config: bool, wants_check: bool) -> None:
    """Run a worker, or with a COMMAND look after the processes of a database.

    A worker needs --instance-name and a database. It runs until SIGTERM or Ctrl-C, which let running tasks finish.
    """
    if context.invoked_subcommand is not None:
        if wants_config or wants_check:
            raise click.UsageError("--print-config and --check-config take no COMMAND")
        return
    settings = invocation(context).settings()
    if wants_config:
        click.echo(print_config(settings), nl=False)
        return
    _check_startable(settings)
    if wants_check:
        click.echo("the settings are valid")
        return
    run_worker_process(settings)


_COMMANDS: Sequence[click.Command] = (
    validate,
    deploy,
    definitions,
    start,
    instances,
    tasks,
    external,
    messages,
    incidents,
    bulk,
    handlers,
    workers,
    store,
    events,
    relay,
    serve,
    tokens,
    audit,
    verify,
    doctor,
)
for _command in _COMMANDS:
    cli.add_command(_command)


def main() -> None:
    """Run the command line of this process and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal may not know a character of a variable: it is shown escaped, the command goes on.
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning
    cli(prog_name="kikwiflow-worker")


def _show_warning(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001 - the signature of warnings.showwarning
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Print what a library warns of, such as an unknown option in a URI, without the place in its code."""
    click.echo(clean(f"warning: {message}"), err=True)


def _check_startable(settings: Settings) -> None:
    """Raise ConfigurationError, with all that is missing, if no worker can run with the settings."""
    missing = [] if settings.instance_name is not None else [_NAME_MISSING]
    if settings.embedded is None:
        if settings.mongodb_uri is None and settings.mongodb_uri_file is None:
            missing.append(_DATABASE_MISSING)
        else:
            settings.uri()
    if missing:
        raise ConfigurationError("\n".join(missing))
