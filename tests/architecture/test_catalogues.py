"""The generated pages of the reference are what the code says, and every link of the documentation leads somewhere."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from kikwiflow_worker.settings import Settings
from kikwiflow_worker.telemetry import Event

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    """``scripts/docs.py``."""
    spec = importlib.util.spec_from_file_location("docs_script", ROOT / "scripts" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_pages_are_up_to_date(docs: ModuleType) -> None:
    assert docs.outdated() == []


def test_every_link_leads_somewhere(docs: ModuleType) -> None:
    assert docs.broken_links() == []


def test_every_event_is_in_the_catalogue() -> None:
    page = (REFERENCE / "events.md").read_text()

    assert [event.value for event in Event if f"`{event.value}`" not in page] == []


def test_every_setting_is_in_the_catalogue() -> None:
    page = (REFERENCE / "configuration.md").read_text()

    assert [name for name in Settings.model_fields if f"`{name}`" not in page] == []


def test_the_index_of_the_documentation_names_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    found = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    unnamed = [str(path) for path in found if f"({path})" not in index and path.name != "index.md"]

    assert unnamed == []


def test_every_event_of_the_catalogue_is_emitted_somewhere() -> None:
    package = ROOT / "kikwiflow_worker"
    source = "".join(path.read_text() for path in package.rglob("*.py"))

    unused = [event.value for event in Event if f"Event.{event.name}" not in source]

    assert unused == []
