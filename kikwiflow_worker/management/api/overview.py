"""Routes that show how much there is to do, and who does it."""

from datetime import datetime
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from kikwiflow_worker.management.api.definitions import DefinitionShape, find_version
from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import CountShape, Id, NodeShape, PageOf, Shape
from kikwiflow_worker.management.backend import Viewer
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.store.search import (
    Count,
    HandlerWait,
    InstanceSearch,
    NodeFigures,
    WorkerLook,
)

router = APIRouter()


class WorkerShape(Shape):
    """A worker that was seen in the last day; a silent one has not reported for longer than it should.

    Of an external one its topics (``handlers``) and nodes are known, and when it fetched: ``host`` and ``version`` are empty, and
    ``pid`` and ``slots`` are 0. While it may be busy with what it fetched, it is not silent.
    """

    id: str
    instance_name: str
    host: str
    pid: int
    version: str
    started_at: datetime
    seen_at: datetime
    state: str
    slots: int
    running: int
    free: int
    handlers: list[str]
    event_loop_lag_seconds: float | None = Field(
        description="How late its event loop woke up at worst in the ten seconds before it was seen: a handler blocks it."
    )
    silent_seconds: float
    is_silent: bool
    is_external: bool = Field(description="It fetches tasks over HTTP.")
    nodes: list[NodeShape] = Field(description="That an external worker fetches by.")
    tenant_id: str | None = Field(
        description="Whose tasks an external worker may fetch; null for those of all."
    )

    @classmethod
    def of(cls, look: WorkerLook) -> "WorkerShape":
        """Return the document of ``look``."""
        worker = look.worker
        return cls(
            id=worker.id,
            instance_name=worker.instance_name,
            host=worker.host,
            pid=worker.pid,
            version=worker.version,
            started_at=worker.started_at,
            seen_at=worker.seen_at,
            state=worker.state,
            slots=worker.slots,
            running=worker.running,
            free=look.free,
            handlers=list(worker.handlers),
            event_loop_lag_seconds=worker.event_loop_lag_s,
            silent_seconds=look.silent_s,
            is_silent=look.is_silent,
            is_external=worker.is_external,
            nodes=[NodeShape.of(node) for node in worker.nodes],
            tenant_id=worker.tenant_id,
        )


class WaitingHandlerShape(Shape):
    """Due tasks that need one handler; unless it is served, no worker seen lately has or fetches it, and some wait for ever."""

    handler_name: str
    waiting: CountShape
    oldest: datetime
    is_served: bool

    @classmethod
    def of(cls, wait: HandlerWait) -> "WaitingHandlerShape":
        """Return the document of ``wait``."""
        return cls(
            handler_name=wait.handler_name,
            waiting=CountShape.of(wait.waiting),
            oldest=wait.oldest,
            is_served=wait.is_served,
        )


class Metrics(Shape):
    """Figures of a definition or of one of its nodes; ``isCapped`` if there may be more than is counted."""

    running: int
    fail: int
    sla: str | None = None
    average_seconds: float | None = None
    is_capped: bool


class Stats(DefinitionShape):
    """A version with its figures, in all and in each node under ``metrics``."""

    metrics: Metrics


@router.get("/workers", operation_id="listWorkers", tags=["workers"])
async def list_workers(caller: Viewer) -> PageOf[WorkerShape]:
    """List the workers that were seen in the last day, by name; there are at most 500, on one page."""
    found = await caller.services.searches.list_workers()
    return PageOf(items=[WorkerShape.of(look) for look in found])


@router.get("/waiting-handlers", operation_id="listWaitingHandlers", tags=["workers"])
async def list_waiting_handlers(caller: Viewer) -> PageOf[WaitingHandlerShape]:
    """List the handlers that due tasks need, those that no worker has first; there are at most 200, on one page."""
    found = await caller.services.searches.list_handler_waits()
    return PageOf(items=[WaitingHandlerShape.of(wait) for wait in found])


@router.get(
    "/pulse/process-definition/{definition_id}/snapshot",
    operation_id="getDefinitionStats",
    tags=["pulse"],
    responses=refuses(Code.DEFINITION_NOT_FOUND),
)
async def get_stats(caller: Viewer, definition_id: Id) -> Stats:
    """Return one version of a definition with how many instances run, how many failures wait, and where."""
    definition = await find_version(caller, definition_id)
    searches = caller.services.searches
    figures = await searches.measure_nodes(definition_id, list(definition.flow_nodes))
    running = await searches.count_instances(InstanceSearch(definition_ids=(definition_id,)))
    incidents = [each.incidents for each in figures.values()]
    failed = Count(sum(each.value for each in incidents), any(each.is_capped for each in incidents))
    shape = DefinitionShape.of(definition)
    fields = dict(shape)
    fields["flow_nodes"] = {
        node_id: _with_metrics(node, figures.get(node_id))
        for node_id, node in shape.flow_nodes.items()
    }
    metrics = Metrics(
        running=running.value,
        fail=failed.value,
        is_capped=running.is_capped or failed.is_capped,
    )
    return Stats(metrics=metrics, **fields)


def _with_metrics(node: dict[str, Any], figures: NodeFigures | None) -> dict[str, Any]:
    if figures is None:
        return node
    average = figures.average.total_seconds() if figures.average is not None else None
    metrics = Metrics(
        running=figures.tokens.value,
        fail=figures.incidents.value,
        average_seconds=average,
        is_capped=figures.tokens.is_capped or figures.incidents.is_capped,
    )
    return {**node, "metrics": metrics.model_dump(mode="json", by_alias=True)}
