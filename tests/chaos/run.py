"""One chaos run, from the start of the servers to the verdict."""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pymongo import MongoClient

from tests.chaos import probes, recovery
from tests.chaos.cluster import Cluster, Json, wait_for
from tests.chaos.executor import Executor
from tests.chaos.fleet import Fleet
from tests.chaos.load import Load
from tests.chaos.outcome import Figures, Findings
from tests.chaos.schedule import Fault
from tests.chaos.server_faults import clear_fail_points, make_whole
from tests.chaos.verify import verify

DATABASE = "chaos"
_LOOK_S = 5.0
_STANDSTILL_S = 180.0
"""No fault and no repair takes so long: when no handler has been called meanwhile, something is stuck."""

_REST_S = 60.0
"""The same when all faults are over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to run.

    Attributes:
        tasks: How many executable and external tasks to start at least, about.
        minutes: Over how long the faults are spread; the load goes on meanwhile.
        backlog: How many instances may run at once.
        folder: Empty; servers, logs and figures go there.
    """

    seed: int
    tasks: int
    minutes: float
    workers: int
    backlog: int
    folder: Path
    faults: tuple[Fault, ...]
    command: str


class Run:
    """Starts everything, lets the faults loose, and gathers what came of it.

    Args:
        say: Is told about the progress, a line at a time.
    """

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self._options = options
        self._say = say

    def execute(self) -> Figures:
        """Run; return the figures, with everything that is wrong in them."""
        options = self._options
        with ExitStack() as stack:
            cluster = Cluster(options.folder)
            stack.callback(cluster.stop)
            cluster.start()
            fleet = Fleet.assemble(options.folder, cluster.uri, DATABASE, cluster.network.guard)
            stack.callback(fleet.kill_all)
            findings = asyncio.run(self._in_motion(cluster, fleet))
            return findings.figures()

    async def _in_motion(self, cluster: Cluster, fleet: Fleet) -> Findings:
        options = self._options
        load = Load(
            cluster.uri,
            DATABASE,
            seed=options.seed,
            tasks=options.tasks,
            folder=options.folder,
            backlog=options.backlog,
        )
        await load.prepare()
        await asyncio.to_thread(self._start_workers, fleet)
        watching = probes.Probes(fleet)
        watching.start()
        executor = Executor(cluster, fleet, options.folder / "faults.jsonl")
        offset, begun = time.time() - time.monotonic(), time.monotonic()
        executor.start(options.faults)
        unfinished = []
        try:
            unfinished += await self._drive(load, executor, fleet, watching)
            await asyncio.to_thread(executor.stop)
            await asyncio.to_thread(make_whole, cluster)
            await asyncio.to_thread(clear_fail_points, cluster)
            unfinished += await self._come_to_rest(load, cluster, fleet)
            seconds = time.monotonic() - begun
        finally:
            await asyncio.to_thread(executor.stop)
            watching.stop()
            await load.close()
        return await asyncio.to_thread(
            self._gather, cluster, fleet, executor, watching, offset, seconds, unfinished
        )

    def _start_workers(self, fleet: Fleet) -> None:
        fleet.start(self._options.workers)
        for worker in fleet.places:
            wait_for(lambda w=worker: w.status("/readyz") == 200, f"{worker.name} is ready")  # type: ignore[misc]

    async def _drive(
        self, load: Load, executor: Executor, fleet: Fleet, watching: probes.Probes
    ) -> list[str]:
        """Let the load run until it has started enough and the faults are through, as fast as the workers follow."""

        def state() -> str:
            return f"{load.started_tasks:7,} tasks started  {len(executor.records):4} faults"

        running = load.run(lambda: executor.is_through, watching.work_waits)
        if await self._moves_on(running, fleet.site.log, state, standstill_s=_STANDSTILL_S):
            return []
        return [f"nothing moved for {_STANDSTILL_S:g} s while the load ran"]

    async def _come_to_rest(self, load: Load, cluster: Cluster, fleet: Fleet) -> list[str]:
        """Wait until no instance is left; return what is left all the same."""
        self._say("all faults are through; waiting until everything has ended")

        def state() -> str:
            return "waiting"

        if await self._moves_on(load.finish(), fleet.site.log, state, standstill_s=_REST_S):
            return []
        return await asyncio.to_thread(_remaining, cluster.uri)

    async def _moves_on(
        self,
        doing: Coroutine[object, object, None],
        effects: Path,
        state: Callable[[], str],
        *,
        standstill_s: float,
    ) -> bool:
        """Do it and say how it goes; give up, and return false, when no handler has been called for so long."""
        task = asyncio.ensure_future(doing)
        begun = moved_at = time.monotonic()
        seen = -1
        while not task.done():
            await asyncio.wait([task], timeout=_LOOK_S)
            now, size = time.monotonic(), _size(effects)
            if size != seen:
                seen, moved_at = size, now
            self._say(f"{now - begun:5.0f} s  {state()}")
            if now - moved_at > standstill_s:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                return False
        task.result()
        return True

    def _gather(
        self,
        cluster: Cluster,
        fleet: Fleet,
        executor: Executor,
        watching: probes.Probes,
        offset: float,
        seconds: float,
        unfinished: list[str],
    ) -> Findings:
        options, records = self._options, sorted(executor.records, key=lambda each: each.number)
        deserters = fleet.deserters
        fleet.kill_all()
        with MongoClient[Json](cluster.uri) as client:
            found = recovery.elections(client, DATABASE, wall_offset_s=offset)
        effects = fleet.site.log
        gone = recovery.outages(records, found)
        take_overs = recovery.take_overs(records, effects, watching.waits)
        failovers = recovery.failovers(records, found)
        with (options.folder / "recoveries.jsonl").open("w") as log:
            log.writelines(json.dumps(asdict(each)) + "\n" for each in [*take_overs, *failovers])
        return Findings(
            seed=options.seed,
            command=options.command,
            seconds=seconds,
            records=records,
            report=verify(cluster.uri, DATABASE, effects, options.folder / "ledger.jsonl"),
            take_overs=take_overs,
            failovers=failovers,
            samples=watching.samples,
            lags=probes.lags(watching.samples, gone),
            deserters=deserters,
            dead_answers=probes.dead_answers(watching.samples),
            crashes=fleet.crashes(),
            unfinished=unfinished,
        )


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _remaining(uri: str) -> list[str]:
    """Return a line about each instance that has not ended, with its tasks."""
    fields = (
        "taskDefinitionId",
        "type",
        "status",
        "workerId",
        "claimableAt",
        "attempts",
        "crashCount",
        "error",
    )
    with MongoClient[Json](uri) as client:
        database = client[DATABASE]
        return [
            f"instance {instance['_id']} of {instance.get('processDefinitionId')}: "
            + "; ".join(
                str({name: row[name] for name in fields if name in row})
                for kind in ("executable_tasks", "external_tasks")
                for row in database[kind].find({"processInstanceId": instance["_id"]}).limit(5)
            )
            for instance in database.process_instances.find().limit(50)
        ]
