"""Testing handlers and definitions without a database: the real engine on an in-memory store, with time in your hand.

    async with Harness(handlers=[orders]) as harness:
        await harness.deploy(Path("order.kikwi"))
        instance = await harness.start("order", "ORDER-1", variables={"amount": 120})
        await harness.run()
        await harness.complete("APPROVE", {"approved": True})
        await harness.advance(timedelta(hours=48))
        assert (await harness.instance(instance.id)).status == "COMPLETED"

Needs the extra ``testing`` (mongomock). It shows what a process does; claims, crashes and transactions are shown by the
acceptance tests of this package on a real MongoDB.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from kikwiflow_worker.client import Handlers, Kikwiflow
from kikwiflow_worker.engine.retries import RetryDefaults
from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    Incident,
    IncidentStatus,
    ProcessInstance,
)
from kikwiflow_worker.operations.execution import Outcome, execute_task
from kikwiflow_worker.operations.paging import every
from kikwiflow_worker.store.mongo.in_memory import InMemoryStore
from kikwiflow_worker.store.protocol import Deployment
from kikwiflow_worker.store.views import ExternalTaskQuery, IncidentQuery, TaskQuery
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.registry import registry_of

_WORKER_ID = "harness"
_LOCK = timedelta(seconds=30)
_MAX_RUNS = 10_000


class ManualClock:
    """A clock that stands still until it is moved; sleeping moves it."""

    def __init__(self, now: datetime = datetime(2030, 1, 1, 12, tzinfo=UTC)) -> None:
        self._start = self._now = now

    def now(self) -> datetime:
        """Return the time it was moved to."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds it was moved by."""
        return (self._now - self._start).total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Move on by ``seconds``, at once."""
        self.advance(timedelta(seconds=seconds))

    def advance(self, by: timedelta) -> None:
        """Move on."""
        self._now += by


class Harness:
    """One in-memory engine with one imagined worker.

    Args:
        handlers: Modules or decorated functions. A step whose handler is missing waits, as in production.
        now: Where the clock starts.
    """

    def __init__(
        self,
        *,
        handlers: Handlers = (),
        retry_defaults: RetryDefaults | None = None,
        now: datetime = datetime(2030, 1, 1, 12, tzinfo=UTC),
    ) -> None:
        self.clock = ManualClock(now)
        self._store = InMemoryStore(self.clock)
        self._handlers = HandlerRuntime(registry_of(handlers), threads=4)
        self.client = Kikwiflow(self._store, retry_defaults=retry_defaults, clock=self.clock)
        """The client that the harness itself uses, without inline handlers."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handlers.close()
        self.client.close()

    def use(self, handlers: Handlers) -> None:
        """Replace the handlers, as a new release of them would."""
        self._handlers.close()
        self._handlers = HandlerRuntime(registry_of(handlers), threads=4)

    async def deploy(self, source: Path | str | bytes) -> Deployment:
        """Deploy a definition: a file, or its JSON text.

        Raises:
            InvalidDefinitionError: It cannot be deployed; lists all problems.
        """
        return await self.client.deploy(source)

    async def start(
        self, key: str, business_key: str, *, variables: Mapping[str, object] | None = None
    ) -> ProcessInstance:
        """Start an instance; nothing runs before ``run``."""
        return await self.client.start(key, business_key, variables=variables)

    async def run(self) -> int:
        """Run everything that is due now, and what becomes due by it; return how many tasks ran.

        Raises:
            OperationError: Ten thousand tasks were not enough: the definition runs in a circle.
        """
        runs = 0
        while await self.run_next() is not None:
            runs += 1
            if runs >= _MAX_RUNS:
                raise OperationError(
                    f"{runs} tasks ran and more are due; the definition runs in a circle"
                )
        return runs

    async def run_next(self) -> Outcome | None:
        """Run the task that has been due longest; None if nothing is due."""
        invoker = self._handlers.invoker()
        due = await self._store.queue.claim_due(
            worker_id=_WORKER_ID, lock=_LOCK, capabilities=invoker.capabilities, limit=1
        )
        if not due:
            return None
        services = self.client.services
        return await execute_task(services, invoker, due[0], services.runtime.commit)

    async def advance(self, by: timedelta) -> int:
        """Let time pass and run what becomes due in it, each at its own time; return how many tasks ran."""
        end = self.clock.now() + by
        runs = await self.run()
        while True:
            upcoming = [
                task.claimable_at
                for task in await self.tasks()
                if task.claimable_at is not None and self.clock.now() < task.claimable_at <= end
            ]
            if not upcoming:
                break
            self.clock.advance(min(upcoming) - self.clock.now())
            runs += await self.run()
        self.clock.advance(end - self.clock.now())
        return runs + await self.run()

    async def complete(
        self, node_id: str, variables: Mapping[str, object] | None = None
    ) -> ProcessInstance:
        """Complete the one open external task at ``node_id``; what follows runs with ``run``.

        Raises:
            OperationError: There is none, or more than one.
        """
        found = [task for task in await self.external_tasks() if task.node_id == node_id]
        if len(found) != 1:
            waiting = ", ".join(task.node_id for task in await self.external_tasks()) or "nowhere"
            raise OperationError(
                f"{len(found)} external tasks are open at {node_id}; instances wait at: {waiting}"
            )
        return await self.client.complete(found[0].id, variables)

    async def instance(self, instance_id: str) -> ProcessInstance:
        """Return an instance, running or ended.

        Raises:
            NotFoundError: There is none.
        """
        return await self.client.get_instance(instance_id)

    async def tasks(self) -> tuple[ExecutableTask, ...]:
        """Return all executable tasks, oldest first."""
        return tuple([each async for each in every(self.client.list_tasks, TaskQuery())])

    async def external_tasks(self) -> tuple[ExternalTask, ...]:
        """Return all open external tasks, oldest first."""
        listing = self.client.list_external_tasks
        return tuple([each async for each in every(listing, ExternalTaskQuery())])

    async def incidents(self) -> tuple[Incident, ...]:
        """Return all open incidents, newest first."""
        query = IncidentQuery(status=IncidentStatus.OPEN)
        return tuple([each async for each in every(self.client.list_incidents, query)])
