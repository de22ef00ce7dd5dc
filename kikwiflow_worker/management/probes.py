"""``/livez``, ``/readyz`` and ``/metrics`` of the management server, for orchestrators and Prometheus: open to everybody."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from kikwiflow_worker.errors import StoreUnavailableError


class ProbeAnswer(BaseModel):
    """The answer to a probe; ``reasons`` say why it is no."""

    status: str
    reasons: list[str]


async def never() -> tuple[str, ...]:
    """Return that nothing is wrong: a server that answers lives."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What the probes ask.

    Attributes:
        liveness: Returns why only a restart would help; empty if none is needed.
        readiness: Returns why requests cannot be answered now; empty if they can.
    """

    readiness: Callable[[], Awaitable[tuple[str, ...]]]
    liveness: Callable[[], Awaitable[tuple[str, ...]]] = never
    registry: CollectorRegistry


def database_readiness(
    ping: Callable[[], Awaitable[object]],
) -> Callable[[], Awaitable[tuple[str, ...]]]:
    """Return a readiness that asks the database; it is never a reason to restart."""

    async def readiness() -> tuple[str, ...]:
        try:
            await ping()
        except StoreUnavailableError:
            return ("the database is not reachable",)
        return ()

    return readiness


def probe_router(probes: Probes) -> APIRouter:
    """Return the three routes."""
    router = APIRouter(tags=["probes"])

    @router.get("/livez", operation_id="getLiveness", responses=_UNAVAILABLE)
    async def livez(response: Response) -> ProbeAnswer:
        """Say whether the process works; if not, only a restart helps."""
        return _answered(await probes.liveness(), response)

    @router.get("/readyz", operation_id="getReadiness", responses=_UNAVAILABLE)
    async def readyz(response: Response) -> ProbeAnswer:
        """Say whether requests can be answered now."""
        return _answered(await probes.readiness(), response)

    @router.get("/metrics", operation_id="getMetrics", response_class=Response, responses=_TEXT)
    async def metrics() -> Response:
        """Return the metrics of this process as Prometheus reads them."""
        return Response(generate_latest(probes.registry), media_type=CONTENT_TYPE_LATEST)

    return router


_UNAVAILABLE: dict[int | str, dict[str, object]] = {
    503: {"model": ProbeAnswer, "description": "No, for the reasons given."}
}
_TEXT: dict[int | str, dict[str, object]] = {
    200: {
        "description": "Prometheus text.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}


def _answered(reasons: tuple[str, ...], response: Response) -> ProbeAnswer:
    response.headers["Cache-Control"] = "no-store"
    if reasons:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    return ProbeAnswer(status="unavailable" if reasons else "ok", reasons=list(reasons))
