"""Routes of the relay of outbox events: how far it is, and what its sink would not take.

They are about all tenants together: an identity of one tenant is refused.
"""

from datetime import datetime
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from kikwiflow_worker.management.api.filters import OfInstance
from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import (
    Body,
    CountShape,
    Cursor,
    Id,
    Limit,
    PageOf,
    Shape,
    shown,
    shown_page,
)
from kikwiflow_worker.management.backend import Operator, Viewer
from kikwiflow_worker.management.privacy import VariablePolicy
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.model.plain_json import to_json
from kikwiflow_worker.operations import dead_letters
from kikwiflow_worker.store.relay import (
    EventQuery,
    RelayMeasures,
    RelayStatus,
    SliceState,
    StoredEvent,
)

router = APIRouter(tags=["outbox"])


class SliceShape(Shape):
    """One of the slices that instances are dealt into; with failures, the sink took nothing from it in so many rounds."""

    slice: int
    lag_seconds: float
    owner: str | None
    failures: int
    paused_until: datetime | None
    delivered_at: datetime | None
    last_error: str | None

    @classmethod
    def of(cls, state: SliceState) -> "SliceShape":
        """Return the document of ``state``."""
        return cls(
            slice=state.slice,
            lag_seconds=state.lag_s,
            owner=state.owner,
            failures=state.failures,
            paused_until=state.paused_until,
            delivered_at=state.delivered_at,
            last_error=state.last_error,
        )


class RelayShape(Shape):
    """The relay: which sink events go to (null if they are not relayed), and what waits for it by its status."""

    sink: str | None
    lag_seconds: float = Field(
        description="The age of the oldest event that waits for nothing but to be sent, or sent again."
    )
    waiting: dict[RelayStatus, CountShape]
    slices: list[SliceShape]


class OutboxEventShape(Shape):
    """An outbox event on its way to the sink; ``attempts`` counts how often sending it failed."""

    id: str
    event_type: str
    process_instance_id: str
    process_definition_id: str
    timestamp: datetime
    sequence: str
    status: RelayStatus
    attempts: int
    retry_at: datetime | None
    failed_at: datetime | None
    last_error: str | None
    relayed_at: datetime | None
    payload: dict[str, Any] = Field(description="Empty if it cannot be decrypted here.")
    unreadable: str | None = Field(description="Why it cannot be decrypted.")

    @classmethod
    def of(cls, event: StoredEvent, policy: VariablePolicy) -> "OutboxEventShape":
        """Return the document of ``event`` as ``policy`` lets it be shown."""
        payload = policy.event(event.type, event.payload)
        return cls(
            id=event.id,
            event_type=event.type,
            process_instance_id=event.instance_id,
            process_definition_id=event.definition_id,
            timestamp=event.timestamp,
            sequence=event.sequence,
            status=event.status,
            attempts=event.attempts,
            retry_at=event.retry_at,
            failed_at=event.failed_at,
            last_error=policy.error(event.last_error),
            relayed_at=event.relayed_at,
            payload={name: to_json(value) for name, value in payload.items()},
            unreadable=event.unreadable,
        )


class Resend(Body):
    """Which dead letters are sent again: all, or those of one instance."""

    instance_id: str | None = Field(None, min_length=1, alias="processInstanceId")


class ResentShape(Shape):
    """How many dead letters are tried again; unless ``isAll``, there may be more: repeat."""

    resent: int
    is_all: bool


@router.get("/relay", operation_id="getRelay")
async def get_relay(caller: Viewer) -> RelayShape:
    """Return how far the relay is behind, in all and in each slice."""
    care = caller.services.relay_care
    measures = await care.measure()
    return RelayShape(
        sink=await care.find_sink(),
        lag_seconds=measures.lag_s,
        waiting=_waiting(measures),
        slices=[SliceShape.of(state) for state in await care.list_slices()],
    )


def _waiting(measures: RelayMeasures) -> dict[RelayStatus, CountShape]:
    return {
        status: CountShape(total=count, is_capped=count >= measures.cap)
        for status, count in measures.counts.items()
    }


@router.get("/outbox-events", operation_id="listOutboxEvents")
async def list_outbox_events(
    caller: Viewer,
    *,
    status: RelayStatus = RelayStatus.DEAD,
    process_instance_id: OfInstance = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> PageOf[OutboxEventShape]:
    """List outbox events, dead letters unless another status is given, in the order in which they are sent."""
    query = EventQuery(status=status, instance_id=process_instance_id)
    page = await caller.services.relay_care.list_events(query, limit=limit, cursor=cursor)
    return await shown_page(caller, page, OutboxEventShape.of)


@router.get(
    "/outbox-events/{event_id}",
    operation_id="getOutboxEvent",
    responses=refuses(Code.NOT_FOUND),
)
async def get_outbox_event(caller: Viewer, event_id: Id) -> OutboxEventShape:
    """Return an outbox event."""
    event = await dead_letters.get_event(caller.services.relay_care, event_id)
    return await shown(caller, event, OutboxEventShape.of)


@router.post("/outbox-events/resend", operation_id="resendDeadLetters")
async def resend_dead_letters(caller: Operator, body: Resend) -> ResentShape:
    """Let dead letters be tried again at once, with all their attempts; up to ten thousand in one request."""
    if body.instance_id is not None:
        caller.concerns(instance_id=body.instance_id)
    resent = await dead_letters.resend_all(
        caller.services.relay_care, instance_id=body.instance_id, most=dead_letters.MOST_AT_ONCE
    )
    return ResentShape(resent=resent.count, is_all=resent.is_all)


@router.post(
    "/outbox-events/{event_id}/resend",
    operation_id="resendDeadLetter",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT),
)
async def resend_dead_letter(caller: Operator, event_id: Id) -> OutboxEventShape:
    """Let a dead letter be tried again at once, with all its attempts; what it held back follows it."""
    event = await dead_letters.resend(caller.services.relay_care, event_id)
    return await shown(caller, event, OutboxEventShape.of)


@router.post(
    "/outbox-events/{event_id}/drop",
    operation_id="dropDeadLetter",
    responses=refuses(Code.NOT_FOUND, Code.CONFLICT),
)
async def drop_dead_letter(caller: Operator, event_id: Id) -> OutboxEventShape:
    """Give up a dead letter: it is never sent, and what follows in its instance goes on."""
    event = await dead_letters.drop(caller.services.relay_care, event_id, by=caller.identity.actor)
    return await shown(caller, event, OutboxEventShape.of)
