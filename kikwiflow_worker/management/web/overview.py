"""The start page: what needs attention now."""

from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import HTMLResponse

from kikwiflow_worker.management.backend import Viewer
from kikwiflow_worker.management.privacy import policies_of
from kikwiflow_worker.management.web.pages import page_router, render
from kikwiflow_worker.management.web.whereabouts import whereabouts_of
from kikwiflow_worker.store.relay import EventQuery
from kikwiflow_worker.store.search import (
    Count,
    ExternalTaskSearch,
    HandlerWait,
    IncidentSearch,
    TaskSearch,
    WorkerLook,
)

router = page_router()

FEW = 8
"""Rows of each list; the list itself is one click away."""


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers together.

    Attributes:
        silent: How many have not reported for longer than they should.
        external: How many fetch tasks; they have no slots, and where only they are alive the engine does not run.
    """

    alive: int
    silent: int
    running: int
    slots: int
    external: int

    @classmethod
    def of(cls, looks: tuple[WorkerLook, ...]) -> "Crew":
        """Add up what workers said last; the slots of silent ones do not count."""
        ours = [look for look in looks if not look.worker.is_external]
        alive = [look.worker for look in ours if look.is_alive]
        return cls(
            alive=len(alive),
            silent=sum(look.is_silent for look in ours),
            running=sum(each.running for each in alive),
            slots=sum(each.slots for each in alive),
            external=sum(look.is_alive for look in looks) - len(alive),
        )


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """What the sink of events would not take.

    Attributes:
        lag_s: How far the relay is behind with the others.
    """

    count: Count
    lag_s: float


@router.get("/overview")
async def overview(request: Request, caller: Viewer) -> HTMLResponse:
    """Show what needs attention, the most urgent first."""
    searches = caller.services.searches
    incidents = await searches.search_incidents(IncidentSearch(), limit=FEW)
    # How many there are is not counted: no index knows whom a task is for.
    tasks = await searches.search_external_tasks(
        ExternalTaskSearch(unassigned=True, for_people=True), limit=FEW
    )
    waits = await searches.list_handler_waits()
    return render(
        request,
        "overview.html",
        caller=caller,
        incidents=incidents.items,
        tasks=tasks.items,
        open_incidents=await searches.count_incidents(IncidentSearch()),
        retrying=await searches.count_tasks(TaskSearch(retrying=True)),
        unclaimed=Count(len(tasks.items), is_capped=tasks.next_cursor is not None),
        due=due_of(waits),
        oldest=min((wait.oldest for wait in waits), default=None),
        unserved=[wait for wait in waits if not wait.is_served],
        crew=await _crew(caller),
        dead_letters=await _dead_letters(caller),
        places_of=await whereabouts_of(caller, (*incidents.items, *tasks.items)),
        policies=await policies_of(caller, incidents.items),
    )


async def _crew(caller: Viewer) -> Crew | None:
    """Return the workers together; None for who is bound to a tenant, since they serve all."""
    if caller.identity.tenant_id is not None:
        return None
    return Crew.of(await caller.services.searches.list_workers())


async def _dead_letters(caller: Viewer) -> DeadLetters | None:
    """Return the dead letters; None if there are none, and for who is bound to a tenant, since the relay is of all."""
    if caller.identity.tenant_id is not None:
        return None
    care = caller.services.relay_care
    count = await care.count_events(EventQuery())
    return DeadLetters(count, (await care.measure()).lag_s) if count.value else None


def due_of(waits: tuple[HandlerWait, ...]) -> Count:
    """Return how many due tasks wait for a handler."""
    return Count(
        sum(wait.waiting.value for wait in waits),
        is_capped=any(wait.waiting.is_capped for wait in waits),
    )
