"""The fixtures of the Java engine are read and judged as there."""

import json
from pathlib import Path

import pytest

from kikwiflow_worker.engine.validation import missing_handlers, validate
from kikwiflow_worker.errors import Problem
from kikwiflow_worker.model.capability import NO_CAPABILITIES
from kikwiflow_worker.model.definition import parse_definition
from tests.support.conformance import (
    EXAMPLE_FOLDER,
    FIXTURE_COUNT,
    INVALID_FIXTURES,
    UNRESOLVED_PROVIDER_FIXTURE,
    fixture_keys,
    fixture_path,
    skip_reason,
)

KEYS = fixture_keys()
pytestmark = pytest.mark.skipif(not KEYS, reason=skip_reason())


def problems_of(path: Path) -> list[Problem]:
    parsed = parse_definition(path.read_bytes(), name=path.name)
    return [*parsed.warnings, *validate(parsed.file)]


def test_all_fixtures_are_there() -> None:
    assert len(KEYS) == FIXTURE_COUNT
    assert set(KEYS) >= INVALID_FIXTURES | {UNRESOLVED_PROVIDER_FIXTURE}


@pytest.mark.parametrize("key", sorted(set(KEYS) - INVALID_FIXTURES))
def test_a_valid_fixture_has_nothing_to_complain_about(key: str) -> None:
    assert problems_of(fixture_path(key)) == []


@pytest.mark.parametrize("key", sorted(INVALID_FIXTURES))
def test_an_invalid_fixture_is_refused(key: str) -> None:
    assert [problem for problem in problems_of(fixture_path(key)) if problem.is_error]


def test_an_unknown_provider_is_refused_where_the_handlers_are_known() -> None:
    file = parse_definition(fixture_path(UNRESOLVED_PROVIDER_FIXTURE).read_bytes()).file

    assert validate(file) == []
    assert [problem.path for problem in missing_handlers(file, NO_CAPABILITIES)] == [
        "flowNodes.NOTIFY_ORDER_PAID.providerBean"
    ]


@pytest.mark.parametrize("key", KEYS)
def test_the_source_of_a_fixture_holds_all_of_its_content(key: str) -> None:
    content = fixture_path(key).read_text()

    source = parse_definition(content).file.source

    assert json.loads(source) == json.loads(content)


def test_the_deployable_example_has_nothing_to_complain_about() -> None:
    assert problems_of(EXAMPLE_FOLDER / "expense-approval.kikwi.json") == []


def test_the_draft_example_lacks_its_handlers_and_its_provider() -> None:
    problems = problems_of(EXAMPLE_FOLDER / "credit-approval.draft.kikwi.json")

    assert [problem.path for problem in problems if problem.is_error] == [
        "flowNodes.ANALYZE_CREDIT.executor",
        "flowNodes.CREDIT_DECISION.providerType",
        "flowNodes.NOTIFY_REJECTION.executor",
    ]
