"""Starting, changing and cancelling instances."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

from kikwiflow_worker.engine.segments import SegmentResult, start_instance
from kikwiflow_worker.engine.visits import derived_id
from kikwiflow_worker.errors import (
    ClaimLostError,
    ConflictError,
    DefinitionNotFoundError,
    DuplicateStartError,
    NotFoundError,
    OperationError,
)
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.runtime import InstanceStatus, ProcessInstance
from kikwiflow_worker.model.texts import check_texts, tenant_scoped
from kikwiflow_worker.model.unit_of_work import (
    Committed,
    RecordEnded,
    ReserveStartKey,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import (
    normalize_all,
)
from kikwiflow_worker.operations.paging import every
from kikwiflow_worker.operations.services import Invoker, Services, drive
from kikwiflow_worker.operations.spans import starting
from kikwiflow_worker.store.views import ExternalTaskQuery, InstanceQuery, TaskQuery

MAX_VERSION = 2**31 - 1
"""No definition gets there; a larger number would not fit into the database's."""

MAX_RACES = 20
"""How often an operation that lost a race decides anew before it gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What an instance is started with.

    Attributes:
        key: The definition's key; its latest version is started unless ``version`` is given.
        business_key: What the instance is about, in your own words; not unique.
        idempotency_key: A second start with the same one, in the same tenant, returns the first instance.
        priority: 0 (last) to 9 (first).
    """

    key: str
    business_key: str
    version: int | None = None
    variables: Mapping[str, object] = field(default_factory=dict)
    business_value: Decimal | None = None
    tenant_id: str | None = None
    origin: str | None = None
    started_by: str | None = None
    idempotency_key: str | None = None
    priority: int = 5


def _nothing(_: ProcessDefinition) -> None:
    pass


async def start(
    services: Services,
    invoker: Invoker,
    request: StartRequest,
    *,
    check: Callable[[ProcessDefinition], None] = _nothing,
) -> ProcessInstance:
    """Start an instance and run it until it rests or ends; return it as it is then.

    Args:
        check: Raises what refuses to start the version that was found; not asked when an earlier start is returned.

    Raises:
        DefinitionNotFoundError: No definition has this key, or this version.
        OperationError: The request is incomplete.
        ConflictError: The definition is suspended.
        VariableError: A variable cannot be stored.
        StepFailedError: A node failed. Nothing was stored, the start can be repeated.
    """
    _check(request)
    variables = normalize_all(request.variables)
    if request.idempotency_key is not None:
        earlier = await _find_earlier(services, request)
        if earlier is not None:
            return earlier
    found = await services.definitions.find_to_start(request.key, version=request.version)
    if found is None:
        raise _not_deployed(request.key, request.version)
    if found.is_suspended:
        raise ConflictError(f"definition {request.key!r} is suspended; resume it first")
    definition = found.definition
    check(definition)
    instance = ProcessInstance(
        id=_new_instance_id(services, request),
        business_key=request.business_key,
        definition_id=definition.id,
        definition_key=definition.key,
        definition_version=definition.version,
        started_at=services.runtime.now(),
        variables=variables,
        business_value=request.business_value,
        tenant_id=request.tenant_id,
        origin=request.origin,
        started_by=request.started_by,
        priority=request.priority,
    )
    with starting(services, request.key):
        return await _start(services, invoker, definition, instance, request)


async def _start(
    services: Services,
    invoker: Invoker,
    definition: ProcessDefinition,
    instance: ProcessInstance,
    request: StartRequest,
) -> ProcessInstance:
    surroundings = services.surroundings(invoker.capabilities)
    for _ in range(MAX_RACES):
        segment = start_instance(definition, instance, surroundings)
        result = await drive(services, segment, invoker)
        try:
            await services.commit(_with_start_key(result.unit, request, instance))
            return _after(result, instance)
        except ClaimLostError:
            continue  # somebody else has given a message to the one that this start threw its own at
        except DuplicateStartError:
            earlier = await _find_earlier(services, request)
            if earlier is None:
                raise
            return earlier
    raise too_many_races(f"start of {request.key!r}")


async def cancel(services: Services, instance_id: str, *, cancelled_by: str | None) -> None:
    """Cancel a running instance with all its tasks.

    Raises:
        NotFoundError: No such instance.
        ConflictError: It has ended already.
    """
    check_texts(instance_id=instance_id, canceller=cancelled_by)
    if not await services.runtime.cancel_instance(instance_id, cancelled_by=cancelled_by):
        ended = await services.runtime.find_ended_instance(instance_id)
        if ended is None:
            raise not_running(instance_id)
        raise ConflictError(f"instance {instance_id} has ended already, it is {ended.status}")


async def delete(services: Services, instance_id: str, *, deleted_by: str | None) -> None:
    """Remove an instance and its record; a running one is cancelled first, which its call activity is told.

    Raises:
        NotFoundError: No such instance.
    """
    check_texts(instance_id=instance_id, canceller=deleted_by)
    cancelled = await services.runtime.cancel_instance(instance_id, cancelled_by=deleted_by)
    if not await services.runtime.forget_instance(instance_id) and not cancelled:
        raise NotFoundError(f"no instance has the id {instance_id}")


async def change_definition(services: Services, key: str, *, suspended: bool) -> int:
    """Suspend or resume a definition with all its running instances; return how many instances changed.

    No instance is started while it is suspended. Repeating the call finishes one that was interrupted.

    Raises:
        DefinitionNotFoundError: There is none.
    """
    check_texts(definition_key=key)
    if await services.definitions.suspend(key, suspended=suspended) == 0:
        await get_definition(services, key, None)
    change = services.runtime.suspend_instance if suspended else services.runtime.resume_instance
    status = InstanceStatus.ACTIVE if suspended else InstanceStatus.SUSPENDED
    query, changed = InstanceQuery(definition_key=key, status=status.value), 0
    async for instance in every(services.reads.list_instances, query):
        changed += await change(instance.id)
    return changed


async def get_instance(services: Services, instance_id: str) -> ProcessInstance:
    """Return a running or ended instance.

    Raises:
        NotFoundError: No such instance, or its history has expired.
    """
    check_texts(instance_id=instance_id)
    running = await services.runtime.find_instance(instance_id)
    if running is not None:
        return running
    ended = await services.runtime.find_ended_instance(instance_id)
    if ended is None:
        raise NotFoundError(
            f"no instance has the id {instance_id}, or it ended so long ago that its record is gone"
        )
    return ended


async def instance_after(
    services: Services, committed: Committed, instance_id: str
) -> ProcessInstance:
    """Return an instance as a commit left it: as it ended, or as it is stored now.

    Raises:
        NotFoundError: It has been deleted meanwhile.
    """
    for ended in committed.ended:
        if ended.id == instance_id:
            return ended
    return await get_instance(services, instance_id)


async def whereabouts(services: Services, instance: ProcessInstance) -> str:
    """Return words for where a running instance is: the first tasks at which it rests."""
    tasks = await services.reads.list_tasks(TaskQuery(instance_id=instance.id), limit=5)
    query = ExternalTaskQuery(instance_id=instance.id)
    waits = await services.reads.list_external_tasks(query, limit=5)
    rests = [f"{task.node_id} ({task.status})" for task in tasks.items]
    rests += [f"{task.node_id} (external task {task.id})" for task in waits.items]
    return ", ".join(rests) or "between two tasks"


def refuse_suspended(instance: ProcessInstance) -> None:
    """Refuse to go on with an instance that is suspended.

    Raises:
        ConflictError: It is suspended.
    """
    if instance.status is InstanceStatus.SUSPENDED:
        raise ConflictError(f"instance {instance.id} is suspended; resume it first")


async def suspend(services: Services, instance_id: str) -> None:
    """Let a running instance rest where it is: steps under way are finished, none begins.

    Raises:
        NotFoundError: It is not running.
        ConflictError: It is suspended already.
    """
    check_texts(instance_id=instance_id)
    if not await services.runtime.suspend_instance(instance_id):
        refuse_suspended(await get_running(services, instance_id))
        raise ConflictError(f"instance {instance_id} is being cancelled")


async def resume(services: Services, instance_id: str) -> None:
    """Let a suspended instance go on.

    Raises:
        NotFoundError: It is not running.
        ConflictError: It is not suspended.
    """
    check_texts(instance_id=instance_id)
    if not await services.runtime.resume_instance(instance_id):
        instance = await get_running(services, instance_id)
        raise ConflictError(f"instance {instance_id} is not suspended, it is {instance.status}")


async def get_running(services: Services, instance_id: str) -> ProcessInstance:
    """Return a running instance.

    Raises:
        NotFoundError: It is not running.
    """
    check_texts(instance_id=instance_id)
    instance = await services.runtime.find_instance(instance_id)
    if instance is None:
        raise not_running(instance_id)
    return instance


async def get_definition(services: Services, key: str, version: int | None) -> ProcessDefinition:
    """Return the latest version of a definition, or the one given.

    Raises:
        DefinitionNotFoundError: There is none.
    """
    check_texts(definition_key=key)
    is_possible = version is None or 0 < version <= MAX_VERSION
    definition = (
        await services.definitions.find_by_key(key, version=version) if is_possible else None
    )
    if definition is None:
        raise _not_deployed(key, version)
    return definition


def _not_deployed(key: str, version: int | None) -> DefinitionNotFoundError:
    wanted = f"key {key!r}" if version is None else f"key {key!r} and version {version}"
    return DefinitionNotFoundError(
        f"no definition has the {wanted}; deploy it, or list what is deployed"
    )


def _new_instance_id(services: Services, request: StartRequest) -> str:
    """Return a new id, or with a start key the one that a repeated start has too: so have its handlers' keys."""
    if request.idempotency_key is None:
        return services.new_id()
    scoped = tenant_scoped(request.key, request.tenant_id)
    return derived_id(f"start of {scoped}", request.idempotency_key)


async def _find_earlier(services: Services, request: StartRequest) -> ProcessInstance | None:
    key = request.idempotency_key or ""
    instance_id = await services.runtime.find_started(key, tenant_id=request.tenant_id)
    return await get_instance(services, instance_id) if instance_id else None


def _with_start_key(
    unit: UnitOfWork, request: StartRequest, instance: ProcessInstance
) -> UnitOfWork:
    if request.idempotency_key is None:
        return unit
    reserve = ReserveStartKey(
        request.idempotency_key, instance.id, request.tenant_id, instance.started_at
    )
    return UnitOfWork(unit.guards, (reserve, *unit.changes))


def _after(result: SegmentResult, instance: ProcessInstance) -> ProcessInstance:
    for change in result.unit.changes:
        if isinstance(change, RecordEnded):
            return change.instance
    return replace(instance, variables=result.variables, status=InstanceStatus.ACTIVE)


def _check(request: StartRequest) -> None:
    check_texts(
        definition_key=request.key,
        business_key=request.business_key,
        tenant=request.tenant_id,
        origin=request.origin,
        starter=request.started_by,
        idempotency_key=request.idempotency_key,
    )
    if not request.key.strip():
        raise OperationError("a start needs the key of a definition")
    if not request.business_key.strip():
        raise OperationError(
            f"a start of {request.key!r} needs a business key: what the instance is about"
        )
    if not 0 <= request.priority <= 9:
        raise OperationError(f"priority {request.priority} is not between 0 (last) and 9 (first)")


def too_many_races(doing: str) -> ConflictError:
    """Return the error for an operation that lost every race with others."""
    return ConflictError(f"{doing}: others were faster {MAX_RACES} times; repeat it")


def not_running(instance_id: str) -> NotFoundError:
    """Return the error for an instance that is not running."""
    return NotFoundError(
        f"no running instance has the id {instance_id}; it has ended, or the id is wrong"
    )
