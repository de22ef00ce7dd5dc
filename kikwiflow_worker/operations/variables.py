"""Changing variables of running instances from outside."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from kikwiflow_worker.errors import ClaimLostError
from kikwiflow_worker.model.events import EventType, OutboxEvent, is_recorded
from kikwiflow_worker.model.runtime import ProcessInstance
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.model.unit_of_work import Change, ChangeVariables, RecordEvent, UnitOfWork
from kikwiflow_worker.model.variables import (
    SetVariable,
    UnsetVariable,
    Value,
    apply_change,
    check_name,
    check_total,
    normalize,
)
from kikwiflow_worker.operations.instances import get_running, not_running
from kikwiflow_worker.operations.services import Services

OutsideChange = SetVariable | UnsetVariable


async def set_variables(
    services: Services, instance_id: str, values: Mapping[str, object], *, actor: str | None
) -> ProcessInstance:
    """Set variables of a running instance, each on its own; return the instance afterwards.

    Raises:
        NotFoundError: The instance is not running.
        VariableError: A value cannot be stored; nothing was changed.
    """
    changes = tuple(SetVariable(name, normalize(name, value)) for name, value in values.items())
    return await _change(services, instance_id, changes, actor)


async def unset_variables(
    services: Services, instance_id: str, names: tuple[str, ...], *, actor: str | None
) -> ProcessInstance:
    """Remove variables of a running instance; names that do not exist are no error.

    Raises:
        NotFoundError: The instance is not running.
    """
    for name in names:
        check_name(name)
    return await _change(services, instance_id, tuple(map(UnsetVariable, names)), actor)


async def _change(
    services: Services, instance_id: str, changes: tuple[OutsideChange, ...], actor: str | None
) -> ProcessInstance:
    check_texts(actor=actor)
    instance = await get_running(services, instance_id)
    variables = dict(instance.variables)
    for change in changes:
        apply_change(variables, change)
    check_total(variables, before=instance.variables)
    if not changes:
        return instance
    written: list[Change] = [ChangeVariables(instance_id, changes)]
    if is_recorded(EventType.PROCESS_VARIABLE_CHANGED, services.event_level):
        now = services.runtime.now()
        written += [
            RecordEvent(_changed(services.new_id(), instance, change, actor, now))
            for change in changes
        ]
    try:
        await services.commit(UnitOfWork((), tuple(written)))
    except ClaimLostError:
        raise not_running(instance_id) from None
    return replace(instance, variables=variables)


def _changed(
    event_id: str,
    instance: ProcessInstance,
    change: OutsideChange,
    actor: str | None,
    now: datetime,
) -> OutboxEvent:
    value: Value = change.value if isinstance(change, SetVariable) else None
    return OutboxEvent(
        id=event_id,
        type=EventType.PROCESS_VARIABLE_CHANGED,
        timestamp=now,
        instance_id=instance.id,
        definition_id=instance.definition_id,
        inherited_rules=instance.inherited_rules,
        payload={
            "processInstanceId": instance.id,
            "processDefinitionId": instance.definition_id,
            "tenantId": instance.tenant_id,
            "name": change.name,
            "isTransient": False,
            "value": value,
            "actorId": actor,
            "changedAt": now,
            "removed": isinstance(change, UnsetVariable),
        },
    )
