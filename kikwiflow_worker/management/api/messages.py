"""Routes that correlate messages."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Header, Path
from fastapi import Body as JsonBody
from pydantic import Field

from kikwiflow_worker.engine.messages import Receiver
from kikwiflow_worker.errors import NotFoundError
from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import (
    NOT_BLANK,
    Body,
    InstanceShape,
    NewVariable,
    Shape,
    shown_instance,
    values_of,
)
from kikwiflow_worker.management.backend import Operator
from kikwiflow_worker.management.privacy import check_kept, policy_of
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.operations.correlation import (
    LONGEST_KEEP,
    Correlation,
    CorrelationOutcome,
    CorrelationRequest,
    correlate,
)

router = APIRouter(prefix="/events", tags=["messages"])

Key = Annotated[str, Path(min_length=1, description="The correlation key; slashes may be in it.")]
IdempotencyKey = Annotated[str | None, Header(include_in_schema=False)]

_REFUSALS = refuses(Code.NOT_FOUND, Code.CONFLICT, Code.STEP_FAILED, Code.INVALID_VARIABLE)


class MessageVariables(Body):
    """What a message brings."""

    variables: dict[str, NewVariable] = Field(default_factory=dict)


class NewMessage(MessageVariables):
    """A message; its key is in the body, where no proxy logs it."""

    correlation_key: str = Field(min_length=1, pattern=NOT_BLANK)
    message_id: str | None = Field(
        None,
        min_length=1,
        description="The sender's own: a second message with it changes nothing.",
    )
    keep_for_seconds: int | None = Field(
        None,
        ge=1,
        le=int(LONGEST_KEEP.total_seconds()),
        description="How long to keep it if nobody waits for it yet; without it, it is refused then.",
    )


class CorrelationShape(Shape):
    """What became of a message; ``instance`` is null unless it was delivered by this request."""

    outcome: CorrelationOutcome
    instance: InstanceShape | None


@router.post("/correlate", status_code=202, operation_id="correlateMessage", responses=_REFUSALS)
async def correlate_message(
    caller: Operator, body: NewMessage, idempotency_key: IdempotencyKey = None
) -> CorrelationShape:
    """Give a message to the instance that has waited longest for its key, or keep it until one waits."""
    keep = body.keep_for_seconds
    done = await _correlate(
        caller,
        body.correlation_key,
        body.variables,
        message_id=body.message_id or idempotency_key,
        keep_for=None if keep is None else timedelta(seconds=keep),
    )
    instance = None if done.instance is None else await shown_instance(caller, done.instance)
    return CorrelationShape(outcome=done.outcome, instance=instance)


@router.post(
    "/correlate/{correlation_key:path}",
    status_code=202,
    operation_id="correlateByKey",
    responses=_REFUSALS,
)
async def correlate_by_key(
    caller: Operator,
    correlation_key: Key,
    body: Annotated[MessageVariables | None, JsonBody()] = None,
) -> InstanceShape:
    """Give a message to the instance that has waited longest for its key, as Kikwiflow has it."""
    given = body or MessageVariables()
    done = await _correlate(caller, correlation_key, given.variables)
    if done.instance is None:
        raise NotFoundError("nobody waits for this correlation key")
    return await shown_instance(caller, done.instance)


async def _correlate(
    caller: Operator,
    key: str,
    variables: dict[str, NewVariable],
    *,
    message_id: str | None = None,
    keep_for: timedelta | None = None,
) -> Correlation:
    tenant_id = caller.identity.tenant_id
    check_texts(correlation_key=key, message_id=message_id)

    async def check(receiver: Receiver | None) -> None:
        if receiver is not None:
            (await policy_of(caller, receiver.instance)).check_writes(variables)
        elif keep_for is not None:
            await check_kept(caller, variables)

    request = CorrelationRequest(
        key=key,
        variables=values_of(variables),
        tenant_id=tenant_id,
        actor=caller.identity.actor,
        message_id=message_id,
        keep_for=keep_for,
    )
    done = await correlate(caller.services, caller.invoker, request, check=check)
    if done.outcome is CorrelationOutcome.DELIVERED and done.instance is not None:
        caller.concerns(instance_id=done.instance.id)
    return done
