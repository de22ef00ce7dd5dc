"""The flow nodes of a process definition, one class for each node type.

The classes mirror the file: camelCase there, snake_case here. A field that is ``null`` in the file is the same as a
missing one. Scalars are read as leniently as the Java engine reads them (``"true"`` is a boolean, ``5`` is a text where
a text is expected); everything that is structurally wrong is left to ``kikwiflow_worker.engine.validation``.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

_TRUE_TEXTS = frozenset({"true", "True", "TRUE"})
_FALSE_TEXTS = frozenset({"false", "False", "FALSE", ""})


def _as_text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _as_flag(value: object) -> object:
    if isinstance(value, str):
        if value in _TRUE_TEXTS:
            return True
        return False if value in _FALSE_TEXTS else value
    return bool(value) if isinstance(value, int) else value


def _blank_as_none(value: object) -> object:
    return None if value == "" else value


def _without_nulls(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {key: entry for key, entry in value.items() if entry is not None}


Text = Annotated[str, BeforeValidator(_as_text)]
"""A text; numbers and booleans of the file are taken as text."""

Flag = Annotated[bool, Field(strict=True), BeforeValidator(_as_flag)]
"""A boolean; the texts ``true`` and ``false`` and numbers are taken as well."""

TOPIC = "kikwiflow.topic"
"""Of an external task that programs do instead of people: the name by which workers in any language fetch it."""

Properties = Annotated[Mapping[str, Text], BeforeValidator(_without_nulls)]
"""Free data of the author; the engine reads some that begin with ``kikwiflow.`` (``engine.property_rules``)."""


class FilePart(BaseModel):
    """An object of a definition file: frozen, camelCase in the file, ``null`` means missing."""

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, extra="ignore", allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_missing(cls, value: object) -> object:
        return _without_nulls(value)


class GatewayProvider(StrEnum):
    """Where an exclusive gateway's answer comes from."""

    BEAN = "BEAN"
    VARIABLE = "VARIABLE"


class TimerProvider(StrEnum):
    """Where a due date comes from."""

    STATIC = "STATIC"
    VARIABLE = "VARIABLE"
    BEAN = "BEAN"


class CorrelationProvider(StrEnum):
    """Where correlation keys come from."""

    STATIC = "STATIC"
    VARIABLE = "VARIABLE"
    BEAN = "BEAN"
    TEMPLATE = "TEMPLATE"


class RetryStrategy(StrEnum):
    """How the delay between attempts grows."""

    LINEAR = "LINEAR"
    EXPONENTIAL_BACKOFF = "EXPONENTIAL_BACKOFF"


class ScheduleType(StrEnum):
    """How a recurring timer finds its next date."""

    CRON = "CRON"
    RATE_DURATION = "RATE_DURATION"
    FIXED_DATES = "FIXED_DATES"


class CatchType(StrEnum):
    """Whether an event catcher waits for one key or for many."""

    STANDALONE = "STANDALONE"
    GROUP = "GROUP"


class MatchPolicy(StrEnum):
    """When a group of correlation keys is satisfied."""

    ALL = "ALL"
    ANY = "ANY"


class IterationMode(StrEnum):
    """Whether the children of a call activity run at once or one after another."""

    PARALLEL = "PARALLEL"
    SEQUENTIAL = "SEQUENTIAL"


class SegmentType(StrEnum):
    """What one segment of a correlation template holds."""

    LITERAL = "LITERAL"
    VARIABLE = "VARIABLE"


class Layout(FilePart):
    """A position in the editor, in its pixels."""

    x: float = 0.0
    y: float = 0.0


class SequenceFlow(FilePart):
    """An edge to the node whose map key is ``target_node_id``.

    ``expected_answer``, ``is_default`` and ``handles_null`` count on the flows of an exclusive gateway only.
    """

    id: Text | None = None
    name: Text | None = None
    description: Text | None = None
    target_node_id: Text | None = None
    expected_answer: Text | None = None
    is_default: Flag = False
    handles_null: Flag = False
    position_handlers: tuple[Layout, ...] = ()


class RetryPolicy(FilePart):
    """How often a task is attempted and how long it waits in between.

    ``max_retries`` is the number of attempts in total. ``intervals`` (LINEAR), ``initial_interval`` and
    ``max_interval`` (EXPONENTIAL_BACKOFF) are ISO-8601 durations as written in the file.
    """

    strategy: Annotated[RetryStrategy | None, BeforeValidator(_blank_as_none)] = None
    max_retries: int = 0
    intervals: tuple[Text, ...] = ()
    initial_interval: Text | None = None
    multiplier: float = 2.0
    max_interval: Text | None = None


class SchedulePolicy(FilePart):
    """When a recurring timer fires; ``max_occurrences`` None is unbounded."""

    type: Annotated[ScheduleType | None, BeforeValidator(_blank_as_none)] = None
    expression: Text | None = None
    fixed_dates: tuple[Text, ...] = ()
    max_occurrences: int | None = None


class TemplateSegment(FilePart):
    """A literal text, or the name of a variable whose text is put in its place."""

    type: Annotated[SegmentType | None, BeforeValidator(_blank_as_none)] = None
    value: Text | None = None


class CorrelationTemplate(FilePart):
    """One correlation key, and its label, put together from segments."""

    key_segments: tuple[TemplateSegment, ...] = ()
    display_name_segments: tuple[TemplateSegment, ...] = ()


class _Node(FilePart):
    """What every node has.

    Attributes:
        id: The map key in ``flowNodes``, by which flows and boundary lists refer to the node.
        declared_id: The node's own ``id`` in the file; differs from ``id`` in some old files only.
    """

    id: str
    declared_id: Text | None = None
    name: Text | None = None
    description: Text | None = None
    commit_before: Flag = False
    commit_after: Flag = False
    outgoing: tuple[SequenceFlow, ...] = ()
    extension_properties: Properties = Field(default_factory=dict)
    layout: Layout | None = None


class _TimedNode(_Node):
    """A node with a due date: an ISO-8601 instant or duration, given, in a variable, or from a provider."""

    provider_type: Annotated[TimerProvider | None, BeforeValidator(_blank_as_none)] = None
    static_value: Text | None = None
    provider_variable: Text | None = None
    provider_bean: Text | None = None


class _CorrelatingNode(_Node):
    """A node with correlation keys; prefix and suffix count for the provider type VARIABLE only."""

    provider_type: Annotated[CorrelationProvider | None, BeforeValidator(_blank_as_none)] = None
    static_key: Text | None = None
    provider_variable: Text | None = None
    provider_bean: Text | None = None
    key_prefix: Text | None = None
    key_suffix: Text | None = None
    display_name_prefix: Text | None = None
    display_name_suffix: Text | None = None
    correlation_templates: tuple[CorrelationTemplate, ...] = ()


class StartEvent(_Node):
    """Where an instance starts."""

    type: Literal["DEFAULT_START_EVENT"]


class EndEvent(_Node):
    """Where a path ends."""

    type: Literal["DEFAULT_END_EVENT"]


class ExecutableTaskNode(_Node):
    """Runs a handler; ``retry_policy`` None means the defaults of the engine."""

    type: Literal["EXECUTABLE_TASK"]
    handler_name: Text | None = Field(default=None, alias="executor")
    retry_policy: RetryPolicy | None = None
    boundary_event_ids: tuple[Text, ...] = ()

    @property
    def is_external(self) -> bool:
        """Whether the file has an external task with a topic here: it waits for a program, so something may end it before."""
        return TOPIC in self.extension_properties and (
            self.extension_properties[TOPIC] == self.handler_name
        )


class ExternalTaskNode(_Node):
    """Waits until someone outside completes it; one that names a topic is read as an ``ExecutableTaskNode``."""

    type: Literal["EXTERNAL_TASK"]
    boundary_event_ids: tuple[Text, ...] = ()


class ExclusiveGateway(_Node):
    """Takes the one outgoing flow that fits the answer; ``default_flow`` is informative, ``is_default`` decides."""

    type: Literal["EXCLUSIVE_GATEWAY"]
    provider_type: Annotated[GatewayProvider | None, BeforeValidator(_blank_as_none)] = None
    provider_bean: Text | None = None
    provider_variable: Text | None = None
    default_flow: Text | None = None


class ParallelGateway(_Node):
    """Splits a path into one branch for each outgoing flow; they meet at ``target_join_id``."""

    type: Literal["PARALLEL_GATEWAY"]
    target_join_id: Text | None = None


class JoinGateway(_Node):
    """Goes on when all branches of its split have arrived; ``source_split_id`` is informative."""

    type: Literal["JOIN_GATEWAY"]
    source_split_id: Text | None = None


class TimerTaskNode(_TimedNode):
    """Waits for an instant, or for a length of time."""

    type: Literal["TIMER_TASK"]
    boundary_event_ids: tuple[Text, ...] = ()


class EventCatcher(_CorrelatingNode):
    """Waits for one correlation key, or for all or any of many."""

    type: Literal["EVENT_CATCHER"]
    catch_type: Annotated[CatchType | None, BeforeValidator(_blank_as_none)] = None
    match_policy: Annotated[MatchPolicy | None, BeforeValidator(_blank_as_none)] = None
    boundary_event_ids: tuple[Text, ...] = ()


class EventThrower(_CorrelatingNode):
    """Correlates one key and goes on."""

    type: Literal["EVENT_THROWER"]


class CallActivity(_Node):
    """Runs another process, once or for each element of a list, and waits for it."""

    type: Literal["CALL_ACTIVITY_COORDINATOR"]
    called_element: Text | None = None
    collection_variable: Text | None = None
    element_variable: Text | None = None
    iteration_mode: Annotated[IterationMode | None, BeforeValidator(_blank_as_none)] = None
    boundary_event_ids: tuple[Text, ...] = ()


class BoundaryInterruptiveTimer(_TimedNode):
    """A deadline: when it is due its host is cancelled and the path goes on here."""

    type: Literal["BOUNDARY_INTERRUPTIVE_TIMER"]
    attached_to_ref: Text | None = None


class BoundaryNonInterruptiveTimer(_Node):
    """A reminder: fires by its schedule while its host waits."""

    type: Literal["BOUNDARY_NON_INTERRUPTIVE_TIMER"]
    attached_to_ref: Text | None = None
    schedule_policy: SchedulePolicy | None = None


class BoundaryErrorHandler(_Node):
    """Takes over when its host's handler raises a process error with ``error_code``; None catches all."""

    type: Literal["BOUNDARY_ERROR_HANDLER"]
    attached_to_ref: Text | None = None
    error_code: Text | None = None


class BoundaryInterruptiveCatchEvent(_CorrelatingNode):
    """Cancels its host when its key is correlated, and the path goes on here."""

    type: Literal["BOUNDARY_INTERRUPTIVE_CATCH_EVENT"]
    attached_to_ref: Text | None = None


FlowNode: TypeAlias = Annotated[
    StartEvent
    | EndEvent
    | ExecutableTaskNode
    | ExternalTaskNode
    | ExclusiveGateway
    | ParallelGateway
    | JoinGateway
    | TimerTaskNode
    | EventCatcher
    | EventThrower
    | CallActivity
    | BoundaryInterruptiveTimer
    | BoundaryNonInterruptiveTimer
    | BoundaryErrorHandler
    | BoundaryInterruptiveCatchEvent,
    Field(discriminator="type"),
]
"""Any node of a definition; match on the class, the union is closed."""

BoundaryEvent: TypeAlias = (
    BoundaryInterruptiveTimer
    | BoundaryNonInterruptiveTimer
    | BoundaryErrorHandler
    | BoundaryInterruptiveCatchEvent
)
"""A node that is attached to a host and reached only when it fires."""

NODE_CLASSES: Mapping[str, type[FilePart]] = {
    "DEFAULT_START_EVENT": StartEvent,
    "DEFAULT_END_EVENT": EndEvent,
    "EXECUTABLE_TASK": ExecutableTaskNode,
    "EXTERNAL_TASK": ExternalTaskNode,
    "EXCLUSIVE_GATEWAY": ExclusiveGateway,
    "PARALLEL_GATEWAY": ParallelGateway,
    "JOIN_GATEWAY": JoinGateway,
    "TIMER_TASK": TimerTaskNode,
    "EVENT_CATCHER": EventCatcher,
    "EVENT_THROWER": EventThrower,
    "CALL_ACTIVITY_COORDINATOR": CallActivity,
    "BOUNDARY_INTERRUPTIVE_TIMER": BoundaryInterruptiveTimer,
    "BOUNDARY_NON_INTERRUPTIVE_TIMER": BoundaryNonInterruptiveTimer,
    "BOUNDARY_ERROR_HANDLER": BoundaryErrorHandler,
    "BOUNDARY_INTERRUPTIVE_CATCH_EVENT": BoundaryInterruptiveCatchEvent,
}
"""The class of each node type as written in a file."""
