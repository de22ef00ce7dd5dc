"""The contenders of a race: each its own process with a connection of its own, and a place where their writes meet."""

import asyncio
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.handler import ExecutionContext, Fatal, task_handler
from kikwiflow_worker.model.runtime import ClaimedTask
from kikwiflow_worker.operations.execution import Outcome, execute_task
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.worker.handlers import HandlerRuntime
from tests.support.stores import LOCK

WRITES = frozenset(
    {
        "assign_external_task",
        "cancel_instance",
        "commit",
        "migrate_instance",
        "override_task",
        "park_task",
        "resume_instance",
        "retry_incident",
        "suspend_instance",
    }
)
"""The methods of a runtime store that decide something."""


@task_handler("work")
async def work(ctx: ExecutionContext) -> None:
    """Do nothing, or fail for good while variable ``broken`` is true."""
    if ctx.get("broken"):
        raise Fatal("out of order")


class Meeting:
    """Two wait for each other; who leaves without having come counts as come."""

    def __init__(self) -> None:
        self._awaited = {0, 1}
        self._complete = asyncio.Event()

    def arrive(self, who: int) -> None:
        self._awaited.discard(who)
        if not self._awaited:
            self._complete.set()

    async def meet(self, who: int) -> None:
        self.arrive(who)
        await self._complete.wait()


class MeetingRuntime:
    """A runtime store whose first write waits for the rival's first write, and then for ``trips`` round trips more."""

    def __init__(self, store: MongoStore, meeting: Meeting, who: int, trips: int) -> None:
        self._store, self._meeting, self._who, self._trips = store, meeting, who, trips

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store.runtime, name)
        if name not in WRITES:
            return method

        async def write(*args: Any, **named: Any) -> Any:
            await self._meeting.meet(self._who)
            for _ in range(self._trips):
                await self._store.ping()
            self._trips = 0
            return await method(*args, **named)

        return write


@dataclass(frozen=True, slots=True)
class Side:
    """One contender's process: its own connection, a client, and a worker's handlers."""

    store: MongoStore
    client: Kikwiflow
    handlers: HandlerRuntime

    def meeting(self, meeting: Meeting, who: int, *, trips: int) -> "Side":
        """Return the same side for one race, its first write held back until the rival's."""
        runtime: Any = MeetingRuntime(self.store, meeting, who, trips)
        client = copy(self.client)
        client.services = replace(client.services, runtime=runtime)
        return replace(self, client=client)

    async def travel(self, trips: int) -> None:
        """Let some round trips pass."""
        for _ in range(trips):
            await self.store.ping()

    async def start(self, key: str, variables: Mapping[str, object]) -> str:
        return (await self.client.start(key, "race", variables=variables)).id

    async def claim(self, task_id: str) -> ClaimedTask:
        claimed = await self.claim_if_free(task_id)
        assert claimed is not None
        return claimed

    async def claim_if_free(self, task_id: str) -> ClaimedTask | None:
        return await self.store.queue.claim(task_id, worker_id="racer", lock=LOCK)

    async def run(self, claimed: ClaimedTask) -> Outcome:
        services, invoker = self.client.services, self.handlers.invoker()
        return await execute_task(services, invoker, claimed, services.runtime.commit)

    async def run_due(self) -> int:
        """Run what is due until nothing is; return how many tasks that were."""
        runs = 0
        capabilities = self.handlers.registry.capabilities
        while due := await self.store.queue.claim_due(
            worker_id="drain", lock=LOCK, capabilities=capabilities, limit=1
        ):
            await self.run(due[0])
            runs += 1
        return runs
