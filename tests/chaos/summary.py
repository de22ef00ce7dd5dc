"""``python -m tests.chaos.summary FOLDER...``: the figures of several runs as one markdown table."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.chaos.outcome import Figures, rows
from tests.chaos.schedule import Kind


def add_up(runs: Sequence[Figures]) -> Figures:
    """Return the figures of all runs together: sums, and the worst of what is a worst."""
    first = runs[0]
    return replace(
        first,
        seeds=tuple(seed for run in runs for seed in run.seeds),
        command="; ".join(run.command for run in runs),
        seconds=sum(run.seconds for run in runs),
        faults=dict(sum((Counter(run.faults) for run in runs), Counter())),
        worst_s=_worst(run.worst_s for run in runs),
        disturbed_s=_worst(run.disturbed_s for run in runs),
        readiness_down_s=max(run.readiness_down_s for run in runs),
        readiness_up_s=max(run.readiness_up_s for run in runs),
        wrong=tuple(line for run in runs for line in run.wrong),
        **{name: sum(getattr(run, name) for run in runs) for name in _SUMMED},
    )


_SUMMED = (
    "missed",
    "tasks",
    "instances",
    "handler_calls",
    "handler_repeats",
    "incidents",
    "lost",
    "doubled",
    "stuck",
    "other",
    "judged",
    "deserters",
    "health_looks",
    "dead_answers",
    "readiness_asked",
)


def markdown(runs: Sequence[Figures]) -> str:
    """Return two tables: each run beside their sum, and the kinds of faults."""
    total = add_up(runs)
    columns = [*runs, total]
    heads = [*(f"seed {run.seeds[0]}" for run in runs), "all"]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    lines += [
        f"| {cells[0][0]} | " + " | ".join(value for _, value in cells) + " |"
        for cells in zip(*(rows(figures) for figures in columns), strict=True)
    ]
    lines += [
        "",
        "| Fault | Times | Worst recovery | The same, other faults in the way |",
        "|---|---:|---:|---:|",
    ]
    lines += [
        f"| {kind} | {total.faults[kind]} | {_seconds(total.worst_s, kind)} | {_seconds(total.disturbed_s, kind)} |"
        for kind in Kind
        if kind in total.faults
    ]
    return "\n".join(lines)


def _worst(times: Iterable[dict[str, float]]) -> dict[str, float]:
    worst: dict[str, float] = {}
    for each in times:
        for kind, seconds in each.items():
            worst[kind] = max(worst.get(kind, 0.0), seconds)
    return worst


def _seconds(times: dict[str, float], kind: str) -> str:
    return f"{times[kind]:.2f} s" if kind in times else "—"


if __name__ == "__main__":
    found = [Figures.load(Path(folder)) for folder in sys.argv[1:]]
    sys.stdout.write(markdown(found) + "\n")
    sys.exit(not all(run.is_good for run in found))
