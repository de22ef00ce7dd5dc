"""What the documentation shows works."""

import importlib
import inspect
import json
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import kikwiflow_worker
from kikwiflow_worker.cli.app import cli
from kikwiflow_worker.operations.deployment import check_definition
from tests.support.docs import (
    ROOT,
    Block,
    blocks_of,
    check_arguments,
    command_lines,
    pages,
)

BLOCKS = [block for page in pages() for block in blocks_of(page)]
RUNNING_PAGES = sorted({block.page for block in BLOCKS if block.runs})
DEFINITIONS = [block for block in BLOCKS if block.language == "json" and "flowNodes" in block.text]
CONSOLES = [block for block in BLOCKS if block.language == "console" and any(command_lines(block))]


def modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(kikwiflow_worker.__path__, "kikwiflow_worker."):
        if not found.name.endswith("__main__"):
            yield found.name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that a page's code runs in; what it imports from there is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin is not None and Path(origin).is_relative_to(tmp_path):
            del sys.modules[name]


def test_the_documentation_has_something_to_check() -> None:
    assert RUNNING_PAGES
    assert DEFINITIONS
    assert CONSOLES


@pytest.mark.parametrize("page", RUNNING_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
async def test_the_code_of_a_page_runs(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = blocks_of(page)
    for block in blocks:
        if block.file is not None:
            file = folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
            if file.suffix == ".py":
                monkeypatch.syspath_prepend(file.parent)
    importlib.invalidate_caches()
    namespace: dict[str, object] = {}

    for block in blocks:
        if block.runs:
            result = eval(block.compiled(), namespace)  # type: ignore[arg-type]
            if inspect.isawaitable(result):
                await result


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.language == "python"], ids=str
)
def test_code_compiles(block: Block) -> None:
    assert block.compiled()


@pytest.mark.parametrize("block", DEFINITIONS, ids=str)
def test_a_definition_can_be_deployed_without_a_warning(block: Block) -> None:
    checked = check_definition(block.text, name=str(block))

    assert checked.warnings == ()


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "json"], ids=str)
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", CONSOLES, ids=str)
def test_a_command_line_is_one_that_the_program_takes(block: Block) -> None:
    for arguments in command_lines(block):
        try:
            check_arguments(cli, arguments)
        except click.UsageError as error:
            pytest.fail(f"{block}: {' '.join(arguments)}: {error.format_message()}")


@pytest.mark.parametrize("arguments", [["--no-such-option"], ["no-such-command"]])
def test_a_command_line_that_the_program_does_not_take_is_found(arguments: list[str]) -> None:
    with pytest.raises(click.UsageError):
        check_arguments(cli, arguments)


def test_every_test_that_the_documentation_names_exists() -> None:
    text = "\n".join(page.read_text() for page in pages())
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    files = set(re.findall(r"`((?:tests|kikwiflow_worker)/[\w/]+\.py)`", text))
    functions = set(re.findall(r"`(test_\w+)`", text))

    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []
    assert [name for name in sorted(functions) if f"def {name}(" not in tests] == []


@pytest.mark.parametrize("name", sorted(modules()))
def test_the_examples_of_a_module_compile(name: str) -> None:
    text = inspect.cleandoc(importlib.import_module(name).__doc__ or "")
    for part in text.split("\n\n"):
        lines = part.splitlines()
        is_code = all(line.startswith("    ") for line in lines)
        if is_code and lines[0].lstrip().startswith(("async ", "from ", "import ", "@", "def ")):
            block = Block(ROOT / "x", 1, "python", "", inspect.cleandoc("\n" + part))
            assert block.compiled()
