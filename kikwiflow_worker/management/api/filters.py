"""The parameters by which most lists can be narrowed, under Kikwiflow's names."""

from dataclasses import dataclass
from typing import Annotated, TypedDict

from fastapi import Depends, Query

from kikwiflow_worker.store.search import only

OfInstance = Annotated[str | None, Query(alias="processInstanceId")]
OfDefinition = Annotated[str | None, Query(alias="processDefinitionId")]
OfDefinitionKey = Annotated[str | None, Query(alias="processDefinitionKey")]
AtNode = Annotated[str | None, Query(alias="taskDefinitionId")]
StandingAt = Annotated[str | None, Query(alias="activeNodeId")]
OfTenant = Annotated[str | None, Query(alias="tenantId")]
OfHandler = Annotated[str | None, Query(alias="handlerName")]


class Narrowed(TypedDict):
    """What searches of tasks and incidents have in common."""

    instance_id: str | None
    definition_ids: tuple[str, ...]
    definition_keys: tuple[str, ...]
    node_id: str | None
    tenant_id: str | None


@dataclass(frozen=True, slots=True)
class _Where:
    process_instance_id: OfInstance = None
    process_definition_id: OfDefinition = None
    process_definition_key: OfDefinitionKey = None
    task_definition_id: AtNode = None
    tenant_id: OfTenant = None

    def narrowed(self) -> Narrowed:
        """Return it as fields of a search."""
        return Narrowed(
            instance_id=self.process_instance_id,
            definition_ids=only(self.process_definition_id),
            definition_keys=only(self.process_definition_key),
            node_id=self.task_definition_id,
            tenant_id=self.tenant_id,
        )


Where = Annotated[_Where, Depends()]
"""Of which instance, definition, node and tenant the rows of a list are."""
