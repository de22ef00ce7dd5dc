"""Every case from the field is shown by a test that names it, or says why it cannot arise."""

from pathlib import Path

import pytest

from tests.support.field_case_table import CASES, Case
from tests.support.field_cases import MarkedTest, field_cases, marked_tests

ALL = [f"S-{number:02}" for number in range(1, 89)]


def test_all_cases_are_there_in_order() -> None:
    assert [case.id for case in CASES] == ALL


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_is_shown_or_cannot_arise(case: Case) -> None:
    assert (case.id in marked_tests()) != bool(case.cannot_arise)


def test_no_test_names_a_case_that_is_not_there() -> None:
    assert sorted(marked_tests().keys() - set(ALL)) == []


def test_every_case_has_a_line_on_the_page() -> None:
    page = field_cases()

    assert [case_id for case_id in ALL if page.count(f"\n| {case_id} |") != 1] == []


def test_a_mark_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_x.py").write_text(
        '@pytest.mark.field_case("S-01", "S-02")\n@other\nasync def test_y(): ...\n\ndef test_z(): ...\n'
    )

    found = MarkedTest("tests/test_x.py", "test_y")
    assert marked_tests(folder) == {"S-01": [found], "S-02": [found]}
