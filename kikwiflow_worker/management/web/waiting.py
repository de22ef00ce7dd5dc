"""Lists of work that waits for time or for a worker: retrying, timers, handlers; and the workers."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from kikwiflow_worker.management.api.shapes import Cursor
from kikwiflow_worker.management.backend import Viewer
from kikwiflow_worker.management.privacy import policies_of
from kikwiflow_worker.management.web.pages import page_router, render
from kikwiflow_worker.management.web.whereabouts import whereabouts_of
from kikwiflow_worker.store.search import TaskSearch, TimerSearch

router = page_router()

ROWS = 25
Filter = Annotated[str, Query(max_length=500)]


@router.get("/retrying")
async def retrying(
    request: Request, caller: Viewer, definition: Filter = "", cursor: Cursor = None
) -> HTMLResponse:
    """List tasks that failed and wait for their next attempt."""
    searches = caller.services.searches
    query = TaskSearch(
        definition_keys=(definition,) if definition else (),
        retrying=True,
    )
    page = await searches.search_tasks(query, limit=ROWS, cursor=cursor)
    return render(
        request,
        "retrying.html",
        caller=caller,
        tasks=page.items,
        next_cursor=page.next_cursor,
        total=await searches.count_tasks(query),
        places_of=await whereabouts_of(caller, page.items),
        policies=await policies_of(caller, page.items),
        definitions=await caller.services.reads.list_definitions(),
        definition=definition,
    )


@router.get("/timers")
async def timers(
    request: Request, caller: Viewer, definition: Filter = "", cursor: Cursor = None
) -> HTMLResponse:
    """List timers that have not fired, the next one first."""
    query = TimerSearch(definition_keys=(definition,) if definition else ())
    page = await caller.services.searches.search_timers(query, limit=ROWS, cursor=cursor)
    return render(
        request,
        "timers.html",
        caller=caller,
        timers=page.items,
        next_cursor=page.next_cursor,
        places_of=await whereabouts_of(caller, page.items),
        definitions=await caller.services.reads.list_definitions(),
        definition=definition,
    )


@router.get("/handlers")
async def handlers(request: Request, caller: Viewer) -> HTMLResponse:
    """List what due tasks need, those first that no worker has."""
    waits = await caller.services.searches.list_handler_waits()
    return render(request, "handlers.html", caller=caller, waits=waits)


@router.get("/workers")
async def workers(request: Request, caller: Viewer) -> HTMLResponse:
    """List the workers that were seen in the last day."""
    looks = await caller.services.searches.list_workers()
    return render(request, "workers.html", caller=caller, looks=looks)
