"""What the operations work with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from kikwiflow_worker.engine.draft import Surroundings
from kikwiflow_worker.engine.effects import Effect, Reply
from kikwiflow_worker.engine.retries import RetryDefaults
from kikwiflow_worker.engine.segments import Segment, SegmentResult
from kikwiflow_worker.errors import DefinitionNotFoundError, ExecutionError
from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.store.protocol import DefinitionStore, ReadStore, RuntimeStore


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

    async def perform(self, effect: Effect) -> Reply:
        """Run what ``effect`` asks for; what user code raises is part of the reply.

        Raises:
            StepCancelledError: The step was stopped from outside.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The ports and settings that operations share.

    Attributes:
        new_id: Gives a new, unique id.
    """

    runtime: RuntimeStore
    definitions: DefinitionStore
    reads: ReadStore
    new_id: Callable[[], str]
    retry_defaults: RetryDefaults = field(default_factory=RetryDefaults)

    def surroundings(self, capabilities: Capabilities) -> Surroundings:
        """Return what a segment that starts now takes from this process."""
        return Surroundings(
            now=self.runtime.now(), capabilities=capabilities, retry_defaults=self.retry_defaults
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


async def drive(segment: Segment, invoker: Invoker) -> SegmentResult:
    """Run a segment to its end, giving it the replies it asks for.

    Raises:
        StepFailedError: A node failed and a caller drives the segment.
        StepCancelledError: The step was stopped from outside.
        ExecutionError: The segment cannot be run as defined.
    """
    try:
        effect = next(segment)
        while True:
            effect = segment.send(await invoker.perform(effect))
    except StopIteration as done:
        result: SegmentResult = done.value
        return result
