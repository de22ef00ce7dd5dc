"""Routes of process instances."""

from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from pydantic import Field

from kikwiflow_worker.management.api.shapes import (
    Body,
    Cursor,
    IncidentShape,
    InstanceShape,
    Limit,
    NewVariable,
    PageOf,
    shown_instance,
    shown_instances,
    shown_page,
    values_of,
)
from kikwiflow_worker.management.backend import Operator, Viewer
from kikwiflow_worker.management.privacy import check_writes
from kikwiflow_worker.model.runtime import InstanceStatus
from kikwiflow_worker.operations import instances, variables
from kikwiflow_worker.operations.instances import StartRequest
from kikwiflow_worker.store.views import IncidentQuery, InstanceQuery

router = APIRouter(prefix="/process-instances", tags=["process instances"])

IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=255, description="A repeated request with it changes nothing."),
]


class Start(Body):
    """What an instance is started with."""

    process_definition_key: str = Field(min_length=1)
    business_key: str = Field(min_length=1)
    version: int | None = Field(None, ge=1)
    variables: dict[str, NewVariable] = Field(default_factory=dict)
    business_value: Decimal | None = None
    origin: str | None = None
    priority: int = Field(5, ge=0, le=9)


class SetVariables(Body):
    """Variables to set."""

    variables: dict[str, NewVariable]


class UnsetVariables(Body):
    """Names of variables to remove."""

    variable_names: list[str]


@router.post("", status_code=201, operation_id="startInstance")
async def start(
    caller: Operator, body: Start, idempotency_key: IdempotencyKey = None
) -> InstanceShape:
    """Start an instance of the latest version of a definition, or of the one given, in the caller's tenant."""
    request = StartRequest(
        key=body.process_definition_key,
        business_key=body.business_key,
        version=body.version,
        variables=values_of(body.variables),
        business_value=body.business_value,
        tenant_id=caller.identity.tenant_id,
        origin=body.origin,
        started_by=caller.identity.actor,
        idempotency_key=idempotency_key,
        priority=body.priority,
    )
    started = await instances.start(caller.services, caller.invoker, request)
    return await shown_instance(caller, started)


@router.get("", operation_id="listInstances")
async def list_instances(
    caller: Viewer,
    *,
    process_definition_key: Annotated[str | None, Query(alias="processDefinitionKey")] = None,
    business_key: Annotated[str | None, Query(alias="businessKey")] = None,
    status: InstanceStatus | None = None,
    ended: bool = False,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> PageOf[InstanceShape]:
    """List running instances, or ended ones, newest first."""
    query = InstanceQuery(
        ended=ended,
        definition_key=process_definition_key,
        business_key=business_key,
        status=status.value if status else None,
    )
    page = await caller.services.reads.list_instances(query, limit=limit, cursor=cursor)
    return await shown_instances(caller, page)


@router.get("/{instance_id}", operation_id="getInstance")
async def get_instance(caller: Viewer, instance_id: str) -> InstanceShape:
    """Return a running instance, or one that ended within the retention."""
    return await shown_instance(caller, await instances.get_instance(caller.services, instance_id))


@router.put("/{instance_id}/variables", operation_id="setVariables")
async def set_variables(caller: Operator, instance_id: str, body: SetVariables) -> InstanceShape:
    """Set variables of a running instance: all of them or none."""
    await check_writes(caller, instance_id, body.variables)
    changed = await variables.set_variables(
        caller.services, instance_id, values_of(body.variables), actor=caller.identity.actor
    )
    return await shown_instance(caller, changed)


@router.put("/{instance_id}/variables/unset", operation_id="unsetVariables")
async def unset_variables(
    caller: Operator, instance_id: str, body: UnsetVariables
) -> InstanceShape:
    """Remove variables of a running instance; names that do not exist are no error."""
    await check_writes(caller, instance_id, body.variable_names)
    changed = await variables.unset_variables(
        caller.services, instance_id, tuple(body.variable_names), actor=caller.identity.actor
    )
    return await shown_instance(caller, changed)


@router.post("/{instance_id}/cancel", status_code=204, operation_id="cancelInstance")
async def cancel(caller: Operator, instance_id: str) -> Response:
    """Cancel a running instance with all its tasks and children."""
    await instances.cancel(caller.services, instance_id, cancelled_by=caller.identity.actor)
    return Response(status_code=204)


@router.post("/{instance_id}/suspend", status_code=204, operation_id="suspendInstance")
async def suspend(caller: Operator, instance_id: str) -> Response:
    """Let an instance rest where it is: steps under way are finished, none begins."""
    await instances.suspend(caller.services, instance_id)
    return Response(status_code=204)


@router.post("/{instance_id}/resume", status_code=204, operation_id="resumeInstance")
async def resume(caller: Operator, instance_id: str) -> Response:
    """Let a suspended instance go on."""
    await instances.resume(caller.services, instance_id)
    return Response(status_code=204)


@router.delete("/{instance_id}", status_code=204, operation_id="deleteInstance")
async def delete(caller: Operator, instance_id: str) -> Response:
    """Remove an instance and its record; a running one is cancelled first."""
    await instances.delete(caller.services, instance_id, deleted_by=caller.identity.actor)
    return Response(status_code=204)


@router.put("/{instance_id}", status_code=204, operation_id="deleteInstanceByPut", deprecated=True)
async def delete_by_put(caller: Operator, instance_id: str) -> Response:
    """Remove an instance, as Kikwiflow has it; use DELETE."""
    return await delete(caller, instance_id)


@router.get("/{instance_id}/incidents", operation_id="listIncidentsOfInstance")
async def list_incidents(
    caller: Viewer, instance_id: str, limit: Limit = 20, cursor: Cursor = None
) -> PageOf[IncidentShape]:
    """List the incidents of an instance, resolved ones included, newest first."""
    await instances.get_instance(caller.services, instance_id)
    query = IncidentQuery(instance_id=instance_id, status=None)
    page = await caller.services.reads.list_incidents(query, limit=limit, cursor=cursor)
    return await shown_page(caller, page, IncidentShape.of)
