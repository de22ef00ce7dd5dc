"""The list of incidents, and putting many of them right at once."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from kikwiflow_worker.management.api.shapes import Cursor
from kikwiflow_worker.management.backend import Operator, Viewer
from kikwiflow_worker.management.privacy import policies_of
from kikwiflow_worker.management.web.pages import PostedForm, done, page_router, render, text_of
from kikwiflow_worker.management.web.whereabouts import whereabouts_of
from kikwiflow_worker.model.bulk import BulkAction, BulkFilter
from kikwiflow_worker.model.runtime import IncidentStatus, IncidentType
from kikwiflow_worker.operations import bulk
from kikwiflow_worker.store.search import IncidentSearch

router = page_router()

ROWS = 25
_STATUSES = {"OPEN": "open", "RESOLVED": "resolved", "CLOSED": "closed", "ANY": "any"}
_TYPES = {"": "any", **{each.value: each.value.replace("_", " ").lower() for each in IncidentType}}


class Given(BaseModel):
    """What is asked for: the fields of the form."""

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True, str_max_length=500)

    definition: str = ""
    node: str = ""
    type: str = Field("", pattern=f"^({'|'.join(_TYPES)})$")
    status: str = Field("OPEN", pattern=f"^({'|'.join(_STATUSES)})$")
    cursor: Cursor = None

    def search(self) -> IncidentSearch:
        """Return the query."""
        return IncidentSearch(
            definition_keys=(self.definition,) if self.definition else (),
            node_id=self.node or None,
            type=IncidentType(self.type) if self.type else None,
            status=None if self.status == "ANY" else IncidentStatus(self.status),
        )


@router.get("/incidents")
async def list_incidents(
    request: Request, caller: Viewer, given: Annotated[Given, Query()]
) -> HTMLResponse:
    """List incidents, the newest first."""
    searches, query = caller.services.searches, given.search()
    page = await searches.search_incidents(query, limit=ROWS, cursor=given.cursor)
    return render(
        request,
        "incidents.html",
        caller=caller,
        incidents=page.items,
        next_cursor=page.next_cursor,
        total=await searches.count_incidents(query),
        places_of=await whereabouts_of(caller, page.items),
        policies=await policies_of(caller, page.items),
        definitions=await caller.services.reads.list_definitions(),
        given=given,
        types=_TYPES,
        statuses=_STATUSES,
    )


@router.post("/incidents/retry")
async def prepare_retry(request: Request, caller: Operator, form: PostedForm) -> Response:
    """Count the open incidents that fit a filter, and show what retrying all of them would do."""
    kind = text_of(form, "type")
    chosen = BulkFilter(
        definition_key=text_of(form, "definition") or None,
        node_id=text_of(form, "node") or None,
        incident_type=IncidentType(kind) if kind in _TYPES and kind else None,
    )
    job = await bulk.create(
        caller.services, BulkAction.RETRY_INCIDENTS, chosen, created_by=caller.identity.actor
    )
    return done(request, "Nothing is changed yet.", "bulk", job.id)
