"""Puts the HTTP application together."""

from functools import cache
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from prometheus_client import CollectorRegistry

from kikwiflow_worker import __version__
from kikwiflow_worker.clock import Clock, SystemClock
from kikwiflow_worker.management.api.audit import router as audit
from kikwiflow_worker.management.api.bulk import router as bulk
from kikwiflow_worker.management.api.definitions import router as definitions
from kikwiflow_worker.management.api.executable_tasks import router as executable_tasks
from kikwiflow_worker.management.api.external_tasks import router as external_tasks
from kikwiflow_worker.management.api.external_workers import router as external_workers
from kikwiflow_worker.management.api.incidents import router as incidents
from kikwiflow_worker.management.api.instance_views import router as instance_views
from kikwiflow_worker.management.api.instances import router as instances
from kikwiflow_worker.management.api.messages import router as messages
from kikwiflow_worker.management.api.outbox import router as outbox
from kikwiflow_worker.management.api.overview import router as overview
from kikwiflow_worker.management.api.streams import router as streams
from kikwiflow_worker.management.api.tokens import router as tokens
from kikwiflow_worker.management.backend import Backend
from kikwiflow_worker.management.feeds import Feeds
from kikwiflow_worker.management.headers import Protection
from kikwiflow_worker.management.idempotency import Remembering, add_replays
from kikwiflow_worker.management.openapi import allowed_methods, describe
from kikwiflow_worker.management.parameters import KebabNames, refuse_unknown
from kikwiflow_worker.management.probes import Probes, never, probe_router
from kikwiflow_worker.management.problems import add_problem_handlers
from kikwiflow_worker.management.request_log import RequestLog, RequestMetrics
from kikwiflow_worker.management.request_spans import RequestSpans
from kikwiflow_worker.management.security.auditing import Auditing
from kikwiflow_worker.management.web.navigation import DASHBOARD_PATH
from kikwiflow_worker.management.web.router import add_dashboard

BASE_PATH = "/kikwiflow/api/v1"
"""Of the API, as in Kikwiflow."""

ROUTERS: tuple[APIRouter, ...] = (
    definitions,
    streams,
    instance_views,
    instances,
    external_tasks,
    external_workers,
    messages,
    incidents,
    executable_tasks,
    bulk,
    overview,
    outbox,
    audit,
    tokens,
)
"""Of the API; the first route that fits a path takes it."""


def create_app(
    backend: Backend,
    *,
    base_path: str = BASE_PATH,
    hosts: frozenset[str] | None = None,
    probes: Probes | None = None,
    clock: Clock | None = None,
) -> FastAPI:
    """Return the application; it serves what ``backend`` gives, and closes nothing of it.

    Args:
        hosts: The only names it answers to; None for any.
        probes: What ``/readyz`` asks, and where ``/metrics`` are; by default it is always ready.
    """
    asked = probes or Probes(readiness=never, registry=CollectorRegistry())
    app = _assemble(base_path, asked)
    app.state.backend = backend
    app.state.feeds = Feeds(clock or SystemClock())
    add_problem_handlers(app, lambda path: allowed_methods(app.openapi(), path))
    add_replays(app)
    add_dashboard(app)
    # The last one added stands before all others.
    app.add_middleware(KebabNames)
    app.add_middleware(Remembering)
    app.add_middleware(Auditing)
    app.add_middleware(Protection, hosts=hosts)
    prefixes = (base_path, DASHBOARD_PATH)
    app.add_middleware(RequestSpans, tracing=backend.services.tracing, prefixes=prefixes)
    app.add_middleware(
        RequestLog,
        clock=clock or SystemClock(),
        metrics=RequestMetrics(asked.registry),
        prefixes=prefixes,
    )
    return app


@cache
def description(base_path: str = BASE_PATH) -> dict[str, Any]:
    """Return the API's description in OpenAPI; made once, since that takes longer than most requests."""
    probes = Probes(readiness=never, registry=CollectorRegistry())
    return describe(_assemble(base_path, probes), base_path)


def _assemble(base_path: str, probes: Probes) -> FastAPI:
    """Return the application with the routes that programs use."""
    app = FastAPI(
        title="Kikwiflow worker",
        version=__version__,
        openapi_url=f"{base_path}/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    for router in ROUTERS:
        app.include_router(router, prefix=base_path, dependencies=[Depends(refuse_unknown)])
    app.include_router(probe_router(probes))
    app.openapi = lambda: description(base_path)  # type: ignore[method-assign]
    return app
