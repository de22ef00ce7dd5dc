"""The page of one instance: where it stands and why, and everything that can be done about it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from kikwiflow_worker.management.api.shapes import Cursor, EventOrder
from kikwiflow_worker.management.backend import Caller, Viewer
from kikwiflow_worker.management.privacy import VariablePolicy, policy_of
from kikwiflow_worker.management.web.graph_marks import path_marks
from kikwiflow_worker.management.web.navigation import stream_of
from kikwiflow_worker.management.web.pages import page_router, render
from kikwiflow_worker.management.web.pictures import picture_of
from kikwiflow_worker.management.web.timeline import Entry, entries_of
from kikwiflow_worker.management.web.whereabouts import find_definition
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.runtime import (
    ExecutableTask,
    ExternalTask,
    Incident,
    IncidentStatus,
    InstanceStatus,
    ProcessInstance,
    TaskStatus,
)
from kikwiflow_worker.model.variables import Value
from kikwiflow_worker.operations.instances import get_instance
from kikwiflow_worker.store.search import Path
from kikwiflow_worker.store.views import (
    ExternalTaskQuery,
    IncidentQuery,
    InstanceQuery,
    Page,
    TaskQuery,
)

router = page_router()

ROWS = 50
EVENTS = 50

OVERRIDABLE = frozenset({TaskStatus.PENDING, TaskStatus.ERROR})
"""Tasks whose attempts and due time a person may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVariable:
    """A variable as it may be shown.

    Attributes:
        value: None if it is masked.
    """

    name: str
    value: Value
    is_masked: bool
    is_writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What belongs to an instance, the first rows of each kind."""

    tasks: Page[ExecutableTask]
    waits: Page[ExternalTask]
    incidents: Page[Incident]
    children: Page[ProcessInstance]


@router.get("/instances/{instance_id}")
async def show_instance(
    request: Request,
    caller: Viewer,
    instance_id: str,
    events: Cursor = None,
    order: EventOrder = EventOrder.NEWEST,
) -> HTMLResponse:
    """Show an instance, running or ended, with its newest events first unless they are asked for in their order."""
    services = caller.services
    instance = await get_instance(services, instance_id)
    definition = await find_definition(caller, instance.definition_id)
    policy = await policy_of(caller, instance)
    path = await services.searches.find_path(instance_id)
    rows = await _rows(caller, instance)
    timeline, next_events = await _timeline(caller, instance, policy, events, order)
    return render(
        request,
        "instance.html",
        caller=caller,
        instance=instance,
        definition=definition,
        stream=stream_of(request, "process-instances", instance.id, events="false"),
        graph=await _graph(caller, instance, definition, path),
        is_path_complete=path.is_complete,
        variables=shown_variables(instance, policy),
        policy=policy,
        tasks=rows.tasks,
        waits=rows.waits,
        open_incidents=_open(rows.incidents.items),
        past_incidents=[
            each for each in rows.incidents.items if each not in _open(rows.incidents.items)
        ],
        children=rows.children,
        names=_node_names(definition),
        timeline=timeline,
        next_events=next_events,
        newest_first=order is EventOrder.NEWEST,
        is_running=instance.ended_at is None,
        can_suspend=instance.status is InstanceStatus.ACTIVE,
        can_resume=instance.status is InstanceStatus.SUSPENDED,
        overridable=OVERRIDABLE,
    )


def shown_variables(instance: ProcessInstance, policy: VariablePolicy) -> tuple[ShownVariable, ...]:
    """Return the variables of an instance, by name, as far as ``policy`` lets them be seen."""
    visible = policy.visible(instance.variables)
    return tuple(
        ShownVariable(
            name=name,
            value=visible.get(name),
            is_masked=name not in visible,
            is_writable=policy.may_write(name),
        )
        for name in sorted(instance.variables)
    )


async def _rows(caller: Caller, instance: ProcessInstance) -> Rows:
    reads, key = caller.services.reads, instance.id
    return Rows(
        tasks=await reads.list_tasks(TaskQuery(instance_id=key), limit=ROWS),
        waits=await reads.list_external_tasks(ExternalTaskQuery(instance_id=key), limit=ROWS),
        incidents=await reads.list_incidents(
            IncidentQuery(instance_id=key, status=None), limit=ROWS
        ),
        children=await reads.list_instances(InstanceQuery(parent_id=key), limit=ROWS),
    )


async def _timeline(
    caller: Caller,
    instance: ProcessInstance,
    policy: VariablePolicy,
    cursor: str | None,
    order: EventOrder,
) -> tuple[tuple[Entry, ...], str | None]:
    newest_first = order is EventOrder.NEWEST
    page = await caller.services.searches.list_events(
        instance.id, newest_first=newest_first, limit=EVENTS, cursor=cursor
    )
    events = [item.event for item in page.items]
    return entries_of(events, policy, newest_first=newest_first), page.next_cursor


async def _graph(
    caller: Caller, instance: ProcessInstance, definition: ProcessDefinition | None, path: Path
) -> Markup | None:
    if definition is None:
        return None
    standing = await caller.services.searches.find_standing(instance.id)
    return await picture_of(
        definition,
        lambda drawing: path_marks(definition, drawing, path, standing),
        title=f"Where instance {instance.id} stands",
    )


def _open(incidents: Sequence[Incident]) -> list[Incident]:
    return [each for each in incidents if each.status is IncidentStatus.OPEN]


def _node_names(definition: ProcessDefinition | None) -> dict[str, str]:
    nodes = definition.flow_nodes.values() if definition else ()
    return {node.id: node.name for node in nodes if node.name}
