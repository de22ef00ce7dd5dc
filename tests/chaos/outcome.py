"""What a run found: figures to be stored and added up, what is wrong, and a table to read."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chaos.faults import Record
from tests.chaos.fleet import Exit
from tests.chaos.probes import TRUTH_S, Lag, Sample
from tests.chaos.recovery import Recovery, worst_by_kind
from tests.chaos.schedule import Kind
from tests.chaos.verify_report import Report

FIGURES = "figures.json"
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one run, or of several added up.

    Attributes:
        faults: How often each kind came to something.
        incidents: What people of the load had to put right, as failures that it makes on purpose.
        missed: Faults that came to nothing, as no command was there to be hit; they do not count.
        worst_s: Longest recovery of each kind of fault, in seconds, of those with a bound.
        disturbed_s: The same of those that other faults stood in the way of, which have none.
        judged: How many recoveries were held against a bound.
        readiness_down_s: How late ``/readyz`` was, at most, to say that the database is away.
        readiness_up_s: How late it was to say that it is back.
        wrong: Everything that must not be, one line each.
    """

    seeds: tuple[int, ...]
    command: str
    seconds: float
    faults: dict[str, int]
    missed: int
    tasks: int
    instances: int
    handler_calls: int
    handler_repeats: int
    incidents: int
    lost: int
    doubled: int
    stuck: int
    other: int
    worst_s: dict[str, float]
    disturbed_s: dict[str, float]
    judged: int
    deserters: int
    health_looks: int
    dead_answers: int
    readiness_down_s: float
    readiness_up_s: float
    readiness_asked: int
    wrong: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether all promises were kept."""
        return not self.wrong

    def store(self, folder: Path) -> None:
        """Write them into a folder, for ``python -m tests.chaos.summary``."""
        (folder / FIGURES).write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Figures":
        """Read what a run has stored."""
        found = json.loads((folder / FIGURES).read_text())
        return cls(**{**found, "seeds": tuple(found["seeds"]), "wrong": tuple(found["wrong"])})


@dataclass(slots=True, kw_only=True)
class Findings:
    """What a run has gathered when all is quiet again."""

    seed: int
    command: str
    seconds: float
    records: list[Record]
    report: Report
    take_overs: list[Recovery]
    failovers: list[Recovery]
    samples: list[Sample]
    lags: list[Lag]
    deserters: list[Exit]
    dead_answers: list[Sample]
    crashes: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)

    def figures(self) -> Figures:
        """Judge them."""
        report = self.report
        recoveries = [*self.take_overs, *self.failovers]
        down = [lag.down_s for lag in self.lags if lag.down_s is not None]
        up = [lag.up_s for lag in self.lags if lag.up_s is not None]
        return Figures(
            seeds=(self.seed,),
            command=self.command,
            seconds=round(self.seconds, 1),
            faults=dict(Counter(str(each.kind) for each in self.records if each.counts)),
            missed=sum(not each.counts for each in self.records),
            tasks=report.tasks,
            instances=report.instances,
            handler_calls=report.handler_calls,
            handler_repeats=report.handler_repeats,
            incidents=sum(report.incidents.values()),
            lost=len(report.lost),
            doubled=len(report.doubled),
            stuck=len(report.stuck),
            other=len(report.other),
            worst_s=worst_by_kind(each for each in recoveries if each.bound_s is not None),
            disturbed_s=worst_by_kind(each for each in recoveries if each.bound_s is None),
            judged=sum(each.bound_s is not None for each in recoveries),
            deserters=len(self.deserters),
            health_looks=len(self.samples),
            dead_answers=len(self.dead_answers),
            readiness_down_s=round(max(down, default=0.0), 2),
            readiness_up_s=round(max(up, default=0.0), 2),
            readiness_asked=len(down) + len(up),
            wrong=tuple(self._wrong()),
        )

    def _wrong(self) -> list[str]:
        report = self.report
        return [
            *(f"lost: {each}" for each in report.lost),
            *(f"doubled: {each}" for each in report.doubled),
            *(f"stuck: {each}" for each in report.stuck),
            *(f"wrong: {each}" for each in report.other),
            *(f"not at rest: {each}" for each in self.unfinished),
            *(
                f"fault {each.number} ({each.kind}): {each.broken}"
                for each in self.records
                if each.broken
            ),
            *self.crashes,
            *self._late(),
            *(
                f"{each.name} (process {each.pid}) ended by itself with exit code {each.code}"
                for each in self.deserters
            ),
            *(
                f"/livez of process {each.pid} answered {each.live or 'nothing'} at {each.at:.1f}"
                for each in self.dead_answers
            ),
            *self._untrue(),
        ]

    def _late(self) -> list[str]:
        return [
            f"fault {each.number} ({each.kind}): work went on after {each.seconds:.2f} s; the bound is {each.bound_s:.2f} s"
            for each in [*self.take_overs, *self.failovers]
            if each.is_late
        ]

    def _untrue(self) -> list[str]:
        return [
            f"/readyz of process {lag.pid} was {late:.2f} s late to say that the database is {what}, at {lag.at:.1f}"
            for lag in self.lags
            for late, what in ((lag.down_s, "away"), (lag.up_s, "back"))
            if late is not None and late > TRUTH_S
        ]


def show(figures: Figures, console: Console) -> None:
    """Print the table of a run."""
    faults = Table(
        "fault",
        "times",
        "worst recovery",
        "disturbed",
        title=f"seed {', '.join(map(str, figures.seeds))}",
    )
    for kind in Kind:
        if kind in figures.faults:
            faults.add_row(
                kind,
                str(figures.faults[kind]),
                _seconds(figures.worst_s, kind),
                _seconds(figures.disturbed_s, kind),
            )
    faults.add_section()
    faults.add_row(
        "all",
        str(sum(figures.faults.values())),
        _most(figures.worst_s),
        _most(figures.disturbed_s),
    )
    console.print(faults)
    console.print(_result(figures))
    for line in figures.wrong[:_SHOWN]:
        console.print(f"[red]✗[/red] {line}", highlight=False)
    if len(figures.wrong) > _SHOWN:
        console.print(f"… and {len(figures.wrong) - _SHOWN} more in {FIGURES}")
    console.print(f"repeat it with: {figures.command}", highlight=False, soft_wrap=True)


def _result(figures: Figures) -> Table:
    table = Table("result", "", show_header=False)
    for name, value in rows(figures):
        table.add_row(name, value)
    return table


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Return what a run came to, as names and values."""
    return [
        ("tasks committed", f"{figures.tasks:,}"),
        ("instances", f"{figures.instances:,}"),
        (
            "faults",
            f"{sum(figures.faults.values()):,} of {len(figures.faults)} kinds (and {figures.missed} that hit nothing)",
        ),
        ("lost", str(figures.lost)),
        ("doubled", str(figures.doubled)),
        ("stuck", str(figures.stuck)),
        ("otherwise wrong", str(figures.other)),
        ("handler calls repeated", f"{figures.handler_repeats:,} of {figures.handler_calls:,}"),
        ("incidents put right", f"{figures.incidents:,}"),
        ("recoveries held against their bound", str(figures.judged)),
        ("workers that ended by themselves", str(figures.deserters)),
        ("/livez not up", f"{figures.dead_answers} of {figures.health_looks:,} looks"),
        (
            "/readyz late, at most",
            f"{figures.readiness_down_s:.2f} s down, {figures.readiness_up_s:.2f} s up ({figures.readiness_asked} asked)",
        ),
        (
            "time",
            f"{figures.seconds / 60:.1f} min, {figures.tasks / max(1.0, figures.seconds):.0f} tasks/s",
        ),
    ]


def _seconds(times: dict[str, float], kind: str) -> str:
    return f"{times[kind]:.2f} s" if kind in times else ""


def _most(times: dict[str, float]) -> str:
    return f"{max(times.values()):.2f} s" if times else ""
