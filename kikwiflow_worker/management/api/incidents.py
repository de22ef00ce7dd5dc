"""Routes of incidents: failures that wait for a person."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from kikwiflow_worker.management.api.filters import (
    Where,
)
from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import (
    Body,
    CountShape,
    Cursor,
    Id,
    IncidentShape,
    Instant,
    Limit,
    NewVariable,
    PageOf,
    shown,
    shown_page,
    values_of,
)
from kikwiflow_worker.management.backend import Operator, Viewer
from kikwiflow_worker.management.privacy import check_writes
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.model.runtime import IncidentStatus, IncidentType
from kikwiflow_worker.operations import incidents
from kikwiflow_worker.store.search import IncidentSearch

router = APIRouter(prefix="/incidents", tags=["incidents"])


class Resolve(Body):
    """How an incident is put right."""

    variables: dict[str, NewVariable] = Field(
        default_factory=dict, description="Set before the task goes on, in the same transaction."
    )
    skip: bool = Field(default=False, description="Do not run its handler: go on as if it had run.")


@router.get("", operation_id="listIncidents")
async def list_incidents(  # noqa: PLR0913 - each is one filter
    caller: Viewer,
    where: Where,
    *,
    type: IncidentType | None = None,  # noqa: A002 - the field's name
    status: IncidentStatus = IncidentStatus.OPEN,
    any_status: Annotated[
        bool, Query(alias="anyStatus", description="List those that were put right as well.")
    ] = False,
    created_after: Annotated[Instant | None, Query(alias="createdAfter")] = None,
    created_before: Annotated[Instant | None, Query(alias="createdBefore")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> PageOf[IncidentShape]:
    """List incidents, open ones unless another status is given, newest first."""
    query = IncidentSearch(
        **where.narrowed(),
        type=type,
        status=None if any_status else status,
        created_after=created_after,
        created_before=created_before,
    )
    page = await caller.services.searches.search_incidents(query, limit=limit, cursor=cursor)
    return await shown_page(caller, page, IncidentShape.of)


@router.get("/count", operation_id="countIncidents")
async def count_incidents(
    caller: Viewer,
    where: Where,
    *,
    type: IncidentType | None = None,  # noqa: A002 - the field's name
    status: IncidentStatus = IncidentStatus.OPEN,
) -> CountShape:
    """Count incidents, open ones unless another status is given; a count stops at a cap and says so."""
    query = IncidentSearch(**where.narrowed(), type=type, status=status)
    return CountShape.of(await caller.services.searches.count_incidents(query))


@router.get("/{incident_id}", operation_id="getIncident", responses=refuses(Code.NOT_FOUND))
async def get_incident(caller: Viewer, incident_id: Id) -> IncidentShape:
    """Return an incident."""
    incident = await incidents.get_incident(caller.services, incident_id)
    return await shown(caller, incident, IncidentShape.of)


@router.put(
    "/{incident_id}/retry",
    status_code=204,
    operation_id="retryIncident",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT, Code.DEFINITION_NOT_FOUND),
)
async def retry(caller: Operator, incident_id: Id) -> Response:
    """Let the failed task go on, due now and with its attempts back."""
    await incidents.resolve(
        caller.services, incident_id, variables={}, skip=False, resolved_by=caller.identity.actor
    )
    return Response(status_code=204)


@router.post(
    "/{incident_id}/resolve",
    operation_id="resolveIncident",
    responses=refuses(
        Code.NOT_FOUND, Code.CONFLICT, Code.DEFINITION_NOT_FOUND, Code.INVALID_VARIABLE
    ),
)
async def resolve(caller: Operator, incident_id: Id, body: Resolve) -> IncidentShape:
    """Set variables, then let the failed task go on, or skip its handler."""
    incident = await incidents.get_incident(caller.services, incident_id)
    await check_writes(caller, incident.instance_id, body.variables)
    resolved = await incidents.resolve(
        caller.services,
        incident_id,
        variables=values_of(body.variables),
        skip=body.skip,
        resolved_by=caller.identity.actor,
    )
    return await shown(caller, resolved, IncidentShape.of)
