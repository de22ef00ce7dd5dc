"""The suite is whole: every fixture and every case of the reference has its row."""

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance import fixtures
from tests.conformance.elsewhere import CASES, Elsewhere
from tests.conformance.page import conformance, section_of
from tests.conformance.rows_keys import ROWS as KEY_ROWS
from tests.conformance.setup import Fixture
from tests.conformance.suite import ROWS
from tests.conformance.topology import DifferentTopologyError, paired_nodes
from tests.support.conformance import FIXTURE_COUNT, fixture_keys, skip_reason

ALL = [*ROWS, *KEY_ROWS, *CASES]
TESTS = Path(__file__).parents[1]
needs_fixtures = pytest.mark.skipif(not fixture_keys(), reason=skip_reason())

CASES_OF_THE_REFERENCE = {
    "7.3.1": 2, "7.3.2": 2, "7.3.3": 2, "7.3.4": 2, "7.3.5": 3, "7.3.6": 6, "7.3.7": 3, "7.3.8": 2, "7.3.9": 4,
    "7.3.10": 3, "7.3.11": 5, "7.3.12": 4, "7.3.13": 2, "7.3.14": 9, "7.3.15": 13, "7.3.16": 4, "7.3.17": 13,
    "7.3.18": 20, "7.4": 17, "7.5": 16, "7.6": 4,
}  # fmt: skip
"""How many tests the reference has, by section of it."""

PROBES = 22
"""Cases of section 9.3, each with its siblings."""


def test_every_row_has_an_id_of_its_own() -> None:
    assert [name for name, count in Counter(row.id for row in ALL).items() if count > 1] == []


def test_every_case_of_the_reference_has_its_row() -> None:
    found = Counter(section_of(row) for row in ALL if not row.id.endswith("-event"))

    assert {name: found[name] for name in CASES_OF_THE_REFERENCE} == CASES_OF_THE_REFERENCE


def test_every_probe_has_its_row() -> None:
    probes = {row.id.split("-")[1].rstrip("abcdefg") for row in ROWS if section_of(row) == "9.3"}

    assert probes == {str(number) for number in range(1, PROBES + 1)}


def test_every_row_ends_by_looking_at_what_has_come_of_it() -> None:
    looks = {"Then", "Events", "LastEvent", "Absent", "NothingStored", "Deploy", "DueAt"}

    blind = [
        row.id
        for row in ROWS
        if type(row.steps[-1]).__name__ not in looks and not getattr(row.steps[-1], "refused", None)
    ]

    assert blind == []


def test_there_is_a_row_on_every_fixture() -> None:
    used = {fixture.java for row in ROWS for fixture in row.fixtures if fixture.java}

    assert len(used) == FIXTURE_COUNT
    assert used == {fixture.java for fixture in fixtures.ALL_FIXTURES}


@needs_fixtures
def test_the_fixtures_are_those_of_the_reference() -> None:
    assert sorted(fixture.java for fixture in fixtures.ALL_FIXTURES) == fixture_keys()


@needs_fixtures
@pytest.mark.parametrize("fixture", fixtures.ALL_FIXTURES, ids=lambda each: each.own)
def test_our_file_has_the_shape_of_the_reference_s(fixture: Fixture) -> None:
    own, java = (json.loads(path.read_bytes()) for path in (fixture.own_path, fixture.java_path))

    assert len(paired_nodes(own, java)) == len(own["flowNodes"])


@needs_fixtures
def test_another_shape_is_noticed() -> None:
    own = json.loads(fixtures.RECALL.own_path.read_bytes())
    java = json.loads(fixtures.RECALL_OR_DEADLINE.java_path.read_bytes())

    with pytest.raises(DifferentTopologyError):
        paired_nodes(own, java)


@pytest.mark.parametrize("case", [case for case in CASES if case.test], ids=lambda case: case.id)
def test_a_case_that_is_shown_elsewhere_is(case: Elsewhere) -> None:
    file, _, name = case.test.partition("::")
    tree = ast.parse((TESTS / file).read_text())

    assert name in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.test], ids=lambda case: case.id
)
def test_a_case_that_nothing_shows_says_why(case: Elsewhere) -> None:
    assert case.differs is not None


def test_the_page_has_a_line_for_every_row() -> None:
    lines = conformance().splitlines()

    assert all(sum(line.startswith(f"| {row.id} |") for line in lines) == 1 for row in ALL)
