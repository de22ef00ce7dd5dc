"""The load of the chaos run: starts instances of every kind, with a bounded backlog, whatever happens to the database.

Everything that it decides comes from one seed. It repeats each call until it is answered, under the same start key,
message id or task; what it asked for and what it was promised is in the ledger (``load_ledger``).
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from math import ceil
from pathlib import Path

from pymongo import AsyncMongoClient

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.errors import ConflictError, NotFoundError
from tests.chaos import load_processes
from tests.chaos.load_builder import Process, key_for
from tests.chaos.load_ledger import Ledger
from tests.chaos.load_people import Patience, People
from tests.chaos.load_processes import Weighted
from tests.chaos.load_shape import Json, encode

BACKLOG = 200
"""Enough to keep a few workers busy."""

STARTERS = 6
"""Starts under way at once."""

WIDE = 2
"""Instances of the widest definition in a run of ``WIDE_FROM`` tasks or more."""

WIDE_FROM = 20_000
FATES = (0.03, 0.04)
"""Which parts of all instances are cancelled, and suspended for a while."""

KEPT_FOR_S = 7200.0

_PAUSE_S = 0.1


class Load:
    """One run's load.

    Args:
        tasks: How many executable and external tasks to start, about.
        folder: Where ``ledger.jsonl`` is written.
        processes: What to start, each with its weight; all kinds without it.
        fates: Which parts of all instances are cancelled, and suspended for a while.
        backlog: Running instances, children included, beyond which nothing is started until some have ended.
    """

    def __init__(
        self,
        uri: str,
        database: str,
        *,
        seed: int,
        tasks: int,
        folder: Path,
        processes: Sequence[Weighted] = (),
        fates: tuple[float, float] = FATES,
        backlog: int = BACKLOG,
    ) -> None:
        self._uri, self._database = uri, database
        self._seed = seed
        self._rng = random.Random(f"load {seed}")
        self._patience = Patience(random.Random(f"pauses {seed}"))
        self._tasks = tasks
        self._backlog = backlog
        self._ledger = Ledger(folder / "ledger.jsonl")
        self._cancelled, self._suspended = fates
        self._processes = list(processes) or load_processes.processes(seed)
        self._wide = load_processes.wide()
        wide = WIDE if tasks >= WIDE_FROM and not processes else 0
        self._wide_due = [tasks * part // (wide + 1) for part in range(1, wide + 1)]
        self._started_tasks = 0
        self._numbers = 0
        self._stack = AsyncExitStack()

    @property
    def started_tasks(self) -> int:
        """About how many tasks the instances started so far amount to."""
        return self._started_tasks

    async def prepare(self) -> None:
        """Connect and deploy all definitions.

        Raises:
            StoreUnavailableError: The database is away.
        """
        self._client = await self._stack.enter_async_context(
            Kikwiflow.connect(self._uri, database=self._database)
        )
        # Without a time limit it would wait for a primary that is frozen until that wakes up.
        own = await self._stack.enter_async_context(
            AsyncMongoClient[Json](self._uri, socketTimeoutMS=3_000, serverSelectionTimeoutMS=3_000)
        )
        self._instances = own[self._database].process_instances
        waits: dict[str, str] = {}
        wide = [self._wide] if self._wide_due else []
        for process in [*(found for _, found in self._processes), *wide]:
            for each in process.family():
                await self._client.deploy(json.dumps(each.file), name=each.key)
                self._ledger.note(
                    "definition", key=each.key, shape=encode(each.shape), waits=each.waits
                )
                waits |= each.waits
        self._people = People(self._client, self._ledger, self._patience, self._seed, waits)

    async def run(
        self,
        is_enough: Callable[[], bool] = lambda: True,
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start instances until they amount to the tasks wanted, and treat what waits for people meanwhile.

        Args:
            is_enough: More is started until it says so, however many there are: faults are still to come.
            is_full: Nothing is started while it says so, however few there are: work waits for the workers.
        """
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._people.work(stop))
            async with asyncio.TaskGroup() as starters:
                for _ in range(STARTERS):
                    starters.create_task(self._start_many(is_enough, is_full))
            stop.set()

    async def finish(self) -> None:
        """Treat what waits for people until no instance is left; cancelled from outside if that takes too long."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._people.work(stop))
            while await self._running():
                await asyncio.sleep(_PAUSE_S)
            stop.set()

    async def close(self) -> None:
        """Close the connection and the ledger."""
        await self._stack.aclose()
        self._ledger.close()

    async def _start_many(self, is_enough: Callable[[], bool], is_full: Callable[[], bool]) -> None:
        while self._started_tasks < self._tasks or not is_enough():
            room = 0 if is_full() else self._backlog - await self._running()
            if room <= 0:
                await asyncio.sleep(_PAUSE_S)
            for _ in range(min(5, ceil(room / STARTERS))):
                await self._start_one()

    async def _start_one(self) -> None:
        process = self._choose()
        self._started_tasks += process.tasks
        self._numbers += 1
        ref = f"{process.key}/{self._numbers}"
        rng = random.Random(f"{self._seed} {ref}")
        variables = load_processes.variables(rng, ref)
        fated = self._fate(rng.random())
        self._ledger.note("start", ref=ref, key=process.key, fate=fated)
        for node in process.kept:
            await self._people.send(key_for(node, ref), node, ref, keep_s=KEPT_FOR_S)
        instance, _ = await self._patience.insist(
            lambda: self._client.start(process.key, ref, variables=variables, idempotency_key=ref)
        )
        self._ledger.note("started", ref=ref, instance=instance.id)
        if fated:
            await self._interfere(instance.id, fated, rng)

    def _fate(self, drawn: float) -> str:
        if drawn < self._cancelled:
            return "cancel"
        return "suspend" if drawn < self._cancelled + self._suspended else ""

    def _choose(self) -> Process:
        if self._wide_due and self._started_tasks >= self._wide_due[0]:
            self._wide_due.pop(0)
            return self._wide
        weights = [weight for weight, _ in self._processes]
        return self._rng.choices(self._processes, weights)[0][1]

    async def _interfere(self, instance_id: str, fate: str, rng: random.Random) -> None:
        """Cancel an instance, or suspend and resume it, at some moment of its life."""
        await asyncio.sleep(rng.uniform(0, 0.5))
        if fate == "cancel":
            await self._order("cancel", instance_id, self._client.cancel)
            return
        if await self._order("suspend", instance_id, self._client.suspend) in {"done", "refused"}:
            await asyncio.sleep(rng.uniform(0.1, 0.8))
            await self._order("resume", instance_id, self._client.resume)

    async def _order(
        self, op: str, instance_id: str, call: Callable[[str], Awaitable[None]]
    ) -> str:
        self._ledger.note(op, instance=instance_id)

        async def attempt() -> str:
            try:
                await call(instance_id)
            except NotFoundError:
                return "missing"
            except ConflictError:
                return "refused"
            return "done"

        answer, tries = await self._patience.insist(attempt)
        self._ledger.note(f"{op}-answered", instance=instance_id, answer=answer, tries=tries)
        return answer

    async def _running(self) -> int:
        """Return how many instances run; counted, as the server's estimate is wrong for ever after it was killed."""
        running, _ = await self._patience.insist(lambda: self._instances.count_documents({}))
        return running
