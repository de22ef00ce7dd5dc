"""A demonstration: two real workers, one of which is killed, and a few hundred process instances that all end well.

Run it with ``make demo``. It starts what it needs and leaves nothing behind but the directory ``.demo``. With ``make demo
KEEP=1`` two workers, the dashboard and some instances that need a person stay until Ctrl-C.
"""

import argparse
import asyncio
import fcntl
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demonstration import Demo, Options
from operating import operate
from pymongo import MongoClient
from screen import Progress, Screen, make_console
from workers import WorkerFailedError, stop

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.embedded import EmbeddedMongo
from kikwiflow_worker.errors import KikwiflowError

_DATABASE = "kikwiflow"


async def _demonstrate(options: Options, uri: str, screen: Screen, progress: Progress) -> bool:
    if not options.instances:
        return True
    async with Kikwiflow.connect(uri, database=_DATABASE) as kikwiflow:
        demo = Demo(options, kikwiflow, screen, progress)
        with screen.live():
            await demo.run()
        return await demo.conclude()


async def _all(options: Options, uri: str, screen: Screen, progress: Progress) -> bool:
    is_right = await _demonstrate(options, uri, screen, progress)
    if options.keep:
        await operate(uri, _DATABASE, options.directory, screen.console, progress.programs)
    return is_right


def _run(options: Options, screen: Screen, progress: Progress) -> bool:
    shutil.rmtree(options.directory / "bank", ignore_errors=True)
    if options.instances:
        screen.console.print(
            f"kikwiflow-worker: {options.instances} process instances, two workers, and one of them is killed half-way.\n"
        )
    screen.note(f"starting MongoDB in {options.directory / 'mongodb'} ...")
    with EmbeddedMongo.acquire(options.directory / "mongodb") as mongo:
        with MongoClient[dict[str, object]](mongo.uri) as client:
            client.drop_database(_DATABASE)
        screen.note(f"MongoDB is ready (pid {mongo.pid})")
        try:
            return asyncio.run(_all(options, mongo.uri, screen, progress))
        finally:
            # From here on nothing interrupts the clean-up; each wait in it is bounded.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            stop([*progress.workers, *progress.programs])


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Keep a second demonstration out of the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(
                f"another demonstration runs in {directory}; wait for it, or give another --directory"
            )
        yield


def _options() -> Options:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--instances", type=int, default=300, help="how many (default: 300)")
    parser.add_argument(
        "--per-second", type=float, default=25, help="how many to start each second (default: 25)"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(".demo"),
        help="for database and logs (default: .demo)",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="then keep two workers and the dashboard running until Ctrl-C; with --instances 0, only that",
    )
    given = parser.parse_args()
    if given.per_second <= 0 or (given.instances < 20 and not (given.keep and not given.instances)):
        parser.error("--instances must be 20 or more, or 0 with --keep; --per-second above 0")
    return Options(given.instances, given.per_second, given.directory, keep=given.keep)


def main() -> int:
    """Run the demonstration; return 0 if everything came out right, 1 if not, 130 if it was interrupted."""
    options = _options()
    progress = Progress({})
    screen = Screen(make_console(), progress)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = 1
    try:
        with _alone_in(options.directory):
            code = 0 if _run(options, screen, progress) else 1
    except* KeyboardInterrupt:
        screen.note("interrupted; everything that was started is stopped", "yellow")
        code = 130
    except* (KikwiflowError, WorkerFailedError) as errors:
        for error in errors.exceptions:
            screen.note(str(error), "bold red")
    return code


if __name__ == "__main__":
    sys.exit(main())
