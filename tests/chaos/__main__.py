"""``python -m tests.chaos``: real workers on a real replica set, under load and under faults."""

import shutil
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from tests.chaos.outcome import show
from tests.chaos.run import Options, Run
from tests.chaos.schedule import plan


@click.command(help=__doc__)
@click.option("--seed", default=1, show_default=True, help="What makes load and faults repeatable.")
@click.option("--tasks", default=10_000, show_default=True, help="Tasks to start at least, about.")
@click.option("--faults", default=60, show_default=True, help="Faults to carry out.")
@click.option("--minutes", default=2.0, show_default=True, help="Over how long they are spread.")
@click.option("--workers", default=4, show_default=True, help="Worker processes.")
@click.option(
    "--backlog", default=500, show_default=True, help="Instances running at once, at most."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where logs and figures are kept; a temporary one, removed after a good run, without it.",
)
def main(
    *,
    seed: int,
    tasks: int,
    faults: int,
    minutes: float,
    workers: int,
    backlog: int,
    folder: Path | None,
) -> None:
    console = Console()
    place = folder or Path(tempfile.mkdtemp(prefix="kikwiflow-chaos-"))
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise click.UsageError(f"{place} is not empty; name another --folder")
    options = Options(
        seed=seed,
        tasks=tasks,
        minutes=minutes,
        workers=workers,
        backlog=backlog,
        folder=place.resolve(),
        faults=plan(seed, faults=faults, seconds=minutes * 60),
        command=f"python -m tests.chaos --seed {seed} --tasks {tasks} --faults {faults} "
        f"--minutes {minutes:g} --workers {workers} --backlog {backlog}",
    )
    figures = Run(options, lambda line: console.print(line, highlight=False)).execute()
    figures.store(place)
    show(figures, console)
    if figures.is_good:
        for data in place.glob("member-*/data"):
            shutil.rmtree(data)
    if figures.is_good and folder is None:
        shutil.rmtree(place)
    else:
        console.print(f"logs and figures: {place}", highlight=False)
    sys.exit(not figures.is_good)


if __name__ == "__main__":
    main()
