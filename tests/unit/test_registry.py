"""Finding handlers through entry points and decorators."""

import sys
from pathlib import Path

import pytest

from kikwiflow_worker.errors import HandlerLoadError
from kikwiflow_worker.handler import ExecutionContext, answer_provider, task_handler
from kikwiflow_worker.model.capability import Capability, HandlerKind
from kikwiflow_worker.worker.registry import load_registry, registry_of


def install(root: Path, name: str, modules: dict[str, str]) -> None:
    """Write a distribution ``name`` whose entry points are ``modules``: module name to source."""
    info = root / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    points = "\n".join(f"{module} = {module}" for module in modules)
    (info / "entry_points.txt").write_text(f"[kikwiflow_worker.handlers]\n{points}\n")
    for module, source in modules.items():
        (root / f"{module}.py").write_text(source)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


HANDLER = (
    "from kikwiflow_worker.handler import task_handler\n"
    "@task_handler({name!r})\n"
    "def handler(ctx):\n    pass\n"
)


def test_handlers_of_installed_distributions_are_found(site: Path) -> None:
    install(site, "bank-handlers", {"bank_one": HANDLER.format(name="transfer")})

    registry = load_registry(["bank-handlers"])

    found = registry.find(Capability(HandlerKind.TASK_HANDLER, "transfer"))
    assert found is not None
    assert found.origin == "module bank_one (bank-handlers 1.2)"


def test_every_module_that_cannot_be_imported_is_named_at_once(site: Path) -> None:
    install(site, "bad-handlers", {"bad_one": "import nowhere_to_be_found", "bad_two": "1 / 0"})

    with pytest.raises(HandlerLoadError) as error:
        load_registry(["bad-handlers"])

    assert "bad_one (bad-handlers 1.2) cannot be imported: ModuleNotFoundError" in str(error.value)
    assert "bad_two (bad-handlers 1.2) cannot be imported: ZeroDivisionError" in str(error.value)


def test_a_name_used_twice_names_both_distributions(site: Path) -> None:
    install(site, "left-handlers", {"left_one": HANDLER.format(name="pay")})
    install(site, "right-handlers", {"right_one": HANDLER.format(name="pay")})

    with pytest.raises(HandlerLoadError) as error:
        load_registry(["left-handlers", "right-handlers"])

    assert "left-handlers 1.2" in str(error.value)
    assert "right-handlers 1.2" in str(error.value)
    assert "task handler 'pay'" in str(error.value)


def test_a_name_that_nobody_offers_lists_what_is_installed(site: Path) -> None:
    install(site, "bank-handlers", {"bank_two": HANDLER.format(name="x")})

    with pytest.raises(
        HandlerLoadError, match=r"named 'bnak-handlers'; installed: .*bank-handlers"
    ):
        load_registry(["bnak-handlers"])


def test_a_handler_and_a_provider_may_share_a_name() -> None:
    @task_handler("risk")
    def handler(ctx: ExecutionContext) -> None: ...

    @answer_provider("risk")
    def provider(ctx: object) -> str:
        return "low"

    registry = registry_of([handler, provider])

    assert registry.capabilities.stored == {"risk", "answer_provider:risk"}


def test_an_undecorated_function_is_refused() -> None:
    def handler(ctx: ExecutionContext) -> None: ...

    with pytest.raises(HandlerLoadError, match="no decorator"):
        registry_of([handler])
