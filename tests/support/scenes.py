"""What tests of the command line begin with: processes of ours, and what workers did to them behind the scenes."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.model.runtime import ExecutableTask
from kikwiflow_worker.model.unit_of_work import FailTask, OpenIncident, RescheduleTask
from kikwiflow_worker.store.external_work import Fetch
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.views import TaskQuery, WorkerRecord
from tests.support.cli import CommandLine, Json
from tests.support.definitions import PROCESS_FOLDER
from tests.support.stores import WORKER, an_incident, claim, commit

WAITING = "own-external-task"
FAILING = "own-retryable-task"
HANDLER = "weigh_parcel"
EXTERNAL = "external/ann/php.1"


@dataclass(frozen=True, slots=True)
class BehindTheScenes:
    """Does to the database of a test what workers would do."""

    uri: str
    database: str

    def hold_task(self) -> str:
        """Let a worker hold the only task; return the task's id."""

        async def act(store: MongoStore) -> str:
            task = await _only_task(store)
            await claim(store, task)
            return task.id

        return self._run(act)

    def retry_later(self) -> str:
        """Let the only task have failed once; return its id."""

        async def act(store: MongoStore) -> str:
            task = await _only_task(store)
            guard = RescheduleTask(
                claim=await claim(store, task),
                due_at=store.runtime.now() + timedelta(hours=3),
                attempts=1,
                retries_left=1,
                error="the scales are busy",
            )
            await commit(store, guards=(guard,))
            return task.id

        return self._run(act)

    def fail_task(self) -> str:
        """Let the only task have failed for good; return the incident's id."""

        async def act(store: MongoStore) -> str:
            task = await _only_task(store)
            incident = an_incident(task, stack_trace="Traceback:\n  in weigh_parcel")
            guard = FailTask(claim=await claim(store, task), attempts=2, error=incident.message)
            await commit(store, OpenIncident(incident), guards=(guard,))
            return incident.id

        return self._run(act)

    def record_fetch(self, topic: str, tenant_id: str | None = None) -> None:
        """Let an external worker fetch a topic."""

        async def act(store: MongoStore) -> str:
            await store.external_work.record_fetch(
                Fetch(
                    worker_id=EXTERNAL,
                    topics=frozenset({topic}),
                    lock=timedelta(seconds=60),
                    tenant_id=tenant_id,
                )
            )
            return EXTERNAL

        self._run(act)

    def record_worker(self, *handlers: str) -> None:
        """Let a worker with these handlers be alive."""

        async def act(store: MongoStore) -> str:
            now = store.runtime.now()
            record = WorkerRecord(
                id=WORKER, instance_name="w", host="host", pid=1, version="1", started_at=now,
                seen_at=now, state="running", slots=10, running=2, handlers=handlers,
                event_loop_lag_s=0.25,
            )  # fmt: skip
            await store.reads.record_worker(record)
            return WORKER

        self._run(act)

    def _run(self, act: Callable[[MongoStore], Awaitable[str]]) -> str:
        async def run() -> str:
            store = MongoStore.open(self.uri, self.database, clock=SystemClock())
            try:
                await store.ping()
                return await act(store)
            finally:
                await store.close()

        return asyncio.run(run())


async def _only_task(store: MongoStore) -> ExecutableTask:
    (task,) = (await store.reads.list_tasks(TaskQuery())).items
    return task


@pytest.fixture
def kikwi(mongo_uri: str, database_name: str) -> CommandLine:
    return CommandLine(KIKWIFLOW_MONGODB_URI=mongo_uri, KIKWIFLOW_MONGODB_DATABASE=database_name)


@pytest.fixture
def scenes(mongo_uri: str, database_name: str) -> BehindTheScenes:
    return BehindTheScenes(mongo_uri, database_name)


def process_file(key: str) -> str:
    return str(PROCESS_FOLDER / f"{key}.kikwi")


def started(kikwi: CommandLine, key: str = WAITING, *more: str) -> Json:
    """Deploy a process of ours and start it; return the instance."""
    kikwi.json("deploy", process_file(key))
    return kikwi.json("start", key, "--business-key", "ORDER-1", *more)
