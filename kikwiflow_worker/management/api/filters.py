"""The parameters by which most lists can be narrowed, under Kikwiflow's names."""

from typing import Annotated, TypeVar

from fastapi import Query

T = TypeVar("T")

OfInstance = Annotated[str | None, Query(alias="processInstanceId")]
OfDefinition = Annotated[str | None, Query(alias="processDefinitionId")]
OfDefinitionKey = Annotated[str | None, Query(alias="processDefinitionKey")]
AtNode = Annotated[str | None, Query(alias="taskDefinitionId")]
StandingAt = Annotated[str | None, Query(alias="activeNodeId")]
OfTenant = Annotated[str | None, Query(alias="tenantId")]
OfHandler = Annotated[str | None, Query(alias="handlerName")]


def only(value: T | None) -> tuple[T, ...]:
    """Return what a search is narrowed to: one value, or nothing at all."""
    return () if value is None else (value,)
