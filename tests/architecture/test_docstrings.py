"""Every public name says what it is, and no module grows beyond what one reads in one sitting."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "kikwiflow_worker", ROOT / "handlers" / "kikwiflow_handlers")
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
MAX_LINES = 500

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def undocumented(source: str) -> Iterator[str]:
    """Yield the public names of a module that have no docstring, the module itself as ``(module)``."""
    tree = ast.parse(source)
    if ast.get_docstring(tree) is None:
        yield "(module)"
    yield from _undocumented_in(tree, "")


def _undocumented_in(owner: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for node in owner.body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None and not _is_exempt(node):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _undocumented_in(node, f"{prefix}{node.name}.")


def _is_exempt(node: Definition) -> bool:
    """Return whether another docstring stands for this one: that of the overloaded or overridden function."""
    names = {ast.unparse(decorator) for decorator in node.decorator_list}
    return bool(names & {"overload", "override"})


def test_there_are_modules_to_look_at() -> None:
    assert len(MODULES) > 50


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_public_name_has_a_docstring(module: Path) -> None:
    assert list(undocumented(module.read_text())) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_is_too_long(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= MAX_LINES


def test_a_missing_docstring_is_found() -> None:
    source = '"""Doc."""\nclass A:\n    """Doc."""\n    def b(self): ...\n    def _c(self): ...\n'

    assert list(undocumented(source)) == ["A.b"]
