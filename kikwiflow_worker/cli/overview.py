"""An instance with what it rests at, as commands show it."""

from dataclasses import dataclass
from datetime import datetime

from kikwiflow_worker.cli.output import (
    exactly,
    first_line,
    plain,
    print_fields,
    print_heading,
    print_json,
    print_table,
    record_of,
    when,
)
from kikwiflow_worker.cli.words import external_type, key_of, label_of, place_of
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    Incident,
    ProcessInstance,
)
from kikwiflow_worker.store.views import ExternalTaskQuery, IncidentQuery, InstanceQuery, TaskQuery

_SHOWN = 100
"""How many tasks, children and incidents of one instance are shown."""


@dataclass(frozen=True, slots=True)
class Overview:
    """An instance and what it rests at, as of one moment.

    Attributes:
        children: Running instances that its call activities started.
    """

    instance: ProcessInstance
    tasks: tuple[ExecutableTask, ...]
    external_tasks: tuple[ExternalTask, ...]
    children: tuple[ProcessInstance, ...]
    incidents: tuple[Incident, ...]
    now: datetime


async def look_at(client: Kikwiflow, instance_id: str) -> Overview:
    """Return an instance and what it rests at.

    Raises:
        NotFoundError: No such instance.
    """
    instance = await client.get_instance(instance_id)
    tasks = await client.list_tasks(TaskQuery(instance_id=instance_id), limit=_SHOWN)
    waits = await client.list_external_tasks(
        ExternalTaskQuery(instance_id=instance_id), limit=_SHOWN
    )
    children = await client.list_instances(InstanceQuery(parent_id=instance_id), limit=_SHOWN)
    found = await client.list_incidents(IncidentQuery(instance_id=instance_id), limit=_SHOWN)
    now = client.services.runtime.now()
    return Overview(instance, tasks.items, waits.items, children.items, found.items, now)


def print_overview(overview: Overview, *, as_json: bool) -> None:
    """Print an instance: its own fields, its variables, where it rests."""
    instance, now = overview.instance, overview.now
    if as_json:
        print_json(
            {
                **record_of(instance),
                "tasks": overview.tasks,
                "external_tasks": overview.external_tasks,
                "children": [
                    record_of(child, without=["variables"]) for child in overview.children
                ],
                "incidents": overview.incidents,
            }
        )
        return
    print_fields(
        {
            "id": instance.id,
            "definition": f"{instance.definition_key} v{instance.definition_version}",
            "business key": instance.business_key,
            "status": instance.status.value,
            "started": exactly(instance.started_at, now),
            "started by": instance.started_by,
            "ended": exactly(instance.ended_at, now),
            "parent": instance.parent.instance_id if instance.parent else None,
            "tenant": instance.tenant_id,
            "business value": instance.business_value,
            "priority": instance.priority,
        }
    )
    if instance.variables:
        print_heading("variables")
        print_fields({name: plain(value) for name, value in sorted(instance.variables.items())})
    _print_whereabouts(overview)


def _print_whereabouts(overview: Overview) -> None:
    now = overview.now
    if overview.tasks:
        print_heading("tasks")
        print_table(
            ("ID", "STATUS", "DUE", "NODE", "HANDLER"),
            [
                (
                    task.id,
                    task.status.value,
                    when(task.due_at, now),
                    place_of(task),
                    task.handler_name,
                )
                for task in overview.tasks
            ],
        )
    if overview.external_tasks:
        print_heading("external tasks")
        print_table(
            ("ID", "TYPE", "NODE", "KEY", "NAME", "ASSIGNEE", "CREATED"),
            [
                (
                    task.id,
                    external_type(task),
                    task.node_id,
                    key_of(task),
                    label_of(task),
                    task.assignee,
                    when(task.created_at, now),
                )
                for task in overview.external_tasks
            ],
        )
    if overview.children:
        print_heading("running children")
        print_table(
            ("ID", "STATUS", "DEFINITION", "BUSINESS KEY", "STARTED"),
            [
                (
                    child.id,
                    child.status.value,
                    f"{child.definition_key} v{child.definition_version}",
                    child.business_key,
                    when(child.started_at, now),
                )
                for child in overview.children
            ],
        )
    if overview.incidents:
        print_heading("open incidents")
        print_table(
            ("ID", "OPENED", "NODE"),
            [
                (incident.id, when(incident.created_at, now), incident.node_id)
                for incident in overview.incidents
            ],
            details=[first_line(incident.message) for incident in overview.incidents],
        )
