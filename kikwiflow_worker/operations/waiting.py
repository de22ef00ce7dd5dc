"""Waiting for the end of an instance, by looking again and again."""

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.model.runtime import ProcessInstance
from kikwiflow_worker.operations.instances import get_instance, whereabouts
from kikwiflow_worker.operations.services import Services

_FIRST_LOOK_S = 0.02
_LONGEST_PAUSE_S = 0.5


async def wait_for_end(
    services: Services, clock: Clock, instance_id: str, *, timeout_s: float
) -> ProcessInstance:
    """Wait until an instance has ended; return it with its last variables.

    Raises:
        OperationError: It has not ended within ``timeout_s`` seconds; the message says where it rests.
        NotFoundError: There is none.
    """
    deadline = clock.monotonic() + timeout_s
    pause = _FIRST_LOOK_S
    while True:
        instance = await get_instance(services, instance_id)
        if instance.ended_at is not None:
            return instance
        if not clock.monotonic() < deadline:  # nor ever, if it is no number
            where = await whereabouts(services, instance)
            raise OperationError(
                f"instance {instance.id} has not ended within {timeout_s} s; it is at {where}"
            )
        await clock.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)
