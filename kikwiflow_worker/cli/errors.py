"""What a failed command prints and exits with."""

import traceback

import click

from kikwiflow_worker.cli.output import clean
from kikwiflow_worker.errors import KikwiflowError

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""


def report_error(error: Exception, *, debug: bool = False) -> int:
    """Print an error as one message to standard error, without a password, and return the exit code it stands for.

    One of ours says itself what to do; an unexpected one says where its traceback is. With ``debug`` that comes first.
    """
    if debug:
        click.echo(clean("".join(traceback.format_exception(error))), err=True)
    if isinstance(error, KikwiflowError):
        click.echo(clean(f"error: {error}"), err=True)
        return error.exit_code
    message = f"error: unexpected {type(error).__name__}: {error}"
    click.echo(clean(f"{message}; run with --debug for the traceback"), err=True)
    return 1
