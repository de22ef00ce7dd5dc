"""Pages of definitions: the list, one version with its graph and figures, and two versions side by side."""

import json
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from kikwiflow_worker.management.backend import Viewer
from kikwiflow_worker.management.web.graph_marks import (
    Difference,
    change_marks,
    changes_between,
    figures_marks,
    file_changes_between,
)
from kikwiflow_worker.management.web.navigation import link, stream_of
from kikwiflow_worker.management.web.pages import page_router, render
from kikwiflow_worker.management.web.pictures import drawing_of, picture_of
from kikwiflow_worker.operations.instances import get_definition

router = page_router()
"""Keys may have slashes in them: what ends with a word of its own stands before the page of a definition."""

ROWS = 50
MAX_VERSION_SHOWN = 2**31 - 1

SIDE_BY_SIDE = 1_000.0
"""The width of drawings that go beside one another; wider ones go one above the other."""

Version = Annotated[int | None, Query(ge=1, le=MAX_VERSION_SHOWN)]


@router.get("/definitions")
async def list_definitions(
    request: Request,
    caller: Viewer,
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
) -> HTMLResponse:
    """List the latest version of every definition, with what its instances do."""
    every = await caller.services.reads.list_definitions()
    shown = every[(page - 1) * ROWS : page * ROWS]
    figures = await caller.services.searches.measure_definitions([each.key for each in shown])
    return render(
        request,
        "definitions.html",
        caller=caller,
        definitions=shown,
        figures=figures,
        total=len(every),
        page=page,
        has_more=len(every) > page * ROWS,
    )


@router.get("/definitions/{key:path}/source")
async def show_source(
    request: Request, caller: Viewer, key: str, version: Version = None
) -> HTMLResponse:
    """Show the file of one version."""
    definition = await get_definition(caller.services, key, version)
    source = json.dumps(json.loads(definition.source), ensure_ascii=False, indent=2)
    return render(
        request, "definition_source.html", caller=caller, definition=definition, source=source
    )


@router.get("/definitions/{key:path}/compare")
async def compare(
    request: Request,
    caller: Viewer,
    key: str,
    before: Annotated[int, Query(ge=1, le=MAX_VERSION_SHOWN)],
    after: Annotated[int, Query(ge=1, le=MAX_VERSION_SHOWN)],
) -> HTMLResponse:
    """Show two versions side by side, with what differs marked."""
    old = await get_definition(caller.services, key, before)
    new = await get_definition(caller.services, key, after)
    changes = changes_between(old, new)
    drawings = [await drawing_of(old), await drawing_of(new)]
    only_old = [change for change in changes if change.difference is not Difference.ADDED]
    only_new = [change for change in changes if change.difference is not Difference.REMOVED]
    return render(
        request,
        "compare.html",
        caller=caller,
        key=key,
        old=old,
        new=new,
        changes=changes,
        file_changes=file_changes_between(old, new),
        old_graph=await picture_of(
            old, lambda _: change_marks(only_old), title=f"Version {old.version}"
        ),
        new_graph=await picture_of(
            new, lambda _: change_marks(only_new), title=f"Version {new.version}"
        ),
        is_narrow=max(each.frame.width for each in drawings) <= SIDE_BY_SIDE,
        versions=await caller.services.reads.list_definitions(key=key),
    )


@router.get("/definitions/{key:path}")
async def show_definition(
    request: Request, caller: Viewer, key: str, version: Version = None
) -> HTMLResponse:
    """Show one version, the latest by default."""
    definition = await get_definition(caller.services, key, version)
    nodes = list(definition.flow_nodes)
    figures = dict(await caller.services.searches.measure_nodes(definition.id, nodes))
    versions = await caller.services.reads.list_definitions(key=key)
    links = {
        node_id: link(request, "instances", definition=key, node=node_id) for node_id in figures
    }
    drawing = await drawing_of(definition)
    graph = await picture_of(
        definition,
        lambda _: figures_marks(definition, figures, links),
        title=f"Graph of {definition.name or key}, version {definition.version}",
    )
    summary = (await caller.services.searches.measure_definitions([key])).get(key)
    return render(
        request,
        "definition.html",
        caller=caller,
        definition=definition,
        stream=stream_of(request, "process-definitions", definition.id, interval=5),
        graph=graph,
        figures={node.id: figures[node.id] for node in drawing.nodes if node.id in figures},
        summary=summary,
        versions=versions,
        is_suspended=any(each.is_suspended for each in versions),
        previous=next((each for each in versions if each.version < definition.version), None),
    )
