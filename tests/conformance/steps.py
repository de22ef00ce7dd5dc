"""The steps of rows that do something."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kikwiflow_worker.errors import KikwiflowError
from kikwiflow_worker.model.runtime import (
    TaskType,
)
from kikwiflow_worker.store.views import IncidentQuery, TaskQuery
from tests.conformance.bench import Bench

Refusal = type[KikwiflowError]


class _Refused:
    """Takes the error that a step must end with, or none."""

    def __init__(self, refused: Refusal | None) -> None:
        self._refused = refused

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if self._refused is None:
            return False
        assert kind is not None, f"it should have been refused with {self._refused.__name__}"
        return issubclass(kind, self._refused)


@dataclass(frozen=True, slots=True)
class Start:
    """Start an instance, of the row's first definition unless ``key`` names another of them."""

    variables: Mapping[str, object] = field(default_factory=dict)
    name: str = "main"
    key: str | None = None
    tenant: str | None = None
    refused: Refusal | None = None

    async def take(self, bench: Bench) -> None:
        key = bench.names.theirs(self.key or bench.setup.fixtures[0].own)
        with _Refused(self.refused):
            instance = await bench.client.start(
                key,
                f"P-{self.name}",
                variables=bench.names.variables(self.variables),
                tenant_id=self.tenant,
            )
            bench.instances[self.name] = instance.id


@dataclass(frozen=True, slots=True)
class Execute:
    """Claim the executable task at a node, due or not, and run it; with ``index``, the starter of that child."""

    node: str
    of: str = "main"
    index: int | None = None
    outcome: str = "completed"

    async def take(self, bench: Bench) -> None:
        await Claim(self.node, self.of, self.index).take(bench)
        await Run(self.node, self.outcome).take(bench)


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim the executable task at a node and hold it."""

    node: str
    of: str = "main"
    index: int | None = None

    async def take(self, bench: Bench) -> None:
        task = await bench.find_task(self.of, self.node, index=self.index)
        bench.held[self.node] = await bench.claim(task)


@dataclass(frozen=True, slots=True)
class Run:
    """Run the task at a node that was claimed before, once more if it ran already."""

    node: str
    outcome: str = "completed"

    async def take(self, bench: Bench) -> None:
        outcome = await bench.execute(bench.held[self.node])
        assert outcome.kind == self.outcome, outcome


@dataclass(frozen=True, slots=True)
class Complete:
    """Complete the external task at a node; one that is not open any more if it was looked at before.

    Attributes:
        key: Of the row to complete, where several wait at the node.
    """

    node: str
    variables: Mapping[str, object] = field(default_factory=dict)
    of: str = "main"
    by: str | None = None
    key: str | None = None
    refused: Refusal | None = None

    async def take(self, bench: Bench) -> None:
        seen = await bench.see(self.of)
        key = bench.names.theirs(self.key) if self.key else None
        found = [
            each.id
            for each in seen.waits
            if bench.names.ours(each.node_id) == self.node and key in {None, each.correlation_key}
        ]
        (task_id,) = found or [bench.ids[self.of, self.node]]
        with _Refused(self.refused):
            await bench.client.complete(
                task_id, bench.names.variables(self.variables), completed_by=self.by
            )


@dataclass(frozen=True, slots=True)
class Correlate:
    """Deliver a message."""

    key: str
    variables: Mapping[str, object] = field(default_factory=dict)
    tenant: str | None = None
    refused: Refusal | None = None

    async def take(self, bench: Bench) -> None:
        with _Refused(self.refused):
            await bench.client.correlate(
                bench.names.theirs(self.key),
                bench.names.variables(self.variables),
                tenant_id=self.tenant,
            )


@dataclass(frozen=True, slots=True)
class SetVariables:
    """Set variables; the instance that is returned has all of ``gives``."""

    values: Mapping[str, object]
    gives: Mapping[str, object]

    async def take(self, bench: Bench) -> None:
        changed = await bench.client.set_variables(await bench.id_of("main"), self.values)
        assert changed.variables == self.gives


@dataclass(frozen=True, slots=True)
class UnsetVariables:
    """Remove a variable; the instance that is returned has all of ``gives``."""

    name: str
    gives: Mapping[str, object]

    async def take(self, bench: Bench) -> None:
        changed = await bench.client.unset_variables(await bench.id_of("main"), self.name)
        assert changed.variables == self.gives


@dataclass(frozen=True, slots=True)
class Heal:
    """From now on every handler succeeds."""

    async def take(self, bench: Bench) -> None:
        bench.is_healed = True


@dataclass(frozen=True, slots=True)
class RetryIncident:
    """Retry the one open incident."""

    async def take(self, bench: Bench) -> None:
        query = IncidentQuery(instance_id=await bench.id_of("main"))
        (incident,) = (await bench.client.list_incidents(query)).items
        await bench.client.retry_incident(incident.id, resolved_by="system")


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel an instance."""

    of: str = "main"

    async def take(self, bench: Bench) -> None:
        await bench.client.cancel(await bench.id_of(self.of))


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an instance with its record."""

    of: str

    async def take(self, bench: Bench) -> None:
        await bench.client.delete(await bench.id_of(self.of))


@dataclass(frozen=True, slots=True)
class CancelChildren:
    """Run the one task that cancels children, as any worker would at once."""

    async def take(self, bench: Bench) -> None:
        page = await bench.client.list_tasks(TaskQuery(), limit=500)
        (task,) = [each for each in page.items if each.type is TaskType.CANCEL_CHILDREN]
        outcome = await bench.execute(await bench.claim(task))
        assert outcome.kind == "completed", outcome
