"""Puts the HTTP application together."""

from fastapi import FastAPI

from kikwiflow_worker import __version__
from kikwiflow_worker.management.api.definitions import router as definitions
from kikwiflow_worker.management.api.instances import router as instances
from kikwiflow_worker.management.backend import Backend
from kikwiflow_worker.management.headers import Protection
from kikwiflow_worker.management.problems import add_problem_handlers
from kikwiflow_worker.management.web.router import add_dashboard

BASE_PATH = "/kikwiflow/api/v1"
"""Of the API, as in Kikwiflow."""


def create_app(
    backend: Backend, *, base_path: str = BASE_PATH, hosts: frozenset[str] | None = None
) -> FastAPI:
    """Return the application; it serves what ``backend`` gives, and closes nothing of it.

    Args:
        hosts: The only names it answers to; None for any.
    """
    app = FastAPI(
        title="Kikwiflow worker",
        version=__version__,
        openapi_url=f"{base_path}/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.backend = backend
    add_problem_handlers(app)
    for router in (definitions, instances):
        app.include_router(router, prefix=base_path)
    add_dashboard(app)
    app.add_middleware(Protection, hosts=hosts)
    return app
