"""Variables on the command line: ``--var name=value`` and ``--vars-file``."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

import click

_Decorated = TypeVar("_Decorated", bound=Callable[..., object])

_JSON_BEGINNINGS = ("{", "[", '"')


def variable_options(command: _Decorated) -> _Decorated:
    """Add ``--var`` and ``--vars-file``, as the parameters ``pairs`` and ``vars_file``."""
    command = click.option(
        "--vars-file",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
        help="A JSON object of variables; - reads it from standard input. --var wins over it.",
    )(command)
    return click.option(
        "--var",
        "pairs",
        metavar="NAME=VALUE",
        multiple=True,
        help="A variable; its value is JSON if it reads as such, else text. May be repeated.",
    )(command)


def read_variables(pairs: Sequence[str], vars_file: Path | None) -> dict[str, object]:
    """Return the variables that the command line gave.

    Raises:
        click.UsageError: A pair or the file cannot be read; the message says which.
    """
    variables = _from_file(vars_file) if vars_file is not None else {}
    named: set[str] = set()
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise click.UsageError(
                f"--var {_shortened(pair)} is not NAME=VALUE; write it as --var amount=120"
            )
        if name in named:
            raise click.UsageError(f"--var {name} is given twice; keep one")
        named.add(name)
        variables[name] = _value(name, text)
    return variables


def _value(name: str, text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        if text.startswith(_JSON_BEGINNINGS):
            raise click.UsageError(
                f"--var {name} begins like JSON but is not valid at character {error.pos + 1}: {error.msg}; "
                "correct it, or quote the whole as a JSON text"
            ) from None
        return text
    except ValueError:  # a constant such as NaN, or a number with thousands of digits
        return text
    except RecursionError:
        raise click.UsageError(f"--var {name} is nested too deeply") from None


def _from_file(path: Path) -> dict[str, object]:
    where = "standard input" if str(path) == "-" else str(path)
    try:
        with click.open_file(str(path), encoding="utf-8-sig") as file:
            content = json.load(
                file,
                parse_constant=_refuse_constant,
                parse_float=_finite,
                object_pairs_hook=_distinct,
            )
    except OSError as error:
        raise click.UsageError(f"--vars-file {where} cannot be read: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise click.UsageError(
            f"--vars-file {where} is not valid JSON at line {error.lineno} column {error.colno}: {error.msg}"
        ) from None
    except _RepeatedKeyError as error:
        raise click.UsageError(
            f"--vars-file {where} has the key {error} twice in one object; keep one"
        ) from None
    except (ValueError, RecursionError):
        raise click.UsageError(
            f"--vars-file {where} is not JSON in UTF-8 that can be read (NaN, Infinity and 1e999 are no JSON numbers)"
        ) from None
    if not isinstance(content, dict):
        raise click.UsageError(
            f'--vars-file {where} holds no JSON object; write {{"name": value, ...}} into it'
        )
    return content


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


class _RepeatedKeyError(Exception):
    """An object of the file says two things under one name."""


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedKeyError(repr(next(name for name in names if names.count(name) > 1)))
    return content


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(constant)
