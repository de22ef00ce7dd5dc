"""A small run of the load for tests of the verifier: every kind of block, two workers, no faults."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.load import Load
from tests.chaos.load_builder import (
    call,
    catch_event,
    chain,
    choice,
    deadline,
    failing,
    fan,
    meeting,
    message,
    messages,
    person,
    process,
    reminded,
    rescued,
    several,
    step,
    timer,
)
from tests.support.mongo import MongoServer
from tests.support.workers import Site, Workers, install

PLUGIN = Path(__file__).parent / "plugin"
DISTRIBUTION = "kikwiflow-chaos"
TASKS = 340

PROCESSES = [
    (
        1,
        process(
            "work",
            chain(3, counted_every=2),
            fan(4),
            step(),
            fan(2, fan(3), several(step(), fan(2, chain(2)))),
            timer(0.1),
            failing(1),
            rescued(),
            choice(step(), fan(2), timer(0.1)),
        ),
    ),
    (
        1,
        process(
            "people",
            step(),
            person("once"),
            person("twice"),
            fan(2, person("rivals"), deadline(0.2, "person")),
            catch_event(0.2),
            reminded(0.1, 2, "person"),
        ),
    ),
    (
        1,
        process(
            "notes",
            step(),
            message(),
            fan(3, message(kept=True), messages("ALL"), messages("ANY")),
            meeting(),
        ),
    ),
    (
        1,
        process(
            "calls",
            step(),
            call(1, None, chain(2)),
            fan(2, call(3, "PARALLEL", step()), call(3, "SEQUENTIAL", step())),
            deadline(0.2, "children"),
        ),
    ),
]


@contextmanager
def two_workers(
    server: MongoServer, database: str, folder: Path, fault: str = ""
) -> Iterator[Workers]:
    """Start two workers with the handlers of the chaos run; they are stopped at the end, whatever happens.

    Args:
        fault: Python code that they run when they load their handlers, to break the engine.
    """
    packages = folder / "packages"
    packages.mkdir()
    install(packages, PLUGIN / "chaos_handlers.py", DISTRIBUTION)
    with (packages / "chaos_handlers.py").open("a") as module:
        module.write(f"\n{fault}\n")
    workers = Workers(Site(packages, folder), server, database)
    try:
        for name in ("worker-1", "worker-2"):
            workers.start(name, handlers=DISTRIBUTION, lock_seconds=5)
        yield workers
    finally:
        workers.kill_all()


async def drive(
    server: MongoServer,
    database: str,
    folder: Path,
    *,
    beside: Callable[[], Awaitable[None]] | None = None,
    rest_s: float = 60,
) -> bool:
    """Run the load until everything has ended, or ``rest_s`` seconds beyond the last start; return whether it has.

    Args:
        beside: What runs meanwhile, over and over.
    """
    load = Load(
        server.uri,
        database,
        seed=11,
        tasks=TASKS,
        folder=folder,
        processes=PROCESSES,
        fates=(0.12, 0.12),
    )
    done = asyncio.Event()

    async def look() -> None:
        while beside is not None and not done.is_set():
            await beside()
            await asyncio.sleep(0.2)

    async def work() -> bool:
        try:
            await load.run()
            await asyncio.wait_for(load.finish(), rest_s)
        except TimeoutError:
            return False
        finally:
            done.set()
        return True

    await load.prepare()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(look())
            working = group.create_task(work())
        return working.result()
    finally:
        await load.close()
