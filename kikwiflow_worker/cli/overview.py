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
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    Incident,
    ProcessInstance,
)
from kikwiflow_worker.store.protocol import (
    ExternalTaskQuery,
    IncidentQuery,
    TaskQuery,
)

_SHOWN = 100
"""How many tasks and incidents of one instance are shown."""


@dataclass(frozen=True, slots=True)
class Overview:
    """An instance and what it rests at, as of one moment."""

    instance: ProcessInstance
    tasks: tuple[ExecutableTask, ...]
    external_tasks: tuple[ExternalTask, ...]
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
    found = await client.list_incidents(IncidentQuery(instance_id=instance_id), limit=_SHOWN)
    now = client.services.runtime.now()
    return Overview(instance, tasks.items, waits.items, found.items, now)


def print_overview(overview: Overview, *, as_json: bool) -> None:
    """Print an instance: its own fields, its variables, where it rests."""
    instance, now = overview.instance, overview.now
    if as_json:
        print_json(
            {
                **record_of(instance),
                "tasks": overview.tasks,
                "external_tasks": overview.external_tasks,
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
                    task.node_id,
                    task.handler_name,
                )
                for task in overview.tasks
            ],
        )
    if overview.external_tasks:
        print_heading("external tasks")
        print_table(
            ("ID", "NODE", "ASSIGNEE", "CREATED"),
            [
                (task.id, task.node_id, task.assignee, when(task.created_at, now))
                for task in overview.external_tasks
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
