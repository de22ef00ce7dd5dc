"""Cases from the field: what goes wrong in systems like this one, the rule here, and the tests that show it.

A test says which cases it shows with ``@pytest.mark.field_case("S-09", ...)``. ``docs/reference/field-cases.md`` is made of
the table of cases and of those marks.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.field_case_table import CASES, SECTIONS, Case

TESTS = Path(__file__).parents[1]
MARK = "field_case"


@dataclass(frozen=True, slots=True)
class MarkedTest:
    """A test that shows a case."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"`{self.file}`, `{self.name}`"


@cache
def marked_tests(folder: Path = TESTS) -> dict[str, list[MarkedTest]]:
    """Return the tests that name each case."""
    found: dict[str, list[MarkedTest]] = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text()
        if MARK not in text:
            continue
        file = path.relative_to(folder.parent).as_posix()
        for function in ast.parse(text).body:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for case_id in _cases_of(function):
                    found[case_id].append(MarkedTest(file, function.name))
    return found


def _cases_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr="field_case"), args=arguments):
                yield from (str(ast.literal_eval(argument)) for argument in arguments)


def field_cases() -> str:
    """Return the page of the documentation."""
    tests = marked_tests()
    sections = []
    for title, cases in SECTIONS.items():
        rows = [
            f"| {case.id} | {case.symptom} | {case.rule} | {_shown(case, tests)} |"
            for case in cases
        ]
        head = "| Case | What is seen elsewhere | The rule here | Shown by |\n|---|---|---|---|\n"
        sections.append(f"## {title}\n\n{head}" + "\n".join(rows))
    shown = sum(case.id in tests for case in CASES)
    return (
        "# Cases from the field\n\n"
        "What users of engines, schedulers and task queues have met in production, and what happens here. "
        f"Of {len(CASES)} cases {shown} are shown by tests that name them; for the others the last column says why they "
        "cannot arise.\n\n" + "\n\n".join(sections) + "\n"
    )


def _shown(case: Case, tests: dict[str, list[MarkedTest]]) -> str:
    shown = "; ".join(map(str, tests.get(case.id, ())))
    return shown or f"Cannot arise: {case.cannot_arise}"
