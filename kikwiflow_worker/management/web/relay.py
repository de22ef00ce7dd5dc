"""The relay of outbox events: how far it is, what its sink would not take, and the forms that put that right."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from kikwiflow_worker.errors import ConflictError
from kikwiflow_worker.management.api.shapes import Cursor
from kikwiflow_worker.management.backend import Caller, Operator, Viewer
from kikwiflow_worker.management.privacy import policies_of, policy_for
from kikwiflow_worker.management.web.pages import PostedForm, done, page_router, render, text_of
from kikwiflow_worker.operations import dead_letters
from kikwiflow_worker.store.relay import EventQuery, RelayStatus

router = page_router()

ROWS = 25
_STATUSES = {
    "DEAD": "dead letters",
    "RETRYING": "retrying",
    "HELD": "held by an earlier one",
    "PENDING": "to be sent",
    "RELAYED": "sent",
    "DROPPED": "given up",
}


class Given(BaseModel):
    """What is asked for: the fields of the form."""

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True, str_max_length=500)

    status: RelayStatus = RelayStatus.DEAD
    instance: str = ""
    cursor: Cursor = None

    def query(self) -> EventQuery:
        """Return the query."""
        return EventQuery(status=self.status, instance_id=self.instance or None)


@router.get("/relay")
async def show_relay(
    request: Request, caller: Viewer, given: Annotated[Given, Query()]
) -> HTMLResponse:
    """Show how far the relay is, and list events, by default the dead letters."""
    care = caller.services.relay_care
    page = await care.list_events(given.query(), limit=ROWS, cursor=given.cursor)
    return render(
        request,
        "relay.html",
        caller=caller,
        sink=await care.find_sink(),
        measures=await care.measure(),
        slices=await care.list_slices(),
        events=page.items,
        next_cursor=page.next_cursor,
        policies=await policies_of(caller, page.items),
        given=given,
        statuses=_STATUSES,
    )


class OfInstance(BaseModel):
    """Of which instance dead letters are sent again; empty for those of all."""

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True)

    instance: str = Field("", max_length=500)


@router.get("/relay/resend")
async def ask_resend_all(
    request: Request, caller: Operator, given: Annotated[OfInstance, Query()]
) -> HTMLResponse:
    """Ask whether all dead letters, or those of an instance, are to be sent again."""
    count = await caller.services.relay_care.count_events(
        EventQuery(instance_id=given.instance or None)
    )
    return render(request, "relay_resend.html", caller=caller, count=count, instance=given.instance)


@router.post("/relay/resend")
async def resend_all(request: Request, caller: Operator, form: PostedForm) -> Response:
    """Let all dead letters, or those of an instance, be tried again."""
    instance = text_of(form, "instance")
    if instance:
        caller.concerns(instance_id=instance)
    resent = await dead_letters.resend_all(
        caller.services.relay_care, instance_id=instance or None, most=dead_letters.MOST_AT_ONCE
    )
    more = "" if resent.is_all else " There are more."
    return done(request, f"{resent.count:,} are tried again.{more}", "relay", instance=instance)


@router.get("/relay/{event_id}")
async def show_event(request: Request, caller: Viewer, event_id: str) -> HTMLResponse:
    """Show one event, why it was not taken, and what can be done."""
    return await _event_page(request, caller, "relay_event.html", event_id)


@router.get("/relay/{event_id}/resend")
async def ask_resend(request: Request, caller: Operator, event_id: str) -> HTMLResponse:
    """Ask whether a dead letter is to be sent again."""
    return await _event_page(request, caller, "relay_decide.html", event_id, drop=False)


@router.post("/relay/{event_id}/resend")
async def resend(request: Request, caller: Operator, _: PostedForm, event_id: str) -> Response:
    """Let a dead letter be tried again."""
    try:
        await dead_letters.resend(caller.services.relay_care, event_id)
    except ConflictError as error:
        return await _refused(request, caller, event_id, error, drop=False)
    return done(request, "It is tried again.", "relay", event_id)


@router.get("/relay/{event_id}/drop")
async def ask_drop(request: Request, caller: Operator, event_id: str) -> HTMLResponse:
    """Ask whether a dead letter is to be given up."""
    return await _event_page(request, caller, "relay_decide.html", event_id, drop=True)


@router.post("/relay/{event_id}/drop")
async def drop(request: Request, caller: Operator, _: PostedForm, event_id: str) -> Response:
    """Give a dead letter up."""
    try:
        await dead_letters.drop(caller.services.relay_care, event_id, by=caller.identity.actor)
    except ConflictError as error:
        return await _refused(request, caller, event_id, error, drop=True)
    return done(request, "It is given up; what follows goes on.", "relay", event_id)


async def _refused(
    request: Request, caller: Caller, event_id: str, error: ConflictError, *, drop: bool
) -> HTMLResponse:
    return await _event_page(
        request,
        caller,
        "relay_decide.html",
        event_id,
        drop=drop,
        problem=str(error),
        status=409,
    )


async def _event_page(
    request: Request,
    caller: Caller,
    template: str,
    event_id: str,
    *,
    status: int = 200,
    problem: str | None = None,
    **context: object,
) -> HTMLResponse:
    event = await dead_letters.get_event(caller.services.relay_care, event_id)
    return render(
        request,
        template,
        caller=caller,
        status=status,
        event=event,
        policy=await policy_for(caller, event),
        is_dead=event.status is RelayStatus.DEAD,
        problem=problem,
        **context,
    )
