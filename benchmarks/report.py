"""What a run found: figures, what each must reach, and the page that shows them."""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import pymongo
from rich.console import Console
from rich.table import Table

_NOT_MEASURED = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure.

    Attributes:
        samples: One for each round; the median counts.
        floor: What the bare script reached, round by round.
        per: For a share of something other than the floor: what that is, in words.
        at_least: What the ratio, or without a floor the median, must reach.
        at_most: What it must not pass.
    """

    name: str
    unit: str
    samples: Sequence[float]
    floor: Sequence[float] = ()
    per: str = "floor"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def value(self) -> float:
        """The median of all rounds."""
        return median(self.samples)

    @property
    def ratio(self) -> float | None:
        """The median of the ratios of all rounds: what slows a round slows both sides of it."""
        if not self.floor:
            return None
        return median(own / bare for own, bare in zip(self.samples, self.floor, strict=True))

    @property
    def judged(self) -> float:
        """What is compared with what must be reached."""
        return self.value if self.ratio is None else self.ratio

    @property
    def must(self) -> str:
        """What must be reached, in words."""
        of = "" if self.ratio is None else f" of {self.per}"
        unit = self.unit if self.ratio is None else ""
        words = [
            f"{sign} {limit:g} {unit}".strip() + of
            for sign, limit in (("≥", self.at_least), ("≤", self.at_most))
            if limit is not None
        ]
        return ", ".join(words) or _NOT_MEASURED

    @property
    def is_reached(self) -> bool | None:
        """Whether it was reached; None where nothing must be."""
        if self.at_least is None and self.at_most is None:
            return None
        enough = self.at_least is None or self.judged >= self.at_least
        return enough and (self.at_most is None or self.judged <= self.at_most)


@dataclass(slots=True)
class Section:
    """What one scenario found."""

    name: str
    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        """Add a figure, if any round measured it."""
        if figure.samples:
            self.figures.append(figure)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the figures were measured on."""

    cpu: str
    cores: int
    system: str
    python: str
    pymongo: str
    mongod: str
    loop: str


def this_machine(mongod: str) -> Machine:
    """Return the machine that this process runs on."""
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        system=f"{platform.system()} {platform.release().partition('-')[0]}",
        python=platform.python_version(),
        pymongo=pymongo.version,
        mongod=mongod,
        loop="uvloop" if has_uvloop() else "asyncio",
    )


def has_uvloop() -> bool:
    """Return whether the faster event loop is installed."""
    try:
        import uvloop  # noqa: F401, PLC0415 - only whether it is there
    except ImportError:
        return False
    return True


def show(console: Console, sections: Iterable[Section]) -> None:
    """Print the figures as tables."""
    for section in sections:
        table = Table(title=f"{section.name}: {section.title}", title_justify="left")
        for heading in ("figure", "median", "spread", "ratio", "must reach", "reached"):
            table.add_column(heading, justify="left" if heading == "figure" else "right")
        for figure in section.figures:
            style = "red" if figure.is_reached is False else ""
            table.add_row(*_cells(figure), style=style)
        console.print(table)
        for note in section.notes:
            console.print(f"  {note}")


def write(
    sections: Sequence[Section], machine: Machine, *, page: Path, data: Path, rounds: int
) -> None:
    """Write the page between its marks, and all samples as JSON beside it."""
    results = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rounds": rounds,
        "machine": asdict(machine),
        "scenarios": [_as_json(section) for section in sections],
    }
    data.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    begin, end = "<!-- figures -->", "<!-- end of figures -->"
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    figures = markdown(sections, machine, rounds=rounds)
    page.write_text(f"{before}{begin}\n\n{figures}\n{end}{after}")


def markdown(sections: Sequence[Section], machine: Machine, *, rounds: int) -> str:
    """Return all figures as Markdown."""
    measured_on = (
        f"Measured {datetime.now(UTC):%Y-%m-%d}: {machine.cpu}, {machine.cores} cores, {machine.system}; "
        f"Python {machine.python} ({machine.loop}), PyMongo {machine.pymongo}, MongoDB {machine.mongod}; "
        f"medians of {rounds} rounds."
    )
    lines = [measured_on, ""]
    for section in sections:
        lines += [f"### {section.title}", "", "`python -m benchmarks " + section.name + "`", ""]
        lines += [
            "| Figure | Median | Spread | Ratio | Must reach | Reached |",
            "|---|---|---|---|---|---|",
        ]
        lines += ["| " + " | ".join(_cells(figure)) + " |" for figure in section.figures]
        lines += ["", *[f"- {note}" for note in section.notes], ""]
    return "\n".join(lines)


def _cells(figure: Figure) -> tuple[str, ...]:
    ratio = _NOT_MEASURED if figure.ratio is None else f"{figure.ratio:.2f} of {figure.per}"
    spread = f"{_number(min(figure.samples))} to {_number(max(figure.samples))}"
    reached = {True: "yes", False: "NO", None: ""}[figure.is_reached]
    return (
        figure.name,
        f"{_number(figure.value)} {figure.unit}",
        spread,
        ratio,
        figure.must,
        reached,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _as_json(section: Section) -> dict[str, object]:
    figures = [
        {
            **asdict(figure),
            "median": figure.value,
            "ratio": figure.ratio,
            "is_reached": figure.is_reached,
        }
        for figure in section.figures
    ]
    return {**asdict(section), "figures": figures}


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
