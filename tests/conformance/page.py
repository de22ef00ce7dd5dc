"""Writes docs/reference/conformance.md from the rows; needs no pytest and no database."""

from collections.abc import Iterable
from typing import TypeAlias

from tests.conformance.elsewhere import CASES, Elsewhere
from tests.conformance.row import Row
from tests.conformance.rows_keys import ROWS as KEY_ROWS
from tests.conformance.rows_keys import KeyRow
from tests.conformance.suite import ROWS

Case: TypeAlias = Row | KeyRow | Elsewhere

_TITLES = {
    "5.1": "Events",
    "7.3.1": "Executable tasks",
    "7.3.2": "External tasks",
    "7.3.3": "Exclusive gateways",
    "7.3.4": "Commit after a task",
    "7.3.5": "Variables",
    "7.3.6": "Deploys that are refused",
    "7.3.7": "Splits and joins",
    "7.3.8": "Retries and incidents",
    "7.3.9": "Error handlers",
    "7.3.10": "Timer tasks",
    "7.3.11": "Events at timer tasks",
    "7.3.12": "Reminders",
    "7.3.13": "Reminders with an end",
    "7.3.14": "Event catchers",
    "7.3.15": "Groups of keys",
    "7.3.16": "Event throwers",
    "7.3.17": "Messages and deadlines at their hosts",
    "7.3.18": "Call activities",
    "7.4": "Correlation keys",
    "7.5": "The store",
    "7.6": "The test harness",
    "9.1": "Values in keys",
    "9.3": "Cases beyond the reference's own tests",
}

_HEAD = """# Conformance

What the reference engine's own tests prove, and what this worker does in the same case. Every row is a test in
`tests/conformance`: it runs on a real MongoDB, and in the in-memory harness unless it is about transactions or stored
events; on our own process files, and on the reference's fixtures where `../shared/conformance` exists. Where a file of
tests is named, the case is shown there. For section 9.3 the reference is what it recommends: its own engine does less.

Differences on purpose that are not of one case:

- Errors are [our own types](errors.md), and say what to do next.
- "Gone" in the reference is "in the history" here: how an instance ended can be looked up.
- A lost race is the outcome `claim_lost` of a worker, never an error of anybody.

{figures}
"""


def conformance() -> str:
    """Return the page."""
    cases: list[Case] = [*ROWS, *KEY_ROWS, *CASES]
    sections: dict[str, list[Case]] = {name: [] for name in _TITLES}
    for case in cases:
        sections[section_of(case)].append(case)
    tables = [_section(name, found) for name, found in sections.items()]
    return _HEAD.format(figures=_figures(cases)) + "".join(tables)


def section_of(case: Case) -> str:
    """Return the section of the reference that a case is of."""
    return case.id.split("-")[0]


def _figures(cases: list[Case]) -> str:
    different = sum(1 for case in cases if case.differs)
    fixtures = {fixture.java for row in ROWS for fixture in row.fixtures if fixture.java}
    return (
        f"{len(cases)} cases on {len(fixtures)} fixtures; {different} differ on purpose, "
        "the others give the reference's result exactly."
    )


def _section(name: str, cases: Iterable[Case]) -> str:
    rows = "".join(_line(case) for case in cases)
    head = "| Case | What happens | Fixture | Reference | Ours |\n|---|---|---|---|---|\n"
    return f"\n## {_TITLES[name]} ({name})\n\n{head}{rows}"


def _line(case: Case) -> str:
    cells = (case.id, case.case, _fixture(case), case.reference, _ours(case))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _fixture(case: Case) -> str:
    match case:
        case Row():
            names = [fixture.java for fixture in case.fixtures if fixture.java]
            return ", ".join(f"`{name}`" for name in names) or "our own"
        case Elsewhere(test=test) if test:
            return f"`tests/{test.split('::')[0]}`"
        case _:
            return "-"


def _ours(case: Case) -> str:
    if case.differs is None:
        return "the same"
    return f"{case.differs.ours}. Why: {case.differs.reason}."
