"""``python -m benchmarks [SCENARIO ...] [--rounds N] [--quick]``: measure, print, and write the page."""

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.catalogue import SCENARIOS
from benchmarks.plan import FULL, QUICK, Plan, Scenario
from benchmarks.report import Section, show, this_machine, write
from benchmarks.site import Site, open_site

_PAGE = Path("docs/explanation/performance.md")
_DATA = Path("docs/explanation/performance.json")


def main() -> int:
    """Measure what the command line asks for; return 0 if every figure is reached, else 1."""
    parser = _parser()
    given = parser.parse_args()
    unknown = [name for name in given.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    plan = replace(
        QUICK if given.quick else FULL, **({"rounds": given.rounds} if given.rounds else {})
    )
    chosen = [SCENARIOS[name] for name in given.scenarios or SCENARIOS]
    console = Console(soft_wrap=True)
    try:
        with open_site(given.directory.resolve()) as site:
            sections = asyncio.run(_measure(site, chosen, plan, console))
            machine = this_machine(site.version)
    finally:
        shutil.rmtree(given.directory, ignore_errors=True)
    is_whole = not given.scenarios and not given.quick
    if is_whole or given.write:
        write(sections, machine, page=_PAGE, data=_DATA, rounds=plan.rounds)
        console.print(f"written to {_PAGE} and {_DATA}")
    missed = [f for section in sections for f in section.figures if f.is_reached is False]
    console.print(f"{len(missed)} figures are not reached" if missed else "every figure is reached")
    return 1 if missed else 0


async def _measure(
    site: Site, scenarios: Sequence[Scenario], plan: Plan, console: Console
) -> list[Section]:
    sections = []
    for scenario in scenarios:
        began = time.monotonic()
        section = await scenario.run(site, plan)
        show(console, [section])
        console.print(f"  took {time.monotonic() - began:.0f} s\n", style="dim")
        sections.append(section)
    return sections


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("scenarios", nargs="*", help=f"all by default: {', '.join(SCENARIOS)}")
    parser.add_argument("--rounds", type=int, help="how often each figure is taken (default: 5)")
    parser.add_argument("--quick", action="store_true", help="only see whether everything works")
    parser.add_argument("--write", action="store_true", help="write the page also for a part")
    parser.add_argument(
        "--directory", type=Path, default=Path(".benchmarks"), help="for database and logs"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
