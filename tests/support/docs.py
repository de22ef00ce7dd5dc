"""The fenced blocks of the documentation, and the command lines in them.

A comment above a block says what is done with it:

    <!-- file: order.kikwi -->        it is a file, written to the page's folder before any code runs
    <!-- not run: needs a server -->  it is compiled and not run

All other ``python`` blocks of a page run in order, in one namespace, with ``await`` at the top level.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]
PROGRAM = "kikwiflow-worker"

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^>]*) -->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        line: Where its text starts in the page, from 1.
        mark: The comment above it, without its brackets.
    """

    page: Path
    line: int
    language: str
    mark: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file that it shows."""
        return self.mark.removeprefix("file: ") if self.mark.startswith("file: ") else None

    @property
    def runs(self) -> bool:
        """Whether it is code that runs as it stands."""
        return self.language == "python" and not self.mark

    def compiled(self) -> object:
        """Return its code; lines of a traceback are those of the page."""
        source = "\n" * (self.line - 1) + self.text
        return compile(source, str(self.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return every page of the documentation."""
    return sorted(
        [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    )


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    content = page.read_text()
    return [
        Block(
            page=page,
            line=content.count("\n", 0, found.start("text")) + 1,
            language=found["language"],
            mark=(found["mark"] or "").strip(),
            text=found["text"],
        )
        for found in _BLOCK.finditer(content)
    ]


def command_lines(block: Block) -> Iterator[list[str]]:
    """Yield the arguments of each call of our program that a console block shows after a prompt."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        words = shlex.split(line[2:], comments=True) if line.startswith("$ ") else []
        while words and _ASSIGNMENT.fullmatch(words[0]):
            words.pop(0)
        if words and Path(words[0]).name == PROGRAM:
            yield _own(words[1:])


def check_arguments(command: click.Command, arguments: list[str]) -> None:
    """Refuse arguments that the command line does not take; nothing is run and no value is looked at.

    Raises:
        click.UsageError: An option, a subcommand or a number of arguments is wrong.
    """
    context = click.Context(command, info_name=command.name)
    given, rest, _ = command.make_parser(context).parse_args(list(arguments))
    if isinstance(command, click.Group):
        if not rest:
            return
        subcommand = command.get_command(context, rest[0])
        if subcommand is None:
            raise click.UsageError(f"there is no command {rest[0]!r}")
        check_arguments(subcommand, rest[1:])
        return
    if rest:
        raise click.UsageError(f"unexpected arguments {rest}")
    for parameter in command.params:
        if parameter.required and given.get(parameter.name or "") in (None, ()):
            raise click.UsageError(f"{parameter.name} is missing")


def _own(words: list[str]) -> list[str]:
    """Return the words up to where the shell takes over."""
    for position, word in enumerate(words):
        if word in {"&", "|", ">", "&&", ";"}:
            return words[:position]
    return words
