"""What the operations work with."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from kikwiflow_worker.engine.draft import Surroundings
from kikwiflow_worker.engine.effects import (
    DefinitionFound,
    Deliver,
    Delivered,
    Effect,
    FindDefinition,
    NobodyWaits,
    Reply,
    UserCode,
    UserReply,
)
from kikwiflow_worker.engine.messages import Delivery, Receiver, end_wait
from kikwiflow_worker.engine.retries import RetryDefaults
from kikwiflow_worker.engine.segments import Segment, SegmentResult
from kikwiflow_worker.errors import DefinitionNotFoundError, ExecutionError
from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.events import EventLevel
from kikwiflow_worker.model.runtime import InstanceStatus
from kikwiflow_worker.model.unit_of_work import Committed, UnitOfWork
from kikwiflow_worker.step_metrics import StepMetrics
from kikwiflow_worker.store.bulk import BulkStore
from kikwiflow_worker.store.external_work import ExternalWork
from kikwiflow_worker.store.protocol import DefinitionStore, ReadStore, RuntimeStore
from kikwiflow_worker.store.relay import RelayCare
from kikwiflow_worker.store.rules import RuleStore
from kikwiflow_worker.store.search import SearchStore
from kikwiflow_worker.tracing.protocol import NO_TRACING, Tracing


class CancelReason(StrEnum):
    """Why a running step is to stop."""

    CLAIM_LOST = "claim lost"
    STOPPING = "worker stops"


class StepCancelledError(ExecutionError):
    """A step was stopped from outside; nothing of it is to be written."""

    def __init__(self, reason: CancelReason) -> None:
        self.reason = reason
        super().__init__(f"the step was cancelled: {reason}")


class Invoker(Protocol):
    """Runs user code for the engine. Every piece of user code passes through one."""

    @property
    def capabilities(self) -> Capabilities:
        """The handlers and providers it can run."""
        ...

    async def perform(self, effect: UserCode) -> UserReply:
        """Run what ``effect`` asks for; what user code raises is part of the reply.

        Raises:
            StepCancelledError: The step was stopped from outside.
        """
        ...


class Ports(Protocol):
    """What has every port that operations use: one database."""

    runtime: RuntimeStore
    definitions: DefinitionStore
    reads: ReadStore
    searches: SearchStore
    rules: RuleStore
    external_work: ExternalWork
    bulk: BulkStore

    @property
    def relay_care(self) -> RelayCare:
        """What looks after the relay of outbox events; a store may be able to do more with it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The ports and settings that operations share.

    Attributes:
        new_id: Gives a new, unique id.
        steps: Counts the steps of external workers; a worker counts its own there too.
    """

    runtime: RuntimeStore
    definitions: DefinitionStore
    reads: ReadStore
    searches: SearchStore
    rules: RuleStore
    external_work: ExternalWork
    bulk: BulkStore
    relay_care: RelayCare
    new_id: Callable[[], str]
    retry_defaults: RetryDefaults = field(default_factory=RetryDefaults)
    event_level: EventLevel = EventLevel.OFF
    tracing: Tracing = NO_TRACING
    steps: StepMetrics = field(default_factory=StepMetrics)

    @classmethod
    def over(
        cls,
        ports: Ports,
        *,
        new_id: Callable[[], str],
        retry_defaults: RetryDefaults,
        event_level: EventLevel,
        tracing: Tracing,
        steps: StepMetrics | None = None,
    ) -> "Services":
        """Return services over all ports of a database, narrowed to nobody."""
        return cls(
            runtime=ports.runtime,
            definitions=ports.definitions,
            reads=ports.reads,
            searches=ports.searches,
            rules=ports.rules,
            external_work=ports.external_work,
            bulk=ports.bulk,
            relay_care=ports.relay_care,
            new_id=new_id,
            retry_defaults=retry_defaults,
            event_level=event_level,
            tracing=tracing,
            steps=steps or StepMetrics(),
        )

    async def commit(self, unit: UnitOfWork, *, cause: str | None = None) -> Committed:
        """Commit a unit by itself, with a trace context on the tasks that it creates; see ``RuntimeStore.commit``.

        Args:
            cause: The context that is handed on where this process makes no spans.
        """
        return await self.runtime.commit(unit.traced(self.tracing.current() or cause))

    def surroundings(self, capabilities: Capabilities) -> Surroundings:
        """Return what a segment that starts now takes from this process."""
        return Surroundings(
            now=self.runtime.now(),
            capabilities=capabilities,
            retry_defaults=self.retry_defaults,
            event_level=self.event_level,
        )

    async def get_definition(self, definition_id: str) -> ProcessDefinition:
        """Return one version by its id.

        Raises:
            DefinitionNotFoundError: It is not stored.
        """
        definition = await self.definitions.find(definition_id)
        if definition is None:
            raise DefinitionNotFoundError(
                f"definition {definition_id} is not in the database; restore it from a backup, "
                "its instances cannot go on without it"
            )
        return definition

    async def find_receiver(
        self, key: str, *, tenant_id: str | None, taken: frozenset[str] = frozenset()
    ) -> Receiver | None:
        """Return who has waited longest for a key in this tenant, leaving out tasks that are ``taken``.

        Nobody is only the answer if nobody waits: a task that is matched while it is looked at makes room for the next.
        """
        while task := await self.runtime.find_waiting(key, tenant_id=tenant_id, taken=taken):
            instance = await self.runtime.find_instance(task.instance_id)
            group = await self.runtime.find_external_task(task.group_id) if task.group_id else None
            if instance is not None and (group is not None or not task.group_id):
                definition = await self.get_definition(task.definition_id)
                return Receiver(definition=definition, instance=instance, task=task, group=group)
            taken |= {task.id}
        return None


async def drive(services: Services, segment: Segment, invoker: Invoker) -> SegmentResult:
    """Run a segment to its end, giving it the replies it asks for.

    Raises:
        StepFailedError: A node failed and a caller drives the segment.
        StepCancelledError: The step was stopped from outside.
        ExecutionError: The segment cannot be run as defined.
    """
    try:
        effect = next(segment)
        while True:
            effect = segment.send(await _reply_to(services, effect, invoker))
    except StopIteration as done:
        result: SegmentResult = done.value
        return result


async def _reply_to(services: Services, effect: Effect, invoker: Invoker) -> Reply:
    match effect:
        case Deliver():
            return await _deliver(services, effect, invoker)
        case FindDefinition(key):
            found = await services.definitions.find_to_start(key)
            if found is None:
                return DefinitionFound(None)
            return DefinitionFound(found.definition, found.is_suspended)
        case _:
            reply = await invoker.perform(effect)
            return replace(reply, at=services.runtime.now())


async def _deliver(services: Services, effect: Deliver, invoker: Invoker) -> Reply:
    """Let the receiver of a thrown message run, and give back what that changes: it is committed with the throw."""
    receiver = await services.find_receiver(
        effect.key, tenant_id=effect.tenant_id, taken=effect.taken
    )
    if receiver is None or receiver.instance.status is not InstanceStatus.ACTIVE:
        return NobodyWaits()
    delivery = Delivery(variables={}, caller_drives=False)
    surroundings = services.surroundings(invoker.capabilities)
    services.tracing.link(receiver.task.traceparent)
    result = await drive(services, end_wait(receiver, delivery, surroundings), invoker)
    return Delivered(receiver.task.id, result.unit)
