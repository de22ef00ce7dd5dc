"""Delivering messages to instances that wait for their key, now or later."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from kikwiflow_worker.engine.messages import Delivery, Receiver, end_wait
from kikwiflow_worker.engine.visits import derived_id
from kikwiflow_worker.errors import (
    ClaimLostError,
    DuplicateMessageError,
    NotFoundError,
    OperationError,
)
from kikwiflow_worker.model.messages import Message, MessageStatus, keeper_of
from kikwiflow_worker.model.runtime import ProcessInstance
from kikwiflow_worker.model.texts import check_texts, tenant_scoped
from kikwiflow_worker.model.unit_of_work import InsertTask, RecordMessage, UnitOfWork
from kikwiflow_worker.model.variables import Variables, normalize_all
from kikwiflow_worker.operations.instances import (
    MAX_RACES,
    instance_after,
    refuse_suspended,
    too_many_races,
)
from kikwiflow_worker.operations.services import Invoker, Services, drive
from kikwiflow_worker.operations.spans import keeping_message, sending

REMEMBERED = timedelta(days=7)
"""How long the id of a delivered message is known, so that it is not delivered again."""

LONGEST_KEEP = timedelta(days=365)


class CorrelationOutcome(StrEnum):
    """DELIVERED to an instance, KEPT until somebody waits, or KNOWN: a message with this id has come before."""

    DELIVERED = "delivered"
    KEPT = "kept"
    KNOWN = "known"


@dataclass(frozen=True, slots=True)
class Correlation:
    """What became of a message.

    Attributes:
        instance: The instance that took it, as it came to rest; None if none has, or if the message was known.
    """

    outcome: CorrelationOutcome
    instance: ProcessInstance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelationRequest:
    """A message.

    Attributes:
        message_id: The sender's own; a second message with it, in the same tenant, changes nothing.
        keep_for: How long to keep it if nobody waits for its key yet; None refuses it then.
    """

    key: str
    variables: Mapping[str, object]
    tenant_id: str | None = None
    actor: str | None = None
    message_id: str | None = None
    keep_for: timedelta | None = None


async def _nothing(_: Receiver | None) -> None:
    pass


async def correlate(
    services: Services,
    invoker: Invoker,
    request: CorrelationRequest,
    *,
    check: Callable[[Receiver | None], Awaitable[None]] = _nothing,
) -> Correlation:
    """Give a message to the instance of its tenant that has waited longest for its key, and let it go on.

    The match, its variables and what follows are one transaction.

    Args:
        check: Raises what refuses to give the message to this receiver, or to keep it (None); asked again for the next
            receiver where another message was faster.

    Raises:
        NotFoundError: Nobody waits for the key, and the message is not to be kept.
        ConflictError: The instance is suspended.
        VariableError: A variable cannot be stored; nothing was changed.
        StepFailedError: A node after it failed; the key still waits.
    """
    _check(request)
    normal = normalize_all(request.variables)
    if await _is_known(services, request):
        return Correlation(CorrelationOutcome.KNOWN)
    try:
        for _ in range(MAX_RACES):
            receiver = await services.find_receiver(request.key, tenant_id=request.tenant_id)
            await check(receiver)
            if receiver is None:
                return await _keep(services, request, normal)
            delivered = await _deliver(services, invoker, request, normal, receiver)
            if delivered is not None:
                return Correlation(CorrelationOutcome.DELIVERED, delivered)
    except DuplicateMessageError:
        return Correlation(CorrelationOutcome.KNOWN)
    raise too_many_races("correlation")


async def _is_known(services: Services, request: CorrelationRequest) -> bool:
    if request.message_id is None:
        return False
    found = await services.runtime.find_message(request.message_id, tenant_id=request.tenant_id)
    return found is not None


async def _deliver(
    services: Services,
    invoker: Invoker,
    request: CorrelationRequest,
    variables: Variables,
    receiver: Receiver,
) -> ProcessInstance | None:
    """Return the receiver's instance afterwards, or None if somebody else was faster."""
    refuse_suspended(receiver.instance)
    with sending(services, "deliver", receiver.task):
        segment = end_wait(
            receiver,
            Delivery(variables=variables, actor=request.actor),
            services.surroundings(invoker.capabilities),
        )
        unit = (await drive(services, segment, invoker)).unit
        if request.message_id is not None:
            message = _message(services, request, request.message_id, variables)
            delivered = replace(message, status=MessageStatus.DELIVERED)
            unit = UnitOfWork(unit.guards, (*unit.changes, RecordMessage(delivered)))
        try:
            committed = await services.commit(unit, cause=receiver.task.traceparent)
        except ClaimLostError:
            return None
    return await instance_after(services, committed, receiver.instance.id)


async def _keep(
    services: Services, request: CorrelationRequest, variables: Variables
) -> Correlation:
    """Keep a message with the task that tries it again: at once, since a wait may have begun meanwhile (R13)."""
    if request.keep_for is None:
        if await _is_known(
            services, request
        ):  # the same message, sent twice at once, took the last receiver
            return Correlation(CorrelationOutcome.KNOWN)
        raise NotFoundError(
            f"nobody waits for the correlation key {request.key!r}; it has been matched, or its wait has not begun"
        )
    message_id = request.message_id or services.new_id()
    message = _message(services, request, message_id, variables)
    keeper = keeper_of(message, task_id=keeper_id(message))
    with keeping_message(services):
        await services.commit(UnitOfWork((), (RecordMessage(message), InsertTask(keeper))))
    return Correlation(CorrelationOutcome.KEPT)


def keeper_id(message: Message) -> str:
    """Return the id of the task that tries a kept message again."""
    return derived_id(f"message of {tenant_scoped('', message.tenant_id)}", message.id)


def _message(
    services: Services, request: CorrelationRequest, message_id: str, variables: Variables
) -> Message:
    now = services.runtime.now()
    return Message(
        id=message_id,
        key=request.key,
        tenant_id=request.tenant_id,
        variables=variables,
        status=MessageStatus.KEPT,
        created_at=now,
        kept_until=now + (request.keep_for or timedelta(0)),
        expires_at=now + max(request.keep_for or REMEMBERED, REMEMBERED),
    )


def _check(request: CorrelationRequest) -> None:
    check_texts(
        correlation_key=request.key,
        tenant=request.tenant_id,
        actor=request.actor,
        message_id=request.message_id,
    )
    if not request.key.strip():
        raise OperationError("a message needs the correlation key that somebody waits for")
    if request.keep_for is not None and not timedelta(0) < request.keep_for <= LONGEST_KEEP:
        raise OperationError(
            f"a message can be kept for up to {LONGEST_KEEP.days} days, not {request.keep_for}"
        )
