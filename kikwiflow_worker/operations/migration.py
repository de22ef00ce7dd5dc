"""Letting running instances go on with another version of their definition."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from kikwiflow_worker.engine.boundary_rules import boundary_event_ids
from kikwiflow_worker.errors import ConflictError, DefinitionError
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.runtime import ExecutableTask, ExternalTask, ProcessInstance
from kikwiflow_worker.operations.instances import MAX_RACES, get_definition, get_instance
from kikwiflow_worker.operations.paging import every
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.views import ExternalTaskQuery, InstanceQuery, TaskQuery


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
    after = await get_definition(services, instance.definition_key, version)
    if after.id == instance.definition_id:
        raise DefinitionError(
            f"instance {instance_id} runs with version {after.version} of {after.key!r} already"
        )
    return await _move(services, instance, after, dry_run=dry_run)


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
            yield await _move(services, instance, after, dry_run=dry_run)
        except ConflictError as error:
            now = await services.runtime.find_instance(instance.id)
            if now is not None and now.definition_id != after.id:
                yield MigrationVerdict(
                    instance.id, now.definition_version, after.version, (str(error),)
                )


async def _move(
    services: Services, instance: ProcessInstance, after: ProcessDefinition, *, dry_run: bool
) -> MigrationVerdict:
    """Move an instance as it was loaded, unless nodes where it rests keep it from it.

    Raises:
        ConflictError: It has ended, or it was changed meanwhile.
    """
    before = await services.get_definition(instance.definition_id)
    for _ in range(MAX_RACES):
        rows = await _rows(services, instance)
        found = (problem for row in rows for problem in _node_problems(row, before, after))
        problems = tuple(dict.fromkeys(found))
        verdict = MigrationVerdict(instance.id, before.version, after.version, problems)
        if dry_run or problems:
            return verdict
        nodes = frozenset(row.node_id for row in rows)
        if await services.runtime.migrate_instance(
            instance.id, before_id=before.id, after=after, nodes=nodes
        ):
            return replace(verdict, migrated=True)
        now = await services.runtime.find_instance(instance.id)
        if now is None or now.definition_id != before.id:
            break
    raise ConflictError(f"instance {instance.id} was changed meanwhile; look at it and repeat")


async def _rows(
    services: Services, instance: ProcessInstance
) -> list[ExecutableTask | ExternalTask]:
    tasks, waits = TaskQuery(instance_id=instance.id), ExternalTaskQuery(instance_id=instance.id)
    return [
        *[task async for task in every(services.reads.list_tasks, tasks)],
        *[wait async for wait in every(services.reads.list_external_tasks, waits)],
    ]


def _node_problems(
    row: ExecutableTask | ExternalTask, before: ProcessDefinition, after: ProcessDefinition
) -> list[str]:
    if not row.node_id:
        return ["it is being cancelled"]
    # A row that others have moved meanwhile may be at a node of a third version.
    old, new = before.flow_nodes.get(row.node_id), after.flow_nodes.get(row.node_id)
    if new is None:
        return [f"it rests at {row.node_id}, which version {after.version} does not have"]
    if old is not None and new.type != old.type:
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
