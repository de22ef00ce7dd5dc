"""Delivering messages to instances that wait for their key."""

from collections.abc import Mapping

from kikwiflow_worker.engine.messages import Delivery, end_wait
from kikwiflow_worker.errors import ClaimLostError, NotFoundError
from kikwiflow_worker.model.runtime import ProcessInstance
from kikwiflow_worker.model.variables import normalize_all
from kikwiflow_worker.operations.instances import (
    MAX_RACES,
    instance_after,
    refuse_suspended,
    too_many_races,
)
from kikwiflow_worker.operations.services import Invoker, Services, drive


async def correlate(
    services: Services,
    invoker: Invoker,
    key: str,
    *,
    variables: Mapping[str, object],
    tenant_id: str | None,
    actor: str | None,
) -> ProcessInstance:
    """Give a message to the instance of this tenant that has waited longest for its key, and let it go on.

    The match, its variables and what follows are one transaction.

    Raises:
        NotFoundError: Nobody waits for the key, or its message has come already.
        ConflictError: The instance is suspended.
        VariableError: A variable cannot be stored; nothing was changed.
        StepFailedError: A node after it failed; the key still waits.
    """
    normal = normalize_all(variables)
    for _ in range(MAX_RACES):
        receiver = await services.find_receiver(key, tenant_id=tenant_id)
        if receiver is None:
            raise NotFoundError(
                f"nobody waits for the correlation key {key!r}; it has been matched, or its wait has not begun"
            )
        refuse_suspended(receiver.instance)
        segment = end_wait(
            receiver,
            Delivery(variables=normal, actor=actor),
            services.surroundings(invoker.capabilities),
        )
        result = await drive(services, segment, invoker)
        try:
            committed = await services.runtime.commit(result.unit)
        except ClaimLostError:
            continue
        return await instance_after(services, committed, receiver.instance.id)
    raise too_many_races("correlation")
