"""``/livez``, ``/readyz`` and ``/metrics`` of the management server, for orchestrators and Prometheus: open to everybody."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.telemetry import Event, emit

_LOOK_S = 2.0


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


class DatabaseWatch:
    """Asks every few seconds whether the database answers, and says so when that changes; recovery needs no restart.

    Begin when it does answer.
    """

    def __init__(self, ping: Callable[[], Awaitable[object]], clock: Clock) -> None:
        self._ping = ping
        self._clock = clock
        self._is_reachable = True

    async def run(self) -> None:
        """Watch until it is cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(_LOOK_S)

    async def look(self) -> None:
        """Ask once."""
        try:
            await self._ping()
        except StoreUnavailableError as error:
            if self._is_reachable:
                emit(Event.STORE_UNAVAILABLE, doing="management", error=str(error))
            self._is_reachable = False
            return
        if not self._is_reachable:
            emit(Event.STORE_RECOVERED)
        self._is_reachable = True

    async def readiness(self) -> tuple[str, ...]:
        """Return why requests cannot be answered; it is never a reason to restart."""
        return () if self._is_reachable else ("the database is not reachable",)


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
