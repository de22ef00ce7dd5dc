"""Letting running instances go on with another version of their definition."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from kikwiflow_worker.engine.boundary_rules import boundary_event_ids
from kikwiflow_worker.errors import ConflictError, DefinitionError, NotFoundError
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.runtime import ExecutableTask, ExternalTask, ProcessInstance
from kikwiflow_worker.operations.instances import get_definition, get_instance
from kikwiflow_worker.operations.paging import every
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.protocol import ExternalTaskQuery, InstanceQuery, TaskQuery


@dataclass(frozen=True, slots=True)
class MigrationVerdict:
    """Whether an instance can go on with another version, and why not.

    Attributes:
        problems: What keeps it from it; empty if nothing does.
        migrated: Whether it has been moved; False in a dry run.
    """

    instance_id: str
    from_version: int
    to_version: int
    problems: tuple[str, ...]
    migrated: bool = False


async def migrate(
    services: Services, instance_id: str, *, version: int | None, dry_run: bool
) -> MigrationVerdict:
    """Move a running instance to another version of its key, the latest by default, or only say whether it can be.

    It can if every node where it rests is there with the same type and lists the boundary events that wait. Events that
    the other version adds to a host which waits already are not set up for it. A step that runs meanwhile is repeated.

    Raises:
        NotFoundError: No such instance.
        DefinitionNotFoundError: No such version.
        ConflictError: It has ended, or it was changed meanwhile.
        DefinitionError: It runs with that version already.
    """
    instance = await get_instance(services, instance_id)
    if instance.ended_at is not None:
        raise ConflictError(f"instance {instance_id} has ended already, it is {instance.status}")
    before = await services.get_definition(instance.definition_id)
    after = await get_definition(services, instance.definition_key, version)
    if after.id == before.id:
        raise DefinitionError(
            f"instance {instance_id} runs with version {after.version} of {after.key!r} already"
        )
    problems = await _problems(services, instance, before, after)
    verdict = MigrationVerdict(instance_id, before.version, after.version, problems)
    if dry_run or problems:
        return verdict
    if not await services.runtime.migrate_instance(instance_id, before_id=before.id, after=after):
        raise ConflictError(f"instance {instance_id} was changed meanwhile; look at it and repeat")
    return replace(verdict, migrated=True)


async def migrate_all(
    services: Services, key: str, *, version: int | None, dry_run: bool
) -> AsyncIterator[MigrationVerdict]:
    """Move all running instances of ``key`` to one version, the latest by default; yield a verdict for each.

    Each is moved by a transaction of its own, newest first. Those that run with that version already, or end meanwhile, are
    passed over. Repeating the call goes on with the rest.

    Raises:
        DefinitionNotFoundError: No such definition or version.
    """
    after = await get_definition(services, key, version)
    async for instance in every(services.reads.list_instances, InstanceQuery(definition_key=key)):
        if instance.definition_id == after.id:
            continue
        try:
            yield await migrate(services, instance.id, version=after.version, dry_run=dry_run)
        except (NotFoundError, ConflictError, DefinitionError) as error:
            now = await services.runtime.find_instance(instance.id)
            if now is not None and now.definition_id != after.id:
                yield MigrationVerdict(
                    instance.id, now.definition_version, after.version, (str(error),)
                )


async def _problems(
    services: Services,
    instance: ProcessInstance,
    before: ProcessDefinition,
    after: ProcessDefinition,
) -> tuple[str, ...]:
    found: list[str] = []
    tasks, waits = TaskQuery(instance_id=instance.id), ExternalTaskQuery(instance_id=instance.id)
    async for task in every(services.reads.list_tasks, tasks):
        found += _node_problems(task, before, after)
    async for wait in every(services.reads.list_external_tasks, waits):
        found += _node_problems(wait, before, after)
    return tuple(dict.fromkeys(found))


def _node_problems(
    row: ExecutableTask | ExternalTask, before: ProcessDefinition, after: ProcessDefinition
) -> list[str]:
    if not row.node_id:
        return ["it is being cancelled"]
    old, new = before.node(row.node_id), after.flow_nodes.get(row.node_id)
    if new is None:
        return [f"it rests at {row.node_id}, which version {after.version} does not have"]
    if new.type != old.type:
        return [f"node {row.node_id} is {new.type} in version {after.version}, and was {old.type}"]
    if row.attached_to is None:
        return []
    host = after.flow_nodes.get(row.attached_to.host_node_id)
    if host is None or row.node_id not in boundary_event_ids(host):
        host_id = row.attached_to.host_node_id
        return [
            f"event {row.node_id} waits at {host_id}, which does not list it in version {after.version}"
        ]
    return []
