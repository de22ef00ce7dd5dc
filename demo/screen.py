"""What the demonstration shows while it runs: a live picture on a terminal, plain lines elsewhere."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from workers import Program, WorkerProcess

_PLAIN_INTERVAL_S = 2.0
_PLAIN_WIDTH = 110
_NOTES = 8
_STATES = {
    "alive": ("● alive", "green"),
    "killed": ("✖ killed", "bold red"),
    "stopped": ("■ stopped", "dim"),
}


@dataclass(slots=True)
class Row:
    """The state of one process definition's instances."""

    name: str
    total: int
    started: int = 0
    waiting: int = 0
    done: int = 0

    @property
    def running(self) -> int:
        return max(0, self.started - self.done - self.waiting)


@dataclass(slots=True)
class Progress:
    """Everything that is shown, and all that has been started for it.

    Attributes:
        programs: What runs for people after the demonstration.
    """

    rows: dict[str, Row]
    workers: list[WorkerProcess] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    tasks_per_s: float = 0.0
    open_incidents: int = 0
    peak_per_s: float = 0.0
    _measured_at: float = 0.0
    _runs: int = 0

    @property
    def done(self) -> int:
        return sum(row.done for row in self.rows.values())

    @property
    def total(self) -> int:
        return sum(row.total for row in self.rows.values())

    def measure(self, now: float) -> None:
        """Work the speed out anew from what the workers have done since the last look."""
        runs = sum(worker.attempts for worker in self.workers)
        self.tasks_per_s = (runs - self._runs) / max(now - self._measured_at, 0.01)
        self.peak_per_s = max(self.peak_per_s, self.tasks_per_s)
        self._measured_at, self._runs = now, runs

    def line(self) -> str:
        """Return all of it in one line."""
        rows = self.rows.values()
        alive = sum(worker.is_alive for worker in self.workers)
        return (
            f"started {sum(row.started for row in rows):>4}  running {sum(row.running for row in rows):>4}  "
            f"with a person {sum(row.waiting for row in rows):>3}  done {self.done:>4}/{self.total}  "
            f"workers {alive}  {self.tasks_per_s:>4.0f} tasks/s"
        )


class Screen:
    """Shows progress and notes on a console."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self.console = console
        self._progress = progress
        self._started = time.monotonic()
        self._notes: deque[Text] = deque(maxlen=_NOTES)
        self._live: Live | None = None
        self._printed_at = self._started

    @property
    def seconds(self) -> float:
        """How long ago this began."""
        return time.monotonic() - self._started

    def note(self, text: str, style: str = "") -> None:
        """Tell of something that happened."""
        line = Text.assemble((f"{self.seconds:6.1f} s  ", "dim"), (text, style))
        if self._live is None:
            self.console.print(line, soft_wrap=True)
        else:
            self._notes.append(line)
            self.update()

    def update(self) -> None:
        """Show the progress as it is now."""
        if self._live is not None:
            self._live.update(self._picture())
        elif time.monotonic() - self._printed_at >= _PLAIN_INTERVAL_S:
            self._printed_at = time.monotonic()
            self.console.print(f"{self.seconds:6.1f} s  {self._progress.line()}", soft_wrap=True)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Draw over the same place while the block lasts, if this is a terminal."""
        if not self.console.is_terminal:
            yield
            return
        with Live(self._picture(), console=self.console, refresh_per_second=8) as live:
            self._live = live
            try:
                yield
            finally:
                live.update(self._picture())
                self._live = None

    def _picture(self) -> RenderableType:
        notes = Group(*self._notes) if self._notes else Text("")
        return Group(
            Panel(self._processes(), title="processes", title_align="left", border_style="cyan"),
            Panel(self._workers(), title="workers", title_align="left", border_style="cyan"),
            Panel(notes, title="what happens", title_align="left", border_style="cyan"),
        )

    def _processes(self) -> RenderableType:
        table = Table(box=None, expand=True, pad_edge=False)
        table.add_column("process")
        for heading in ("started", "running", "with a person", "done"):
            table.add_column(heading, justify="right")
        table.add_column("", ratio=1, min_width=12)
        for row in self._progress.rows.values():
            table.add_row(
                row.name,
                str(row.started),
                str(row.running),
                Text(str(row.waiting), "magenta" if row.waiting else ""),
                Text(f"{row.done}/{row.total}", "green" if row.done == row.total else ""),
                ProgressBar(row.total, row.done, complete_style="cyan", finished_style="green"),
            )
        return table

    def _workers(self) -> RenderableType:
        table = Table.grid(padding=(0, 3))
        for worker in self._progress.workers:
            state = Text(*_STATES[worker.state])
            pid = Text(f"pid {worker.process.pid}", "dim")
            table.add_row(Text(worker.name, "bold"), state, pid, f"{worker.attempts} task runs")
        incidents = self._progress.open_incidents
        return Group(
            table,
            Text.assemble(
                (f"{self._progress.tasks_per_s:.0f} tasks/s", "bold"),
                "   open incidents: ",
                (str(incidents), "bold red" if incidents else "green"),
                (f"   {self.seconds:.0f} s", "dim"),
            ),
        )


def make_console() -> Console:
    """Return a console that is plain and wide enough where the output is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)
