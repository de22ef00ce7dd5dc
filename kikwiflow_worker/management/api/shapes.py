"""What the API's documents have in common: names in camel case, instants in ISO 8601, unknown fields refused."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from fastapi import Path, Query
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic.alias_generators import to_camel

from kikwiflow_worker.errors import VariableError
from kikwiflow_worker.management.privacy import (
    Asking,
    OfInstance,
    VariablePolicy,
    policies_of,
    policy_for,
    policy_of,
)
from kikwiflow_worker.model.plain_json import to_json
from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    Incident,
    ProcessInstance,
    TopicNode,
)
from kikwiflow_worker.model.variables import Variables
from kikwiflow_worker.store.search import Count
from kikwiflow_worker.store.views import Page

T = TypeVar("T")
Row = TypeVar("Row", bound=OfInstance)

MAX_PAGE = 100
"""Rows of one page, at most."""

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Rows of a page.")]
Cursor = Annotated[
    str | None, Query(max_length=1000, description="The nextCursor of the page before.")
]


class EventOrder(StrEnum):
    """Which events come first."""

    OLDEST = "oldest"
    NEWEST = "newest"


NOT_BLANK = r"\S"
"""What a text that must say something matches."""

LARGEST_INT = 2**31 - 1
"""Of what is stored as a number of 32 bits, such as a version."""


_BEGINS_AS_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]")


def _as_written(value: object) -> object:
    """Refuse numbers, which would be taken for seconds since 1970."""
    if isinstance(value, datetime) or (isinstance(value, str) and _BEGINS_AS_INSTANT.match(value)):
        return value
    raise ValueError("is no instant; write it as 2026-05-01T12:30:00Z")


def _no_number(value: object) -> object:
    """Refuse 0, which is equal to False."""
    if isinstance(value, bool):
        return value
    raise ValueError("is neither true nor false")


def _in_utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("is too close to the end of the calendar") from None


Instant = Annotated[AwareDatetime, BeforeValidator(_as_written), AfterValidator(_in_utc)]
"""An instant that a caller gives, with its time zone."""

Never = Annotated[Literal[False], BeforeValidator(_no_number)]
"""A flag that cannot be set here; ``false`` may be said."""

Id = Annotated[str, Path(min_length=1)]
Version = Annotated[int, Field(ge=1, le=LARGEST_INT)]


class Shape(BaseModel):
    """The base of all documents."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
        frozen=True,
        from_attributes=True,
    )


class Given(Shape):
    """What callers send: a misspelled field is an error, never silently dropped."""

    model_config = ConfigDict(extra="forbid")


class Body(Given):
    """The base of request bodies: besides, no text and no flag is taken for a number, and nothing else for a flag."""

    @model_validator(mode="before")
    @classmethod
    def _take_as_written(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        return {
            name: as_written(str(name), value, fields[name].annotation) if name in fields else value
            for name, value in data.items()
        }


def as_written(name: str, value: object, annotation: object) -> object:
    """Return what is given for a field; 5.0 is a whole number, as JSON has it.

    Raises:
        ValueError: A number is wanted and something else is given, or a flag.
    """
    wanted = _types_in(annotation)
    if value is None or not wanted & {bool, int, float}:
        return value
    if bool in wanted:
        if not isinstance(value, bool):
            raise ValueError(f"{name} is neither true nor false")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is no number")  # noqa: TRY004 - what pydantic collects
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _types_in(annotation: object) -> set[object]:
    """Return the types of an annotation such as ``Annotated[int, ...] | None``."""
    match get_origin(annotation):
        case origin if origin is Annotated:
            return _types_in(get_args(annotation)[0])
        case origin if origin in {Union, UnionType}:
            return set[object]().union(*map(_types_in, get_args(annotation)))
        case _:
            return {annotation}


class Variable(Shape):
    """One variable, as in Kikwiflow; a masked one has a value that the caller may not read, and null in its place."""

    name: str
    value: Any
    is_masked: bool = False


class NewVariable(Given):
    """A variable to set; the map key names it, and ``name`` must be the same if it is given."""

    value: Any
    name: str | None = None
    is_transient: Never = False


class NodeShape(Given):
    """A node that has a topic, in whatever version of its definition."""

    definition_key: str = Field(min_length=1, alias="processDefinitionKey")
    node_id: str = Field(min_length=1)

    @classmethod
    def of(cls, node: TopicNode) -> "NodeShape":
        """Return the document of ``node``."""
        return cls(definition_key=node.definition_key, node_id=node.node_id)

    @property
    def value(self) -> TopicNode:
        """The node."""
        return TopicNode(self.definition_key, self.node_id)


class PageOf(Shape, Generic[T]):
    """One page of a list; give ``nextCursor`` as ``cursor`` to go on, until it is null."""

    items: list[T]
    next_cursor: str | None = None


class CountShape(Shape):
    """How many there are, or, if ``isCapped``, how many there are at least."""

    total: int
    is_capped: bool

    @classmethod
    def of(cls, count: Count) -> "CountShape":
        """Return the document of ``count``."""
        return cls(total=count.value, is_capped=count.is_capped)


class InstanceShape(Shape):
    """A running or ended instance."""

    id: str
    business_key: str
    business_value: str | None
    tenant_id: str | None
    status: str
    process_definition_id: str
    process_definition_key: str
    process_definition_version: int
    variables: dict[str, Variable]
    started_at: datetime
    ended_at: datetime | None
    started_by: str | None
    origin: str | None
    priority: int
    parent_instance_id: str | None
    caller_task_id: str | None
    caller_branch_id: str | None

    @classmethod
    def of(cls, instance: ProcessInstance, policy: VariablePolicy) -> "InstanceShape":
        """Return the document of ``instance`` as ``policy`` lets it be shown."""
        parent = instance.parent
        value = instance.business_value
        return cls(
            id=instance.id,
            business_key=instance.business_key,
            business_value=None if value is None else str(value),
            tenant_id=instance.tenant_id,
            status=instance.status.value,
            process_definition_id=instance.definition_id,
            process_definition_key=instance.definition_key,
            process_definition_version=instance.definition_version,
            variables=variables_of(instance.variables, policy),
            started_at=instance.started_at,
            ended_at=instance.ended_at,
            started_by=instance.started_by,
            origin=instance.origin,
            priority=instance.priority,
            parent_instance_id=parent.instance_id if parent else None,
            caller_task_id=parent.coordinator_task_id if parent else None,
            caller_branch_id=parent.branch_id if parent else None,
        )


class RowShape(Shape):
    """What tasks and incidents have in common: what they are, and where."""

    id: str
    type: str
    status: str
    node_id: str = Field(alias="taskDefinitionId")
    instance_id: str = Field(alias="processInstanceId")
    definition_id: str = Field(alias="processDefinitionId")
    created_at: datetime
    tenant_id: str | None


class TaskShape(RowShape):
    """An executable task: work that is due, waits or runs."""

    due_at: datetime | None = Field(alias="dueDate")
    claimable_at: datetime | None
    worker_id: str | None
    lock_expires_at: datetime | None
    attempts: int
    retries_left: int = Field(alias="retries")
    crash_count: int
    error: str | None
    handler_name: str | None
    priority: int

    @classmethod
    def of(cls, task: ExecutableTask, policy: VariablePolicy) -> "TaskShape":
        """Return the document of ``task`` as ``policy`` lets it be shown."""
        shown = replace(task, error=policy.error(task.error))
        return cls.model_validate(shown, by_name=True, by_alias=False)


class ExternalTaskShape(RowShape):
    """A wait that someone outside ends."""

    name: str | None
    description: str | None
    assignee: str | None
    correlation_key: str | None
    display_name: str | None
    match_policy: str | None
    pending_keys: list[str] = Field(alias="pendingCorrelationKeys")
    total_keys: int | None = Field(alias="totalCorrelationKeys")
    group_id: str | None = Field(alias="coordinatorTaskId")

    @classmethod
    def of(cls, task: ExternalTask) -> "ExternalTaskShape":
        """Return the document of ``task``; it holds nothing of a variable that is masked: a deploy sees to that."""
        return cls.model_validate(task, by_name=True, by_alias=False)


class IncidentShape(RowShape):
    """A failure that waits for a person, or did."""

    message: str
    stack_trace: str
    task_id: str = Field(alias="executionId")
    resolved_at: datetime | None
    resolved_by: str | None

    @classmethod
    def of(cls, incident: Incident, policy: VariablePolicy) -> "IncidentShape":
        """Return the document of ``incident`` as ``policy`` lets it be shown."""
        shown = replace(
            incident,
            message=policy.message(incident.message),
            stack_trace=policy.stack_trace(incident.stack_trace),
        )
        return cls.model_validate(shown, by_name=True, by_alias=False)


def page_of(page: Page[Any], shape: Any) -> PageOf[Any]:
    """Return a page with each item as a document of ``shape``, of those that show no variables."""
    return PageOf(items=[shape.of(item) for item in page.items], next_cursor=page.next_cursor)


async def shown(caller: Asking, row: Row, of: Callable[[Row, VariablePolicy], T]) -> T:
    """Return a task or an incident as the caller may see it; ``of`` is that of its shape."""
    return of(row, await policy_for(caller, row))


async def shown_page(
    caller: Asking, page: Page[Row], of: Callable[[Row, VariablePolicy], T]
) -> PageOf[T]:
    """Return a page of tasks or incidents as the caller may see them; ``of`` is that of their shape."""
    policies = await policies_of(caller, page.items)
    items = [of(row, policies[row.instance_id]) for row in page.items]
    return PageOf(items=items, next_cursor=page.next_cursor)


async def shown_instance(caller: Asking, instance: ProcessInstance) -> InstanceShape:
    """Return an instance as the caller may see it."""
    return InstanceShape.of(instance, await policy_of(caller, instance))


async def shown_instances(caller: Asking, page: Page[ProcessInstance]) -> PageOf[InstanceShape]:
    """Return a page of instances as the caller may see them."""
    items = [await shown_instance(caller, instance) for instance in page.items]
    return PageOf(items=items, next_cursor=page.next_cursor)


def variables_of(variables: Variables, policy: VariablePolicy) -> dict[str, Variable]:
    """Return variables as Kikwiflow's API shows them, as far as ``policy`` lets them be seen."""
    visible = policy.visible(variables)
    return {
        name: Variable(name=name, value=to_json(visible[name]))
        if name in visible
        else Variable(name=name, value=None, is_masked=True)
        for name in variables
    }


def values_of(variables: Mapping[str, NewVariable]) -> dict[str, object]:
    """Return the values that a caller wants to set.

    Raises:
        VariableError: A variable names itself otherwise.
    """
    for name, variable in variables.items():
        if variable.name not in {None, name}:
            raise VariableError(name, "has another name in it; leave that out, or give the same")
    return {name: variable.value for name, variable in variables.items()}
