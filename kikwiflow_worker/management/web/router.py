"""All pages of the dashboard, one module for each kind."""

from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from kikwiflow_worker.management.web import (
    bulk_jobs,
    definitions,
    deploying,
    failures,
    inbox,
    incidents,
    instance_actions,
    instance_page,
    instance_search,
    login,
    overview,
    relay,
    tokens,
    waiting,
)
from kikwiflow_worker.management.web.navigation import DASHBOARD_PATH, link
from kikwiflow_worker.management.web.pages import page_router

_STATIC = Path(__file__).parent / "static"

_PAGES: tuple[APIRouter, ...] = (
    overview.router,
    deploying.router,
    definitions.router,
    instance_search.router,
    instance_page.router,
    instance_actions.router,
    failures.router,
    inbox.router,
    incidents.router,
    bulk_jobs.router,
    waiting.router,
    relay.router,
    tokens.router,
    login.router,
)

home = page_router()


@home.get("/", include_in_schema=False)
@home.get("/dashboard", include_in_schema=False)
@home.get("/dashboard/", include_in_schema=False)
async def begin(request: Request) -> Response:
    """Go to what needs attention."""
    return RedirectResponse(link(request, "overview"), status_code=307)


def add_dashboard(app: FastAPI) -> None:
    """Let ``app`` serve the dashboard."""
    app.include_router(home)
    for pages in _PAGES:
        app.include_router(pages, prefix=DASHBOARD_PATH)
    app.mount(f"{DASHBOARD_PATH}/static", StaticFiles(directory=_STATIC), name="static")
