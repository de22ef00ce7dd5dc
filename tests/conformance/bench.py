"""A store, a client whose handlers do as a row says, and what the steps of a row need to do and to see."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from pymongo.database import Database

from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import Clock
from kikwiflow_worker.engine.retries import RetryDefaults
from kikwiflow_worker.handler import (
    CorrelationItem,
    EvaluationContext,
    ExecutionContext,
    ProcessError,
    answer_provider,
    correlation_keys_provider,
    task_handler,
)
from kikwiflow_worker.model.runtime import (
    ClaimedTask,
    ExecutableTask,
    ExternalTask,
    Incident,
    ProcessInstance,
    TaskType,
)
from kikwiflow_worker.operations.execution import Outcome, execute_task
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.store.views import ExternalTaskQuery, IncidentQuery, InstanceQuery, TaskQuery
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.registry import registry_of
from tests.conformance.setup import (
    Answers,
    Behaviour,
    Fails,
    Fixture,
    Gives,
    Names,
    Sets,
    Setup,
    Throws,
)
from tests.support.definitions import Json

Handler = Callable[..., object]

_LOCK = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Seen:
    """One instance with all that is stored for it."""

    instance: ProcessInstance
    is_running: bool
    tasks: tuple[ExecutableTask, ...]
    waits: tuple[ExternalTask, ...]
    incidents: tuple[Incident, ...]


class Bench:
    """Runs one row.

    Args:
        java: Whether the fixtures of the Java engine are used instead of our own.
        data: The database itself, for what no port of the store reads.
    """

    def __init__(
        self,
        store: MongoStore,
        clock: Clock,
        setup: Setup,
        *,
        java: bool,
        data: Database[Json] | None = None,
    ) -> None:
        self.store = store
        self._data = data
        self.setup = setup
        self.names = Names.of(setup.fixtures, java=java)
        self.ran: list[str] = []
        self.is_healed = False
        self.instances: dict[str, str] = {}
        self.held: dict[str, ClaimedTask] = {}
        self.ids: dict[tuple[str, str], str] = {}
        """Of the row at a node of an instance, when it was last looked at."""
        self._java = java
        handlers = self._handlers()
        defaults = RetryDefaults(max_retries=setup.max_retries)
        self.client = Kikwiflow(store, handlers=handlers, retry_defaults=defaults, clock=clock)
        self._runtime = HandlerRuntime(registry_of(handlers), threads=1)

    def close(self) -> None:
        """Let the threads of handlers end."""
        self.client.close()
        self._runtime.close()

    def source(self, fixture: Fixture) -> str:
        """Return the text of the definition that is used."""
        if fixture.content is not None:
            return json.dumps(fixture.content)
        path = fixture.java_path if self._java else fixture.own_path
        return path.read_text(encoding="utf-8")

    async def deploy(self) -> None:
        """Deploy all fixtures of the row that can be."""
        for fixture in self.setup.fixtures:
            if not fixture.invalid:
                await self.client.deploy(self.source(fixture))

    async def id_of(self, path: str) -> str:
        """Return the id of an instance by its name, or of a child by its parent and number: ``main/0``."""
        if path in self.instances:
            return self.instances[path]
        child = await self.find_child(path)
        assert child is not None, f"there is no instance {path}"
        return child.id

    async def find_child(self, path: str) -> ProcessInstance | None:
        """Return a child, if it was started."""
        parent, _, number = path.rpartition("/")
        parent_id = await self.id_of(parent)
        for each in await self.all_instances():
            about = each.parent
            if about and about.instance_id == parent_id:
                assert about.branch_id.startswith(about.coordinator_task_id)
                assert each.origin == "CALL_ACTIVITY"
                if about.branch_id.endswith(f":{number}"):
                    return each
        return None

    async def all_instances(self) -> list[ProcessInstance]:
        """Return all instances, running and ended."""
        return [
            each
            for ended in (False, True)
            for each in (
                await self.client.list_instances(InstanceQuery(ended=ended), limit=500)
            ).items
        ]

    async def see(self, path: str) -> Seen:
        """Return an instance with all that is stored for it."""
        instance_id = await self.id_of(path)
        tasks = await self.client.list_tasks(TaskQuery(instance_id=instance_id), limit=500)
        waits = await self.client.list_external_tasks(
            ExternalTaskQuery(instance_id=instance_id), limit=500
        )
        found = IncidentQuery(instance_id=instance_id, status=None)
        incidents = await self.client.list_incidents(found, limit=500)
        return Seen(
            instance=await self.client.get_instance(instance_id),
            is_running=await self.store.runtime.find_instance(instance_id) is not None,
            tasks=tasks.items,
            waits=waits.items,
            incidents=incidents.items,
        )

    async def events(self, path: str) -> list[Json]:
        """Return the stored events of an instance in the order in which they were stored."""
        assert self._data is not None, "events are stored on MongoDB only"
        found = {"processInstanceId": await self.id_of(path)}
        return list(self._data.outbox_events.find(found).sort("$natural", 1))

    async def find_task(self, path: str, node: str, *, index: int | None) -> ExecutableTask:
        """Return the one executable task at a node; with ``index``, the starter of that child."""
        seen = await self.see(path)
        found = [task for task in seen.tasks if self.names.ours(task.node_id) == node]
        starters = [task for task in found if task.type is TaskType.CALL_ACTIVITY_STARTER]
        if index is None:
            found = [task for task in found if task not in starters]
        else:
            found = [task for task in starters if task.loop and task.loop.index == index]
        assert len(found) == 1, f"{len(found)} tasks at {node}, of {seen.tasks}"
        return found[0]

    async def claim(self, task: ExecutableTask) -> ClaimedTask:
        """Claim a task, due or not."""
        claimed = await self.store.queue.claim(task.id, worker_id="worker-1", lock=_LOCK)
        assert claimed is not None, f"{task} cannot be claimed"
        return claimed

    async def execute(self, claimed: ClaimedTask) -> Outcome:
        """Run a claimed task."""
        services = self.client.services
        invoker = self._runtime.invoker()
        return await execute_task(services, invoker, claimed, services.runtime.commit)

    def _handlers(self) -> list[Handler]:
        behaviours: dict[str, Behaviour] = {
            self.names.theirs(name): does for name, does in self.setup.handlers.items()
        }
        for fixture in self.setup.fixtures:
            nodes = json.loads(self.source(fixture))["flowNodes"].values()
            for name in (node.get("executor") for node in nodes):
                if name and self.names.ours(name) not in self.setup.missing:
                    behaviours.setdefault(name, Sets({}))
        return [self._handler(name, does) for name, does in behaviours.items()]

    def _handler(self, name: str, does: Behaviour) -> Handler:
        names = self.names
        match does:
            case Answers(answer):

                @answer_provider(name)
                async def choose(context: EvaluationContext) -> str | None:
                    return names.theirs(answer) if answer is not None else None

                return choose
            case Gives(items):

                @correlation_keys_provider(name)
                async def give(context: EvaluationContext) -> list[CorrelationItem]:
                    return [CorrelationItem(names.theirs(k), names.theirs(v)) for k, v in items]

                return give
            case _:
                return self._task_handler(name, does)

    def _task_handler(self, name: str, does: Sets | Fails | Throws) -> Handler:
        ours, names = self.names.ours(name), self.names

        @task_handler(name)
        async def run(context: ExecutionContext) -> Mapping[str, object]:
            self.ran.append(ours)
            match does:
                case Sets(values):
                    return names.variables(values)
                case Fails(times, message) if not self.is_healed:
                    if self.ran.count(ours) <= times:
                        raise ConnectionError(message)
                case Throws(code) if not self.is_healed:
                    raise ProcessError(names.theirs(code))
                case _:
                    pass
            return {}

        return run
