"""What the API's documents have in common: names in camel case, instants in ISO 8601, unknown fields refused."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from kikwiflow_worker.model.plain_json import to_json
from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    Incident,
    ProcessInstance,
)
from kikwiflow_worker.model.variables import Variables
from kikwiflow_worker.store.views import Page

T = TypeVar("T")

MAX_PAGE = 100
"""Rows of one page, at most."""

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Rows of a page.")]
Cursor = Annotated[
    str | None, Query(max_length=1000, description="The nextCursor of the page before.")
]


class Shape(BaseModel):
    """The base of all documents."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
        frozen=True,
        from_attributes=True,
    )


class Body(Shape):
    """The base of what callers send: a misspelled field is an error, never silently dropped."""

    model_config = ConfigDict(extra="forbid")


class Variable(Shape):
    """One variable, as in Kikwiflow."""

    name: str
    value: Any


class NewVariable(Body):
    """A variable to set; the map key names it, and ``name`` must be the same if it is given."""

    value: Any
    name: str | None = None
    is_transient: bool = False


class PageOf(Shape, Generic[T]):
    """One page of a list; give ``nextCursor`` as ``cursor`` to go on, until it is null."""

    items: list[T]
    next_cursor: str | None = None


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
    def of(cls, instance: ProcessInstance) -> "InstanceShape":
        """Return the document of ``instance``."""
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
            variables=variables_of(instance.variables),
            started_at=instance.started_at,
            ended_at=instance.ended_at,
            started_by=instance.started_by,
            origin=instance.origin,
            priority=instance.priority,
            parent_instance_id=parent.instance_id if parent else None,
            caller_task_id=parent.coordinator_task_id if parent else None,
            caller_branch_id=parent.branch_id if parent else None,
        )


class TaskShape(Shape):
    """An executable task: work that is due, waits or runs."""

    id: str
    type: str
    status: str
    node_id: str = Field(alias="taskDefinitionId")
    instance_id: str = Field(alias="processInstanceId")
    definition_id: str = Field(alias="processDefinitionId")
    created_at: datetime
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
    tenant_id: str | None

    @classmethod
    def of(cls, task: ExecutableTask) -> "TaskShape":
        """Return the document of ``task``."""
        return cls.model_validate(task, by_name=True, by_alias=False)


class ExternalTaskShape(Shape):
    """A wait that someone outside ends."""

    id: str
    type: str
    status: str
    node_id: str = Field(alias="taskDefinitionId")
    instance_id: str = Field(alias="processInstanceId")
    definition_id: str = Field(alias="processDefinitionId")
    created_at: datetime
    name: str | None
    description: str | None
    assignee: str | None
    tenant_id: str | None
    correlation_key: str | None
    display_name: str | None
    match_policy: str | None
    pending_keys: list[str] = Field(alias="pendingCorrelationKeys")
    total_keys: int | None = Field(alias="totalCorrelationKeys")
    group_id: str | None = Field(alias="coordinatorTaskId")

    @classmethod
    def of(cls, task: ExternalTask) -> "ExternalTaskShape":
        """Return the document of ``task``."""
        return cls.model_validate(task, by_name=True, by_alias=False)


class IncidentShape(Shape):
    """A failure that waits for a person, or did."""

    id: str
    type: str
    status: str
    message: str
    stack_trace: str
    instance_id: str = Field(alias="processInstanceId")
    definition_id: str = Field(alias="processDefinitionId")
    task_id: str = Field(alias="executionId")
    node_id: str = Field(alias="taskDefinitionId")
    created_at: datetime
    tenant_id: str | None
    resolved_at: datetime | None
    resolved_by: str | None

    @classmethod
    def of(cls, incident: Incident) -> "IncidentShape":
        """Return the document of ``incident``."""
        return cls.model_validate(incident, by_name=True, by_alias=False)


def page_of(page: Page[Any], shape: Any) -> PageOf[Any]:
    """Return a page with each item as a document of ``shape``."""
    return PageOf(items=[shape.of(item) for item in page.items], next_cursor=page.next_cursor)


def variables_of(variables: Variables) -> dict[str, Variable]:
    """Return variables as Kikwiflow's API shows them."""
    return {name: Variable(name=name, value=to_json(value)) for name, value in variables.items()}


def values_of(variables: Mapping[str, NewVariable]) -> dict[str, object]:
    """Return the values that a caller wants to set."""
    return {name: variable.value for name, variable in variables.items()}
