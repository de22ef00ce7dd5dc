"""The list of instances, searched by definition, node, business key, status and variables."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.management.api.shapes import Cursor
from kikwiflow_worker.management.backend import Caller, Viewer
from kikwiflow_worker.management.privacy import allowed_search
from kikwiflow_worker.management.web.pages import page_router, render
from kikwiflow_worker.management.web.reading import read_day, read_value
from kikwiflow_worker.management.web.whereabouts import find_definition, name_of
from kikwiflow_worker.model.runtime import InstanceStatus, ProcessInstance
from kikwiflow_worker.model.variables import normalize_all
from kikwiflow_worker.store.search import ENDED, RUNNING, InstanceSearch

router = page_router()

ROWS = 25
_STATUSES = {
    "RUNNING": "running",
    **{each.value: each.value.lower() for each in RUNNING},
    "ENDED": "ended",
    **{each.value: each.value.lower() for each in ENDED},
}
_SEVERAL = {"RUNNING": RUNNING, "ENDED": ENDED}


class Given(BaseModel):
    """What is asked for: the fields of the form."""

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True, str_max_length=2_000)

    definition: str = ""
    node: str = ""
    key: str = ""
    status: str = Field("RUNNING", pattern=f"^({'|'.join(_STATUSES)})$")
    variable: str = ""
    value: str = ""
    since: str = ""
    cursor: Cursor = None

    def search(self) -> InstanceSearch:
        """Return the query.

        Raises:
            OperationError: A field makes no sense; the message names it.
        """
        if self.value and not self.variable:
            raise OperationError("say which variable has this value")
        values = {self.variable: read_value("Value", self.value)} if self.value else {}
        return InstanceSearch(
            definition_keys=(self.definition,) if self.definition else (),
            node_id=self.node or None,
            business_keys=(self.key,) if self.key else (),
            statuses=_SEVERAL.get(self.status) or (InstanceStatus(self.status),),
            variables=normalize_all(values),
            variables_exist=(self.variable,) if self.variable and not self.value else (),
            started_after=read_day("Started since", self.since),
        )


@router.get("/instances")
async def list_instances(
    request: Request, caller: Viewer, given: Annotated[Given, Query()]
) -> HTMLResponse:
    """List instances, the newest first."""
    searches = caller.services.searches
    query = await allowed_search(caller, given.search())
    page = await searches.search_instances(query, limit=ROWS, cursor=given.cursor)
    return render(
        request,
        "instance_search.html",
        caller=caller,
        instances=page.items,
        next_cursor=page.next_cursor,
        names=await _names(caller, page.items),
        definitions=await caller.services.reads.list_definitions(),
        statuses=_STATUSES,
        given=given,
    )


async def _names(caller: Caller, instances: tuple[ProcessInstance, ...]) -> dict[str, str]:
    """Return the names of the definitions, by id."""
    return {
        each.definition_id: name_of(await find_definition(caller, each.definition_id))
        or each.definition_key
        for each in instances
    }
