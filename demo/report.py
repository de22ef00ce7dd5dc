"""The last page: what happened, whether it is right, and how to look closer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checks import Check, Ended, shown
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from scenario import PROCESSES, Case
from workers import LogSummary, WorkerProcess, command_line

from kikwiflow_handlers.bank import Transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured on the way."""

    seconds: float
    work_seconds: float
    peak_per_s: float
    people_answers: int
    messages: int
    repeated_starts: int
    orphans: int
    incidents: int


def print_outcomes(
    console: Console, names: Mapping[str, str], cases: Sequence[Case], ended: Ended
) -> None:
    """Print how many instances of each process ended how."""
    finished = {instance.business_key for instance in ended.instances}
    table = Table(title="What came out", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("process")
    table.add_column("instances", justify="right")
    table.add_column("outcome")
    for key, name in names.items():
        outcomes = Counter(
            case.outcome if case.business_key in finished else "NOT FINISHED"
            for case in cases
            if case.definition_key == key
        )
        parts = (f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        table.add_row(name, str(outcomes.total()), ", ".join(parts))
    console.print(table)


def print_figures(
    console: Console, figures: Figures, logs: LogSummary, transfers: Sequence[Transfer]
) -> None:
    """Print what happened on the way."""
    asked_again = sum(transfer.requests - 1 for transfer in transfers)
    rows = (
        ("tasks committed", f"{logs.completed}", "each is one transaction"),
        ("speed", f"{figures.peak_per_s:.0f} tasks/s at most", _average(figures, logs)),
        (
            "answers of people",
            f"{figures.people_answers}",
            "claimed and completed through the client",
        ),
        ("messages", f"{figures.messages}", "each correlated with the instance that waited for it"),
        (
            "attempts that failed",
            f"{logs.failed_attempts}",
            "tried again as their retry policies say",
        ),
        (
            "handlers that asked to wait",
            f"{logs.asked_to_wait}",
            "the carrier's limit; uses no attempt",
        ),
        ("tasks of the killed worker", f"{figures.orphans}", "taken over when their locks lapsed"),
        ("starts sent twice", f"{figures.repeated_starts}", "answered with the first instance"),
        (
            "payments asked for twice",
            f"{asked_again}",
            "same idempotency key: no money moved again",
        ),
        ("incidents", f"{figures.incidents}", "failures that would wait for a person"),
        ("wall time", f"{figures.seconds:.1f} s", "with the start of database and workers"),
    )
    table = Table(title="On the way", title_justify="left", box=box.SIMPLE, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_checks(console: Console, checks: Sequence[Check]) -> None:
    """Print each claim, with what speaks against it."""
    console.print(Text("Checked in the database, the logs and the bank's book", "bold"))
    for each in checks:
        mark = Text("  ✔ ", "green") if each.holds else Text("  ✘ ", "bold red")
        console.print(Text.assemble(mark, each.claim), soft_wrap=True)
        for problem in shown(each.problems):
            console.print(Text(f"      {problem}", "red"), soft_wrap=True)
    if all(each.holds for each in checks):
        verdict = (
            "A worker was killed in the middle of its work. Nothing is lost, nothing is doubled."
        )
        console.print(Text(f"\n{verdict}\n", "bold green"))
    else:
        console.print(
            Text("\nThis is not as it should be; the logs are named below.\n", "bold red")
        )


def print_closer_look(console: Console, directory: Path, workers: Sequence[WorkerProcess]) -> None:
    """Print commands that work now that everything has stopped; each starts the database for itself."""
    where = f"--embedded {directory / 'mongodb'}"
    survivor = next((each for each in workers if not each.was_killed), workers[-1])
    commands = (
        (
            "the orders",
            f"kikwiflow-worker instances list {where} --ended --definition order-fulfilment",
        ),
        ("open tasks", f"kikwiflow-worker tasks list {where}"),
        ("incidents", f"kikwiflow-worker incidents list {where}"),
        ("all well?", f"kikwiflow-worker doctor {where}"),
        ("one more worker", command_line("demo-3", directory)),
        (
            "one more instance",
            f"kikwiflow-worker start stock-check {where} --business-key MINE --var article=bolt",
        ),
        ("tasks taken over", f"grep task.rescued {survivor.log}"),
        ("logs", " ".join(str(worker.log) for worker in workers)),
        ("the processes", f"{_shortest(PROCESSES)}/*.kikwi"),
        (
            "their handlers",
            f"{_shortest(PROCESSES.parents[1] / 'handlers')}/kikwiflow_handlers/*.py",
        ),
    )
    console.print(Text("How to look closer", "bold"))
    width = max(len(label) for label, _ in commands)
    for label, command in commands:
        console.print(Text.assemble((f"  {label:<{width}}  ", "dim"), command), soft_wrap=True)


def _average(figures: Figures, logs: LogSummary) -> str:
    return f"{logs.completed / figures.work_seconds:.0f} on average; the handlers mostly wait, as for remote systems"


def _shortest(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
