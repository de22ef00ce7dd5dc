"""Routes that start and change process instances."""

from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Header, Response
from pydantic import ConfigDict, Field, WithJsonSchema

from kikwiflow_worker.management.api.definitions import Migrate, Verdict
from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import (
    LARGEST_INT,
    NOT_BLANK,
    Body,
    Id,
    InstanceShape,
    NewVariable,
    shown_instance,
    values_of,
)
from kikwiflow_worker.management.backend import Operator
from kikwiflow_worker.management.privacy import check_writes, start_check
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.operations import instances, migration, variables
from kikwiflow_worker.operations.instances import StartRequest

router = APIRouter(prefix="/process-instances", tags=["process instances"])

_LARGEST_VALUE = 10**28
_AMOUNT_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": -_LARGEST_VALUE, "maximum": _LARGEST_VALUE},
        {"type": "string", "pattern": r"^-?[0-9]{1,28}(\.[0-9]{1,6})?$"},
    ]
}
Amount = Annotated[
    Decimal, Field(ge=-_LARGEST_VALUE, le=_LARGEST_VALUE), WithJsonSchema(_AMOUNT_SCHEMA)
]
IdempotencyKey = Annotated[str | None, Header(include_in_schema=False)]


class Start(Body):
    """What an instance is started with."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "processDefinitionKey": "order",
                    "businessKey": "ORDER-1",
                    "variables": {"amount": {"value": 120}},
                }
            ]
        }
    )

    process_definition_key: str = Field(min_length=1, pattern=NOT_BLANK)
    business_key: str = Field(min_length=1, pattern=NOT_BLANK)
    version: int | None = Field(None, ge=1, le=LARGEST_INT)
    variables: dict[str, NewVariable] = Field(default_factory=dict)
    business_value: Amount | None = Field(
        None, description="A text keeps every digit; it is answered as one."
    )
    origin: str | None = None
    priority: int = Field(5, ge=0, le=9)


class SetVariables(Body):
    """Variables to set."""

    variables: dict[str, NewVariable]


class UnsetVariables(Body):
    """Names of variables to remove."""

    variable_names: list[Annotated[str, Field(min_length=1)]]


@router.post(
    "",
    status_code=201,
    operation_id="startInstance",
    responses=refuses(
        Code.DEFINITION_NOT_FOUND, Code.CONFLICT, Code.STEP_FAILED, Code.INVALID_VARIABLE
    ),
)
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
    started = await instances.start(
        caller.services, caller.invoker, request, check=start_check(caller, request.variables)
    )
    caller.concerns(instance_id=started.id)
    return await shown_instance(caller, started)


@router.put(
    "/{instance_id}/variables",
    operation_id="setVariables",
    responses=refuses(Code.NOT_FOUND, Code.INVALID_VARIABLE),
)
async def set_variables(caller: Operator, instance_id: Id, body: SetVariables) -> InstanceShape:
    """Set variables of a running instance: all of them or none."""
    await check_writes(caller, instance_id, body.variables)
    changed = await variables.set_variables(
        caller.services, instance_id, values_of(body.variables), actor=caller.identity.actor
    )
    return await shown_instance(caller, changed)


@router.put(
    "/{instance_id}/variables/unset",
    operation_id="unsetVariables",
    responses=refuses(Code.NOT_FOUND, Code.INVALID_VARIABLE),
)
async def unset_variables(caller: Operator, instance_id: Id, body: UnsetVariables) -> InstanceShape:
    """Remove variables of a running instance; names that do not exist are no error."""
    await check_writes(caller, instance_id, body.variable_names)
    changed = await variables.unset_variables(
        caller.services, instance_id, tuple(body.variable_names), actor=caller.identity.actor
    )
    return await shown_instance(caller, changed)


@router.post(
    "/{instance_id}/cancel",
    status_code=204,
    operation_id="cancelInstance",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT),
)
async def cancel(caller: Operator, instance_id: Id) -> Response:
    """Cancel a running instance with all its tasks and children."""
    await instances.cancel(caller.services, instance_id, cancelled_by=caller.identity.actor)
    return Response(status_code=204)


@router.post(
    "/{instance_id}/suspend",
    status_code=204,
    operation_id="suspendInstance",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT),
)
async def suspend(caller: Operator, instance_id: Id) -> Response:
    """Let an instance rest where it is: steps under way are finished, none begins."""
    await instances.suspend(caller.services, instance_id)
    return Response(status_code=204)


@router.post(
    "/{instance_id}/resume",
    status_code=204,
    operation_id="resumeInstance",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT),
)
async def resume(caller: Operator, instance_id: Id) -> Response:
    """Let a suspended instance go on."""
    await instances.resume(caller.services, instance_id)
    return Response(status_code=204)


@router.post(
    "/{instance_id}/migrate",
    operation_id="migrateInstance",
    responses=refuses(Code.NOT_FOUND, Code.DEFINITION_NOT_FOUND, Code.CONFLICT),
)
async def migrate(caller: Operator, instance_id: Id, body: Migrate) -> Verdict:
    """Let a running instance go on with another version of its definition, or say whether it could."""
    verdict = await migration.migrate(
        caller.services, instance_id, version=body.version, dry_run=body.dry_run
    )
    return Verdict.of(verdict)


@router.delete(
    "/{instance_id}",
    status_code=204,
    operation_id="deleteInstance",
    responses=refuses(Code.NOT_FOUND),
)
async def delete(caller: Operator, instance_id: Id) -> Response:
    """Remove an instance and its record; a running one is cancelled first."""
    await instances.delete(caller.services, instance_id, deleted_by=caller.identity.actor)
    return Response(status_code=204)


@router.put(
    "/{instance_id}",
    status_code=204,
    operation_id="deleteInstanceByPut",
    deprecated=True,
    responses=refuses(Code.NOT_FOUND),
)
async def delete_by_put(caller: Operator, instance_id: Id) -> Response:
    """Remove an instance, as Kikwiflow has it; use DELETE."""
    return await delete(caller, instance_id)
