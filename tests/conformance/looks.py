"""The steps of rows that say what must be true then."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta

from kikwiflow_worker.errors import InvalidDefinitionError
from kikwiflow_worker.model.events import EventType
from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    ExternalTaskType,
    Incident,
    InstanceStatus,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.operations.deployment import check_definition
from tests.conformance.bench import Bench, Seen
from tests.conformance.setup import Names
from tests.support.definitions import Json

_TIMERS = {TaskType.TIMER_TASK, TaskType.INTERRUPTIVE_TIMER, TaskType.NON_INTERRUPTIVE_TIMER}


@dataclass(frozen=True, slots=True)
class Deploy:
    """Deploy the first definition; it is refused for what is at ``path`` of the file."""

    path: str
    handlers_are_known: bool = False

    async def take(self, bench: Bench) -> None:
        source = bench.source(bench.setup.fixtures[0])
        try:
            await bench.client.deploy(source, check_handlers=self.handlers_are_known)
        except InvalidDefinitionError as error:
            found = [problem.path for problem in error.problems if problem.is_error]
            path = ".".join(bench.names.theirs(part) for part in self.path.split("."))
            assert path in found
        else:
            raise AssertionError("the definition was deployed")


@dataclass(frozen=True, slots=True)
class Warns:
    """A deploy of the first definition warns about what is at ``path`` of the file."""

    path: str

    async def take(self, bench: Bench) -> None:
        checked = check_definition(bench.source(bench.setup.fixtures[0]), name="definition")
        assert self.path in [problem.path for problem in checked.warnings]


@dataclass(frozen=True, slots=True)
class DueAt:
    """The executable task at a node is due at a full hour, in UTC, within a day of the one before it."""

    node: str
    hour: int

    async def take(self, bench: Bench) -> None:
        task = await bench.find_task("main", self.node, index=None)
        assert task.due_at is not None
        assert task.due_at.time() == time(self.hour)
        passed = timedelta(days=(task.occurrence or 1) - 1)
        assert passed < task.due_at - task.created_at <= passed + timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no such child."""

    of: str

    async def take(self, bench: Bench) -> None:
        assert await bench.find_child(self.of) is None


@dataclass(frozen=True, slots=True)
class NothingStored:
    """No instance is stored, running or ended."""

    async def take(self, bench: Bench) -> None:
        assert await bench.all_instances() == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """All events of an instance so far, in their order, each a line; MongoDB only."""

    lines: tuple[str, ...]
    of: str = "main"

    async def take(self, bench: Bench) -> None:
        found = [event_line(each, bench.names) for each in await bench.events(self.of)]
        assert found == list(self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastEvent:
    """The payload of the last event of a type has these fields.

    Attributes:
        ids: Fields that hold the id of an instance, by its name.
    """

    type: EventType
    of: str = "main"
    fields: Mapping[str, object] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    async def take(self, bench: Bench) -> None:
        found = [each for each in await bench.events(self.of) if each["eventType"] == self.type]
        payload = found[-1]["payload"]
        wanted = {name: bench.names.value(value) for name, value in self.fields.items()}
        wanted |= {name: await bench.id_of(path) for name, path in self.ids.items()}
        assert {name: payload[name] for name in wanted} == wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Then:
    """All that is stored for an instance, exactly; each row is one line, in any order.

    Attributes:
        ran: All calls of task handlers so far, in order.
        variables: None does not matter.
        replaced: Nodes whose row is another one than when the instance was last looked at.
        retries: Attempts left of the row at a node.
    """

    status: InstanceStatus = InstanceStatus.ACTIVE
    tasks: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    incidents: tuple[str, ...] = ()
    ran: tuple[str, ...] = ()
    of: str = "main"
    variables: Mapping[str, object] | None = None
    business_key: str | None = None
    replaced: tuple[str, ...] = ()
    retries: Mapping[str, int] = field(default_factory=dict)

    async def take(self, bench: Bench) -> None:
        seen = await bench.see(self.of)
        names = bench.names
        assert seen.instance.status is self.status
        assert seen.is_running is (seen.instance.ended_at is None)
        assert _lines(task_line(each, names) for each in seen.tasks) == _lines(self.tasks)
        assert _lines(wait_line(each, names) for each in seen.waits) == _lines(self.waits)
        assert _lines(incident_line(each, names) for each in seen.incidents) == _lines(
            self.incidents
        )
        assert tuple(bench.ran) == self.ran
        if self.variables is not None:
            assert seen.instance.variables == names.variables(self.variables)
        if self.business_key is not None:
            assert seen.instance.business_key == self.business_key
        _check_retries(seen, names, self.retries)
        _check_branches(seen)
        self._remember(bench, seen)

    def _remember(self, bench: Bench, seen: Seen) -> None:
        for task in (*seen.tasks, *seen.waits):
            node = bench.names.ours(task.node_id)
            if node in self.replaced:
                assert bench.ids[self.of, node] != task.id
            bench.ids[self.of, node] = task.id


ENDED = InstanceStatus.COMPLETED
CANCELLED = InstanceStatus.CANCELLED


def task_line(task: ExecutableTask, names: Names) -> str:
    """Return an executable task in a line."""
    words = [names.ours(task.node_id), task.type.value, task.status.value]
    if task.status is TaskStatus.AWAITING_BRANCHES:
        words.append(f"pending={len(task.pending_branch_ids)}")
    if task.loop and task.loop.pending:
        words.append(f"left={len(task.loop.pending)}")
    if task.loop and task.type is TaskType.CALL_ACTIVITY_STARTER:
        (element,) = task.loop.element
        words.append(f"index={task.loop.index}")
        words += [f"element={element}"] if element is not None else []
    if task.type in _TIMERS and task.due_at:
        words.append(f"due={task.due_at - task.created_at}")
    if task.type in _TIMERS and task.occurrence:
        words.append(f"occurrence={task.occurrence}")
    if task.attempts:
        words.append(f"attempts={task.attempts}")
    return " ".join(words)


def wait_line(task: ExternalTask, names: Names) -> str:
    """Return an external task in a line."""
    words = [names.ours(task.node_id), task.type.value, task.status.value]
    if task.type is ExternalTaskType.GROUP:
        words.append(f"pending={len(task.pending_keys)}")
    if task.correlation_key is not None:
        words.append(names.ours(task.correlation_key))
    if task.display_name != task.correlation_key:
        words.append(f"({names.ours(task.display_name or '')})")
    return " ".join(words)


def incident_line(incident: Incident, names: Names) -> str:
    """Return an incident in a line."""
    return f"{names.ours(incident.node_id)} {incident.type.value} {incident.status.value}"


def event_line(event: Json, names: Names) -> str:
    """Return an event in a line: its type, its node if it has one, and what it says about it."""
    payload = event["payload"]
    told = ("flowNodeDefinitionId", "gatewayNodeId", "taskDefinitionId", "name")
    about = ("nodeExecutionStatus", "resolvedAnswer", "interruptedByNodeDefinitionId", "status")
    words = [names.ours(str(payload[name])) for name in told + about if payload.get(name)]
    return " ".join([event["eventType"], *words])


def _lines(lines: Iterable[str]) -> list[str]:
    return sorted(lines)


def _check_retries(seen: Seen, names: Names, retries: Mapping[str, int]) -> None:
    for node, left in retries.items():
        (task,) = [each for each in seen.tasks if names.ours(each.node_id) == node]
        assert task.retries_left == left


def _check_branches(seen: Seen) -> None:
    """A join waits for those branches that are under way, and rows have the tenant of their instance."""
    rows = (*seen.tasks, *seen.waits)
    assert {row.tenant_id for row in rows} <= {seen.instance.tenant_id}
    for join in seen.tasks:
        under_way = {
            row.branch.id for row in rows if row.branch and row.branch.join_task_id == join.id
        }
        if join.status is TaskStatus.AWAITING_BRANCHES:
            assert set(join.pending_branch_ids) == under_way
        elif join.type is TaskType.CALL_ACTIVITY_COORDINATOR:
            assert not join.pending_branch_ids
