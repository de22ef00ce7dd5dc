"""How much a run measures, and what a scenario is."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.report import Section
from benchmarks.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How often and how long to measure.

    Attributes:
        rounds: How often each figure is taken; its median counts.
        window_s: How long a rate is counted.
        warm_up_s: How long a rate may settle before.
        scale: Of counts that a scenario names, 1.0 for a full run.
        most_workers: Processes at the same time.
        is_brief: Whether cases that differ only in their size are left out.
    """

    rounds: int = 5
    window_s: float = 2.5
    warm_up_s: float = 1.0
    scale: float = 1.0
    most_workers: int = 8
    is_brief: bool = False

    def count(self, full: int, *, least: int = 1) -> int:
        """Return a count of documents, branches or tries for this plan."""
        return max(least, round(full * self.scale))


FULL = Plan()
QUICK = Plan(rounds=2, window_s=1.0, warm_up_s=0.5, scale=0.1)
"""Shows that everything works; its figures say little."""

TINY = Plan(rounds=1, window_s=0.2, warm_up_s=0.1, scale=0.01, most_workers=1, is_brief=True)
"""Of the tests, which only see to it that no scenario rots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row of the table of speeds.

    Attributes:
        name: How the command line calls it.
        title: What it measures, in words.
        run: Measures it.
    """

    name: str
    title: str
    run: Callable[[Site, Plan], Awaitable[Section]]
